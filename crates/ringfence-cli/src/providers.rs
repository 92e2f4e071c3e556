//! The sandbox providers of the CLI.

use std::sync::{Arc, Mutex};

use ringfence_api::lock;
use ringfence_engine::ProviderRegistry;
use ringfence_linux::{LocalProvider, ProcessProvider};
use ringfence_policy::ProviderSpec;

/// The registry, and the provider `local` that was started before the arguments were parsed.
pub(crate) struct EarlyProviders {
    pub(crate) registry: ProviderRegistry,
    early: Arc<Mutex<Option<LocalProvider>>>,
}

impl EarlyProviders {
    pub(crate) fn new(local: LocalProvider) -> Self {
        let early = Arc::new(Mutex::new(Some(local)));
        let taken = early.clone();
        let make = move || take(&taken).unwrap_or_default();
        Self { registry: registry(make), early }
    }

    /// Ends the sandbox that was started early, unless `local` has taken it.
    pub(crate) fn end_early_start(&self) {
        drop(take(&self.early));
    }
}

fn take(early: &Mutex<Option<LocalProvider>>) -> Option<LocalProvider> {
    lock(early).take()
}

/// The known providers. `make_local` makes the provider `local` for this program's use of it.
pub(crate) fn registry(
    make_local: impl Fn() -> LocalProvider + Send + Sync + 'static,
) -> ProviderRegistry {
    let mut registry = ProviderRegistry::default();
    registry.register(ProviderSpec::LOCAL, move |options| make_local().with_options(options));
    registry.register_plain(ProviderSpec::PROCESS, || ProcessProvider);
    registry
}

/// The known providers, for a program of many uses.
pub(crate) fn plain_registry() -> ProviderRegistry {
    registry(LocalProvider::default)
}
