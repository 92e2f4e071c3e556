//! The gaps of the `process` provider: all demands of the policy.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{Grants, Limit, NetworkMode, Observe};

/// All demands of `grants`, none of which is enforced.
///
/// The environment, the command rules, `limits.wall` and `limits.output` need no confinement: the
/// engine and the command loop apply them.
pub(super) fn find_gaps(grants: &Grants) -> Vec<Gap> {
    if !grants.is_confined() {
        return writing_gap(grants).into_iter().collect();
    }
    let mut gaps = vec![
        gap("filesystem", "commands can read and write every file that you can"),
        gap("processes", "commands can signal, trace and read your other processes"),
    ];
    let network = &grants.network;
    gaps.push(match network.mode {
        NetworkMode::None => gap("network", "commands can connect to every host"),
        NetworkMode::AllowList => gap("network.allow-list", "commands can connect to every host"),
        NetworkMode::Full => {
            gap("network.unix-sockets", "commands can connect to every Unix socket")
        }
    });
    if network.mode == NetworkMode::Full && !network.deny.is_empty() {
        gaps.push(gap("network.deny", "commands can connect to every host"));
    }
    if network.secrets.iter().any(|secret| secret.is_set) {
        gaps.push(gap("secrets", "no proxy inserts secrets into requests"));
    }
    let is_uncounted = |limit: &Limit| !matches!(limit, Limit::Wall | Limit::Output);
    let limits = grants.limits.set_limits().into_iter().map(|(limit, _)| limit);
    gaps.extend(
        limits
            .filter(is_uncounted)
            .map(|limit| gap(&format!("limits.{limit}"), "nothing measures the command")),
    );
    gaps.extend(writing_gap(grants));
    if grants.observe == Observe::All {
        let kind = GapKind::Reporting;
        gaps.push(Gap { kind, ..gap("observe", "nothing watches the command") });
    }
    gaps
}

fn gap(what: &str, why: &str) -> Gap {
    Gap {
        what: what.into(),
        why: format!("the provider `process` confines nothing: {why}"),
        hint: "use `--provider local`, or accept with `--on-gap run`".into(),
        kind: GapKind::Enforcement,
    }
}

/// The gap for a policy without writing tools: without a sandbox, any program can write.
fn writing_gap(grants: &Grants) -> Option<Gap> {
    let tool = grants.tools.rule_against_writing()?;
    Some(Gap {
        what: "tools".into(),
        why: format!(
            "`{}` ({}) leaves no tool that writes, but without a sandbox any program can write",
            tool.name, tool.origin
        ),
        hint: "run it in the sandbox, or accept with `--on-gap run`".into(),
        kind: GapKind::Enforcement,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringfence_policy::{AbsPath, Facts, Flags, Limits, Mode, resolve};

    use super::*;

    #[track_caller]
    fn check(edit: impl FnOnce(&mut Grants), expect: &[&str]) {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let facts = Facts::minimal(path("/p"), path("/h"), path("/s"));
        let mut grants = resolve(&[], &Flags::none(path("/p")), &facts).unwrap();
        edit(&mut grants);
        let gaps = find_gaps(&grants);
        let whats: BTreeSet<&str> = gaps.iter().map(|gap| gap.what.as_str()).collect();
        assert_eq!(whats, expect.iter().copied().collect());
    }

    #[test]
    fn every_demand_of_a_confined_policy_is_a_gap() {
        check(|_| (), &["filesystem", "processes", "network"]);
        check(
            |grants| grants.network.mode = NetworkMode::AllowList,
            &["filesystem", "processes", "network.allow-list"],
        );
        check(
            |grants| {
                grants.network.mode = NetworkMode::Full;
                grants.limits = Limit::ALL
                    .iter()
                    .fold(Limits::default(), |limits, limit| limits.with(*limit, Some(1)));
            },
            &[
                "filesystem",
                "processes",
                "network.unix-sockets",
                "limits.cpu",
                "limits.memory",
                "limits.processes",
                "limits.open-files",
                "limits.file-size",
                "limits.disk",
            ],
        );
        check(|grants| grants.mode = Mode::FullAccess, &[]);
    }
}
