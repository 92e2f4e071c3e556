//! Secrets that stay outside the sandbox.

use super::super::rest::USERS_FILE;
use crate::error::PolicyError;
use crate::facts::Facts;
use crate::grants::{EnvironmentRules, NetworkMode, NetworkRules, Source};
use crate::layer::PolicyLayer;
use crate::network::SecretRule;

/// Resolves the secrets of the administrator and the user. A project's file is ignored: it could
/// send them to its own hosts. None of their variables passes, even if another rule allows it.
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
                let at = layer.position(&key);
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
                    // A warning, not an error: the user may have removed the host from the list on
                    // purpose.
                    warnings.push(format!(
                        "{}`{text}` receives a secret, but no entry of `allow` opens it",
                        layer.position(&key)
                    ));
                }
                hosts.push(host);
            }
            keep_out(&written.env, environment, warnings);
            let is_set = is_set(&written.env, facts).map_err(|problem| PolicyError::BadSecret {
                at: layer.position(&format!("{key}.env")),
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

/// True if the variable is set. Its value must be usable in a header: no line breaks.
fn is_set(name: &str, facts: &Facts) -> Result<bool, &'static str> {
    match facts.variables.get(name).map(String::as_str).unwrap_or_default() {
        "" => Ok(false),
        value if value.trim() != value => Err("it begins or ends with whitespace"),
        value if value.chars().any(|c| !(c.is_ascii_graphic() || c == ' ')) => {
            Err("it has characters other than printable ASCII")
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
