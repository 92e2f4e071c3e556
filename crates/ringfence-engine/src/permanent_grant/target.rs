//! What can be open for good.

use ringfence_policy::{
    AbsPath, Access, DecidingRule, Effect, Facts, Grants, HostPattern, HostRule, NetworkMode,
    Origin, PolicyEntryEdit, Rule, Source, Verdict,
};

use super::{AllowError, is_own};

/// What is to be open from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantTarget {
    /// A path, and what is below it.
    Path(AbsPath, Access),
    /// One port of one host, or every port of a name.
    Host(HostRule),
}

impl GrantTarget {
    /// The entry that opens it and nothing else.
    pub(crate) fn permit(&self, facts: &Facts) -> Result<PolicyEntryEdit, AllowError> {
        match self {
            GrantTarget::Path(path, _) if is_own(path, facts) => {
                Err(AllowError::Own { path: path.clone() })
            }
            GrantTarget::Path(path, access) => PolicyEntryEdit::new(path, *access, facts)
                .ok_or_else(|| AllowError::Unnamed { path: path.clone() }),
            GrantTarget::Host(rule) => Ok(PolicyEntryEdit::host(rule)),
        }
    }

    /// The path, if a private cache stands in front of it: the sandbox can use the name, and does
    /// not see the host's file.
    pub(crate) fn behind_cache(&self, grants: &Grants) -> Option<&AbsPath> {
        let GrantTarget::Path(path, access) = self else { return None };
        let is_cache =
            |rule: &Rule| matches!(rule.effect, Effect::Private { host_beneath: false, .. });
        match grants.decide(path, *access).rule {
            Some(DecidingRule::Rule(rule)) if is_cache(&rule) => Some(path),
            _ => None,
        }
    }

    /// What it is open by; what keeps it shut is an error.
    pub(crate) fn opener(&self, grants: &Grants) -> Result<Origin, AllowError> {
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
                let passage = grants.network.lookup(name);
                let entry = grants
                    .network
                    .allow
                    .iter()
                    .find(|listed| listed.rule.covers(rule))
                    .map(|listed| listed.origin.clone());
                // An entry for one port opens the name, and not every port of it.
                let is_full = grants.network.mode == NetworkMode::Full;
                match entry.or_else(|| is_full.then(mode)).filter(|_| passage.is_open()) {
                    Some(origin) => Ok(origin),
                    None if passage.is_open() => Err(AllowError::Unreachable {
                        host: rule.clone(),
                        why: "only some of its ports are open".into(),
                    }),
                    None => Err(AllowError::Unreachable { host: rule.clone(), why: passage.why() }),
                }
            }
            GrantTarget::Host(rule) => match grants.network.about(rule) {
                Some(passage) if passage.is_open() => {
                    Ok(passage.origin().cloned().unwrap_or_else(mode))
                }
                Some(passage) => {
                    Err(AllowError::Unreachable { host: rule.clone(), why: passage.why() })
                }
                None => several(rule, grants),
            },
        }
    }
}

/// The rule that opens several hosts at once, or every port of an address.
fn several(rule: &HostRule, grants: &Grants) -> Result<Origin, AllowError> {
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
        why: "no entry of `allow` speaks of all of it".into(),
    })
}
