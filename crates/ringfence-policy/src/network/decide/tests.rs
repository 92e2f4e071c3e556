use super::*;
use crate::grants::Source;

/// Rules, one per line: `allow a.org`, `deny b.org:443`, `localhost 3000`, `mode full`, `sni off`.
fn rules(lines: &str) -> NetworkRules {
    let mut rules = NetworkRules { mode: NetworkMode::AllowList, ..NetworkRules::default() };
    for (word, text) in lines.lines().filter_map(|line| line.trim().split_once(' ')) {
        let origin = Origin::new(Source::User, text);
        match word {
            "allow" => rules.allow.push(ListedHost { rule: text.parse().unwrap(), origin }),
            "deny" => rules.deny.push(ListedHost { rule: text.parse().unwrap(), origin }),
            "localhost" => {
                let ports = crate::grants::PortSelection::Some(vec![text.parse().unwrap()]);
                rules.localhost.entries.push(super::super::rules::PortEntry { ports, origin });
            }
            "mode" => {
                rules.mode = if text == "full" { NetworkMode::Full } else { NetworkMode::None }
            }
            "sni" => rules.sni = SniCheck::Off,
            other => panic!("{other}"),
        }
    }
    rules
}

/// Decides `NAME`, `NAME:PORT`, `ADDRESS:PORT`, or `NAME ADDRESS:PORT`.
fn decide(rules: &NetworkRules, question: &str) -> HostDecision {
    let own = ["93.184.216.34".parse().unwrap()];
    if let Some((name, target)) = question.split_once(' ') {
        let target: std::net::SocketAddr = target.parse().unwrap();
        return rules.decide_address(
            target.ip(),
            target.port(),
            Some(&HostName::new(name).unwrap()),
            &own,
        );
    }
    if let Ok(target) = question.parse::<std::net::SocketAddr>() {
        return rules.decide_address(target.ip(), target.port(), None, &own);
    }
    match question.split_once(':') {
        Some((name, port)) => {
            rules.decide_name(&HostName::new(name).unwrap(), port.parse().unwrap())
        }
        None => rules.decide_lookup(&HostName::new(question).unwrap()),
    }
}

#[track_caller]
fn check(lines: &str, question: &str, expect: &str) {
    let decision = decide(&rules(lines), question);
    let route = match decision.route {
        None => "shut",
        Some(ConnectRoute::Direct) => "direct",
        Some(ConnectRoute::Checked(RouteCheck::Tls)) => "tls",
        Some(ConnectRoute::Checked(RouteCheck::Http)) => "http",
    };
    let reason = decision.rule().unwrap_or_else(|| match &decision.reason {
        HostReason::Guarded { what, .. } => format!("guarded {what}"),
        HostReason::Unlisted => "unlisted".into(),
        HostReason::Own => "own".into(),
        other => panic!("{other:?}"),
    });
    assert_eq!(format!("{route} {reason}"), expect, "{question}");
    assert_eq!(decision.is_open(), decision.change_hint().is_none());
    if let Some(remedy) = decision.remedy() {
        let mut opened = rules(lines);
        opened.mode = NetworkMode::AllowList;
        opened.allow.push(ListedHost {
            origin: Origin::new(Source::Session, remedy.to_string()),
            rule: remedy,
        });
        let again = decide(&opened, question);
        assert!(
            again.is_open() || matches!(again.reason, HostReason::Guarded { .. }),
            "{question}: {again:?}"
        );
    }
}

#[test]
fn empty_allow_list_opens_nothing() {
    check("", "a.org", "shut unlisted");
    check("", "a.org:443", "shut unlisted");
    check("", "8.8.8.8:53", "shut unlisted");
    check("mode none\nallow a.org", "a.org:443", "shut network.mode = none");
    check("mode none\nallow a.org", "a.org", "shut network.mode = none");
    check("mode full", "a.org:443", "direct network.mode = full");
    check("mode full\ndeny a.org", "a.org:443", "shut deny a.org");
}

