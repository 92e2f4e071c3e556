//! The demands of a policy on a sandbox.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{Grants, Limit, NetworkMode, Observe};

/// A demand of a policy on a sandbox. A provider enforces it, or reports its gap.
///
/// The engine itself enforces the rules on the text of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDemand {
    /// Commands access allowed files only.
    Filesystem,
    /// Commands reach no process outside the sandbox.
    Processes,
    /// Commands get allowed environment variables only.
    Environment,
    /// Commands have no network.
    NoNetwork,
    /// Commands connect to allowed hosts only.
    HostAllowList,
    /// Commands connect to no denied host.
    HostDenyList,
    /// Commands connect to allowed Unix sockets only.
    UnixSockets,
    /// Requests get the secrets that commands do not have.
    Secrets,
    /// Commands stay within a limit.
    Limit(Limit),
    /// Without a tool that writes, commands cannot write either.
    NoWriting,
    /// Each allowed access is reported.
    Observe,
}

impl PolicyDemand {
    /// All demands of `grants`.
    pub fn all_of(grants: &Grants) -> Vec<Self> {
        let mut demands = Vec::new();
        if grants.is_confined() {
            demands.extend([Self::Filesystem, Self::Processes, Self::Environment]);
            let network = &grants.network;
            demands.push(match network.mode {
                NetworkMode::None => Self::NoNetwork,
                NetworkMode::AllowList => Self::HostAllowList,
                NetworkMode::Full => Self::UnixSockets,
            });
            if network.mode == NetworkMode::Full && !network.deny.is_empty() {
                demands.push(Self::HostDenyList);
            }
            if network.secrets.iter().any(|secret| secret.is_set) {
                demands.push(Self::Secrets);
            }
            let limits = grants.limits.set_limits();
            demands.extend(limits.into_iter().map(|(limit, _)| Self::Limit(limit)));
            if grants.observe == Observe::All {
                demands.push(Self::Observe);
            }
        }
        if grants.tools.rule_against_writing().is_some() {
            demands.push(Self::NoWriting);
        }
        demands
    }

    /// The gaps of `provider`, which enforces no more than `enforced`.
    pub fn gaps(grants: &Grants, provider: &str, enforced: &[Self]) -> Vec<Gap> {
        let unmet = Self::all_of(grants).into_iter().filter(|demand| !enforced.contains(demand));
        unmet.map(|demand| demand.gap(grants, provider)).collect()
    }

    /// Its stable word, as in [`Gap::what`].
    pub fn what(self) -> String {
        let word = match self {
            Self::Filesystem => "filesystem",
            Self::Processes => "processes",
            Self::Environment => "environment",
            Self::NoNetwork => "network",
            Self::HostAllowList => "network.allow-list",
            Self::HostDenyList => "network.deny",
            Self::UnixSockets => "network.unix-sockets",
            Self::Secrets => "secrets",
            Self::Limit(limit) => return format!("limits.{limit}"),
            Self::NoWriting => "tools",
            Self::Observe => "observe",
        };
        word.to_owned()
    }

    fn gap(self, grants: &Grants, provider: &str) -> Gap {
        let consequence = match self {
            Self::Filesystem => "commands can read and write every file that you can",
            Self::Processes => "commands can signal, trace and read your other processes",
            Self::Environment => "commands can get variables that the policy denies",
            Self::NoNetwork | Self::HostAllowList | Self::HostDenyList => {
                "commands can connect to every host"
            }
            Self::UnixSockets => "commands can connect to every Unix socket",
            Self::Secrets => "no proxy inserts secrets into requests",
            Self::Limit(_) => "nothing measures the command",
            Self::NoWriting => "any program can write",
            Self::Observe => "nothing watches the command",
        };
        let tool = grants.tools.rule_against_writing().filter(|_| self == Self::NoWriting);
        let rule = tool.map(|tool| {
            format!("`{}` ({}) leaves no tool that writes, but ", tool.name, tool.origin)
        });
        Gap {
            what: self.what(),
            why: format!(
                "{}the provider `{provider}` does not enforce it: {consequence}",
                rule.unwrap_or_default()
            ),
            hint: "use `--provider local`, or accept with `--on-gap run`".into(),
            kind: if self == Self::Observe { GapKind::Reporting } else { GapKind::Enforcement },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringfence_policy::{AbsPath, Facts, Flags, Limits, Mode, resolve};

    use super::*;

    #[track_caller]
    fn check(edit: impl FnOnce(&mut Grants), enforced: &[PolicyDemand], expect: &[&str]) {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let facts = Facts::minimal(path("/p"), path("/h"), path("/s"));
        let mut grants = resolve(&[], &Flags::none(path("/p")), &facts).unwrap();
        edit(&mut grants);
        let gaps = PolicyDemand::gaps(&grants, "x", enforced);
        let whats: BTreeSet<&str> = gaps.iter().map(|gap| gap.what.as_str()).collect();
        assert_eq!(whats, expect.iter().copied().collect());
    }

    #[test]
    fn every_demand_that_is_not_enforced_is_a_gap() {
        check(|_| (), &[], &["filesystem", "processes", "environment", "network"]);
        check(|_| (), &[PolicyDemand::Filesystem], &["processes", "environment", "network"]);
        check(
            |grants| grants.network.mode = NetworkMode::AllowList,
            &[PolicyDemand::NoNetwork, PolicyDemand::Environment],
            &["filesystem", "processes", "network.allow-list"],
        );
        check(
            |grants| {
                grants.network.mode = NetworkMode::Full;
                grants.limits = Limit::ALL
                    .iter()
                    .fold(Limits::default(), |limits, limit| limits.with(*limit, Some(1)));
            },
            &[PolicyDemand::Limit(Limit::Wall), PolicyDemand::Limit(Limit::Output)],
            &[
                "filesystem",
                "processes",
                "environment",
                "network.unix-sockets",
                "limits.cpu",
                "limits.memory",
                "limits.processes",
                "limits.open-files",
                "limits.file-size",
                "limits.disk",
            ],
        );
        check(|grants| grants.mode = Mode::FullAccess, &[], &[]);
    }
}
