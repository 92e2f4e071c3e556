//! Explains connections to hosts and sockets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use ringfence_api::Gap;
use ringfence_engine::plan;
use ringfence_linux::own_addresses;
use ringfence_policy::{
    AbsPath, Access, Grants, HostDecision, HostReason, HostTarget, NetworkRules, Origin,
    PortSelection, Source, Verdict,
};

use super::{ExplainVerdict, Explanation};
use crate::commands::resolve_args::{ResolvedArgs, expand_path};
use crate::error::CliError;
use crate::origins::PolicyOrigins;
use crate::providers::plain_registry;

pub(super) fn explain(
    target: &str,
    resolved_args: &ResolvedArgs,
    origins: &PolicyOrigins<'_>,
) -> Result<Explanation, CliError> {
    let grants = &resolved_args.resolved.grants;
    if !grants.is_confined() {
        return Ok(Explanation::new(target, "allowed", ExplainVerdict::Allowed)
            .line("why", "nothing is confined"));
    }
    if target.contains('/') {
        return Ok(socket(
            &expand_path(Path::new(target).as_os_str(), &resolved_args.cwd, &grants.home),
            grants,
            origins,
        ));
    }
    let decision = decide_host(&grants.network, target)?;
    let opener = match decision.reason {
        HostReason::Localhost(_) => "network.localhost",
        _ => "network.allow-list",
    };
    let gap = plan(&plain_registry(), &resolved_args.resolved)?
        .gaps
        .into_iter()
        .find(|gap| gap.what == opener);
    let answer = answer(&decision, gap);
    Ok(if answer.result == ExplainVerdict::Allowed {
        answer.line_if_some("secret", secrets(&grants.network, &decision))
    } else {
        answer
    })
}

/// Explains a host that `rule` refused because its name resolved to a guarded address; returns
/// `None` for any other rule. The user must allow the address in addition to the name.
pub(super) fn explain_guarded_address(
    target: &str,
    rule: &str,
    rules: &NetworkRules,
) -> Option<Explanation> {
    let address = HostDecision::guarded_address(rule)?;
    let (HostTarget::Name(name), Some(port)) = host_and_port(target).ok()? else { return None };
    let decision =
        rules.decide_address(address, port, Some(&name), &own_addresses().unwrap_or_default());
    if !matches!(decision.reason, HostReason::Unlisted | HostReason::Mode { .. })
        || decision.is_open()
    {
        return Some(answer(&decision, None));
    }
    let address = std::net::SocketAddr::new(address, port);
    let change = format!(
        "ringfence run --allow-host {name}:{port} --allow-host {address}, or for good: ringfence allow host {name}:{port} && ringfence allow host {address}"
    );
    Some(
        Explanation::new(target, "denied", ExplainVerdict::Refused)
            .line("why", format!("its name resolved to {address}"))
            .line("change", change),
    )
}

/// Lists the secrets that requests to the host carry, and their headers.
fn secrets(rules: &NetworkRules, decision: &HostDecision) -> Option<String> {
    let (HostTarget::Name(name), Some(port)) = (&decision.host, decision.port) else { return None };
    let each: Vec<String> = rules
        .secrets_for(name, port)
        .map(|secret| format!("{} in {}", secret.env, secret.header))
        .collect();
    (!each.is_empty()).then(|| format!("{}; ringfence terminates TLS", each.join(", ")))
}

