//! Protections of a sandbox, in plain words.

use serde::{Deserialize, Serialize};

/// One thing that a sandbox enforces or provides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Enforcement {
    /// The kind, as a stable word.
    pub what: String,
    /// One line for the user.
    pub text: String,
}

impl Enforcement {
    /// An enforcement of the kind `what`.
    pub fn new(what: impl Into<String>, text: impl Into<String>) -> Self {
        Self { what: what.into(), text: text.into() }
    }
}
