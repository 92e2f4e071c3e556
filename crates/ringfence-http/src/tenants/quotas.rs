//! The quotas of a tenant.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::serde_int::integer;

/// The quotas of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Quotas {
    /// Commands that run at once; others wait. With 0 no command runs.
    #[schema(maximum = 1000000)]
    #[serde(deserialize_with = "integer")]
    pub executions: u32,
    /// Live sandboxes at once.
    #[schema(maximum = 1000000)]
    #[serde(deserialize_with = "integer")]
    pub sandboxes: u32,
    /// Bytes of all skills together.
    #[serde(deserialize_with = "integer")]
    pub storage_bytes: u64,
    /// Requests per second, of all tokens of the tenant together.
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
    /// True if the values are within their ranges.
    pub(crate) fn is_valid(&self) -> bool {
        const MOST: u32 = 1_000_000;
        self.executions <= MOST
            && self.sandboxes <= MOST
            && (1..=MOST).contains(&self.requests_per_second)
    }
}
