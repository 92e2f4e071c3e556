//! Values that stay outside.

use super::super::rest::USERS_FILE;
use crate::error::PolicyError;
use crate::facts::Facts;
use crate::grants::{EnvironmentRules, NetworkMode, NetworkRules, Source};
use crate::layer::PolicyLayer;
use crate::network::SecretRule;

/// The secrets of the administrator and the person: a project's file would have them sent to
/// hosts of its own choice. None of their variables passes, whoever lets it.
pub(super) fn secrets(
    layers: &[PolicyLayer],
    facts: &Facts,
    rules: &NetworkRules,
    environment: &mut EnvironmentRules,
    warnings: &mut Vec<String>,
) -> Result<Vec<SecretRule>, PolicyError> {
    let mut secrets: Vec<SecretRule> = Vec::new();
    for layer in layers {
        for (i, written) in layer.policy.secrets.iter().enumerate() {
            let key = format!("secrets.{i}");
            if layer.source == Source::Project {
                let at = layer.place(&key);
                warnings.push(format!(
                    "{at}`{}` is ignored: a project's file cannot send secrets; {USERS_FILE}",
                    written.env
                ));
                continue;
            }
            let mut hosts = Vec::new();
            for (i, text) in written.hosts.iter().enumerate() {
                let key = format!("{key}.hosts.{i}");
                let host = layer.host_rule(&key, text)?;
                let is_open = rules
                    .allow
                    .iter()
                    .any(|listed| listed.rule.covers(&host) || host.covers(&listed.rule));
                if rules.mode == NetworkMode::AllowList && !is_open {
                    // No error: whoever takes a host off the list means that it is shut.
                    warnings.push(format!(
                        "{}`{text}` is to get a secret, and no entry of `allow` opens it",
                        layer.place(&key)
                    ));
                }
                hosts.push(host);
            }
            keep_out(&written.env, environment, warnings);
            let is_set = is_set(&written.env, facts).map_err(|problem| PolicyError::BadSecret {
                at: layer.place(&format!("{key}.env")),
                env: written.env.clone(),
                problem,
            })?;
            let origin = layer.origin(&key, &written.env);
            secrets.push(SecretRule {
                env: written.env.clone(),
                hosts,
                header: written.header.clone(),
                is_set,
                origin,
            });
        }
    }
    let set = secrets.iter().filter(|secret| secret.is_set);
    environment.set.extend(set.map(|secret| (secret.env.clone(), secret.placeholder())));
    Ok(secrets)
}

/// Whether the variable has a value, which then can stand in a header: no line ends before it.
fn is_set(name: &str, facts: &Facts) -> Result<bool, &'static str> {
    match facts.variables.get(name).map(String::as_str).unwrap_or_default() {
        "" => Ok(false),
        value if value.trim() != value => Err("it begins or ends with a blank"),
        value if value.chars().any(|c| !(c.is_ascii_graphic() || c == ' ')) => {
            Err("it has other characters than printable ASCII")
        }
        _ => Ok(true),
    }
}

fn keep_out(name: &str, environment: &mut EnvironmentRules, warnings: &mut Vec<String>) {
    let is_named = environment.named.iter().any(|named| named == name);
    if environment.set.remove(name).is_some() || is_named {
        warnings.push(format!("the variable {name} stays outside: it is one of [[secrets]]"));
    }
    environment.named.retain(|named| named != name);
    environment.deny.push(name.to_owned());
}
