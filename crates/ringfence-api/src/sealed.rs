//! A secret text.

use std::fmt;

/// A secret value of the process that serves a sandbox. `Debug` does not show it, and it is not
/// serializable, so it cannot get into a record, a plan or an answer by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// Wraps a secret.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// Returns the secret, for its one legitimate use.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Sealed(..)")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn debug_output_does_not_show_the_secret() {
        let sealed = super::SecretValue::new("s3cret".into());
        assert_eq!((format!("{sealed:?}").as_str(), sealed.reveal()), ("Sealed(..)", "s3cret"));
    }
}