/// Decides about `HOST[:PORT]`. A name without a port is allowed if any of its ports is.
pub(crate) fn decide_host(rules: &NetworkRules, target: &str) -> Result<HostDecision, CliError> {
    let (host, port) = host_and_port(target)?;
    let is_own = match &host {
        HostTarget::Name(name) => name.is_localhost(),
        HostTarget::Address(address) => address.is_loopback(),
    };
    Ok(match (host, port) {
        (host, None) if is_own => {
            let opened = match rules.localhost.ports() {
                PortSelection::Some(ports) => ports.first().copied(),
                PortSelection::None | PortSelection::All => None,
            };
            let address = match &host {
                HostTarget::Address(address) => *address,
                HostTarget::Name(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            };
            HostDecision {
                host,
                port: opened,
                ..rules.decide_host_loopback(address, opened.unwrap_or(ANY))
            }
        }
        (HostTarget::Name(name), None) => rules.decide_lookup(&name),
        (HostTarget::Name(name), Some(port)) => rules.decide_name(&name, port),
        // For an address without a port: the port of a rule about it, or the default port.
        (HostTarget::Address(address), port) => {
            let ruled = || {
                rules
                    .allow
                    .iter()
                    .find(|listed| listed.rule.matches_address(address))
                    .and_then(|listed| listed.rule.port)
            };
            rules.decide_address(
                address,
                port.or_else(ruled).unwrap_or(ANY),
                None,
                &own_addresses().unwrap_or_default(),
            )
        }
    })
}

/// The default port of a query.
const ANY: u16 = 443;

fn answer(decision: &HostDecision, gap: Option<Gap>) -> Explanation {
    let (verdict, result) = match decision.is_open() && gap.is_none() {
        true => ("allowed", ExplainVerdict::Allowed),
        false => ("denied", ExplainVerdict::Refused),
    };
    let by_default = Origin::new(Source::BuiltIn, "network.mode");
    let origin = match (&decision.reason, decision.origin()) {
        (HostReason::Mode { .. }, None) => Some(&by_default),
        (_, origin) => origin,
    };
    let answer = Explanation::new(decision.target(), verdict, result)
        .line_if_some("rule", decision.rule())
        .line_if_some("from", origin.map(Origin::to_string));
    match gap {
        Some(gap) if decision.is_open() => answer.line("why", gap.why).line("change", gap.hint),
        _ => answer.line("why", decision.why()).line_if_some("change", decision.change_hint()),
    }
}

/// Parses `host`, `host:port`, an address in any notation, or `[v6]:port`.
fn host_and_port(target: &str) -> Result<(HostTarget, Option<u16>), CliError> {
    let wrong = |what: String, hint: String| CliError::Usage {
        what: format!("`{target}` is not a host: {what}"),
        hint,
    };
    let whole = match HostTarget::new(target) {
        Ok(host) => return Ok((host, None)),
        Err(error) => error,
    };
    let Some((host, port)) = target.rsplit_once(':') else {
        return Err(wrong(whole.to_string(), whole.hint()));
    };
    let host = HostTarget::new(host).map_err(|error| wrong(error.to_string(), error.hint()))?;
    let number =
        port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse::<u16>().ok()).flatten();
    match number.filter(|&port| port != 0) {
        Some(port) => Ok((host, Some(port))),
        None => Err(wrong(format!("`{port}` is not a port"), "use a port from 1 to 65535".into())),
    }
}

/// Explains a socket of the host: it must be listed, and a rule must allow its directory.
fn socket(path: &AbsPath, grants: &Grants, origins: &PolicyOrigins<'_>) -> Explanation {
    let target = path.to_string();
    let refused = Explanation::new(&target, "denied", ExplainVerdict::Refused);
    if !grants.network.unix_sockets.contains(path) {
        return refused.line("why", "host sockets are denied unless they are listed").line(
            "change",
            "add it to `unix-sockets` under [network] in ~/.config/ringfence/policy.toml",
        );
    }
    let origin = origins.setting_origin("network.unix-sockets", None, |policy| {
        !policy.network.unix_sockets.is_empty()
    });
    let ruled = |answer: Explanation| {
        answer.line("rule", format!("unix-sockets {path}")).line("from", origin.to_string())
    };
    if grants.verdict(path, Access::Read) != Verdict::Allowed {
        return ruled(refused).line("why", "it is listed, but no rule allows its directory").line(
            "change",
            format!("ringfence run --read {}", ringfence_api::shell_word(&path.to_string())),
        );
    }
    ruled(Explanation::new(&target, "allowed", ExplainVerdict::Allowed))
}

#[cfg(test)]
mod tests {
    use ringfence_api::GapKind;
    use ringfence_policy::{HostRule, ListedHost, NetworkMode, OpenPorts, PortEntry};

    use super::*;

    fn rules() -> NetworkRules {
        let listed = |text: &str, line| {
            let origin = Origin {
                file: AbsPath::new("/u"),
                line: Some(line),
                ..Origin::new(Source::User, text)
            };
            ListedHost { rule: HostRule::parse(text).unwrap(), origin }
        };
        let port = PortEntry {
            ports: PortSelection::Some(vec![3000]),
            origin: Origin::new(Source::Flag, "--allow-localhost 3000"),
        };
        NetworkRules {
            mode: NetworkMode::AllowList,
            allow: vec![listed("a.org", 3), listed("10.0.0.0/8:22", 4)],
            deny: vec![listed("b.org", 5)],
            localhost: OpenPorts { entries: vec![port] },
            ..NetworkRules::default()
        }
    }

