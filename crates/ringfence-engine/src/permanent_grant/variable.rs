//! Variables that pass for good.

use ringfence_policy::{EnvDecision, EnvReason, Grants, Origin, PolicyLayer, Source};

use super::AllowError;

/// The entry that lets a variable pass; what keeps it out is an error.
pub(super) fn opener(
    name: &str,
    grants: &Grants,
    layers: &[PolicyLayer],
) -> Result<Origin, AllowError> {
    let out = |why: String| AllowError::Filtered { name: name.to_owned(), why };
    if let Some(secret) = grants.network.secrets.iter().find(|secret| secret.env == name) {
        return Err(out(format!(
            "its value is put into requests outside, by [[secrets]] ({})",
            secret.origin
        )));
    }
    match grants.environment.decide(name) {
        EnvDecision::Passes { .. } => Ok(origin(name, layers)),
        EnvDecision::Filtered { because } => Err(out(match because {
            EnvReason::Denied(glob) => format!("`deny` under [environment] has `{glob}`"),
            EnvReason::Clean => "the profile is `clean`".to_owned(),
            _ => "no list has it".to_owned(),
        })),
    }
}

/// The line that sets the variable or names it, else the built-in list.
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
