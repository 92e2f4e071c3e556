//! The life of a session: one sandbox, one shell, many commands.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_api::{Afterwards, Denial, Gap, Input, Line, Outcome, Output, Permission, Quarantined, Ran};
use ringfence_audit::AuditError;
use ringfence_policy::AbsPath;
use ringfence_provider::{Feeder, Interrupter, Process, ProcessStart, Provider, ProviderError, Shell, ShellStart, Sink, Standing, Streams};

use crate::asking::Witness;
use crate::book::Book;
use crate::{Asked, EngineError, Resolved, accept, open, permission, variables};

/// A sandbox that stands and a shell in it, as one policy has it.
///
/// Both are renewed when they are needed and gone: a shell that a command ended starts anew
/// in the same sandbox, and a sandbox that died is made anew. What was in them is gone with
/// them, and each result says so.
pub struct Opened {
    asked: Asked,
    resolved: Resolved,
    program: OsString,
    /// Used by one command at a time.
    shell: Mutex<Option<Box<dyn Shell>>>,
    sandbox: Mutex<Sandbox>,
}

/// What is used by many at once, each for a moment.
struct Sandbox {
    provider: Box<dyn Provider + Send>,
    standing: Option<Box<dyn Standing>>,
    enforced: Vec<String>,
    gaps: Vec<Gap>,
    /// Moved away when a sandbox before this one ended.
    quarantined: Vec<Quarantined>,
    commands: u64,
}

/// What became of a command, and of the shell it ran in.
#[derive(Debug, Clone)]
pub struct Executed {
    /// As of any command.
    pub outcome: Outcome,
    /// Where the shell is now.
    pub cwd: Option<AbsPath>,
    /// What those wrote that earlier commands have left running, since the one before this.
    pub background: Output,
    /// What became of the shell.
    pub shell: Afterwards,
}

/// How somebody else reaches a command that runs.
pub struct Reach {
    /// For whoever does not want to wait.
    pub interrupter: Box<dyn Interrupter>,
    /// For whoever has what it reads, if it is to be fed.
    pub feeder: Option<Arc<dyn Feeder>>,
}

/// What a session is like now.
#[derive(Debug, Clone)]
pub struct Standings {
    /// How many commands were run.
    pub commands: u64,
    /// Whether its shell is in the middle of a command.
    pub is_busy: bool,
    /// The shell's number on the host, if there is one and it is idle.
    pub shell: Option<i32>,
    /// What is enforced.
    pub enforced: Vec<String>,
    /// What was asked for and is not.
    pub gaps: Vec<Gap>,
}

impl Opened {
    /// Opens a session; `program` is its shell. The command of `asked` is not looked at.
    pub fn open(provider: Box<dyn Provider + Send>, asked: Asked, resolved: Resolved, program: OsString) -> Result<Self, EngineError> {
        // The log's directory is there before the host is looked at: made by the first command,
        // it would appear in a sandbox that stands, and be open until it is covered.
        Book::open(&asked, &resolved, &mut |_| ())?;
        let sandbox = Sandbox { provider, standing: None, enforced: Vec::new(), gaps: Vec::new(), quarantined: Vec::new(), commands: 0 };
        let opened = Self { asked, resolved, program, shell: Mutex::new(None), sandbox: Mutex::new(sandbox) };
        opened.renew(&mut lock(&opened.shell))?;
        Ok(opened)
    }

    /// What is missing of a sandbox and a shell made anew.
    fn renew(&self, shell: &mut Option<Box<dyn Shell>>) -> Result<(), EngineError> {
        let mut sandbox = lock(&self.sandbox);
        if sandbox.standing.is_none() {
            *shell = None;
        }
        let standing = sandbox.standing(&self.asked, &self.resolved)?;
        if shell.is_none() {
            let start = ShellStart {
                program: self.program.clone(),
                variables: variables(&self.resolved.grants, &self.asked.cwd, &self.resolved),
                cwd: self.asked.cwd.clone(),
            };
            *shell = Some(standing.shell(&start)?);
        }
        Ok(())
    }

    /// Runs a command in the shell, after those that were asked for before. `begun` gets what
    /// reaches it when it is its turn; `tell` hears what could not be recorded.
    pub fn execute(
        &self,
        line: &Line,
        begun: &mut dyn FnMut(Reach),
        sink: &mut Sink<'_>,
        tell: &mut dyn FnMut(&AuditError),
    ) -> Result<Executed, EngineError> {
        let text = String::from_utf8_lossy(&line.text).into_owned();
        let command = vec![self.program.clone(), "-c".into(), text.into()];
        let asked = Asked { command, ..self.asked.clone() };
        // Not borrowed from us: the book is open while the shell is used.
        let resolved = self.resolved.clone();
        let mut book = Book::open(&asked, &resolved, tell)?;
        let (result, (cwd, background, shell)) = match self.attempt(line, begun, sink, &mut book) {
            Ok(Executed { outcome, cwd, background, shell }) => (Ok(outcome), (cwd, background, shell)),
            Err(error) => (Err(error), (None, Output::default(), Afterwards::Ended)),
        };
        book.finish(&result);
        result.map(|outcome| Executed { outcome, cwd, background, shell })
    }

