//! The demands of a policy on a sandbox, and those that a provider does not meet.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{Asking, Grants, Limit, NetworkMode, Observe};

/// A demand of a policy on a sandbox. A provider meets it, or reports its gap.
///
/// The engine itself enforces the rules on the text of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDemand {
    /// Commands access allowed files only.
    Filesystem,
    /// Commands cannot create denied and protected names.
    DeniedNames,
    /// Git hooks and settings that a command plants are moved away.
    Quarantine,
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
    /// Commands reach allowed ports of the host's loopback.
    Localhost,
    /// Ports of the sandbox are published.
    Bind,
    /// Requests get the secrets that commands do not have.
    Secrets,
    /// Commands stay within a limit.
    Limit(Limit),
    /// Without a tool that writes, commands cannot write either.
    NoWriting,
    /// Denied accesses are reported.
    Denials,
    /// Denied accesses wait for an answer.
    Asking,
    /// Hidden names do not exist, rather than being denied.
    Hiding,
    /// Each allowed access is reported.
    Observe,
    /// CPU time and memory are measured.
    Usage,
}

use PolicyDemand as Demand;

impl PolicyDemand {
    /// The demands that a provider meets by running a request as it is: with its environment, its
    /// time limit and its output limit.
    pub const OF_REQUEST: [Self; 3] =
        [Self::Environment, Self::Limit(Limit::Wall), Self::Limit(Limit::Output)];

    /// All demands of `grants`.
    pub fn all_of(grants: &Grants) -> Vec<Self> {
        let mut demands = Vec::new();
        if grants.tools.rule_against_writing().is_some() {
            demands.push(Demand::NoWriting);
        }
        if !grants.is_confined() {
            return demands;
        }
        let network = &grants.network;
        let is_closed = network.mode != NetworkMode::Full;
        let network_demands = [
            (Demand::NoNetwork, network.mode == NetworkMode::None),
            (Demand::HostAllowList, network.mode == NetworkMode::AllowList),
            (Demand::HostDenyList, !is_closed && !network.deny.is_empty()),
            (Demand::UnixSockets, true),
            (Demand::Localhost, is_closed && !network.localhost.is_empty()),
            (Demand::Bind, is_closed && !network.bind.is_empty()),
            (Demand::Secrets, network.secrets.iter().any(|secret| secret.is_set)),
            (Demand::Asking, grants.ask == Asking::Terminal),
            (Demand::Hiding, grants.disguises.has_any()),
            (Demand::Observe, grants.observe == Observe::All),
        ];
        demands.extend([Demand::Filesystem, Demand::DeniedNames, Demand::Quarantine]);
        demands.extend([Demand::Processes, Demand::Environment, Demand::Denials, Demand::Usage]);
        demands.extend(
            network_demands.into_iter().filter_map(|(one, is_made)| is_made.then_some(one)),
        );
        demands
            .extend(grants.limits.set_limits().into_iter().map(|(limit, _)| Demand::Limit(limit)));
        demands
    }

    /// The gaps of `provider`, which meets no more than `met`: a demand that a later version adds
    /// is a gap of every provider that does not know it. A demand within another one that is not
    /// met has no gap of its own.
    pub fn gaps(grants: &Grants, provider: &str, met: &[Self]) -> Vec<Gap> {
        let unmet = Self::all_of(grants).into_iter().filter(|demand| !met.contains(demand));
        let listed = unmet.filter(|demand| match demand.outer(grants) {
            Some(outer) => met.contains(&outer),
            None => true,
        });
        // Without confinement no rule makes the files read-only.
        let is_met = |demand: &Self| {
            *demand == Demand::NoWriting
                && grants.is_confined()
                && met.contains(&Demand::Filesystem)
        };
        listed.filter(|demand| !is_met(demand)).map(|demand| demand.gap(grants, provider)).collect()
    }

    /// The demand within which this one lies.
    fn outer(self, grants: &Grants) -> Option<Self> {
        match self {
            Demand::DeniedNames
            | Demand::Quarantine
            | Demand::Denials
            | Demand::Asking
            | Demand::Hiding => Some(Demand::Filesystem),
            Demand::UnixSockets | Demand::Localhost | Demand::Bind => match grants.network.mode {
                NetworkMode::None => Some(Demand::NoNetwork),
                NetworkMode::AllowList => Some(Demand::HostAllowList),
                NetworkMode::Full => None,
            },
            _ => None,
        }
    }

