//! Demands of a policy, and those that a provider does not meet.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{Asking, Grants, Limit, NetworkMode, Observe};

/// The demands of `grants` that the provider does not meet: all of them except those named in
/// `met`.
///
/// A provider names what it enforces, so a demand that a later version of ringfence adds is a gap
/// of every provider that does not know it. A demand within another that is not met is not listed.
pub fn find_gaps(grants: &Grants, provider: &str, met: &[&str]) -> Vec<Gap> {
    let demands = demands(grants, met).into_iter();
    let unmet = demands.filter(|demand| !met.contains(&demand.what.as_str()));
    let gap = |PolicyDemand { what, otherwise, kind }| Gap {
        what,
        why: format!("the provider `{provider}` does not enforce it: {otherwise}"),
        hint: "use `--provider local`, or accept with `--on-gap run`".into(),
        kind,
    };
    unmet.map(gap).collect()
}

/// A demand of a policy.
struct PolicyDemand {
    what: String,
    /// The consequence of not meeting it.
    otherwise: &'static str,
    kind: GapKind,
}

/// All demands of a policy that confines, except those within another that is not `met`.
///
/// The engine itself applies the environment, the rules on command lines, `limits.wall` and
/// `limits.output`.
fn demands(grants: &Grants, met: &[&str]) -> Vec<PolicyDemand> {
    let network = &grants.network;
    let (mode, has_mode, otherwise) = match network.mode {
        NetworkMode::None => ("network", true, "commands can connect to every host"),
        NetworkMode::AllowList => ("network.allow-list", true, "no list of hosts holds"),
        NetworkMode::Full => ("network.deny", !network.deny.is_empty(), "denied hosts are reached"),
    };
    let is_full = network.mode == NetworkMode::Full;
    let (has_files, is_closed) = (met.contains(&"filesystem"), !is_full && met.contains(&mode));
    let has_secrets = network.secrets.iter().any(|secret| secret.is_set);
    let enforced = [
        ("filesystem", true, "commands can read and write every file that you can"),
        ("filesystem.names", has_files, "denied and protected names can be created"),
        ("quarantine", has_files, "git hooks and settings that a command plants stay in place"),
        ("processes", true, "commands can signal, trace and read your other processes"),
        (mode, has_mode, otherwise),
        ("network.unix-sockets", is_full || is_closed, "commands can connect to Unix sockets"),
        ("network.localhost", is_closed && !network.localhost.is_empty(), "no port is forwarded"),
        ("network.bind", is_closed && !network.bind.is_empty(), "no port is published"),
        ("secrets", has_secrets, "no proxy inserts secrets into requests"),
    ];
    let reported = [
        ("denials", has_files, "no denied access is reported"),
        ("ask", has_files && grants.ask == Asking::Terminal, "every question is answered with no"),
        ("filesystem.hide", has_files && grants.disguises.has_any(), "hidden names are denied"),
        ("observe", grants.observe == Observe::All, "allowed accesses are not reported"),
        ("usage", true, "CPU time and memory are not measured"),
    ];
    let made = |kind| {
        move |(what, is_made, otherwise): (&str, bool, _)| {
            is_made.then(|| PolicyDemand { what: what.into(), otherwise, kind })
        }
    };
    let limits = grants.limits.set_limits().into_iter().map(|(limit, _)| limit);
    let limits = limits.filter(|limit| !matches!(limit, Limit::Wall | Limit::Output));
    let limits = limits.map(|limit| PolicyDemand {
        what: format!("limits.{limit}"),
        otherwise: "nothing limits the command",
        kind: GapKind::Enforcement,
    });
    let enforced = enforced.into_iter().filter_map(made(GapKind::Enforcement));
    let reported = reported.into_iter().filter_map(made(GapKind::Reporting));
    enforced.chain(limits).chain(reported).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringfence_policy::{AbsPath, Facts, Flags, Limits, resolve};

    use super::*;

    #[track_caller]
    fn check(edit: impl FnOnce(&mut Grants), met: &[&str], expect: &[&str]) {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let facts = Facts::minimal(path("/p"), path("/h"), path("/s"));
        let mut grants = resolve(&[], &Flags::none(path("/p")), &facts).unwrap();
        edit(&mut grants);
        let gaps = find_gaps(&grants, "test", met);
        let reports = ["denials", "ask", "filesystem.hide", "observe", "usage"];
        for gap in &gaps {
            assert_eq!(gap.refuses_run(), !reports.contains(&gap.what.as_str()), "{gap:?}");
            assert!(gap.why.contains("`test`") && !gap.hint.is_empty(), "{gap:?}");
        }
        let found: BTreeSet<&str> = gaps.iter().map(|gap| gap.what.as_str()).collect();
        assert_eq!(found, expect.iter().copied().collect());
    }

    const INNER: [&str; 4] = ["filesystem.names", "quarantine", "network.unix-sockets", "denials"];

    #[test]
    fn every_demand_that_is_not_met_is_a_gap() {
        let outer = ["filesystem", "processes", "network"];
        check(|_| (), &[], &[&outer[..], &["usage"]].concat());
        check(|_| (), &[&outer[..], &["usage"]].concat(), &INNER);
        check(|_| (), &[&outer[..], &INNER].concat(), &["usage"]);
        check(
            |grants| {
                grants.observe = Observe::All;
                grants.ask = Asking::Terminal;
            },
            &outer,
            &[&INNER[..], &["observe", "ask", "usage"]].concat(),
        );
    }

    #[test]
    fn closed_network_is_not_a_list_of_hosts() {
        let edit = |grants: &mut Grants| grants.network.mode = NetworkMode::AllowList;
        let expect = ["filesystem", "processes", "network.allow-list"];
        check(edit, &["network", "usage"], &expect);
    }

    #[test]
    fn every_limit_is_a_demand() {
        check(
            |grants| {
                grants.network.mode = NetworkMode::Full;
                grants.limits = Limit::ALL
                    .iter()
                    .fold(Limits::default(), |limits, limit| limits.with(*limit, Some(1)));
            },
            &["filesystem", "filesystem.names", "quarantine", "processes", "denials", "usage"],
            &[
                "network.unix-sockets",
                "limits.cpu",
                "limits.memory",
                "limits.processes",
                "limits.open-files",
                "limits.file-size",
                "limits.disk",
            ],
        );
    }
}
