//! Use of the sandbox, and exceptions from it.

use super::ResolvedSettings;
use super::rest::USERS_FILE;
use super::scalar::LayeredSetting;
use crate::facts::{Facts, Flags};
use crate::grants::{HookSession, Origin, SandboxRules, Source};
use crate::layer::PolicyLayer;
use crate::policy::Amount;

impl ResolvedSettings {
    /// Resolves if the sandbox is enabled here, and who may run without it.
    pub(super) fn sandbox(
        &self,
        layers: &[PolicyLayer],
        flags: &Flags,
        facts: &Facts,
        warnings: &mut Vec<String>,
    ) -> (bool, SandboxRules) {
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
        let rules = SandboxRules {
            fail_if_unavailable: self.fail.value(),
            allow_unsandboxed: self.unsandboxed.value().0,
            auto_allow: self.auto_allow.value().0,
            off: off.clone(),
            hook_session: hook_session.value(),
            hook_session_idle_ms: idle.unwrap_or(SandboxRules::default().hook_session_idle_ms),
        };
        (off.is_none(), rules)
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