#[test]
fn exact_names_and_subdomain_patterns() {
    check("allow a.org", "a.org", "direct allow a.org");
    check("allow a.org", "a.org:443", "tls allow a.org");
    check("allow a.org", "a.org:80", "http allow a.org");
    check("allow a.org", "a.org:22", "direct allow a.org");
    check("allow a.org\nsni off", "a.org:443", "direct allow a.org");
    check("allow a.org", "x.a.org:443", "shut unlisted");
    check("allow *.a.org", "a.org:443", "shut unlisted");
    check("allow *.a.org", "a.org", "shut unlisted");
    check("allow *.a.org", "X.Y.A.org.:443", "tls allow *.a.org");
    check("allow a.org:443", "a.org:80", "shut unlisted");
    check("allow a.org:443", "a.org", "direct allow a.org:443");
    check("allow a.org", "a.org.evil.example:443", "shut unlisted");
    check("allow a.org", "eva.org:443", "shut unlisted");
}

#[test]
fn deny_beats_allow() {
    check("allow *.a.org\ndeny x.a.org", "x.a.org", "shut deny x.a.org");
    check("allow *.a.org\ndeny x.a.org", "X.a.org.:443", "shut deny x.a.org");
    check("allow *.a.org\ndeny x.a.org", "y.a.org:443", "tls allow *.a.org");
    check("allow a.org\ndeny a.org:22", "a.org:22", "shut deny a.org:22");
    check("allow a.org\ndeny a.org:22", "a.org", "direct allow a.org");
    check("allow a.org:22\ndeny a.org:22", "a.org", "shut deny a.org:22");
    check("allow a.org\ndeny 1.2.3.0/24", "a.org 1.2.3.4:443", "shut deny 1.2.3.0/24");
    check("allow a.org\ndeny 1.2.3.4", "a.org [64:ff9b::1.2.3.4]:443", "shut deny 1.2.3.4");
    check("allow 1.2.3.4\ndeny 1.2.3.4:22", "1.2.3.4:22", "shut deny 1.2.3.4:22");
    check("allow 1.2.3.4\ndeny 1.2.3.4:22", "[::ffff:1.2.3.4]:22", "shut deny 1.2.3.4:22");
}

#[test]
fn address_rules_match_literal_addresses() {
    check("allow 1.2.3.4:443", "1.2.3.4:443", "direct allow 1.2.3.4:443");
    check("allow 1.2.3.4:443", "1.2.3.5:443", "shut unlisted");
    check("allow a.org", "1.2.3.4:443", "shut unlisted");
    check("allow 10.0.0.0/8", "10.1.2.3:5432", "direct allow 10.0.0.0/8");
    check("allow 0.0.0.0/0", "1.2.3.4:1", "direct allow 0.0.0.0/0");
    check("allow 0.0.0.0/0", "10.1.2.3:1", "shut guarded private");
    check("allow 0.0.0.0/0", "169.254.169.254:80", "shut guarded cloud metadata service");
    check("allow 169.254.0.0/16", "169.254.169.254:80", "shut guarded cloud metadata service");
    check("allow 169.254.169.254", "169.254.169.254:80", "direct allow 169.254.169.254");
    check("allow 0.0.0.0/0", "93.184.216.34:22", "shut guarded an address of this machine");
    check("allow 93.184.216.34", "93.184.216.34:22", "direct allow 93.184.216.34");
    check("allow ::/0", "[64:ff9b::10.0.0.1]:1", "shut guarded private");
}

#[test]
fn allowed_name_does_not_open_guarded_address() {
    check("allow a.org", "a.org 1.2.3.4:443", "tls allow a.org");
    check("allow a.org", "a.org 10.0.0.1:443", "shut guarded private");
    check("allow a.org", "a.org 127.0.0.1:443", "shut guarded loopback");
    check("allow a.org", "a.org [::ffff:127.0.0.1]:443", "shut guarded loopback");
    check(
        "allow a.org",
        "a.org [64:ff9b::169.254.169.254]:80",
        "shut guarded cloud metadata service",
    );
    check("allow a.org", "a.org 93.184.216.34:443", "shut guarded an address of this machine");
    check("allow a.org\nallow 10.0.0.0/8", "a.org 10.0.0.1:443", "tls allow a.org");
    check("allow a.org\nallow 10.0.0.0/8:22", "a.org 10.0.0.1:443", "shut guarded private");
    check("allow a.org\nallow 0.0.0.0/0", "a.org 10.0.0.1:443", "shut guarded private");
    check("allow a.org\nlocalhost 443", "a.org 127.0.0.1:443", "tls allow a.org");
    check("allow 10.0.0.0/8", "b.org 10.0.0.1:443", "shut unlisted");
}

