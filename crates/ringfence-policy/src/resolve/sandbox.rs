//! Use of the sandbox, and exceptions from it.

use super::ResolvedSettings;
use super::rest::USERS_FILE;
use super::scalar::LayeredSetting;
use crate::error::PolicyError;
use crate::facts::{Facts, Flags};
use crate::grants::{HookSession, Mode, Origin, SandboxRules, Source};
use crate::layer::PolicyLayer;
use crate::policy::Amount;
use crate::provider_spec::ProviderSpec;

impl ResolvedSettings {
    /// Resolves if the sandbox is enabled here, and who may run without it.
    pub(super) fn sandbox(
        &self,
        layers: &[PolicyLayer],
        flags: &Flags,
        facts: &Facts,
        warnings: &mut Vec<String>,
    ) -> Result<(bool, SandboxRules), PolicyError> {
        let switched_off = || {
            self.enabled.origin().unwrap_or_else(|| Origin::new(Source::BuiltIn, "sandbox.enabled"))
        };
        // A flag that enables the sandbox also enables it on this platform.
        let elsewhere = if flags.enabled == Some(true) {
            None
        } else {
            platform_exclusion(layers, facts, warnings)
        };
        let off = if self.enabled.value() { elsewhere } else { Some(switched_off()) };
        let mut hook_session = LayeredSetting::new("sandbox.hook-session", HookSession::default());
        for layer in layers {
            hook_session.offer(layer, layer.policy.sandbox.hook_session, warnings);
        }
        // The shortest time of any layer wins: the user cannot exceed the administrator's value.
        let idle = layers
            .iter()
            .filter_map(|layer| {
                layer.policy.sandbox.hook_session_idle.as_ref().and_then(Amount::milliseconds)
            })
            .min();
        let (provider, provider_origin) = provider(layers, flags, warnings)?;
        let rules = SandboxRules {
            fail_if_unavailable: self.fail.value(),
            allow_unsandboxed: self.unsandboxed.value().0,
            auto_allow: self.auto_allow.value().0,
            off: off.clone(),
            provider,
            provider_origin,
            is_required: self.requires_sandbox(flags),
            hook_session: hook_session.value(),
            hook_session_idle_ms: idle.unwrap_or(SandboxRules::default().hook_session_idle_ms),
        };
        Ok((off.is_none(), rules))
    }

    /// True if a flag requires a sandbox, or the managed policy does not allow to turn it off.
    fn requires_sandbox(&self, flags: &Flags) -> bool {
        flags.enabled == Some(true)
            || self.enabled.ceiling() == Some(true)
            || self.mode.ceiling().is_some_and(|ceiling| ceiling != Mode::FullAccess)
    }
}

/// The provider: a flag takes precedence over policy files, and the managed policy over both. A
/// project's file cannot choose it.
fn provider(
    layers: &[PolicyLayer],
    flags: &Flags,
    warnings: &mut Vec<String>,
) -> Result<(ProviderSpec, Origin), PolicyError> {
    let key = "sandbox.provider";
    let SandboxRules { provider, provider_origin, .. } = SandboxRules::default();
    let mut chosen = (provider, provider_origin);
    let mut managed = None;
    for layer in layers {
        let Some(spec) = layer.policy.sandbox.provider.as_deref().map(str::parse::<ProviderSpec>)
        else {
            continue;
        };
        // The parser checks files; a layer that was not parsed may hold any text.
        let spec = spec.map_err(|_| PolicyError::BadValue {
            at: layer.position(key),
            key: key.into(),
            value: layer.policy.sandbox.provider.clone().unwrap_or_default(),
            expected: ProviderSpec::FORMAT,
        })?;
        let place = layer.position(key);
        if layer.source == Source::Project {
            warnings.push(format!(
                "{place}`{key}` is ignored: a project's file cannot choose it; {USERS_FILE}"
            ));
            continue;
        }
        if layer.source == Source::Managed {
            managed = Some(spec.clone());
        } else if managed.as_ref().is_some_and(|managed| *managed != spec) {
            warnings.push(format!("{place}`{key}` is ignored: the managed policy has chosen it"));
            continue;
        }
        chosen = (spec.clone(), layer.origin(key, &format!("{key} = {spec}")));
    }
    let Some(spec) = &flags.provider else { return Ok(chosen) };
    match managed.filter(|managed| managed != spec) {
        Some(managed) => Err(PolicyError::BeyondCeiling {
            flag: "--provider",
            ceiling: format!("{key} = {managed}"),
        }),
        None => Ok((spec.clone(), Origin::new(Source::Flag, "--provider"))),
    }
}

