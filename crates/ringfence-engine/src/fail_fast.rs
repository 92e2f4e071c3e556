//! Settings that make package managers fail at once if their registry cannot be reached.
//!
//! A denied registry stays denied at the second attempt. By default npm retries for a minute, and
//! pip and cargo for ten seconds, before they print an error.

use std::ffi::OsString;

use ringfence_policy::{HostTarget, NetworkMode, NetworkRules};

/// Environment variables that set the number of attempts, the default registry, and the variables
/// that name another registry.
const RETRIES: &[(&str, &str, &[&str])] = &[
    // npm, and pnpm up to version 10.
    ("npm_config_fetch_retries", "registry.npmjs.org", &["npm_config_registry"]),
    (
        "pnpm_config_fetch_retries",
        "registry.npmjs.org",
        &["npm_config_registry", "pnpm_config_registry"],
    ),
    ("YARN_HTTP_RETRY", "registry.yarnpkg.com", &["YARN_NPM_REGISTRY_SERVER"]),
    ("PIP_RETRIES", "pypi.org", &["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"]),
    (
        "UV_HTTP_RETRIES",
        "pypi.org",
        &["UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"],
    ),
    ("CARGO_NET_RETRY", "index.crates.io", &[]),
    ("BUNDLE_RETRY", "rubygems.org", &[]),
];

/// Environment variables that set the pause before the next attempt, in milliseconds. The default
/// pause of npm is ten seconds.
const PAUSES: &[(&str, &str)] = &[
    ("npm_config_fetch_retry_mintimeout", "500"),
    ("npm_config_fetch_retry_maxtimeout", "1000"),
    ("pnpm_config_fetch_retry_mintimeout", "500"),
    ("pnpm_config_fetch_retry_maxtimeout", "1000"),
];

/// Adds the environment variables that the user has not set: no retry for a registry that `network`
/// denies, one retry after a short pause with an allow list. An allowed registry may redirect to a
/// host that is not listed.
pub(crate) fn add_settings(variables: &mut Vec<(OsString, OsString)>, network: &NetworkRules) {
    if network.mode == NetworkMode::Full {
        return;
    }
    let has = |variables: &[(OsString, OsString)], name: &str| {
        variables.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    for (name, registry, others) in RETRIES {
        if !has(variables, name) {
            let names_another = others.iter().any(|other| has(variables, other));
            let retries = if is_denied(registry, network, names_another) { "0" } else { "1" };
            variables.push(((*name).into(), retries.into()));
        }
    }
    for (name, pause) in PAUSES.iter().filter(|_| network.mode == NetworkMode::AllowList) {
        if !has(variables, name) {
            variables.push(((*name).into(), (*pause).into()));
        }
    }
}

/// True for environment variables derived from the network rules. A session does not restart
/// because they change.
pub(crate) fn is_setting(name: &OsString) -> bool {
    RETRIES.iter().any(|(known, ..)| name == known) || PAUSES.iter().any(|(known, _)| name == known)
}

fn is_denied(registry: &str, network: &NetworkRules, names_another: bool) -> bool {
    match (network.mode, HostTarget::new(registry)) {
        (NetworkMode::None, _) => true,
        (NetworkMode::AllowList, Ok(HostTarget::Name(name))) => {
            !names_another && !network.decide_lookup(&name).is_open()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{HostRule, ListedHost, Origin, Source};

    use super::*;

    fn network(mode: NetworkMode, allow: &[&str]) -> NetworkRules {
        let listed = |text: &&str| ListedHost {
            rule: HostRule::parse(text).unwrap(),
            origin: Origin::new(Source::Flag, *text),
        };
        NetworkRules { mode, allow: allow.iter().map(listed).collect(), ..NetworkRules::default() }
    }

    #[track_caller]
    fn check(network: &NetworkRules, given: &[(&str, &str)], expected: &[&str]) {
        let mut variables: Vec<(OsString, OsString)> =
            given.iter().map(|(name, value)| (name.into(), value.into())).collect();
        add_settings(&mut variables, network);
        let is_retry = |name: &OsString| RETRIES.iter().any(|(known, ..)| name == known);
        let added =
            variables[given.len()..].iter().filter(|(name, value)| is_retry(name) && value == "0");
        let added: Vec<&str> = added.map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(added, expected);
    }

    #[test]
    fn no_network_sets_every_retry_unset_by_user_to_zero() {
        let all: Vec<&str> = RETRIES.iter().map(|(name, ..)| *name).collect();
        check(&network(NetworkMode::None, &[]), &[], &all);
        check(
            &network(NetworkMode::None, &[]),
            &[("NPM_CONFIG_FETCH_RETRIES", "7"), ("PIP_RETRIES", "")],
            &[all[1], all[2], all[4], all[5], all[6]],
        );
    }

    #[test]
    fn one_retry_stays_where_the_registry_is_open() {
        check(&network(NetworkMode::Full, &[]), &[], &[]);
        let listed = network(
            NetworkMode::AllowList,
            &["registry.npmjs.org", "*.crates.io:443", "rubygems.org", "registry.yarnpkg.com"],
        );
        check(&listed, &[], &["PIP_RETRIES", "UV_HTTP_RETRIES"]);
        check(
            &listed,
            &[("PIP_INDEX_URL", "https://mirror.example/simple"), ("UV_INDEX", "x")],
            &[],
        );
    }

    #[test]
    fn allow_list_leaves_one_retry_after_a_short_pause() {
        let added = |given: &[(&str, &str)], network: &NetworkRules| {
            let mut variables: Vec<(OsString, OsString)> =
                given.iter().map(|(name, value)| (name.into(), value.into())).collect();
            add_settings(&mut variables, network);
            move |name: &str| {
                variables
                    .iter()
                    .find(|(known, _)| known == name)
                    .map(|(_, value)| value.to_str().unwrap().to_owned())
            }
        };
        let listed = network(NetworkMode::AllowList, &["pypi.org"]);
        let value = added(&[("npm_config_fetch_retry_maxtimeout", "9")], &listed);
        assert_eq!(value("PIP_RETRIES").as_deref(), Some("1"));
        assert_eq!(value("CARGO_NET_RETRY").as_deref(), Some("0"));
        assert_eq!(value("npm_config_fetch_retry_mintimeout").as_deref(), Some("500"));
        assert_eq!(value("npm_config_fetch_retry_maxtimeout").as_deref(), Some("9"));
        for mode in [NetworkMode::None, NetworkMode::Full] {
            assert_eq!(added(&[], &network(mode, &[]))("npm_config_fetch_retry_mintimeout"), None);
        }
    }
}
