//! The sandbox of a session, made when it is needed.

use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Denial, Gap, Outcome, Quarantined, Ran};
use ringfence_enforce::Plan;
use ringfence_provider::{Process, ProcessStart, Provider, Standing, Streams};

use super::{Executed, News};
use crate::asking::{Lasting, Witness};
use crate::book::Book;
use crate::{Asked, EngineError, Resolved, accept, open, variables};

/// What is used by many at once, each for a moment.
pub(super) struct Sandbox {
    pub(super) provider: Box<dyn Provider + Send>,
    pub(super) standing: Option<Box<dyn Standing>>,
    /// What was allowed for the session.
    pub(super) lasting: Arc<Lasting>,
    /// Whoever is asked, and has to know the policy.
    pub(super) witness: Option<Arc<Witness>>,
    pub(super) enforced: Vec<String>,
    pub(super) gaps: Vec<Gap>,
    /// Moved away when a sandbox before this one ended.
    pub(super) quarantined: Vec<Quarantined>,
    pub(super) commands: u64,
}

impl Sandbox {
    /// One that stands.
    pub(super) fn standing(&mut self, asked: &Asked, resolved: &Resolved) -> Result<&dyn Standing, EngineError> {
        if self.standing.is_none() {
            let resolved = &self.lasting.on(resolved);
            let mut session = open(self.provider.as_ref(), resolved)?;
            accept(&session.plan().gaps, resolved.grants.on_gap)?;
            self.witness = asked.asker.as_ref().map(|asker| Arc::new(Witness::new(asker.clone(), asked, resolved, self.lasting.clone())));
            if let Some(witness) = &self.witness {
                session.ask(witness.clone());
            }
            let standing = session.raise(&asked.cwd)?;
            self.stands_by(standing.plan());
            self.standing = Some(standing);
        }
        Ok(self.standing.as_deref().expect("raised just now"))
    }

    pub(super) fn stands_by(&mut self, plan: &Plan) {
        self.enforced = plan.steps.iter().map(ToString::to_string).collect();
        self.gaps = plan.gaps.clone();
    }

    pub(super) fn start(
        &mut self,
        asked: &Asked,
        resolved: &Resolved,
        book: &mut Book<'_>,
        (streams, deadline): (Streams, Option<Duration>),
    ) -> Result<Box<dyn Process>, EngineError> {
        self.standing(asked, resolved)?;
        book.begin(&self.gaps)?;
        self.commands += 1;
        let variables = variables(&resolved.grants, &asked.cwd, resolved);
        let start = ProcessStart { command: asked.command.clone(), variables, cwd: asked.cwd.clone(), streams, deadline };
        Ok(self.standing(asked, resolved)?.start(&start)?)
    }

    pub(super) fn refused(&self) -> (Vec<Denial>, u64) {
        self.standing.as_ref().map(|standing| standing.refused()).unwrap_or_default()
    }

    /// The sandbox died: what it planted is moved away, and the next command gets another.
    pub(super) fn fell(&mut self) {
        if let Some(Ok(moved)) = self.standing.take().map(Standing::end) {
            self.quarantined.extend(moved);
        }
    }

    pub(super) fn executed(&mut self, ran: Ran) -> Executed {
        let found = self.standing.iter().flat_map(|standing| standing.gaps());
        let gaps = self.gaps.iter().cloned().chain(found).collect();
        let mut executed = executed(ran, self.enforced.clone(), gaps);
        executed.outcome.quarantined = std::mem::take(&mut self.quarantined);
        executed
    }
}

/// As it is told.
pub(super) fn executed(ran: Ran, enforced: Vec<String>, gaps: Vec<Gap>) -> Executed {
    let outcome = Outcome {
        stdout: ran.stdout,
        stderr: ran.stderr,
        status: ran.status,
        denials: ran.denials,
        denials_dropped: ran.denials_dropped,
        granted: ran.granted,
        observed: None,
        timed_out: ran.timed_out,
        duration_ms: ran.duration.as_millis() as u64,
        usage: ran.usage,
        enforced,
        gaps,
        quarantined: Vec::new(),
    };
    Executed { outcome, cwd: None, background: ran.background, shell: ran.shell, news: News::default() }
}