/// The list of platforms that leaves this one out, if any. The managed list takes precedence over
/// the user's; a project's list is ignored.
fn platform_exclusion(
    layers: &[PolicyLayer],
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Option<Origin> {
    let key = "sandbox.enabled-platforms";
    let mut chosen: Option<&PolicyLayer> = None;
    for layer in layers.iter().filter(|layer| layer.policy.sandbox.enabled_platforms.is_some()) {
        let is_managed = chosen.is_some_and(|chosen| {
            chosen.source == Source::Managed && layer.source != Source::Managed
        });
        if layer.source == Source::Project {
            warnings.push(format!(
                "{}`{key}` is ignored: a project's file cannot widen it; {USERS_FILE}",
                layer.position(key)
            ));
        } else if layer.is_of_enclosing() {
            warnings.push(format!(
                "{}`{key}` is ignored: a policy for a directory around the project cannot widen it",
                layer.position(key)
            ));
        } else if is_managed {
            warnings.push(format!(
                "{}`{key}` is ignored: the managed policy has chosen it",
                layer.position(key)
            ));
        } else {
            chosen = Some(layer);
        }
    }
    let layer = chosen?;
    let platforms = layer.policy.sandbox.enabled_platforms.as_ref()?;
    (!platforms.contains(&facts.platform)).then(|| layer.origin(key, "enabled-platforms"))
}

#[cfg(test)]
mod tests {
    use crate::facts::Flags;
    use crate::resolve::resolve;
    use crate::resolve::tests::{facts, flags, with};

    const PROCESS: &str = "[sandbox]\nprovider = \"process\"";
    const LOCAL: &str = "[sandbox]\nprovider = \"local\"";

    /// The chosen provider with its origin, or the error code.
    #[track_caller]
    fn check(layers: &[(&str, &str)], flag: Option<&str>, expect: &str) {
        let flags = Flags { provider: flag.map(|text| text.parse().unwrap()), ..flags() };
        let found = match resolve(&with(layers), &flags, &facts()) {
            Ok(grants) => {
                let (spec, origin) = (&grants.sandbox.provider, &grants.sandbox.provider_origin);
                format!("{spec} {}", origin.source)
            }
            Err(error) => error.code().to_owned(),
        };
        assert_eq!(found, expect, "{layers:?} {flag:?}");
    }

    #[test]
    fn provider_is_the_flag_then_the_users_unless_the_managed_policy_chose_it() {
        check(&[], None, "local built in");
        check(&[("user", PROCESS)], None, "process user policy");
        check(&[("user", PROCESS)], Some("local"), "local a flag");
        check(&[], Some("docker:image=x"), "docker:image=x a flag");
        check(&[("managed", LOCAL), ("user", PROCESS)], None, "local managed policy");
        check(&[("managed", LOCAL)], Some("process"), "policy-beyond-ceiling");
        check(&[("managed", LOCAL)], Some("local"), "local a flag");
    }

    /// Promise: no-unconfined-run
    #[test]
    fn project_policy_cannot_choose_a_provider() {
        check(&[("project", PROCESS)], None, "local built in");
        check(&[("user", PROCESS), ("project", LOCAL)], None, "process user policy");
        let grants = resolve(&with(&[("project", PROCESS)]), &flags(), &facts()).unwrap();
        assert!(grants.warnings.iter().any(|warning| warning.contains("`sandbox.provider` is")));
    }

    /// Promise: no-unconfined-run
    #[test]
    fn managed_policy_that_confines_requires_a_sandbox() {
        let is_required = |layers: &[(&str, &str)], flags: &Flags| {
            resolve(&with(layers), flags, &facts()).unwrap().sandbox.is_required
        };
        assert!(!is_required(&[], &flags()));
        assert!(!is_required(&[("user", "mode = \"read-only\"")], &flags()));
        assert!(!is_required(&[("managed", "mode = \"full-access\"")], &flags()));
        assert!(is_required(&[("managed", "mode = \"read-only\"")], &flags()));
        assert!(is_required(&[("managed", "[sandbox]\nenabled = true")], &flags()));
        assert!(is_required(&[], &Flags { enabled: Some(true), ..flags() }));
    }
}
