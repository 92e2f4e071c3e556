//! The gaps of the `process` provider: all demands of the policy.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{Grants, ProviderSpec};

/// All demands of `grants`, none of which is enforced.
pub(super) fn find_gaps(grants: &Grants) -> Vec<Gap> {
    let mut gaps = if grants.is_confined() {
        ringfence_provider::find_gaps(grants, ProviderSpec::PROCESS, &["usage"])
    } else {
        Vec::new()
    };
    gaps.extend(writing_gap(grants));
    gaps
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

    use ringfence_policy::{AbsPath, Facts, Flags, Limit, Limits, Mode, NetworkMode, resolve};

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
