//! Targets of permanent grants.

use ringfence_policy::{
    AbsPath, Access, DecidingRule, Effect, Facts, Grants, HostPattern, HostRule, NetworkMode,
    Origin, PolicyEntryEdit, Rule, Source, Verdict,
};

use super::{AllowError, is_ringfence_path};

/// A path or host to allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantTarget {
    /// A path, and everything below it.
    Path(AbsPath, Access),
    /// One port of one host, or every port of a name.
    Host(HostRule),
}

impl GrantTarget {
    /// The policy entry that allows exactly this target.
    pub(crate) fn policy_entry(&self, facts: &Facts) -> Result<PolicyEntryEdit, AllowError> {
        match self {
            GrantTarget::Path(path, _) if is_ringfence_path(path, facts) => {
                Err(AllowError::Own { path: path.clone() })
            }
            GrantTarget::Path(path, access) => PolicyEntryEdit::new(path, *access, facts)
                .ok_or_else(|| AllowError::Unnamed { path: path.clone() }),
            GrantTarget::Host(rule) => Ok(PolicyEntryEdit::host(rule)),
        }
    }

    /// The path, if a private cache hides it: the sandbox can use the name, but does not see the
    /// host's file.
    pub(crate) fn hidden_by_cache(&self, grants: &Grants) -> Option<&AbsPath> {
        let GrantTarget::Path(path, access) = self else { return None };
        let is_cache =
            |rule: &Rule| matches!(rule.effect, Effect::Private { host_beneath: false, .. });
        match grants.decide(path, *access).rule {
            Some(DecidingRule::Rule(rule)) if is_cache(&rule) => Some(path),
            _ => None,
        }
    }

    /// The rule that allows it; an error with the rule that denies it.
    pub(crate) fn allowing_rule(&self, grants: &Grants) -> Result<Origin, AllowError> {
        let mode = || Origin::new(Source::Mode, "the mode");
        match self {
            GrantTarget::Path(path, access) => {
                let decision = grants.decide(path, *access);
                match (decision.verdict, decision.rule.map(|because| because.origin().clone())) {
                    (Verdict::Allowed, Some(origin)) => Ok(origin),
                    (_, by) => Err(AllowError::Shut {
                        path: path.clone(),
                        by: Box::new(by.unwrap_or_else(mode)),
                    }),
                }
            }
            GrantTarget::Host(rule @ HostRule { subject: HostPattern::Name(name), port: None }) => {
                let decision = grants.network.decide_lookup(name);
                let entry = grants
                    .network
                    .allow
                    .iter()
                    .find(|listed| listed.rule.covers(rule))
                    .map(|listed| listed.origin.clone());
                // An entry for one port allows the name, but not every port of it.
                let is_full = grants.network.mode == NetworkMode::Full;
                match entry.or_else(|| is_full.then(mode)).filter(|_| decision.is_open()) {
                    Some(origin) => Ok(origin),
                    None if decision.is_open() => Err(AllowError::Unreachable {
                        host: rule.clone(),
                        why: "only some of its ports are allowed".into(),
                    }),
                    None => {
                        Err(AllowError::Unreachable { host: rule.clone(), why: decision.why() })
                    }
                }
            }
            GrantTarget::Host(rule) => match grants.network.decide_rule(rule) {
                Some(decision) if decision.is_open() => {
                    Ok(decision.origin().cloned().unwrap_or_else(mode))
                }
                Some(decision) => {
                    Err(AllowError::Unreachable { host: rule.clone(), why: decision.why() })
                }
                None => covering_rule(rule, grants),
            },
        }
    }
}

/// The rule that allows several hosts at once, or every port of an address.
fn covering_rule(rule: &HostRule, grants: &Grants) -> Result<Origin, AllowError> {
    let network = &grants.network;
    let covering = || {
        network
            .allow
            .iter()
            .find(|listed| listed.rule.covers(rule))
            .map(|listed| listed.origin.clone())
    };
    let opener = match network.mode {
        NetworkMode::Full => Some(Origin::new(Source::Mode, "the mode")),
        NetworkMode::AllowList => covering(),
        NetworkMode::None => None,
    };
    opener.ok_or_else(|| AllowError::Unreachable {
        host: rule.clone(),
        why: "no entry of `allow` covers all of it".into(),
    })
}
