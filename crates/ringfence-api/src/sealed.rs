//! A text that nobody is to see.

use std::fmt;

/// A value that stays with whoever serves a sandbox: it is shown nowhere, and there is no way to
/// write it into a record, a plan or an answer by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// Seals it.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value itself, for the one place that it is meant for.
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
    fn it_is_not_shown() {
        let sealed = super::SecretValue::new("s3cret".into());
        assert_eq!((format!("{sealed:?}").as_str(), sealed.reveal()), ("Sealed(..)", "s3cret"));
    }
}
