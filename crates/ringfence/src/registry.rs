//! Sandbox providers by name.

use std::sync::Arc;

use ringfence_engine::ProviderRegistry;
use ringfence_linux::{LocalProvider, ProcessProvider};
use ringfence_policy::{ProviderOptions, ProviderSpec};
use ringfence_provider::{Provider, ProviderError};

use crate::backend_adapter::BackendProvider;
use crate::{SandboxError, SandboxProvider, SessionProvider};

/// The known sandbox providers. A new registry has `local`, and `process`, which confines nothing
/// and runs the commands of policies without a sandbox. Give a provider of your own another name.
///
/// A factory is called for each sandbox, before anything of it is created. It gets the provider's
/// options, and refuses unknown ones with [`ProviderError::unknown_option`].
#[derive(Debug, Clone)]
pub struct SandboxProviderRegistry(pub(crate) ProviderRegistry);

impl Default for SandboxProviderRegistry {
    fn default() -> Self {
        let mut registry = ProviderRegistry::default();
        registry.register(ProviderSpec::LOCAL, |options| {
            LocalProvider::default().with_options(options)
        });
        registry.register_plain(ProviderSpec::PROCESS, || ProcessProvider);
        Self(registry)
    }
}

impl SandboxProviderRegistry {
    /// Adds a provider that offers commands only, or replaces the one of this name.
    pub fn register(
        &mut self,
        name: &str,
        factory: impl Fn(&ProviderOptions) -> Result<Arc<dyn SandboxProvider>, ProviderError>
        + Send
        + Sync
        + 'static,
    ) {
        self.0.register(name, move |options| factory(options).map(BackendProvider));
    }

    /// Adds a provider of the engine's own protocol, or replaces the one of this name.
    pub fn register_provider<P: Provider + 'static>(
        &mut self,
        name: &str,
        factory: impl Fn(&ProviderOptions) -> Result<P, ProviderError> + Send + Sync + 'static,
    ) {
        self.0.register(name, factory);
    }

    /// A provider by name, with the whole pipeline before it.
    pub fn get(&self, name: &str) -> Result<SessionProvider, SandboxError> {
        let known = self.list();
        if !known.iter().any(|known| known == name) {
            return Err(SandboxError::UnknownProvider { name: name.to_owned(), known });
        }
        Ok(SessionProvider::new(name, self.0.clone()))
    }

    /// The registered names.
    pub fn list(&self) -> Vec<String> {
        self.0.names()
    }
}

#[cfg(test)]
mod tests {
    use super::SandboxProviderRegistry;

    #[test]
    fn unknown_provider_error_lists_the_known_ones() {
        let mut registry = SandboxProviderRegistry::default();
        registry.register_provider("daytona", |_| Ok(ringfence_linux::ProcessProvider));
        assert_eq!(registry.get("daytona").unwrap().provider_type(), "daytona");
        let error = registry.get("docker").err().unwrap();
        assert_eq!(
            error.to_string(),
            "Unknown sandbox provider: \"docker\". Available: [daytona, local, process]"
        );
        assert_eq!(error.code(), "unknown-provider");
    }
}
