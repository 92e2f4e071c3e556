//! Commands of a session: in its shell, outside of it, or at a terminal.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, MutexGuard, Weak};
use std::thread;
use std::time::Duration;

use ringfence_api::session_protocol::{
    ExecRequest, SessionError, SessionReply, SessionRequest, StartRequest,
};
use ringfence_api::{
    Errors, ExecuteResult, ExitStatus, Outcome, ShellCommand, StdinInput, TerminalSize, lock,
};
use ringfence_engine::session::{CommandControl, SessionProcess, StartDecision};
use ringfence_engine::{EngineError, NoticeFn};
use ringfence_provider::{OutputSink, ProcessStdio};

use super::{Connection, KEPT, SessionServer, failed, gone};
use crate::commands::session::client_peer::RequestResult;

type OnStartFn<'a> = dyn FnMut(CommandControl) -> StartDecision + 'a;
type ExecResult = Result<Outcome, EngineError>;
pub(super) type ReportResult = Result<ExecuteResult, SessionError>;

/// The way in which a client gets the output of its command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputMode {
    /// While it runs.
    Streamed,
    /// In the result.
    Kept,
}

impl OutputMode {
    fn limit(self) -> usize {
        match self {
            OutputMode::Streamed => 0,
            OutputMode::Kept => KEPT,
        }
    }
}

