//! Changes of host and port rules while commands run.
//!
//! Every connection is decided separately, so host lists can change in a running sandbox. The
//! network mode, the ports in both directions and the secrets were fixed when it was created.

use super::{ChangeDirection, ChangeKind, PolicyChange};
use crate::grants::{NetworkMode, NetworkRules, PortSelection};
use crate::network::{ListedHost, OpenPorts, SecretRule, SniCheck};

/// The part of `new` that can apply where `old` does, and the changes, some of them pending.
pub(super) fn revise(old: &NetworkRules, new: &NetworkRules) -> (NetworkRules, Vec<PolicyChange>) {
    let mut changes = settings(old, new);
    let mut holding = NetworkRules {
        mode: old.mode,
        mode_origin: old.mode_origin.clone(),
        localhost: old.localhost.clone(),
        bind: old.bind.clone(),
        unix_sockets: old.unix_sockets.clone(),
        proxy_variables: old.proxy_variables,
        secrets: old.secrets.clone(),
        ..new.clone()
    };
    if old.mode != new.mode {
        // The lists belong to another mode: until it applies, they may narrow access, but not widen
        // it.
        holding.allow = old.allow.clone();
        holding.sni = old.sni;
        holding.deny = old.deny.iter().chain(missing(&new.deny, &old.deny)).cloned().collect();
    }
    if old.mode == NetworkMode::AllowList {
        changes.extend(lists(old, &holding));
    }
    (holding, changes)
}

fn settings(old: &NetworkRules, new: &NetworkRules) -> Vec<PolicyChange> {
    let mut changes = Vec::new();
    if old.mode != new.mode {
        let direction = if reach(new.mode) > reach(old.mode) {
            ChangeDirection::Wider
        } else {
            ChangeDirection::Narrower
        };
        changes
            .push(PolicyChange::setting(format!("network.mode = {}", new.mode.word()), direction));
    }
    if old.unix_sockets != new.unix_sockets {
        let is_less = old.unix_sockets.iter().any(|socket| !new.unix_sockets.contains(socket));
        let direction = if is_less { ChangeDirection::Narrower } else { ChangeDirection::Wider };
        changes.push(PolicyChange::setting("network.unix-sockets".into(), direction));
    }
    for (key, old, new) in
        [("localhost", &old.localhost, &new.localhost), ("bind", &old.bind, &new.bind)]
    {
        changes.extend(
            ports(old, new)
                .map(|direction| PolicyChange::setting(format!("network.{key}"), direction)),
        );
    }
    if old.proxy_variables != new.proxy_variables {
        changes.push(PolicyChange::setting(
            format!("network.proxy-variables = {}", new.proxy_variables),
            ChangeDirection::Neither,
        ));
    }
    let has = |all: &[SecretRule], one: &SecretRule| {
        all.iter().any(|other| {
            (&other.env, &other.hosts, &other.header) == (&one.env, &one.hosts, &one.header)
        })
    };
    if old.secrets.iter().any(|secret| !has(&new.secrets, secret)) {
        changes.push(PolicyChange::setting("secrets".into(), ChangeDirection::Narrower));
    } else if new.secrets.iter().any(|secret| !has(&old.secrets, secret)) {
        changes.push(PolicyChange::setting("secrets".into(), ChangeDirection::Wider));
    }
    changes
}

fn ports(old: &OpenPorts, new: &OpenPorts) -> Option<ChangeDirection> {
    match (old.ports(), new.ports()) {
        (was, is) if was == is => None,
        (PortSelection::None, _) | (_, PortSelection::All) => Some(ChangeDirection::Wider),
        (PortSelection::Some(was), PortSelection::Some(is))
            if was.iter().all(|port| is.contains(port)) =>
        {
            Some(ChangeDirection::Wider)
        }
        _ => Some(ChangeDirection::Narrower),
    }
}

/// Entries that were added or removed, except those covered by another entry.
fn lists(old: &NetworkRules, new: &NetworkRules) -> Vec<PolicyChange> {
    let change = |word: &'static str, turn, direction| {
        move |listed: &ListedHost| PolicyChange {
            rule: format!("{word} {}", listed.origin.text),
            origin: Some(listed.origin.to_string()),
            turn,
            direction,
            pending: None,
        }
    };
    let opened = missing(&new.allow, &old.allow).map(change(
        "allow",
        ChangeKind::Added,
        ChangeDirection::Wider,
    ));
    let closed = missing(&old.allow, &new.allow).map(change(
        "allow",
        ChangeKind::Removed,
        ChangeDirection::Narrower,
    ));
    let denied = missing(&new.deny, &old.deny).map(change(
        "deny",
        ChangeKind::Added,
        ChangeDirection::Narrower,
    ));
    let excused = missing(&old.deny, &new.deny).map(change(
        "deny",
        ChangeKind::Removed,
        ChangeDirection::Wider,
    ));
    let mut changes: Vec<PolicyChange> =
        opened.chain(closed).chain(denied).chain(excused).collect();
    if old.sni != new.sni {
        let direction = if new.sni == SniCheck::Off {
            ChangeDirection::Wider
        } else {
            ChangeDirection::Narrower
        };
        let rule = format!("network.sni = {}", new.sni.word());
        changes.push(PolicyChange {
            rule,
            origin: None,
            turn: ChangeKind::Added,
            direction,
            pending: None,
        });
    }
    changes
}

