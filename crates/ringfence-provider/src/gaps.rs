//! Demands of a policy, and those that a provider does not meet.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{Asking, Grants, Limit, NetworkMode, Observe};

/// The demands of `grants` that the provider does not meet: all of them except those named in
/// `met`.
///
/// A provider names what it enforces, so a demand that a later version of ringfence adds is a gap
/// of every provider that does not know it.
pub fn find_gaps(grants: &Grants, provider: &str, met: &[&str]) -> Vec<Gap> {
    let unmet = demands(grants).into_iter().filter(|demand| !met.contains(&demand.what.as_str()));
    let gap = |PolicyDemand { what, otherwise, kind }| Gap {
        what,
        why: format!("the provider `{provider}` cannot do this: {otherwise}"),
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

/// All demands of a policy that confines. The engine itself applies the environment, the rules on
/// command lines, `limits.wall` and `limits.output`.
fn demands(grants: &Grants) -> Vec<PolicyDemand> {
    let network = &grants.network;
    let is_full = network.mode == NetworkMode::Full;
    let has_secrets = network.secrets.iter().any(|secret| secret.is_set);
    let mode = match network.mode {
        NetworkMode::None => ("network", true, "commands can connect to every host"),
        NetworkMode::AllowList => ("network.allow-list", true, "the list of hosts does not hold"),
        NetworkMode::Full => ("network.deny", !network.deny.is_empty(), "denied hosts are reached"),
    };
    let enforced = [
        ("filesystem", true, "commands can read and write every file that you can"),
        (
            "filesystem.names",
            true,
            "denied and protected names can be created, and such files are open until the next command",
        ),
        ("quarantine", true, "git hooks and settings that a command plants stay in place"),
        ("processes", true, "commands can signal, trace and read your other processes"),
        mode,
        ("network.unix-sockets", true, "commands can connect to Unix sockets that they see"),
        ("network.localhost", !is_full && !network.localhost.is_empty(), "no port is forwarded"),
        ("network.bind", !is_full && !network.bind.is_empty(), "no port is published"),
        ("secrets", has_secrets, "no proxy inserts secrets into requests"),
    ];
    let reported = [
        ("denials", true, "no denied access is reported"),
        ("usage", true, "CPU time and memory are not measured"),
        ("observe", grants.observe == Observe::All, "allowed accesses are not reported"),
        ("ask", grants.ask == Asking::Terminal, "no question is asked, and the access is denied"),
        ("filesystem.hide", grants.disguises.has_any(), "hidden names are denied instead"),
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
    enforced
        .chain(reported.into_iter().filter_map(made(GapKind::Reporting)))
        .chain(limits)
        .collect()
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
        let refusing: BTreeSet<&str> =
            gaps.iter().filter(|gap| gap.refuses_run()).map(|gap| gap.what.as_str()).collect();
        assert_eq!(refusing, expect.iter().copied().collect());
        assert!(gaps.iter().all(|gap| gap.why.contains("`test`") && !gap.hint.is_empty()));
    }

    #[test]
    fn every_demand_that_is_not_met_is_a_gap() {
        let paths = ["filesystem", "filesystem.names", "quarantine"];
        let always = [&paths[..], &["processes", "network.unix-sockets"]].concat();
        check(|_| (), &[], &[&always[..], &["network"]].concat());
        check(|_| (), &[&always[..], &["network"]].concat(), &[]);
        check(
            |grants| grants.network.mode = NetworkMode::AllowList,
            &["network"],
            &[&always[..], &["network.allow-list"]].concat(),
        );
        check(
            |grants| {
                grants.network.mode = NetworkMode::Full;
                grants.limits = Limit::ALL
                    .iter()
                    .fold(Limits::default(), |limits, limit| limits.with(*limit, Some(1)));
            },
            &always,
            &[
                "limits.cpu",
                "limits.memory",
                "limits.processes",
                "limits.open-files",
                "limits.file-size",
                "limits.disk",
            ],
        );
    }

    #[test]
    fn gap_in_reports_refuses_nothing() {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let facts = Facts::minimal(path("/p"), path("/h"), path("/s"));
        let mut grants = resolve(&[], &Flags::none(path("/p")), &facts).unwrap();
        grants.observe = Observe::All;
        grants.ask = Asking::Terminal;
        let gaps = find_gaps(&grants, "test", &[]);
        for what in ["denials", "usage", "observe", "ask"] {
            assert!(gaps.iter().any(|gap| gap.what == what && !gap.refuses_run()), "{what}");
        }
    }
}
