//! Explicit requests for a grant, before or after a denial.

use std::sync::Arc;

use ringfence_api::{Ask, AskAnswer, Asker, Denial, DenialEvidence, Operation, Permission};
use ringfence_audit::now_ms;
use ringfence_policy::{Access, ChangeDirection, Origin};

use super::{Session, lock};
use crate::ResolvedPolicy;
use crate::asking::{RecordingAsker, SessionGrants, offered_answers};
use crate::permanent_grant::GrantTarget;

/// The result of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum GrantResult {
    /// It is already allowed, by this rule.
    Open(Origin),
    /// Only "deny" could be answered.
    Shut(Denial),
    /// The user's answer, and its effect.
    Said(AskAnswer, GrantEffect),
    /// There is no user to ask. This is the question.
    Unasked(Permission),
}

/// The effect of a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantEffect {
    /// In force now, in the running sandbox.
    Now,
    /// In force now, in a new sandbox: the running one could not apply it.
    Anew,
    /// In force when this sandbox is idle and the request is repeated, for this reason.
    Later(String),
    /// Denied.
    Never,
}

impl Session {
    /// Requests the grant `opening` for `who`, and asks the user through `asker`.
    pub fn request_grant(
        &self,
        opening: &GrantTarget,
        who: &str,
        asker: Option<Arc<dyn Asker>>,
    ) -> GrantResult {
        self.follow_policy();
        let resolved = self.policy();
        let denial = match self.denial(opening, who, &resolved) {
            Ok(denial) => denial,
            Err(origin) => return self.open_already(origin),
        };
        // The policy already allows it, but the running sandbox could not apply that.
        let newest = lock(&self.policy).newest.clone();
        if opening.allowing_rule(&newest.grants).is_ok() {
            return GrantResult::Said(AskAnswer::AllowPermanent, self.restart_if_idle());
        }
        let facts = &resolved.surroundings.facts;
        let is_useful = |answer: &AskAnswer| {
            *answer != AskAnswer::AllowOnce
                && (*answer != AskAnswer::AllowSession || would_open(opening, &resolved))
        };
        let options: Vec<AskAnswer> =
            offered_answers(&denial, AskAnswer::ALL, &resolved.grants, &self.request.files, facts)
                .into_iter()
                .filter(is_useful)
                .collect();
        let Some(permission) = Permission::from_denial(&denial, &options) else {
            return GrantResult::Shut(denial);
        };
        let Some(asker) = asker else { return GrantResult::Unasked(permission) };
        let recording_asker = RecordingAsker::new(
            asker,
            &self.request,
            &resolved,
            Arc::new(SessionGrants::default()),
        );
        match recording_asker.ask(&Ask { denial, options }) {
            AskAnswer::Deny | AskAnswer::AllowOnce => {
                GrantResult::Said(AskAnswer::Deny, GrantEffect::Never)
            }
            answer => GrantResult::Said(answer, self.put_in_force(opening, answer)),
        }
    }

    /// The denial; if nothing denies it, the rule that allows it.
    fn denial(
        &self,
        opening: &GrantTarget,
        who: &str,
        resolved: &ResolvedPolicy,
    ) -> Result<Denial, Origin> {
        if let Ok(origin) = opening.allowing_rule(&resolved.grants) {
            return Err(origin);
        }
        let (operation, target, (rule, origin, explicit)) = match opening {
            GrantTarget::Path(path, access) => {
                let operation = match access {
                    Access::Read => Operation::Read,
                    Access::Write => Operation::Write,
                    Access::Execute => Operation::Execute,
                };
                let because = Denial::rule_from_decision(&resolved.grants.decide(path, *access));
                (operation, path.to_string_lossy().into_owned(), because)
            }
            GrantTarget::Host(rule) => {
                let decision = resolved.grants.network.decide_rule(rule);
                let why = decision
                    .as_ref()
                    .map_or_else(|| Denial::NO_RULE_ALLOWS.to_owned(), |decision| decision.why());
                let origin = decision
                    .as_ref()
                    .and_then(|decision| decision.origin())
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

    /// The policy may allow it while the sandbox does not yet.
    fn open_already(&self, origin: Origin) -> GrantResult {
        let is_pending = lock(&self.policy)
            .pending
            .iter()
            .any(|change| change.direction == ChangeDirection::Wider);
        if is_pending {
            GrantResult::Said(AskAnswer::AllowSession, self.restart_if_idle())
        } else {
            GrantResult::Open(origin)
        }
    }

    fn put_in_force(&self, opening: &GrantTarget, answer: AskAnswer) -> GrantEffect {
        if answer == AskAnswer::AllowPermanent {
            // The grant is in a policy file, and is followed like any edit.
            self.follow_policy();
        } else {
            let mut policy = lock(&self.policy);
            let mut sandbox = lock(&self.sandbox);
            if let Some(revision) =
                policy.add_grant(&self.request, opening.clone(), sandbox.live_sandbox.as_deref())
            {
                sandbox.set_enforced(&revision.enforced, revision.gaps);
                if let Some(recording_asker) = &sandbox.recording_asker {
                    recording_asker.set_grants(&policy.in_force.grants);
                }
            }
        }
        let is_pending = !lock(&self.policy).pending.is_empty();
        if is_pending { self.restart_if_idle() } else { GrantEffect::Now }
    }

    /// Ends the sandbox, if its shell is idle: the next command gets a new one.
    fn restart_if_idle(&self) -> GrantEffect {
        let Ok(mut shell) = self.shell.try_lock() else {
            let policy = lock(&self.policy);
            return GrantEffect::Later(
                policy.pending.iter().find_map(|change| change.pending.clone()).unwrap_or_default(),
            );
        };
        *shell = None;
        let mut policy = lock(&self.policy);
        lock(&self.sandbox).discard();
        policy.adopt_newest();
        GrantEffect::Anew
    }
}

/// True if a session grant would allow it. A rule of the user that denies exactly this path wins.
fn would_open(opening: &GrantTarget, resolved: &ResolvedPolicy) -> bool {
    opening
        .allowing_rule(&SessionGrants::with_grant(opening.clone()).apply_to(resolved).grants)
        .is_ok()
}
