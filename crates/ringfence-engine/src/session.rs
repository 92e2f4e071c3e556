//! The life of a session: one sandbox, one shell, many commands.

mod call;
mod policy_follower;
mod process;
mod request;
mod sandbox;
mod tools;

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_api::{
    Denial, Gap, Outcome, OutputStream, Permission, QuarantinedFile, ShellCommand, ShellState,
    StdinInput, StreamOutput,
};
use ringfence_audit::AuditError;
use ringfence_policy::{AbsPath, PolicyChange};
use ringfence_provider::{
    Interrupter, OutputSink, ProcessStdio, Provider, ProviderError, SandboxShell, ShellSpec,
    StdinFeeder,
};

use crate::asking::permission_for;
use crate::recorder::RunRecorder;
use crate::{
    EngineError, ResolvedPolicy, RunRequest, command_guard, permission, resolve_in, variables,
};
pub use call::Call;
use policy_follower::PolicyFollower;
pub use policy_follower::{PolicyNews, PolicyProblem, PolicyResolver};
use process::ProcessState;
pub use process::SessionProcess;
pub use request::{GrantEffect, GrantResult};
pub(crate) use sandbox::executed;
use sandbox::{MakerThread, SandboxSlot};

/// A sandbox that stands and a shell in it, as one policy has it.
///
/// Both are renewed when they are needed and gone: a shell that a command ended starts anew
/// in the same sandbox, and a sandbox that died is made anew. What was in them is gone with
/// them, and each result says so.
pub struct Session {
    asked: RunRequest,
    program: OsString,
    /// Used by one command at a time.
    shell: Mutex<Option<Box<dyn SandboxShell>>>,
    /// Taken before the sandbox, where both are needed.
    policy: Mutex<PolicyFollower>,
    sandbox: Mutex<SandboxSlot>,
}

/// What became of a command, and of the shell it ran in.
#[derive(Debug, Clone)]
pub struct SessionOutcome {
    /// As of any command.
    pub outcome: Outcome,
    /// Where the shell is now.
    pub cwd: Option<AbsPath>,
    /// What those wrote that earlier commands have left running, since the one before this.
    pub background: StreamOutput,
    /// What became of the shell.
    pub shell: ShellState,
    /// What became of policy files that were changed since the command before.
    pub news: PolicyNews,
}

/// How somebody else reaches a command that runs.
pub struct CommandControl {
    /// For whoever does not want to wait.
    pub interrupter: Box<dyn Interrupter>,
    /// For whoever has what it reads, if it is to be fed.
    pub feeder: Option<Arc<dyn StdinFeeder>>,
}

/// What is said when it is a command's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDecision {
    /// It begins.
    Taken,
    /// Nobody wants it any more.
    Left,
}

/// What a session is like now.
#[derive(Debug, Clone)]
pub struct SessionStatus {
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
    /// The policy files that count, weakest first.
    pub policy_files: Vec<AbsPath>,
    /// What of them takes effect with a new session.
    pub pending: Vec<PolicyChange>,
    /// Why they are not followed as they are now.
    pub problem: Option<PolicyProblem>,
}

impl Session {
    /// Opens a session; `program` is its shell. The command of `asked` is not looked at.
    pub fn open(
        provider: Box<dyn Provider + Send>,
        asked: RunRequest,
        resolved: ResolvedPolicy,
        program: OsString,
    ) -> Result<Self, EngineError> {
        let (flags, files) = (asked.flags.clone(), asked.files.clone());
        let resolve =
            move |before: &ResolvedPolicy| resolve_in(before.surroundings.clone(), &flags, &files);
        Self::open_with(provider, asked, resolved, program, Box::new(resolve))
    }

    /// The same for whoever has rules of its own beside those of the files: `resolve` reads the
    /// policy anew, when a file was changed.
    pub fn open_with(
        provider: Box<dyn Provider + Send>,
        asked: RunRequest,
        resolved: ResolvedPolicy,
        program: OsString,
        resolve: Box<PolicyResolver>,
    ) -> Result<Self, EngineError> {
        // The log's directory is there before the host is looked at: made by the first command,
        // it would appear in a sandbox that stands, and be open until it is covered.
        RunRecorder::open(&asked, &resolved, &mut |_| ())?;
        let sandbox = SandboxSlot {
            provider: Arc::new(Mutex::new(provider)),
            maker: MakerThread::Opener,
            standing: None,
            lasting: Arc::default(),
            witness: None,
            enforced: Vec::new(),
            gaps: Vec::new(),
            quarantined: Vec::new(),
            commands: 0,
        };
        let policy = Mutex::new(PolicyFollower::new(&asked, resolved, resolve));
        let opened =
            Self { asked, program, shell: Mutex::new(None), policy, sandbox: Mutex::new(sandbox) };
        opened.renew(&mut lock(&opened.shell))?;
        Ok(opened)
    }

