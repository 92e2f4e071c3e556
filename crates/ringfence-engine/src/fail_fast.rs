//! Settings that make package managers give up at once where their registry cannot be reached.
//!
//! A registry that is denied stays denied at the second attempt. By default npm tries for a minute,
//! and pip and cargo for ten seconds, before they print an error.

use std::ffi::OsString;

use ringfence_policy::{Host, NetworkMode, NetworkRules};

/// Variables that set the number of attempts, the registry that is meant without other settings, and
/// the variables that name another one.
const RETRIES: &[(&str, &str, &[&str])] = &[
    // npm, and pnpm up to version 10.
    ("npm_config_fetch_retries", "registry.npmjs.org", &["npm_config_registry"]),
    ("pnpm_config_fetch_retries", "registry.npmjs.org", &["npm_config_registry", "pnpm_config_registry"]),
    ("YARN_HTTP_RETRY", "registry.yarnpkg.com", &["YARN_NPM_REGISTRY_SERVER"]),
    ("PIP_RETRIES", "pypi.org", &["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"]),
    ("UV_HTTP_RETRIES", "pypi.org", &["UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"]),
    ("CARGO_NET_RETRY", "index.crates.io", &[]),
    ("BUNDLE_RETRY", "rubygems.org", &[]),
];

/// Adds the variables for registries that `network` denies, unless the user has set them.
pub(crate) fn add_settings(variables: &mut Vec<(OsString, OsString)>, network: &NetworkRules) {
    for (name, registry, others) in RETRIES {
        let has = |name: &str| variables.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !has(name) && is_denied(registry, network, others.iter().any(|other| has(other))) {
            variables.push(((*name).into(), "0".into()));
        }
    }
}

/// True for variables that follow from the network rules. A session whose network changes need not
/// start anew because of them.
pub(crate) fn is_setting(name: &OsString) -> bool {
    RETRIES.iter().any(|(known, ..)| name == known)
}

fn is_denied(registry: &str, network: &NetworkRules, names_another: bool) -> bool {
    match (network.mode, Host::new(registry)) {
        (NetworkMode::None, _) => true,
        (NetworkMode::AllowList, Ok(Host::Name(name))) => !names_another && !network.lookup(&name).is_open(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{HostRule, Listed, Origin, Source};

    use super::*;

    fn network(mode: NetworkMode, allow: &[&str]) -> NetworkRules {
        let listed = |text: &&str| Listed { rule: HostRule::parse(text).unwrap(), origin: Origin::new(Source::Flag, *text) };
        NetworkRules { mode, allow: allow.iter().map(listed).collect(), ..NetworkRules::default() }
    }

    #[track_caller]
    fn check(network: &NetworkRules, given: &[(&str, &str)], expected: &[&str]) {
        let mut variables: Vec<(OsString, OsString)> = given.iter().map(|(name, value)| (name.into(), value.into())).collect();
        add_settings(&mut variables, network);
        let added: Vec<&str> = variables[given.len()..].iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(added, expected);
    }

    #[test]
    fn shut_network_stops_every_retry_that_the_user_did_not_set() {
        let all: Vec<&str> = RETRIES.iter().map(|(name, ..)| *name).collect();
        check(&network(NetworkMode::None, &[]), &[], &all);
        check(
            &network(NetworkMode::None, &[]),
            &[("NPM_CONFIG_FETCH_RETRIES", "7"), ("PIP_RETRIES", "")],
            &[all[1], all[2], all[4], all[5], all[6]],
        );
    }

    #[test]
    fn retries_stay_where_the_registry_is_open() {
        check(&network(NetworkMode::Full, &[]), &[], &[]);
        let listed = network(NetworkMode::AllowList, &["registry.npmjs.org", "*.crates.io:443", "rubygems.org", "registry.yarnpkg.com"]);
        check(&listed, &[], &["PIP_RETRIES", "UV_HTTP_RETRIES"]);
        check(&listed, &[("PIP_INDEX_URL", "https://mirror.example/simple"), ("UV_INDEX", "x")], &[]);
    }
}
