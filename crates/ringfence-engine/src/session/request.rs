//! Something that is asked for in so many words, before it is refused or after.

use std::sync::Arc;

use ringfence_api::{Ask, AskAnswer, Asker, Denial, DenialEvidence, Operation, Permission};
use ringfence_audit::now_ms;
use ringfence_policy::{Access, ChangeDirection, Origin};

use super::{Session, lock};
use crate::ResolvedPolicy;
use crate::asking::{RecordingAsker, SessionGrants, offered};
use crate::permanent_grant::GrantTarget;

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum GrantResult {
    /// It was open before, by this rule.
    Open(Origin),
    /// Nobody could have said anything but no.
    Shut(Denial),
    /// There was somebody to ask, and this is what they said.
    Said(AskAnswer, GrantEffect),
    /// There was nobody to ask. This is what they would have been asked.
    Unasked(Permission),
}

/// Whether what was allowed can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantEffect {
    /// At once, in the sandbox that stands.
    Now,
    /// At once, in another sandbox: this one could not take it over.
    Anew,
    /// Once this sandbox is idle and it is asked for again; this is why.
    Later(String),
    /// It was not allowed.
    Never,
}

impl Session {
    /// Asks for `opening` on behalf of `who`, of whoever can be asked.
    pub fn request(
        &self,
        opening: &GrantTarget,
        who: &str,
        asker: Option<Arc<dyn Asker>>,
    ) -> GrantResult {
        self.follow();
        let resolved = self.policy();
        let denial = match self.denial(opening, who, &resolved) {
            Ok(denial) => denial,
            Err(origin) => return self.open_already(origin),
        };
        // Somebody has opened it since, and the sandbox that stands could not follow.
        let newest = lock(&self.policy).newest.clone();
        if opening.opener(&newest.grants).is_ok() {
            return GrantResult::Said(AskAnswer::AllowPermanent, self.renewed());
        }
        let facts = &resolved.surroundings.facts;
        let lasts = |answer: &AskAnswer| {
            *answer != AskAnswer::AllowOnce
                && (*answer != AskAnswer::AllowSession || would_open(opening, &resolved))
        };
        let options: Vec<AskAnswer> =
            offered(&denial, AskAnswer::ALL, &resolved.grants, &self.asked.files, facts)
                .into_iter()
                .filter(lasts)
                .collect();
        let Some(permission) = Permission::of(&denial, &options) else {
            return GrantResult::Shut(denial);
        };
        let Some(asker) = asker else { return GrantResult::Unasked(permission) };
        let witness =
            RecordingAsker::new(asker, &self.asked, &resolved, Arc::new(SessionGrants::default()));
        match witness.ask(&Ask { denial, options }) {
            AskAnswer::Deny | AskAnswer::AllowOnce => {
                GrantResult::Said(AskAnswer::Deny, GrantEffect::Never)
            }
            answer => GrantResult::Said(answer, self.put_in_force(opening, answer)),
        }
    }

    /// What stands in the way; what opens it where nothing does.
    fn denial(
        &self,
        opening: &GrantTarget,
        who: &str,
        resolved: &ResolvedPolicy,
    ) -> Result<Denial, Origin> {
        if let Ok(origin) = opening.opener(&resolved.grants) {
            return Err(origin);
        }
        let (operation, target, (rule, origin, explicit)) = match opening {
            GrantTarget::Path(path, access) => {
                let operation = match access {
                    Access::Read => Operation::Read,
                    Access::Write => Operation::Write,
                    Access::Execute => Operation::Execute,
                };
                let because = Denial::because(&resolved.grants.decide(path, *access));
                (operation, path.to_string_lossy().into_owned(), because)
            }
            GrantTarget::Host(rule) => {
                let passage = resolved.grants.network.about(rule);
                let why = passage
                    .as_ref()
                    .map_or_else(|| Denial::NOTHING_OPENS_IT.to_owned(), |passage| passage.why());
                let origin = passage
                    .as_ref()
                    .and_then(|passage| passage.origin())
                    .map_or_else(|| "built in".to_owned(), ToString::to_string);
                (Operation::Connect, rule.to_string(), (why, origin, true))
            }
        };
        let pid = std::process::id();
        Ok(Denial {
            operation,
            target,
            rule,
            origin,
            explicit,
            pid,
            program: who.to_owned(),
            time_ms: now_ms(),
            evidence: DenialEvidence::Tool,
            count: 1,
            optional: false,
        })
    }

    /// It may be open in the policy and not in the sandbox yet.
    fn open_already(&self, origin: Origin) -> GrantResult {
        let is_pending = lock(&self.policy)
            .pending
            .iter()
            .any(|change| change.direction == ChangeDirection::Wider);
        if is_pending {
            GrantResult::Said(AskAnswer::AllowSession, self.renewed())
        } else {
            GrantResult::Open(origin)
        }
    }

    fn put_in_force(&self, opening: &GrantTarget, answer: AskAnswer) -> GrantEffect {
        if answer == AskAnswer::AllowPermanent {
            // It stands in a file, which is followed as any edit of it.
            self.follow();
        } else {
            let mut policy = lock(&self.policy);
            let mut sandbox = lock(&self.sandbox);
            if let Some(plan) =
                policy.open(&self.asked, opening.clone(), sandbox.standing.as_deref())
            {
                sandbox.stands_by(&plan);
                if let Some(witness) = &sandbox.witness {
                    witness.revise(&policy.holding.grants);
                }
            }
        }
        let is_pending = !lock(&self.policy).pending.is_empty();
        if is_pending { self.renewed() } else { GrantEffect::Now }
    }

    /// Ends the sandbox, if nothing runs in its shell: the next command gets another.
    fn renewed(&self) -> GrantEffect {
        let Ok(mut shell) = self.shell.try_lock() else {
            let policy = lock(&self.policy);
            return GrantEffect::Later(
                policy.pending.iter().find_map(|change| change.pending.clone()).unwrap_or_default(),
            );
        };
        *shell = None;
        let mut policy = lock(&self.policy);
        lock(&self.sandbox).fell();
        policy.begin_anew();
        GrantEffect::Anew
    }
}

/// Whether it would be open if a person said so for this session: what a person's own rule shuts
/// by name stays shut.
fn would_open(opening: &GrantTarget, resolved: &ResolvedPolicy) -> bool {
    opening.opener(&SessionGrants::of(opening.clone()).on(resolved).grants).is_ok()
}
