//! Sessions: one sandbox and one shell for many commands.

mod call;
mod policy_follower;
mod process;
mod request;
mod sandbox;
mod shell;
mod tools;

use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_api::session_protocol::PolicyProblemReport;
use ringfence_api::{
    Denial, Gap, Outcome, Permission, QuarantinedFile, ShellCommand, ShellState, lock,
};
use ringfence_policy::{AbsPath, PolicyChange};
use ringfence_provider::{
    Interrupter, OutputSink, ProcessStdio, Provider, ProviderError, SandboxShell, ShellSpec,
    StdinFeeder,
};

use crate::asking::permission_for_denial;
use crate::command_guard::CommandText;
use crate::recorder::RunRecorder;
use crate::run::{NoticeFn, RunNotice, RunResult, run_in, without_sandbox};
use crate::variables::variables;
use crate::{EngineError, ResolvedPolicy, RunRequest, permission_for_outcome, resolve_in};
pub use call::SessionCall;
use policy_follower::PolicyFollower;
pub use policy_follower::PolicyResolver;
use process::ProcessState;
pub use process::SessionProcess;
pub use request::{GrantEffect, GrantResult};
use sandbox::{MakerThread, SandboxSlot, SessionProgram};
use shell::SessionShell;

/// A running sandbox with a shell, under one policy.
///
/// Both are restarted on demand: a shell that a command ended restarts in the same sandbox, and a
/// dead sandbox is replaced. Their state is lost, and each result reports that.
pub struct Session {
    request: RunRequest,
    program: OsString,
    /// Used by one command at a time.
    shell: Mutex<Option<Box<dyn SandboxShell>>>,
    /// Taken before the sandbox, where both are needed.
    policy: Mutex<PolicyFollower>,
    sandbox: Mutex<SandboxSlot>,
}

/// Controls of a running command.
pub struct CommandControl {
    /// Interrupts the command.
    pub interrupter: Box<dyn Interrupter>,
    /// Writes to its standard input, if that is fed.
    pub feeder: Option<Arc<dyn StdinFeeder>>,
}

/// The caller's decision when a queued command can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDecision {
    /// The command starts.
    Taken,
    /// The caller no longer waits for it.
    Left,
}

/// The status of a session.
#[derive(Debug, Clone)]
pub struct SessionStatus {
    /// The number of commands run.
    pub commands: u64,
    /// True if the shell runs a command.
    pub is_busy: bool,
    /// The shell's name in its sandbox, if there is one and it is idle.
    pub shell: Option<String>,
    /// The rules in force.
    pub enforced: Vec<String>,
    /// The gaps: rules that are not enforced.
    pub gaps: Vec<Gap>,
    /// The policy files that apply, weakest first.
    pub policy_files: Vec<AbsPath>,
    /// Policy changes that take effect with a new session.
    pub pending: Vec<PolicyChange>,
    /// The reason the newest policy files are not followed.
    pub problem: Option<PolicyProblemReport>,
}

impl Session {
    /// Opens a session with the shell `program`. Ignores the command of the request.
    pub fn open(
        provider: Box<dyn Provider>,
        request: RunRequest,
        resolved: ResolvedPolicy,
        program: OsString,
    ) -> Result<Self, EngineError> {
        let (flags, files) = (request.flags.clone(), request.files.clone());
        let resolve =
            move |before: &ResolvedPolicy| resolve_in(before.surroundings.clone(), &flags, &files);
        Self::open_with(provider, request, resolved, program, Box::new(resolve))
    }

    /// As [`Session::open`], for callers with rules of their own: `resolve` reads the policy again
    /// when a file changes.
    pub fn open_with(
        provider: Box<dyn Provider>,
        request: RunRequest,
        resolved: ResolvedPolicy,
        program: OsString,
        resolve: Box<PolicyResolver>,
    ) -> Result<Self, EngineError> {
        // Creates the log's directory before the sandbox starts. Created by the first command, it
        // would appear in the running sandbox and be accessible until a mask covers it.
        RunRecorder::open(&request, &resolved, &mut |_| ())?;
        let sandbox = SandboxSlot {
            provider: Arc::new(Mutex::new(provider)),
            maker: MakerThread::Opener,
            live_sandbox: None,
            session_grants: Arc::default(),
            recording_asker: None,
            enforced: Vec::new(),
            gaps: Vec::new(),
            is_confined: true,
            shares_project: false,
            quarantined: Vec::new(),
            commands: 0,
        };
        let policy = Mutex::new(PolicyFollower::new(&request, resolved, resolve));
        let opened = Self {
            request,
            program,
            shell: Mutex::new(None),
            policy,
            sandbox: Mutex::new(sandbox),
        };
        let mut shell = lock(&opened.shell);
        if let Err(error) = opened.restart_missing(&mut shell) {
            let outside = without_sandbox(&error, &opened.policy()).ok_or(error)?;
            lock(&opened.policy).abandon_sandbox(outside);
            opened.restart_missing(&mut shell)?;
        }
        drop(shell);
        Ok(opened)
    }

