//! A program beside the shell.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ringfence_api::{Afterwards, Gap, Output};
use ringfence_audit::AuditError;
use ringfence_provider::{Process, Sink};

use super::sandbox::executed;
use super::{Executed, News, Reach};
use crate::book::Book;
use crate::{Asked, EngineError, Resolved};

/// A program that runs beside the shell of a session.
pub struct Beside {
    pub(super) process: Box<dyn Process>,
    pub(super) asked: Asked,
    pub(super) resolved: Arc<Resolved>,
    pub(super) enforced: Vec<String>,
    pub(super) gaps: Vec<Gap>,
    pub(super) news: News,
}

impl Beside {
    /// Our end of its terminal, if it has one.
    pub fn terminal(&self) -> Option<BorrowedFd<'_>> {
        self.process.terminal()
    }

    /// For somebody else.
    pub fn reach(&self) -> Reach {
        Reach { interrupter: self.process.interrupter(), feeder: self.process.feeder() }
    }

    /// Stays with it to its end. `tell` hears what could not be recorded.
    pub fn wait(self, sink: &mut Sink<'_>, tell: &mut dyn FnMut(&AuditError)) -> Result<Executed, EngineError> {
        let Self { process, asked, resolved, enforced, gaps, news } = self;
        let mut book = Book::resume(&asked, &resolved, tell)?;
        let result = process.wait(sink).map(|ran| executed(ran, enforced, gaps).outcome).map_err(EngineError::from);
        book.finish(&result);
        result.map(|outcome| Executed { outcome, cwd: None, background: Output::default(), shell: Afterwards::LivesOn, news })
    }
}