impl SessionServer {
    /// Starts a command in a thread, which sends the result. This thread goes on to read requests.
    pub(super) fn start_command<'scope>(
        &'scope self,
        connection: &'scope Connection,
        scope: &'scope thread::Scope<'scope, '_>,
        request: SessionRequest,
    ) -> RequestResult {
        if !connection.slot.take() {
            let busy = SessionError::new("busy", "this connection already has a command");
            return Err(busy.with_hint("wait for its `result`, or send `interrupt`"));
        }
        let run = move || {
            let word = request.word();
            let report = self.run_command(connection, request);
            connection.slot.free();
            let result = report.map(|report| Some(SessionReply::Result(Box::new(report))));
            // A client that has left needs no result.
            let _ = connection.peer.reply(Some(word), result);
        };
        match thread::Builder::new().name("command".into()).spawn_scoped(scope, run) {
            Ok(_) => Ok(None),
            Err(error) => {
                connection.slot.free();
                Err(SessionError::new("io", format!("cannot start a thread: {error}")))
            }
        }
    }

    fn run_command(&self, connection: &Connection, request: SessionRequest) -> ReportResult {
        match request {
            SessionRequest::Exec(request) => self.exec(connection, request),
            SessionRequest::Start(request) => self.start(connection, request),
            SessionRequest::Call(request) => self.exec_call(connection, request),
            SessionRequest::Attach { rows, columns } => {
                self.attach(connection, TerminalSize { rows, columns })
            }
            _ => Err(SessionError::new("usage", "this request is not a command")),
        }
    }

    fn exec(&self, connection: &Connection, request: ExecRequest) -> ReportResult {
        let deadline = self.deadline(request.timeout_ms);
        let output = if request.stream { OutputMode::Streamed } else { OutputMode::Kept };
        let input = if request.input { StdinInput::Streamed } else { StdinInput::Empty };
        let (text, limit) = (request.line.0, output.limit());
        let line = ShellCommand { text, input, deadline, limit, errors: Errors::Separate };
        self.run_watched(connection, output, |on_start, sink, warn| {
            self.session.execute(&line, on_start, sink, warn)
        })
    }

    /// Runs a program outside the shell; another client may use the shell meanwhile.
    fn start(&self, connection: &Connection, request: StartRequest) -> ReportResult {
        if request.command.is_empty() {
            return Err(SessionError::new("usage", "`command` is empty"));
        }
        let command = request.command.into_iter().map(|word| OsString::from_vec(word.0)).collect();
        let deadline = self.deadline(request.timeout_ms);
        let output = if request.stream { OutputMode::Streamed } else { OutputMode::Kept };
        let input = if request.input { StdinInput::Streamed } else { StdinInput::Empty };
        let streams = ProcessStdio::Pipes { input, limit: output.limit() };
        let process = self.session.start(command, streams, deadline).map_err(failed)?;
        self.wait_watched(connection, output, process)
    }

    /// Runs a shell at the client's terminal.
    fn attach(&self, connection: &Connection, size: TerminalSize) -> ReportResult {
        let peer = &connection.peer;
        if !peer.can_receive_fds() {
            let error =
                SessionError::new("unsupported", "`attach` needs a socket for its terminal");
            return Err(error.with_hint("use `exec` or `start`"));
        }
        let command = vec![self.shell.clone(), "-i".into()];
        let process =
            self.session.start(command, ProcessStdio::Terminal(size), None).map_err(failed)?;
        if let Some(refusal) = process.refusal().and_then(|outcome| outcome.refusal.as_ref()) {
            let message = format!("the shell was not started: {}", refusal.reason);
            let status = ExitStatus::REFUSED as u8;
            return Err(SessionError { status, ..SessionError::new("command-refused", message) });
        }
        let terminal = process.terminal().ok_or_else(gone)?;
        let Some(pty) = terminal.as_fd() else {
            return Err(SessionError::new("unsupported", "the sandbox is not on this host"));
        };
        if !peer.send_terminal(pty) {
            return Err(gone());
        }
        self.wait_watched(connection, OutputMode::Kept, process)
    }

    /// Returns the time limit of a command: the request's or the policy's, whichever is shorter.
    pub(super) fn deadline(&self, timeout_ms: Option<u64>) -> Option<Duration> {
        self.session.follow_policy();
        let wall = self.session.policy().grants.limits.wall_ms;
        [timeout_ms, wall].into_iter().flatten().min().map(Duration::from_millis)
    }

    /// Waits for a program outside the shell as [`Self::run_watched`].
    pub(super) fn wait_watched(
        &self,
        connection: &Connection,
        output: OutputMode,
        process: SessionProcess,
    ) -> ReportResult {
        self.run_watched(connection, output, |on_start, sink, warn| {
            if on_start(process.control()) == StartDecision::Left {
                process.control().interrupter.interrupt();
            }
            process.wait(sink, warn)
        })
    }

    /// Runs a command to its end, and interrupts it when its client asks for that or leaves.
    pub(super) fn run_watched(
        &self,
        connection: &Connection,
        output: OutputMode,
        run: impl FnOnce(&mut OnStartFn<'_>, &mut OutputSink<'_>, &mut NoticeFn<'_>) -> ExecResult,
    ) -> ReportResult {
        let Connection { peer, slot } = connection;
        let mut current = None;
        let mut on_start = |control: CommandControl| {
            if peer.is_gone() {
                return StartDecision::Left;
            }
            let control = current.insert(Arc::new(control));
            self.running().push(Arc::downgrade(control));
            slot.begin(control.clone())
        };
        let mut warnings = Vec::new();
        let mut sink = |stream, bytes: &[u8]| {
            if output == OutputMode::Streamed {
                // A client that has left is noticed by the thread that reads its requests.
                let _ = peer.send(&SessionReply::Output { stream, data: bytes.into() });
            }
        };
        let executed =
            run(&mut on_start, &mut sink, &mut |notice| warnings.push(notice.to_string()));
        slot.end();
        let own = current.as_ref().map(Arc::downgrade);
        self.running().retain(|one| own.as_ref().is_none_or(|own| !own.ptr_eq(one)));
        executed.map(|outcome| self.result(outcome, warnings)).map_err(failed)
    }

    pub(super) fn running(&self) -> MutexGuard<'_, Vec<Weak<CommandControl>>> {
        lock(&self.running)
    }

    fn result(&self, outcome: Outcome, warnings: Vec<String>) -> ExecuteResult {
        let permission = self.session.permission(&outcome);
        // A call has a name of its own in the log; the client needs that of the session.
        ExecuteResult { session: self.id.clone(), permission, warnings, ..outcome.into() }
    }
}
