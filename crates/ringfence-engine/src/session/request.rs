//! Something that is asked for in so many words, before it is refused or after.

use std::sync::Arc;

use ringfence_api::{Answer, Ask, Asker, Denial, Evidence, Operation, Permission};
use ringfence_audit::now_ms;
use ringfence_policy::{Access, Direction, Origin};

use super::{Opened, lock};
use crate::Resolved;
use crate::allow::Opening;
use crate::asking::{Lasting, Witness, offered};

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Requested {
    /// It was open before, by this rule.
    Open(Origin),
    /// Nobody could have said anything but no.
    Shut(Denial),
    /// There was somebody to ask, and this is what they said.
    Said(Answer, InForce),
    /// There was nobody to ask. This is what they would have been asked.
    Unasked(Permission),
}

/// Whether what was allowed can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InForce {
    /// At once, in the sandbox that stands.
    Now,
    /// At once, in another sandbox: this one could not take it over.
    Anew,
    /// Once this sandbox is idle and it is asked for again; this is why.
    Later(String),
    /// It was not allowed.
    Never,
}

impl Opened {
    /// Asks for `opening` on behalf of `who`, of whoever can be asked.
    pub fn request(
        &self,
        opening: &Opening,
        who: &str,
        asker: Option<Arc<dyn Asker>>,
    ) -> Requested {
        self.follow();
        let resolved = self.policy();
        let denial = match self.denial(opening, who, &resolved) {
            Ok(denial) => denial,
            Err(origin) => return self.open_already(origin),
        };
        // Somebody has opened it since, and the sandbox that stands could not follow.
        let newest = lock(&self.policy).newest.clone();
        if opening.opener(&newest.grants).is_ok() {
            return Requested::Said(Answer::AllowPermanent, self.renewed());
        }
        let facts = &resolved.surroundings.facts;
        let lasts = |answer: &Answer| {
            *answer != Answer::AllowOnce
                && (*answer != Answer::AllowSession || would_open(opening, &resolved))
        };
        let options: Vec<Answer> =
            offered(&denial, Answer::ALL, &resolved.grants, &self.asked.files, facts)
                .into_iter()
                .filter(lasts)
                .collect();
        let Some(permission) = Permission::of(&denial, &options) else {
            return Requested::Shut(denial);
        };
        let Some(asker) = asker else { return Requested::Unasked(permission) };
        let witness = Witness::new(asker, &self.asked, &resolved, Arc::new(Lasting::default()));
        match witness.ask(&Ask { denial, options }) {
            Answer::Deny | Answer::AllowOnce => Requested::Said(Answer::Deny, InForce::Never),
            answer => Requested::Said(answer, self.put_in_force(opening, answer)),
        }
    }

    /// What stands in the way; what opens it where nothing does.
    fn denial(&self, opening: &Opening, who: &str, resolved: &Resolved) -> Result<Denial, Origin> {
        if let Ok(origin) = opening.opener(&resolved.grants) {
            return Err(origin);
        }
        let (operation, target, (rule, origin, explicit)) = match opening {
            Opening::Path(path, access) => {
                let operation = match access {
                    Access::Read => Operation::Read,
                    Access::Write => Operation::Write,
                    Access::Execute => Operation::Execute,
                };
                let because = Denial::because(&resolved.grants.decide(path, *access));
                (operation, path.to_string_lossy().into_owned(), because)
            }
            Opening::Host(rule) => {
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
            evidence: Evidence::Tool,
            count: 1,
            optional: false,
        })
    }

    /// It may be open in the policy and not in the sandbox yet.
    fn open_already(&self, origin: Origin) -> Requested {
        let is_pending =
            lock(&self.policy).pending.iter().any(|change| change.direction == Direction::Wider);
        if is_pending {
            Requested::Said(Answer::AllowSession, self.renewed())
        } else {
            Requested::Open(origin)
        }
    }

    fn put_in_force(&self, opening: &Opening, answer: Answer) -> InForce {
        if answer == Answer::AllowPermanent {
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
        if is_pending { self.renewed() } else { InForce::Now }
    }

    /// Ends the sandbox, if nothing runs in its shell: the next command gets another.
    fn renewed(&self) -> InForce {
        let Ok(mut shell) = self.shell.try_lock() else {
            let policy = lock(&self.policy);
            return InForce::Later(
                policy.pending.iter().find_map(|change| change.pending.clone()).unwrap_or_default(),
            );
        };
        *shell = None;
        let mut policy = lock(&self.policy);
        lock(&self.sandbox).fell();
        policy.begin_anew();
        InForce::Anew
    }
}

/// Whether it would be open if a person said so for this session: what a person's own rule shuts
/// by name stays shut.
fn would_open(opening: &Opening, resolved: &Resolved) -> bool {
    opening.opener(&Lasting::of(opening.clone()).on(resolved).grants).is_ok()
}
