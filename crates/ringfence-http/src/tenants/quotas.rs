//! How much a tenant may use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much a tenant may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Quotas {
    /// Commands that run at the same time; others wait.
    #[schema(minimum = 1)]
    pub executions: u32,
    /// Sandboxes that stand at the same time.
    pub sandboxes: u32,
    /// Bytes that all skills together may have.
    pub storage_bytes: u64,
    /// Requests in a second, of each token.
    #[schema(minimum = 1)]
    pub requests_per_second: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { executions: 64, sandboxes: 16, storage_bytes: 1 << 30, requests_per_second: 500 }
    }
}