/// The entries of `list` that no entry of `other` covers.
fn missing<'a>(
    list: &'a [ListedHost],
    other: &'a [ListedHost],
) -> impl Iterator<Item = &'a ListedHost> {
    list.iter().filter(|listed| !other.iter().any(|other| other.rule.covers(&listed.rule)))
}

fn reach(mode: NetworkMode) -> u8 {
    match mode {
        NetworkMode::None => 0,
        NetworkMode::AllowList => 1,
        NetworkMode::Full => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::{Origin, Source};
    use crate::network::PortEntry;

    /// Rules from `mode` and words: `+a.org` allows, `-b.org` denies, `:80` opens a host port.
    fn rules(mode: NetworkMode, words: &str) -> NetworkRules {
        let mut rules = NetworkRules { mode, ..NetworkRules::default() };
        for word in words.split_whitespace() {
            let (sign, text) = word.split_at(1);
            let origin = Origin::new(Source::User, text);
            match sign {
                "+" => rules.allow.push(ListedHost { rule: text.parse().unwrap(), origin }),
                "-" => rules.deny.push(ListedHost { rule: text.parse().unwrap(), origin }),
                _ => rules.localhost.entries.push(PortEntry {
                    ports: PortSelection::Some(vec![text.parse().unwrap()]),
                    origin,
                }),
            }
        }
        rules
    }

    #[track_caller]
    fn check(
        (old_mode, old): (NetworkMode, &str),
        (new_mode, new): (NetworkMode, &str),
        holding: &str,
        expect: &[&str],
    ) {
        let (held, changes) = revise(&rules(old_mode, old), &rules(new_mode, new));
        let describe = |change: &PolicyChange| {
            let state = if change.pending.is_some() { "later" } else { "now" };
            format!("{:?} {:?} {} {state}", change.direction, change.turn, change.rule)
        };
        assert_eq!(changes.iter().map(describe).collect::<Vec<_>>(), expect, "{old} to {new}");
        assert_eq!(held, rules(old_mode, holding), "{old} to {new}");
    }

    const LIST: NetworkMode = NetworkMode::AllowList;

    #[test]
    fn host_list_changes_apply_at_once() {
        check((LIST, "+a.org"), (LIST, "+a.org"), "+a.org", &[]);
        check(
            (LIST, "+a.org"),
            (LIST, "+b.org"),
            "+b.org",
            &["Wider Added allow b.org now", "Narrower Removed allow a.org now"],
        );
        check(
            (LIST, "+a.org"),
            (LIST, "+a.org -x.org"),
            "+a.org -x.org",
            &["Narrower Added deny x.org now"],
        );
        check(
            (LIST, "+a.org -x.org"),
            (LIST, "+a.org"),
            "+a.org",
            &["Wider Removed deny x.org now"],
        );
        check((LIST, "+*.a.org"), (LIST, "+*.a.org +x.a.org"), "+*.a.org +x.a.org", &[]);
        check(
            (LIST, "+x.a.org"),
            (LIST, "+*.a.org"),
            "+*.a.org",
            &["Wider Added allow *.a.org now"],
        );
        check(
            (LIST, "+a.org"),
            (LIST, "+a.org:443"),
            "+a.org:443",
            &["Narrower Removed allow a.org now"],
        );
    }

    #[test]
    fn fixed_network_settings_stay_pending() {
        let full = NetworkMode::Full;
        check(
            (NetworkMode::None, ""),
            (LIST, "+a.org"),
            "",
            &["Wider Added network.mode = allow-list later"],
        );
        check(
            (LIST, "+a.org"),
            (full, "-x.org"),
            "+a.org -x.org",
            &["Wider Added network.mode = full later", "Narrower Added deny x.org now"],
        );
        check(
            (LIST, "+a.org"),
            (NetworkMode::None, ""),
            "+a.org",
            &["Narrower Added network.mode = none later"],
        );
        check(
            (full, ""),
            (LIST, "+a.org"),
            "",
            &["Narrower Added network.mode = allow-list later"],
        );
        check((LIST, ":80"), (LIST, ":80 :81"), ":80", &["Wider Added network.localhost later"]);
        check((LIST, ":80"), (LIST, ":81"), ":80", &["Narrower Added network.localhost later"]);
    }

    #[test]
    fn moved_line_is_no_change() {
        let mut moved = rules(LIST, "+a.org -b.org :80");
        moved.allow[0].origin.line = Some(7);
        moved.localhost.entries[0].origin.line = Some(8);
        assert_eq!(revise(&rules(LIST, "+a.org -b.org :80"), &moved).1, []);
    }
}
