//! The life of a session: one sandbox, one shell, many commands.

use ringfence_api::{Afterwards, Denial, Gap, Line, Outcome, Quarantined, Ran};
use ringfence_audit::AuditError;
use ringfence_policy::AbsPath;
use ringfence_provider::{Interrupter, Provider, ProviderError, Shell, ShellStart, Sink, Standing};

use crate::book::Book;
use crate::{Asked, EngineError, Resolved, accept, open, variables};

/// A sandbox that stands and a shell in it, as one policy has it.
///
/// Both are renewed when they are needed and gone: a shell that a command ended starts anew
/// in the same sandbox, and a sandbox that died is made anew. What was in them is gone with
/// them, and each result says so.
pub struct Opened {
    provider: Box<dyn Provider + Send>,
    asked: Asked,
    resolved: Resolved,
    program: std::ffi::OsString,
    standing: Option<Box<dyn Standing>>,
    shell: Option<Box<dyn Shell>>,
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
    /// What became of the shell.
    pub shell: Afterwards,
}

/// What a session is like now.
#[derive(Debug, Clone)]
pub struct Standings {
    /// How many commands were run.
    pub commands: u64,
    /// The shell's number on the host, if there is one.
    pub shell: Option<i32>,
    /// What is enforced.
    pub enforced: Vec<String>,
    /// What was asked for and is not.
    pub gaps: Vec<Gap>,
}

impl Opened {
    /// Opens a session; `program` is its shell. The command of `asked` is not looked at.
    pub fn open(
        provider: Box<dyn Provider + Send>,
        asked: Asked,
        resolved: Resolved,
        program: std::ffi::OsString,
    ) -> Result<Self, EngineError> {
        let mut opened = Self {
            provider,
            asked,
            resolved,
            program,
            standing: None,
            shell: None,
            enforced: Vec::new(),
            gaps: Vec::new(),
            quarantined: Vec::new(),
            commands: 0,
        };
        opened.renew()?;
        Ok(opened)
    }

    /// What there is of a sandbox and a shell, and what is missing of them made anew.
    fn renew(&mut self) -> Result<(), EngineError> {
        if self.standing.is_none() {
            let mut session = open(self.provider.as_ref(), &self.resolved)?;
            accept(&session.plan().gaps, self.resolved.grants.on_gap)?;
            let standing = session.raise(&self.asked.cwd)?;
            self.enforced = standing.plan().steps.iter().map(ToString::to_string).collect();
            self.gaps = standing.plan().gaps.clone();
            self.standing = Some(standing);
            self.shell = None;
        }
        if let (None, Some(standing)) = (&self.shell, &self.standing) {
            let start = ShellStart {
                program: self.program.clone(),
                variables: variables(&self.resolved.grants, &self.asked.cwd, &self.resolved),
                cwd: self.asked.cwd.clone(),
            };
            self.shell = Some(standing.shell(&start)?);
        }
        Ok(())
    }

    /// Runs a command in the shell. `tell` hears what could not be recorded.
    pub fn execute(&mut self, line: &Line, sink: &mut Sink<'_>, tell: &mut dyn FnMut(&AuditError)) -> Result<Executed, EngineError> {
        let text = String::from_utf8_lossy(&line.text).into_owned();
        let command = vec![self.program.clone(), "-c".into(), text.into()];
        let asked = Asked { command, ..self.asked.clone() };
        // Not borrowed from us: the book is open while the shell is used.
        let resolved = self.resolved.clone();
        let mut book = Book::open(&asked, &resolved, tell)?;
        let (result, after) = match self.attempt(line, sink, &mut book) {
            Ok(Executed { outcome, cwd, shell }) => (Ok(outcome), (cwd, shell)),
            Err(error) => (Err(error), (None, Afterwards::Ended)),
        };
        book.finish(&result);
        result.map(|outcome| Executed { outcome, cwd: after.0, shell: after.1 })
    }

    fn attempt(&mut self, line: &Line, sink: &mut Sink<'_>, book: &mut Book<'_>) -> Result<Executed, EngineError> {
        self.renew()?;
        book.begin(&self.gaps)?;
        self.commands += 1;
        let shell = self.shell.as_mut().expect("renewed just now");
        match shell.execute(line, sink) {
            Ok(ran) => {
                if ran.shell == Afterwards::Ended {
                    self.shell = None;
                }
                Ok(self.executed(ran))
            }
            Err(error @ ProviderError::NoLine { .. }) => Err(error.into()),
            Err(error) => {
                self.shell = None;
                book.refused_before = self.refused();
                if matches!(error, ProviderError::Gone { what: "sandbox" }) {
                    self.fell();
                }
                Err(error.into())
            }
        }
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
        let outcome = Outcome {
            stdout: ran.stdout,
            stderr: ran.stderr,
            status: ran.status,
            denials: ran.denials,
            denials_dropped: ran.denials_dropped,
            observed: None,
            timed_out: ran.timed_out,
            duration_ms: ran.duration.as_millis() as u64,
            usage: ran.usage,
            enforced: self.enforced.clone(),
            gaps: self.gaps.clone(),
            quarantined: std::mem::take(&mut self.quarantined),
        };
        Executed { outcome, cwd: ran.cwd, shell: ran.shell }
    }

    /// For somebody who does not want to wait for the command that runs next.
    pub fn interrupter(&mut self) -> Result<Box<dyn Interrupter>, EngineError> {
        self.renew()?;
        Ok(self.shell.as_ref().expect("renewed just now").interrupter())
    }

    /// How it stands.
    pub fn standings(&self) -> Standings {
        Standings {
            commands: self.commands,
            shell: self.shell.as_ref().map(|shell| shell.pid()),
            enforced: self.enforced.clone(),
            gaps: self.gaps.clone(),
        }
    }

    /// Ends everything in it; answers what was moved away.
    pub fn end(mut self) -> Result<Vec<Quarantined>, EngineError> {
        self.shell = None;
        let mut moved = std::mem::take(&mut self.quarantined);
        if let Some(standing) = self.standing.take() {
            moved.extend(standing.end()?);
        }
        Ok(moved)
    }
}