    /// Its stable word, as in [`Gap::what`], and the consequence of not meeting it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Demand::Filesystem => {
                ("filesystem", "commands can read and write every file that you can")
            }
            Demand::DeniedNames => {
                ("filesystem.names", "denied and protected names can be created")
            }
            Demand::Quarantine => {
                ("quarantine", "git hooks and settings that a command plants stay in place")
            }
            Demand::Processes => {
                ("processes", "commands can signal, trace and read your other processes")
            }
            Demand::Environment => {
                ("environment", "commands can get variables that the policy denies")
            }
            Demand::NoNetwork => ("network", "commands can connect to every host"),
            Demand::HostAllowList => ("network.allow-list", "commands can connect to every host"),
            Demand::HostDenyList => ("network.deny", "commands can connect to denied hosts"),
            Demand::UnixSockets => ("network.unix-sockets", "commands can connect to Unix sockets"),
            Demand::Localhost => ("network.localhost", "no port is forwarded"),
            Demand::Bind => ("network.bind", "no port is published"),
            Demand::Secrets => ("secrets", "no proxy inserts secrets into requests"),
            Demand::Limit(_) => ("limits", "nothing limits the command"),
            Demand::NoWriting => ("tools", "any program can write"),
            Demand::Denials => ("denials", "no denied access is reported"),
            Demand::Asking => ("ask", "every question is answered with no"),
            Demand::Hiding => ("filesystem.hide", "hidden names are denied"),
            Demand::Observe => ("observe", "allowed accesses are not reported"),
            Demand::Usage => ("usage", "CPU time and memory are not measured"),
        }
    }

    /// Its stable word, as in [`Gap::what`].
    pub fn what(self) -> String {
        match self {
            Demand::Limit(limit) => format!("limits.{limit}"),
            _ => self.words().0.to_owned(),
        }
    }

    fn gap(self, grants: &Grants, provider: &str) -> Gap {
        let tool = grants.tools.rule_against_writing().filter(|_| self == Demand::NoWriting);
        let rule = tool.map(|tool| {
            format!("`{}` ({}) leaves no tool that writes, but ", tool.name, tool.origin)
        });
        let is_report = matches!(
            self,
            Demand::Denials | Demand::Asking | Demand::Hiding | Demand::Observe | Demand::Usage
        );
        Gap {
            what: self.what(),
            why: format!(
                "{}the provider `{provider}` does not enforce it: {}",
                rule.unwrap_or_default(),
                self.words().1
            ),
            hint: "use `--provider local`, or accept with `--on-gap run`".into(),
            kind: if is_report { GapKind::Reporting } else { GapKind::Enforcement },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringfence_policy::{AbsPath, Facts, Flags, Limits, Mode, resolve};

    use super::*;

    #[track_caller]
    fn check(edit: impl FnOnce(&mut Grants), met: &[PolicyDemand], expect: &[&str]) {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let facts = Facts::minimal(path("/p"), path("/h"), path("/s"));
        let mut grants = resolve(&[], &Flags::none(path("/p")), &facts).unwrap();
        edit(&mut grants);
        let gaps = PolicyDemand::gaps(&grants, "test", met);
        let reports = ["denials", "ask", "filesystem.hide", "observe", "usage"];
        for gap in &gaps {
            assert_eq!(gap.refuses_run(), !reports.contains(&gap.what.as_str()), "{gap:?}");
            assert!(gap.why.contains("`test`") && !gap.hint.is_empty(), "{gap:?}");
        }
        let found: BTreeSet<&str> = gaps.iter().map(|gap| gap.what.as_str()).collect();
        assert_eq!(found, expect.iter().copied().collect());
    }

    const OUTER: [PolicyDemand; 4] =
        [Demand::Filesystem, Demand::Processes, Demand::Environment, Demand::NoNetwork];
    const INNER: [&str; 4] = ["filesystem.names", "quarantine", "network.unix-sockets", "denials"];

    #[test]
    fn every_demand_that_is_not_met_is_a_gap() {
        check(|_| (), &[], &["filesystem", "processes", "environment", "network", "usage"]);
        check(|_| (), &[&OUTER[..], &[Demand::Usage]].concat(), &INNER);
        let inner = [Demand::DeniedNames, Demand::Quarantine, Demand::UnixSockets, Demand::Denials];
        check(|_| (), &[OUTER, inner].concat(), &["usage"]);
        check(
            |grants| {
                grants.observe = Observe::All;
                grants.ask = Asking::Terminal;
            },
            &OUTER,
            &[&INNER[..], &["observe", "ask", "usage"]].concat(),
        );
        check(|grants| grants.mode = Mode::FullAccess, &[], &[]);
    }

    #[test]
    fn closed_network_is_not_a_list_of_hosts() {
        check(
            |grants| grants.network.mode = NetworkMode::AllowList,
            &[Demand::NoNetwork, Demand::Environment, Demand::Usage],
            &["filesystem", "processes", "network.allow-list"],
        );
    }

    #[test]
    fn every_limit_is_a_demand() {
        let met = [Demand::Filesystem, Demand::DeniedNames, Demand::Quarantine, Demand::Processes];
        let met = [&met[..], &PolicyDemand::OF_REQUEST, &[Demand::Denials, Demand::Usage]].concat();
        check(
            |grants| {
                grants.network.mode = NetworkMode::Full;
                grants.limits = Limit::ALL
                    .iter()
                    .fold(Limits::default(), |limits, limit| limits.with(*limit, Some(1)));
            },
            &met,
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
