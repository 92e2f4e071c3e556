//! A program beside the shell.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ringfence_api::{Afterwards, Gap, Outcome, Output, Stream};
use ringfence_audit::AuditError;
use ringfence_provider::{Interrupter, Process, Sink};

use super::sandbox::executed;
use super::{Executed, News, Reach};
use crate::book::Book;
use crate::{Asked, EngineError, Resolved};

/// A program that runs beside the shell of a session.
pub struct Beside {
    pub(super) course: Course,
    pub(super) asked: Asked,
    pub(super) resolved: Arc<Resolved>,
    pub(super) enforced: Vec<String>,
    pub(super) gaps: Vec<Gap>,
    pub(super) news: News,
}

/// Whether it was started.
pub(super) enum Course {
    Runs(Box<dyn Process>),
    /// A rule on its text refused it, which is on record.
    Refused(Box<Outcome>),
}

/// There is nothing to be interrupted.
struct Nothing;

impl Interrupter for Nothing {
    fn interrupt(&self) {}

    fn signal(&self, _: i32) {}
}

impl Beside {
    /// Our end of its terminal, if it has one.
    pub fn terminal(&self) -> Option<BorrowedFd<'_>> {
        match &self.course {
            Course::Runs(process) => process.terminal(),
            Course::Refused(_) => None,
        }
    }

    /// For somebody else.
    pub fn reach(&self) -> Reach {
        match &self.course {
            Course::Runs(process) => {
                Reach { interrupter: process.interrupter(), feeder: process.feeder() }
            }
            Course::Refused(_) => Reach { interrupter: Box::new(Nothing), feeder: None },
        }
    }

    /// What became of it, if it was not started.
    pub fn refused(&self) -> Option<&Outcome> {
        match &self.course {
            Course::Runs(_) => None,
            Course::Refused(outcome) => Some(outcome),
        }
    }

    /// Stays with it to its end. `tell` hears what could not be recorded.
    pub fn wait(
        self,
        sink: &mut Sink<'_>,
        tell: &mut dyn FnMut(&AuditError),
    ) -> Result<Executed, EngineError> {
        let Self { course, asked, resolved, enforced, gaps, news } = self;
        let (background, shell) = (Output::default(), Afterwards::LivesOn);
        let process = match course {
            Course::Runs(process) => process,
            Course::Refused(outcome) => {
                sink(Stream::Err, &outcome.stderr.head);
                return Ok(Executed { outcome: *outcome, cwd: None, background, shell, news });
            }
        };
        let mut book = Book::resume(&asked, &resolved, tell)?;
        let result = process
            .wait(sink)
            .map(|ran| executed(ran, enforced, gaps).outcome)
            .map_err(EngineError::from);
        book.finish(&result);
        result.map(|outcome| Executed { outcome, cwd: None, background, shell, news })
    }
}
