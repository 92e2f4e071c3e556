//! Sandbox providers by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::{LocalSandboxProvider, SandboxError, SandboxProvider};

/// Makes a provider.
type SandboxFactory = Arc<dyn Fn() -> Arc<dyn SandboxProvider> + Send + Sync>;

/// The known sandbox providers. A new registry has `local`.
#[derive(Clone)]
pub struct SandboxProviderRegistry {
    factories: BTreeMap<String, SandboxFactory>,
}

impl Default for SandboxProviderRegistry {
    fn default() -> Self {
        let mut registry = Self { factories: BTreeMap::new() };
        registry.register(LocalSandboxProvider::NAME, || Arc::new(LocalSandboxProvider::default()));
        registry
    }
}

impl SandboxProviderRegistry {
    /// Adds a provider, or replaces the one of this name.
    pub fn register(
        &mut self,
        name: impl Into<String>,
        factory: impl Fn() -> Arc<dyn SandboxProvider> + Send + Sync + 'static,
    ) {
        self.factories.insert(name.into(), Arc::new(factory));
    }

    /// A provider by name.
    pub fn get(&self, name: &str) -> Result<Arc<dyn SandboxProvider>, SandboxError> {
        let factory = self.factories.get(name).ok_or_else(|| SandboxError::UnknownProvider {
            name: name.into(),
            known: self.list(),
        })?;
        Ok(factory())
    }

    /// The registered names.
    pub fn list(&self) -> Vec<String> {
        self.factories.keys().cloned().collect()
    }
}

impl fmt::Debug for SandboxProviderRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SandboxProviderRegistry").field(&self.list()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::SandboxProviderRegistry;
    use crate::LocalSandboxProvider;

    #[test]
    fn unknown_provider_error_lists_the_known_ones() {
        let mut registry = SandboxProviderRegistry::default();
        registry.register("daytona", || Arc::new(LocalSandboxProvider::default()));
        assert_eq!(registry.list(), ["daytona", "local"]);
        assert_eq!(registry.get("local").unwrap().provider_type(), "local");
        let error = registry.get("docker").err().unwrap();
        assert_eq!(
            error.to_string(),
            "Unknown sandbox provider: \"docker\". Available: [daytona, local]"
        );
        assert_eq!(error.code(), "unknown-provider");
    }
}
