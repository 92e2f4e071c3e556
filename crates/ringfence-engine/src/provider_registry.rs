//! Sandbox providers by name.
//!
//! A registry is itself a [`Provider`]: it opens a sandbox of the provider that the grants name.
//! Grants without confinement go to `process`, so no other provider has to run commands unconfined.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_api::HostFacts;
use ringfence_policy::{Grants, ProviderOptions, ProviderSpec};
use ringfence_provider::{Capabilities, PreparedSandbox, Provider, ProviderError, Support};

/// Makes a provider; checks its options.
type RegistryFactory =
    dyn Fn(&ProviderOptions) -> Result<Box<dyn Provider>, ProviderError> + Send + Sync;

/// The known sandbox providers, each made when it is first used.
#[derive(Default)]
pub struct ProviderRegistry {
    factories: BTreeMap<String, Arc<RegistryFactory>>,
    made: Mutex<Vec<(ProviderSpec, Box<dyn Provider>)>>,
}

impl ProviderRegistry {
    /// Adds a provider, or replaces the one of this name.
    pub fn register<P: Provider + 'static>(
        &mut self,
        name: &str,
        factory: impl Fn(&ProviderOptions) -> Result<P, ProviderError> + Send + Sync + 'static,
    ) {
        let boxed = move |options: &ProviderOptions| {
            factory(options).map(|provider| Box::new(provider) as Box<dyn Provider>)
        };
        self.factories.insert(name.to_owned(), Arc::new(boxed));
    }

    /// As [`ProviderRegistry::register`], for a provider without options.
    pub fn register_plain<P: Provider + 'static>(
        &mut self,
        name: &'static str,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) {
        self.register(name, move |options| match options.find_unknown(&[]) {
            None => Ok(make()),
            Some(option) => Err(ProviderError::unknown_option(name, option, &[])),
        });
    }

    /// A new provider by name, with its options.
    pub fn get(&self, spec: &ProviderSpec) -> Result<Box<dyn Provider>, ProviderError> {
        match self.factories.get(&spec.name) {
            Some(factory) => factory(&spec.options),
            None => Err(ProviderError::UnknownProvider {
                name: spec.name.clone(),
                available: self.names(),
            }),
        }
    }

    /// The registered names, in order.
    pub fn names(&self) -> Vec<String> {
        self.factories.keys().cloned().collect()
    }
}

impl Clone for ProviderRegistry {
    /// A registry of the same factories, which has made no provider yet.
    fn clone(&self) -> Self {
        Self { factories: self.factories.clone(), made: Mutex::default() }
    }
}

impl Provider for ProviderRegistry {
    fn name(&self) -> &str {
        "registry"
    }

    /// The features that a registered provider may have. [`ProviderRegistry::get`] returns the
    /// provider that knows.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            confinement: Support::Yes,
            shells: Support::Yes,
            terminals: Support::Yes,
            live_policy: Support::Yes,
            asks: Support::Yes,
            files: Support::Yes,
        }
    }

    fn prepare(
        &self,
        grants: &Grants,
        host_facts: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        let spec = &*chosen_provider(grants);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let at = match made.iter().position(|(known, _)| known == spec) {
            Some(at) => at,
            None => {
                let provider = self.get(spec)?;
                made.push((spec.clone(), provider));
                made.len() - 1
            }
        };
        made[at].1.prepare(grants, host_facts)
    }
}

/// The provider of a sandbox for `grants`.
pub(crate) fn chosen_provider(grants: &Grants) -> Cow<'_, ProviderSpec> {
    if grants.is_confined() {
        Cow::Borrowed(&grants.sandbox.provider)
    } else {
        Cow::Owned(ProviderSpec::named(ProviderSpec::PROCESS))
    }
}

impl fmt::Debug for ProviderRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProviderRegistry").field(&self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A provider that opens nothing, and reports its name.
    struct NamedProvider(&'static str);

    impl Provider for NamedProvider {
        fn name(&self) -> &str {
            self.0
        }

        fn prepare(
            &self,
            _: &Grants,
            _: &HostFacts,
        ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
            Err(ProviderError::Gone { what: self.0 })
        }
    }

    fn registry() -> ProviderRegistry {
        let mut registry = ProviderRegistry::default();
        registry.register_plain("process", || NamedProvider("process"));
        registry.register_plain("local", || NamedProvider("local"));
        registry.register("docker", |options| match options.find_unknown(&["image", "cpus"]) {
            None => Ok(NamedProvider("docker")),
            Some(option) => {
                Err(ProviderError::unknown_option("docker", option, &["image", "cpus"]))
            }
        });
        registry
    }

    /// The name of the provider, or the error.
    #[track_caller]
    fn check(spec: &str, expect: Result<&str, (&str, &str)>) {
        let found =
            registry().get(&spec.parse().unwrap()).map(|provider| provider.name().to_owned());
        let found = found.map_err(|error| (error.to_string(), error.code()));
        let expect = expect.map_err(|(text, code)| (text.to_owned(), code));
        assert_eq!(found.as_deref().map_err(Clone::clone), expect, "{spec}");
    }

    #[test]
    fn unknown_provider_error_lists_the_available_ones() {
        let mut registry = registry();
        registry.factories.remove("docker");
        let error = registry.get(&ProviderSpec::named("x")).err().unwrap();
        assert_eq!(
            error.to_string(),
            "Unknown sandbox provider: \"x\". Available: [local, process]"
        );
        assert_eq!(error.code(), "unknown-provider");
        assert!(error.hint().is_some_and(|hint| hint.contains("`ringfence ")));
    }

    #[test]
    fn provider_checks_its_options() {
        check("docker:image=x", Ok("docker"));
        check("local", Ok("local"));
        let unknown = "unknown-provider-option";
        check(
            "docker:image-x=1",
            Err((
                "unknown option `image-x` of the sandbox provider `docker`; known options: image, cpus",
                unknown,
            )),
        );
        check(
            "local:a=b",
            Err((
                "unknown option `a` of the sandbox provider `local`; known options: none",
                unknown,
            )),
        );
    }

    /// Promise: no-unconfined-run
    #[test]
    fn grants_without_confinement_go_to_process_only() {
        let home = crate::testing::TestHome::new();
        let facts = home.facts();
        let opened = |edit: &dyn Fn(&mut Grants)| {
            let flags = ringfence_policy::Flags::none(facts.workspace.clone());
            let mut grants = ringfence_policy::resolve(&[], &flags, &facts).unwrap();
            edit(&mut grants);
            let surroundings = crate::HostEnvironment::for_other_user(facts.clone(), Vec::new());
            let user = surroundings.host_facts(&grants);
            match registry().prepare(&grants, &user) {
                Err(ProviderError::Gone { what }) => what,
                _ => "none",
            }
        };
        assert_eq!(opened(&|_| ()), "local");
        assert_eq!(opened(&|grants| grants.sandbox.provider = "docker".parse().unwrap()), "docker");
        assert_eq!(opened(&|grants| grants.enabled = false), "process");
        assert_eq!(
            opened(&|grants| {
                grants.sandbox.provider = "docker".parse().unwrap();
                grants.mode = ringfence_policy::Mode::FullAccess;
            }),
            "process"
        );
    }
}
