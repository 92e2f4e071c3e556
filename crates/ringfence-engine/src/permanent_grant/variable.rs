//! Permanent grants of environment variables.

use ringfence_policy::{EnvDecision, EnvReason, Grants, Origin, PolicyLayer, Source};

use super::AllowError;

/// The entry that passes the variable; an error with the rule that filters it.
pub(super) fn allowing_rule(
    name: &str,
    grants: &Grants,
    layers: &[PolicyLayer],
) -> Result<Origin, AllowError> {
    let out = |why: String| AllowError::Filtered { name: name.to_owned(), why };
    if let Some(secret) = grants.network.secrets.iter().find(|secret| secret.env == name) {
        return Err(out(format!(
            "[[secrets]] ({}) puts its value into requests outside the sandbox",
            secret.origin
        )));
    }
    match grants.environment.decide(name) {
        EnvDecision::Passes { .. } => Ok(origin(name, layers)),
        EnvDecision::Filtered { because } => Err(out(match because {
            EnvReason::Denied(glob) => format!("`deny` under [environment] has `{glob}`"),
            EnvReason::Clean => "the profile is `clean`".to_owned(),
            _ => "no list contains it".to_owned(),
        })),
    }
}

/// The line that sets or names the variable, else the built-in list.
fn origin(name: &str, layers: &[PolicyLayer]) -> Origin {
    let of_layer = |layer: &PolicyLayer| {
        if layer.policy.environment.set.contains_key(name) {
            return Some(layer.origin("environment.set", name));
        }
        let place = layer.policy.environment.allow.iter().position(|entry| entry == name)?;
        Some(layer.origin(&format!("environment.allow.{place}"), name))
    };
    layers.iter().rev().find_map(of_layer).unwrap_or_else(|| Origin::new(Source::BuiltIn, name))
}