    #[track_caller]
    fn check(target: &str, verdict: &str, lines: &[(&str, &str)]) {
        let answer = answer(&decide_host(&rules(), target).unwrap(), None);
        assert_eq!(answer.verdict, verdict, "{target}");
        for (label, text) in lines {
            let found = answer
                .lines
                .iter()
                .find(|line| line.label == *label)
                .map(|line| line.text.as_str());
            assert!(
                found.is_some_and(|found| found.contains(text)),
                "{target}: {label} {text} in {:?}",
                answer.lines
            );
        }
    }

    #[test]
    fn rule_and_its_position_are_named() {
        check(
            "a.org:443",
            "allowed",
            &[
                ("rule", "allow a.org"),
                ("from", "/u:3 (user policy)"),
                ("why", "TLS connection must name it"),
            ],
        );
        check("A.org.", "allowed", &[("rule", "allow a.org")]);
        check(
            "x.a.org:443",
            "denied",
            &[("why", "no entry"), ("change", "--allow-host x.a.org:443")],
        );
        check(
            "b.org",
            "denied",
            &[
                ("rule", "deny b.org"),
                ("from", "/u:5"),
                ("change", "remove `b.org` from `deny` in /u:5"),
            ],
        );
        check("10.0.0.1", "allowed", &[("rule", "allow 10.0.0.0/8:22")]);
        check("10.1:23", "denied", &[("change", "--allow-host 10.0.0.1:23")]);
        check("[2606:4700::1]:443", "denied", &[("change", "--allow-host [2606:4700::1]:443")]);
        check(
            "localhost:3000",
            "allowed",
            &[("rule", "--allow-localhost 3000"), ("from", "a flag")],
        );
        check(
            "localhost:3001",
            "denied",
            &[("why", "its own loopback"), ("change", "--allow-localhost 3001")],
        );
        check("0x7f000001:3001", "denied", &[("why", "its own loopback")]);
    }

    #[test]
    fn host_that_cannot_be_enforced_is_denied() {
        let gap = Gap {
            what: "network.allow-list".into(),
            why: "not yet".into(),
            hint: "do y".into(),
            kind: GapKind::Enforcement,
        };
        let answer = answer(&decide_host(&rules(), "a.org:443").unwrap(), Some(gap));
        assert_eq!((answer.verdict, answer.result), ("denied", ExplainVerdict::Refused));
        assert!(answer.lines.iter().any(|line| line.label == "why" && line.text == "not yet"));
    }

    #[test]
    fn name_of_a_guarded_address_gets_a_command_that_allows_it() {
        let because = "it stands for 10.9.8.7 (private), which must be allowed by address";
        let change = |target: &str, rule: &str| {
            explain_guarded_address(target, rule, &rules()).map(|answer| {
                answer
                    .lines
                    .iter()
                    .find(|line| line.label == "change")
                    .map(|line| line.text.clone())
            })
        };
        let both = change("inner.test:443", because).flatten().unwrap();
        assert!(
            both.starts_with(
                "ringfence run --allow-host inner.test:443 --allow-host 10.9.8.7:443, or"
            ),
            "{both}"
        );
        assert!(
            both.ends_with(
                ": ringfence allow host inner.test:443 && ringfence allow host 10.9.8.7:443"
            ),
            "{both}"
        );
        let address = change("a.org:443", because).flatten().unwrap();
        assert!(address.starts_with("ringfence run --allow-host 10.9.8.7:443, or"), "{address}");
        // The entry `10.0.0.0/8:22` allows it now.
        assert_eq!(change("a.org:22", because), Some(None));
        assert_eq!(change("inner.test:443", "network.mode = none"), None);
    }

    #[test]
    fn invalid_host_is_an_error_with_a_hint() {
        for target in [
            "",
            "a b",
            "a.org:0",
            "a.org:65536",
            "a.org:+1",
            "https:x",
            "1.2.3.4.5",
            "fe80::1%eth0",
        ] {
            let Err(CliError::Usage { what, hint }) = decide_host(&rules(), target) else {
                panic!("{target}")
            };
            assert!(
                what.starts_with(&format!("`{target}` is not a host: ")) && !hint.is_empty(),
                "{what}"
            );
        }
    }
}