#[test]
fn host_loopback_is_reachable_by_listed_port_only() {
    check("", "localhost", "direct own");
    check("allow a.org", "localhost:3000", "shut own");
    check("localhost 3000", "localhost:3000", "direct 3000");
    check("localhost 3000", "x.localhost:3000", "direct 3000");
    check("localhost 3000", "127.0.0.1:3000", "direct 3000");
    check("localhost 3000", "127.0.0.1:3001", "shut own");
    check("mode none\nlocalhost 3000", "[::1]:3000", "direct 3000");
    check("localhost 3000", "x.localhost 127.0.0.1:3000", "direct 3000");
    check("localhost 3000", "x.localhost 1.2.3.4:3000", "shut unlisted");
    // A loopback address means the sandbox's own loopback, even if an entry allows it for names.
    check("allow 127.0.0.1:3001", "127.0.0.1:3001", "shut own");
    check("localhost 3000\ndeny 127.0.0.1:3000", "127.0.0.1:3000", "shut deny 127.0.0.1:3000");
    check("localhost 3000\ndeny 127.0.0.1:3000", "127.9.9.9:3000", "shut deny 127.0.0.1:3000");
    check("localhost 3000\ndeny 127.0.0.1:3000", "localhost:3000", "shut deny 127.0.0.1:3000");
    check("mode none\nlocalhost 3000\ndeny ::1", "[::1]:3000", "shut deny ::1");
    check("localhost 3000\ndeny localhost", "127.0.0.1:3000", "shut deny localhost");
    check("localhost 3000\ndeny 127.0.0.1:3001", "127.0.0.1:3000", "direct 3000");
}

#[test]
fn host_denial_names_a_way_to_change_it() {
    let change =
        |lines: &str, question: &str| decide(&rules(lines), question).change_hint().unwrap();
    assert!(change("", "a.org:443").starts_with(
        "ringfence run --allow-host a.org:443, or for good: ringfence allow host a.org:443"
    ));
    assert!(change("", "[2606:4700::1]:443").contains("--allow-host [2606:4700::1]:443"));
    assert!(change("allow a.org", "a.org 10.0.0.1:443").contains("--allow-host 10.0.0.1:443"));
    assert!(change("", "localhost:3000").contains("--allow-localhost 3000"));
    assert_eq!(
        change("allow a.org\ndeny a.org", "a.org:1"),
        "remove `a.org` from `deny` in user policy"
    );
    let origin = Origin::new(Source::Managed, "network.mode = none");
    let mut managed = NetworkRules { mode_origin: Some(origin.clone()), ..NetworkRules::default() };
    assert_eq!(
        decide(&managed, "a.org:443").change_hint().unwrap(),
        "ask the administrator to change managed policy"
    );
    assert_eq!(decide(&managed, "a.org:443").remedy(), None);
    (managed.mode, managed.locked) = (NetworkMode::AllowList, Some(origin));
    managed.allow = rules("allow a.org").allow;
    for question in ["b.org", "b.org:1", "8.8.8.8:1", "a.org 10.0.0.1:443", "localhost:1"] {
        let decision = decide(&managed, question);
        assert_eq!(
            (decision.remedy(), decision.change_hint().unwrap().as_str()),
            (None, "ask the administrator to change managed policy"),
            "{question}"
        );
    }
    assert_eq!(decide(&rules(""), "a.org:443").to_string(), "connecting to a.org:443 is denied");
    assert_eq!(decide(&rules(""), "a.org").to_string(), "looking up a.org is denied");
}