    fn attempt(
        &self,
        line: &Line,
        begun: &mut dyn FnMut(Reach),
        sink: &mut Sink<'_>,
        book: &mut Book<'_>,
    ) -> Result<Executed, EngineError> {
        let mut slot = lock(&self.shell);
        self.renew(&mut slot)?;
        let shell = slot.as_mut().expect("renewed just now");
        let recorded = {
            let mut sandbox = lock(&self.sandbox);
            sandbox.commands += 1;
            book.begin(&sandbox.gaps)
        };
        recorded?;
        let feeder = (line.input == Input::Fed).then(|| shell.feeder()).transpose().map_err(not_fed)?;
        begun(Reach { interrupter: shell.interrupter(), feeder });
        let ran = shell.execute(line, sink);
        let mut sandbox = lock(&self.sandbox);
        match ran {
            Ok(ran) => {
                let cwd = shell.cwd();
                if ran.shell == Afterwards::Ended {
                    *slot = None;
                }
                Ok(Executed { cwd, ..sandbox.executed(ran) })
            }
            Err(error @ ProviderError::NoLine { .. }) => Err(error.into()),
            Err(error) => {
                *slot = None;
                book.refused_before = sandbox.refused();
                if matches!(error, ProviderError::Gone { what: "sandbox" }) {
                    sandbox.fell();
                }
                Err(error.into())
            }
        }
    }

    /// Starts a program beside the shell, which goes on as it is.
    pub fn start(
        &self,
        command: Vec<OsString>,
        streams: Streams,
        deadline: Option<Duration>,
        tell: &mut dyn FnMut(&AuditError),
    ) -> Result<Beside, EngineError> {
        let asked = Asked { command, ..self.asked.clone() };
        let resolved = self.resolved.clone();
        let mut book = Book::open(&asked, &resolved, tell)?;
        let mut sandbox = lock(&self.sandbox);
        let started = sandbox.start(&asked, &resolved, &mut book, (streams, deadline));
        match started {
            Ok(process) => {
                drop(book);
                Ok(Beside { process, enforced: sandbox.enforced.clone(), gaps: sandbox.gaps.clone(), asked, resolved })
            }
            Err(error) => {
                let result = Err(error);
                book.finish(&result);
                result.map(|_: Outcome| unreachable!("it is an error"))
            }
        }
    }

    /// What a person could be asked about a command of it that was blocked.
    pub fn permission(&self, outcome: &Outcome) -> Option<Permission> {
        permission(outcome, &self.asked.files, &self.resolved)
    }

    /// How it stands.
    pub fn standings(&self) -> Standings {
        let shell = self.shell.try_lock().ok().map(|shell| shell.as_ref().map(|shell| shell.pid()));
        let sandbox = lock(&self.sandbox);
        Standings {
            commands: sandbox.commands,
            is_busy: shell.is_none(),
            shell: shell.flatten(),
            enforced: sandbox.enforced.clone(),
            gaps: sandbox.gaps.clone(),
        }
    }

    /// Ends everything in it, also while commands run; answers what was moved away.
    pub fn end(&self) -> Result<Vec<Quarantined>, EngineError> {
        let mut sandbox = lock(&self.sandbox);
        let mut moved = std::mem::take(&mut sandbox.quarantined);
        if let Some(standing) = sandbox.standing.take() {
            moved.extend(standing.end()?);
        }
        Ok(moved)
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandbox {
    /// One that stands.
    fn standing(&mut self, asked: &Asked, resolved: &Resolved) -> Result<&dyn Standing, EngineError> {
        if self.standing.is_none() {
            let mut session = open(self.provider.as_ref(), resolved)?;
            accept(&session.plan().gaps, resolved.grants.on_gap)?;
            if let Some(asker) = &asked.asker {
                session.ask(Arc::new(Witness::new(asker.clone(), asked, resolved)));
            }
            let standing = session.raise(&asked.cwd)?;
            self.enforced = standing.plan().steps.iter().map(ToString::to_string).collect();
            self.gaps = standing.plan().gaps.clone();
            self.standing = Some(standing);
        }
        Ok(self.standing.as_deref().expect("raised just now"))
    }

    fn start(
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

    fn refused(&self) -> (Vec<Denial>, u64) {
        self.standing.as_ref().map(|standing| standing.refused()).unwrap_or_default()
    }

    /// The sandbox died: what it planted is moved away, and the next command gets another.
    fn fell(&mut self) {
        if let Some(Ok(moved)) = self.standing.take().map(Standing::end) {
            self.quarantined.extend(moved);
        }
    }

    fn executed(&mut self, ran: Ran) -> Executed {
        let found = self.standing.iter().flat_map(|standing| standing.gaps());
        let gaps = self.gaps.iter().cloned().chain(found).collect();
        let mut executed = executed(ran, self.enforced.clone(), gaps);
        executed.outcome.quarantined = std::mem::take(&mut self.quarantined);
        executed
    }
}

/// A program that runs beside the shell of a session.
pub struct Beside {
    process: Box<dyn Process>,
    asked: Asked,
    resolved: Resolved,
    enforced: Vec<String>,
    gaps: Vec<Gap>,
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
        let Self { process, asked, resolved, enforced, gaps } = self;
        let mut book = Book::resume(&asked, &resolved, tell)?;
        let result = process.wait(sink).map(|ran| executed(ran, enforced, gaps).outcome).map_err(EngineError::from);
        book.finish(&result);
        result.map(|outcome| Executed { outcome, cwd: None, background: Output::default(), shell: Afterwards::LivesOn })
    }
}

fn not_fed(source: std::io::Error) -> ProviderError {
    ProviderError::System { what: "feed a command", source }
}

fn executed(ran: Ran, enforced: Vec<String>, gaps: Vec<Gap>) -> Executed {
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
    Executed { outcome, cwd: None, background: ran.background, shell: ran.shell }
}
