//! How much a tenant may use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::serde_int::integer;

/// How much a tenant may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Quotas {
    /// Commands that run at the same time; others wait. None are run where it is 0.
    #[schema(maximum = 1000000)]
    #[serde(deserialize_with = "integer")]
    pub executions: u32,
    /// Sandboxes that stand at the same time.
    #[schema(maximum = 1000000)]
    #[serde(deserialize_with = "integer")]
    pub sandboxes: u32,
    /// Bytes that all skills together may have.
    #[serde(deserialize_with = "integer")]
    pub storage_bytes: u64,
    /// Requests in a second, of all tokens of the tenant together.
    #[schema(minimum = 1, maximum = 1000000)]
    #[serde(deserialize_with = "integer")]
    pub requests_per_second: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { executions: 64, sandboxes: 16, storage_bytes: 1 << 30, requests_per_second: 500 }
    }
}

impl Quotas {
    /// Whether they can be held.
    pub(crate) fn is_meant(&self) -> bool {
        const MOST: u32 = 1_000_000;
        self.executions <= MOST
            && self.sandboxes <= MOST
            && (1..=MOST).contains(&self.requests_per_second)
    }
}