    /// Looks whether a policy file was changed, and lets the sandbox follow. Every command does
    /// so first; whoever keeps a session does so from time to time, for those that run.
    pub fn follow(&self) {
        let mut policy = lock(&self.policy);
        let mut sandbox = lock(&self.sandbox);
        if let Some(plan) = policy.look(&self.asked, sandbox.standing.as_deref()) {
            sandbox.stands_by(&plan);
            if let Some(witness) = &sandbox.witness {
                witness.revise(&policy.holding.grants);
            }
        }
    }

    /// Where its commands begin.
    pub fn cwd(&self) -> &AbsPath {
        &self.asked.cwd
    }

    /// The policy that holds.
    pub fn policy(&self) -> Arc<ResolvedPolicy> {
        lock(&self.policy).holding.clone()
    }

    /// The same for something that is about to begin, unless nothing may.
    fn policy_to_begin(&self) -> Result<Arc<ResolvedPolicy>, EngineError> {
        self.follow();
        let policy = lock(&self.policy);
        policy.permits(&self.asked.session).map(|()| policy.holding.clone())
    }

    /// What is missing of a sandbox and a shell made anew.
    fn renew(&self, shell: &mut Option<Box<dyn SandboxShell>>) -> Result<(), EngineError> {
        let mut policy = lock(&self.policy);
        let mut sandbox = lock(&self.sandbox);
        sandbox.clear_if_dead();
        if sandbox.standing.is_none() {
            *shell = None;
            policy.begin_anew();
        }
        shell.take_if(|shell| !shell.is_alive());
        let resolved = policy.holding.clone();
        drop(policy);
        let was_standing = sandbox.standing.is_some();
        let standing = sandbox.standing(&self.asked, &resolved)?;
        if shell.is_some() {
            return Ok(());
        }
        let start = ShellSpec {
            program: self.program.clone(),
            variables: variables(&resolved.grants, &self.asked.cwd, &resolved),
            cwd: self.asked.cwd.clone(),
        };
        match standing.shell(&start) {
            Ok(new) => *shell = Some(new),
            // It may have died without anybody noticing.
            Err(_) if was_standing => {
                sandbox.fell();
                drop(sandbox);
                return self.renew(shell);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Runs a command in the shell, after those that were asked for before. `begun` gets what
    /// reaches it when it is its turn, and says whether it is still wanted; `tell` hears what could
    /// not be recorded.
    pub fn execute(
        &self,
        line: &ShellCommand,
        begun: &mut dyn FnMut(CommandControl) -> StartDecision,
        sink: &mut OutputSink<'_>,
        tell: &mut dyn FnMut(&AuditError),
    ) -> Result<SessionOutcome, EngineError> {
        self.execute_as(line, &Call::default(), begun, sink, tell)
    }

    /// Runs a command in the shell as [`Opened::execute`] does, under the name and in the directory
    /// that `call` says.
    pub fn execute_as(
        &self,
        line: &ShellCommand,
        call: &Call,
        begun: &mut dyn FnMut(CommandControl) -> StartDecision,
        sink: &mut OutputSink<'_>,
        tell: &mut dyn FnMut(&AuditError),
    ) -> Result<SessionOutcome, EngineError> {
        let text = String::from_utf8_lossy(&line.text).into_owned();
        let command = vec![self.program.clone(), "-c".into(), text.into()];
        let asked = call.of(&self.asked, command);
        self.follow();
        let resolved = self.policy();
        let mut book = RunRecorder::open(&asked, &resolved, tell)?;
        let (result, (cwd, background, shell)) =
            match self.attempt((line, call), begun, sink, &mut book) {
                Ok(SessionOutcome { outcome, cwd, background, shell, .. }) => {
                    (Ok(outcome), (cwd, background, shell))
                }
                Err(error) => (Err(error), (None, StreamOutput::default(), ShellState::Ended)),
            };
        book.finish(&result);
        result.map(|outcome| SessionOutcome {
            outcome,
            cwd,
            background,
            shell,
            news: lock(&self.policy).news(),
        })
    }

    fn attempt(
        &self,
        (line, call): (&ShellCommand, &Call),
        begun: &mut dyn FnMut(CommandControl) -> StartDecision,
        sink: &mut OutputSink<'_>,
        book: &mut RunRecorder<'_>,
    ) -> Result<SessionOutcome, EngineError> {
        let mut slot = lock(&self.shell);
        // It may have been waited for while a file was changed.
        let resolved = self.policy_to_begin()?;
        if let Some(outcome) = command_guard::refused(
            &resolved.grants,
            command_guard::CommandText::Line(&line.text, &self.program),
        ) {
            sink(OutputStream::Err, &outcome.stderr.head);
            let cwd = slot.as_ref().and_then(|shell| shell.cwd());
            let background = StreamOutput::default();
            return Ok(SessionOutcome {
                outcome,
                cwd,
                background,
                shell: ShellState::LivesOn,
                news: PolicyNews::default(),
            });
        }
        self.renew(&mut slot)?;
        let shell = slot.as_mut().expect("renewed just now");
        call.enter(shell.as_mut())?;
        let recorded = {
            let mut sandbox = lock(&self.sandbox);
            sandbox.commands += 1;
            book.begin(&sandbox.gaps)
        };
        recorded?;
        let feeder =
            (line.input == StdinInput::Fed).then(|| shell.feeder()).transpose().map_err(not_fed)?;
        if begun(CommandControl { interrupter: shell.interrupter(), feeder }) == StartDecision::Left
        {
            return Err(EngineError::Unwanted);
        }
        lock(&self.sandbox).standing.iter().for_each(|standing| standing.resume_programs());
        let ran = shell.execute(line, sink);
        let mut sandbox = lock(&self.sandbox);
        sandbox.standing.iter().for_each(|standing| standing.suspend_programs());
        match ran {
            Ok(ran) => {
                let cwd = shell.cwd();
                if ran.shell == ShellState::Ended {
                    *slot = None;
                }
                Ok(SessionOutcome { cwd, ..sandbox.executed(ran) })
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
        streams: ProcessStdio,
        deadline: Option<Duration>,
        tell: &mut dyn FnMut(&AuditError),
    ) -> Result<SessionProcess, EngineError> {
        self.start_as(&Call::default(), command, streams, deadline, tell)
    }

    /// Starts a program as [`Opened::start`] does, under the name and in the directory that `call`
    /// says.
    pub fn start_as(
        &self,
        call: &Call,
        command: Vec<OsString>,
        streams: ProcessStdio,
        deadline: Option<Duration>,
        tell: &mut dyn FnMut(&AuditError),
    ) -> Result<SessionProcess, EngineError> {
        let asked = call.of(&self.asked, command);
        self.follow();
        let mut policy = lock(&self.policy);
        let mut sandbox = lock(&self.sandbox);
        sandbox.clear_if_dead();
        if sandbox.standing.is_none() {
            policy.begin_anew();
        }
        let resolved = policy.holding.clone();
        let mut book = RunRecorder::open(&asked, &resolved, tell)?;
        let permitted = policy.permits(&asked.session);
        if permitted.is_ok()
            && let Some(refused) = command_guard::refused(
                &resolved.grants,
                command_guard::CommandText::Words(&asked.command),
            )
        {
            let result = Ok(refused.clone());
            book.finish(&result);
            drop(book);
            let course = ProcessState::Refused(Box::new(refused));
            return Ok(SessionProcess {
                course,
                enforced: Vec::new(),
                gaps: Vec::new(),
                asked,
                resolved,
                news: policy.news(),
            });
        }
        let started = permitted
            .and_then(|()| sandbox.start(&asked, &resolved, &mut book, (streams, deadline)));
        match started {
            Ok(process) => {
                drop(book);
                let (enforced, gaps) = (sandbox.enforced.clone(), sandbox.gaps.clone());
                Ok(SessionProcess {
                    course: ProcessState::Runs(process),
                    enforced,
                    gaps,
                    asked,
                    resolved,
                    news: policy.news(),
                })
            }
            Err(error) => {
                let result = Err(error);
                book.finish(&result);
                result.map(|_: Outcome| unreachable!("it is an error"))
            }
        }
    }

    /// Ends the sandbox with all that runs in it, if the policy was narrowed in a way that a
    /// sandbox cannot take over while it stands. The next command gets one made for the newest
    /// policy. Answers whether it did.
    pub fn restart_if_narrowed(&self) -> bool {
        self.follow();
        let mut policy = lock(&self.policy);
        if !policy.pending.iter().any(PolicyChange::is_owed) {
            return false;
        }
        lock(&self.sandbox).fell();
        policy.begin_anew();
        true
    }

    /// Takes programs in unfinished operations away, as after each command of the shell, unless the
    /// shell is in the middle of one. For callers whose program beside it has ended.
    pub fn suspend_if_idle(&self) {
        if let Ok(_idle) = self.shell.try_lock() {
            lock(&self.sandbox).standing.iter().for_each(|standing| standing.suspend_programs());
        }
    }

    /// What a person could be asked about a command of it that was blocked.
    pub fn permission(&self, outcome: &Outcome) -> Option<Permission> {
        permission(outcome, &self.asked.files, &self.policy())
    }

    /// The same about a call of a tool beside it that was refused.
    pub fn permission_for(&self, denial: &Denial) -> Option<Permission> {
        permission_for(denial, &self.asked.files, &self.policy())
    }

    /// How it stands.
    pub fn standings(&self) -> SessionStatus {
        let shell = self.shell.try_lock().ok().map(|shell| shell.as_ref().map(|shell| shell.pid()));
        let policy = lock(&self.policy);
        let sandbox = lock(&self.sandbox);
        SessionStatus {
            commands: sandbox.commands,
            is_busy: shell.is_none(),
            shell: shell.flatten(),
            enforced: sandbox.enforced.clone(),
            gaps: sandbox.gaps.clone(),
            policy_files: policy.holding.files.clone(),
            pending: policy.pending.clone(),
            problem: policy.problem.clone(),
        }
    }

    /// Ends everything in it, also while commands run; answers what was moved away.
    pub fn end(&self) -> Result<Vec<QuarantinedFile>, EngineError> {
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

fn not_fed(source: std::io::Error) -> ProviderError {
    ProviderError::System { what: "feed a command", source }
}