    /// False if its commands run unconfined.
    pub fn is_confined(&self) -> bool {
        self.policy().grants.is_confined() && lock(&self.sandbox).is_confined
    }

    /// Checks the policy files for changes and applies them to the sandbox. Every command calls
    /// this first; the owner of a session calls it from time to time, for commands that run.
    pub fn follow_policy(&self) {
        let mut policy = lock(&self.policy);
        let mut sandbox = lock(&self.sandbox);
        if let Some(revision) = policy.poll_files(&self.request, sandbox.live_sandbox.as_deref()) {
            sandbox.set_enforced(&revision.enforced, revision.gaps);
            if let Some(recording_asker) = &sandbox.recording_asker {
                recording_asker.set_grants(&policy.in_force.grants);
            }
        }
    }

    /// The initial working directory of its commands.
    pub fn cwd(&self) -> &AbsPath {
        &self.request.cwd
    }

    /// True if its commands see the files of the project at the same paths as this process.
    pub fn shares_project(&self) -> bool {
        lock(&self.sandbox).shares_project
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<ResolvedPolicy> {
        lock(&self.policy).in_force.clone()
    }

    /// The policy in force for a new command; an error if no command may start.
    fn policy_for_start(&self) -> Result<Arc<ResolvedPolicy>, EngineError> {
        self.follow_policy();
        let policy = lock(&self.policy);
        policy.check_may_start(&self.request.session).map(|()| policy.in_force.clone())
    }

    /// Restarts the sandbox and the shell, as needed.
    fn restart_missing(
        &self,
        shell: &mut Option<Box<dyn SandboxShell>>,
    ) -> Result<(), EngineError> {
        let mut policy = lock(&self.policy);
        let mut sandbox = lock(&self.sandbox);
        sandbox.clear_if_dead();
        if sandbox.live_sandbox.is_none() {
            *shell = None;
            policy.adopt_newest();
        }
        shell.take_if(|shell| !shell.is_alive());
        let resolved = policy.in_force.clone();
        drop(policy);
        let was_live = sandbox.live_sandbox.is_some();
        let live_sandbox = sandbox.ensure_started(&self.request, &resolved)?;
        if shell.is_some() {
            return Ok(());
        }
        let start = ShellSpec {
            program: self.program.clone(),
            environment: variables(&resolved.grants, &self.request.cwd, &resolved),
            cwd: self.request.cwd.clone(),
        };
        match live_sandbox.start_shell(&start) {
            Ok(new) => *shell = Some(new),
            // The sandbox may have died unnoticed.
            Err(_) if was_live => {
                sandbox.discard();
                drop(sandbox);
                return self.restart_missing(shell);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Runs a command in the shell, after the commands queued before it. `begun` gets the controls
    /// of the command when it can start, and decides if it does.
    pub fn execute(
        &self,
        line: &ShellCommand,
        begun: &mut dyn FnMut(CommandControl) -> StartDecision,
        sink: &mut OutputSink<'_>,
        on_notice: &mut NoticeFn<'_>,
    ) -> Result<Outcome, EngineError> {
        self.execute_as(line, &SessionCall::default(), begun, sink, on_notice)
    }

    /// Runs a command as [`Session::execute`], with the name and directory of `call`.
    pub fn execute_as(
        &self,
        line: &ShellCommand,
        call: &SessionCall,
        begun: &mut dyn FnMut(CommandControl) -> StartDecision,
        sink: &mut OutputSink<'_>,
        on_notice: &mut NoticeFn<'_>,
    ) -> Result<Outcome, EngineError> {
        let text = String::from_utf8_lossy(&line.text).into_owned();
        let command = vec![self.program.clone(), "-c".into(), text.into()];
        let request = call.apply_to(&self.request, command);
        self.follow_policy();
        let resolved = self.policy();
        let mut recorder = RunRecorder::open(&request, &resolved, on_notice)?;
        let ran = self.run_in_shell((line, call), begun, sink, &mut recorder);
        let result = recorder.finish(ran);
        let policy = lock(&self.policy).take_news();
        result.map(|outcome| Outcome { policy, ..outcome })
    }

    fn run_in_shell(
        &self,
        (line, call): (&ShellCommand, &SessionCall),
        begun: &mut dyn FnMut(CommandControl) -> StartDecision,
        sink: &mut OutputSink<'_>,
        recorder: &mut RunRecorder<'_>,
    ) -> Result<Outcome, EngineError> {
        let shell = lock(&self.shell);
        // A policy file may have changed while the command waited for the shell.
        let resolved = self.policy_for_start()?;
        let refused = <_>::default();
        let mut target = SessionShell { session: self, shell, line, call, begun, sink, refused };
        let text = CommandText::Line(&line.text, &self.program);
        Ok(match run_in(&mut target, &resolved.grants, text, recorder)? {
            RunResult::Ran(outcome) => outcome,
            RunResult::Refused(outcome) => {
                let cwd = target.shell.as_ref().and_then(|shell| shell.cwd());
                Outcome { cwd, shell: ShellState::Alive, ..*outcome }
            }
        })
    }

    /// Starts a program in the sandbox without the shell, which is not affected.
    pub fn start(
        &self,
        command: Vec<OsString>,
        streams: ProcessStdio,
        deadline: Option<Duration>,
    ) -> Result<SessionProcess, EngineError> {
        self.start_as(&SessionCall::default(), command, streams, deadline)
    }

    /// Starts a program as [`Session::start`], with the name and directory of `call`.
    pub fn start_as(
        &self,
        call: &SessionCall,
        command: Vec<OsString>,
        streams: ProcessStdio,
        deadline: Option<Duration>,
    ) -> Result<SessionProcess, EngineError> {
        let request = call.apply_to(&self.request, command);
        self.follow_policy();
        let mut policy = lock(&self.policy);
        let mut sandbox = lock(&self.sandbox);
        sandbox.clear_if_dead();
        if sandbox.live_sandbox.is_none() {
            policy.adopt_newest();
        }
        let resolved = policy.in_force.clone();
        let mut notices = Vec::new();
        let on_notice = &mut |notice: &RunNotice| notices.push(notice.clone());
        let mut recorder = RunRecorder::open(&request, &resolved, on_notice)?;
        let text = CommandText::Words(&request.command);
        let result = policy.check_may_start(&request.session).and_then(|()| {
            let mut target = SessionProgram {
                sandbox: &mut sandbox,
                request: &request,
                resolved: &resolved,
                streams,
                deadline,
            };
            run_in(&mut target, &resolved.grants, text, &mut recorder)
        });
        let state = match result {
            Ok(RunResult::Ran(process)) => ProcessState::Runs(process),
            Ok(RunResult::Refused(refused)) => {
                ProcessState::Refused(Box::new(recorder.finish(Ok(*refused))?))
            }
            Err(error) => return Err(recorder.finish(Err(error)).expect_err("it is an error")),
        };
        drop(recorder);
        let (ready, enforced) =
            (sandbox.readiness(resolved.grants.on_gap), sandbox.enforced.clone());
        let policy = policy.take_news();
        Ok(SessionProcess { state, request, resolved, ready, enforced, notices, policy })
    }

    /// Ends the sandbox and all its processes, if the policy was narrowed in a way that cannot be
    /// applied live. The next command gets a sandbox for the newest policy. Returns true if it
    /// ended.
    pub fn restart_if_narrowed(&self) -> bool {
        self.follow_policy();
        let mut policy = lock(&self.policy);
        if !policy.pending.iter().any(PolicyChange::is_pending_narrowing) {
            return false;
        }
        lock(&self.sandbox).discard();
        policy.adopt_newest();
        true
    }

    /// Suspends programs in unfinished operations, as after each command of the shell, unless the
    /// shell runs a command. For callers whose program outside the shell has ended.
    pub fn suspend_if_idle(&self) {
        if let Ok(_idle) = self.shell.try_lock() {
            lock(&self.sandbox)
                .live_sandbox
                .iter()
                .for_each(|live_sandbox| live_sandbox.suspend_programs());
        }
    }

    /// The question to the user about a blocked command of this session.
    pub fn permission(&self, outcome: &Outcome) -> Option<Permission> {
        permission_for_outcome(outcome, &self.request.files, &self.policy())
    }

    /// The question to the user about a denied tool call in this session.
    pub fn permission_for(&self, denial: &Denial) -> Option<Permission> {
        permission_for_denial(denial, &self.request.files, &self.policy())
    }

    /// The status of the session.
    pub fn status(&self) -> SessionStatus {
        let shell = self.shell.try_lock().ok();
        let shell = shell.map(|shell| shell.as_ref().map(|shell| shell.id().to_owned()));
        let policy = lock(&self.policy);
        let sandbox = lock(&self.sandbox);
        SessionStatus {
            commands: sandbox.commands,
            is_busy: shell.is_none(),
            shell: shell.flatten(),
            enforced: sandbox.enforced.clone(),
            gaps: sandbox.gaps.clone(),
            policy_files: policy.in_force.files.clone(),
            pending: policy.pending.clone(),
            problem: policy.problem.clone(),
        }
    }

    /// Ends all processes in it, even running commands. Returns the quarantined files.
    pub fn end(&self) -> Result<Vec<QuarantinedFile>, EngineError> {
        let mut sandbox = lock(&self.sandbox);
        let mut moved = std::mem::take(&mut sandbox.quarantined);
        if let Some(live_sandbox) = sandbox.live_sandbox.take() {
            moved.extend(live_sandbox.end()?);
        }
        Ok(moved)
    }
}

fn not_fed(source: std::io::Error) -> ProviderError {
    ProviderError::System { what: "feed a command", source }
}
