//! Names the failed step of a system error.

use std::io;

use ringfence_provider::ProviderError;

/// Names the attempted step of an error.
pub(crate) trait SystemStep<T> {
    fn during(self, what: &'static str) -> Result<T, ProviderError>;
}

impl<T, E: Into<io::Error>> SystemStep<T> for Result<T, E> {
    fn during(self, what: &'static str) -> Result<T, ProviderError> {
        self.map_err(|error| ProviderError::System { what, source: error.into() })
    }
}
