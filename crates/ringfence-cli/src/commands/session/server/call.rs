//! Calls of a conversation: in the shell of its session, or in a separate shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::session_protocol::{CallRequest, SessionError, SessionReply};
use ringfence_api::{Errors, ExecuteResult, ShellCommand, StdinInput, lock};
use ringfence_engine::session::SessionCall;
use ringfence_policy::AbsPath;
use ringfence_provider::ProcessStdio;

use super::command::{OutputMode, ReportResult};
use super::{Connection, SessionServer, failed};
use crate::commands::hook::cwd_link_path;
use crate::commands::run::cwd_link;
use crate::commands::session::client_peer::{ClientPeer, RequestResult};

/// The time a call waits for one that is being interrupted: as long as the signals up to SIGKILL
/// take.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(8);

impl SessionServer {
    /// Checks that a call may run here: it must have the same settings.
    pub(super) fn begin_call(&self, signature: &str) -> RequestResult {
        if self.lifetime.accepts_signature(signature) {
            return Ok(Some(SessionReply::Begun {}));
        }
        Err(SessionError::new("signature", "the session and the call have different settings"))
    }

    /// Runs the line of a call in the shell if that is free, else in a separate shell.
    pub(super) fn exec_call(&self, connection: &Connection, request: CallRequest) -> ReportResult {
        if !self.lifetime.is_for_conversation() {
            return Err(SessionError::new("usage", "this is not the session of a conversation"));
        }
        let restarted = self.session.restart_if_narrowed();
        let cwd = request.cwd.as_deref().and_then(AbsPath::new);
        let call = SessionCall { name: request.call.clone(), cwd };
        let workspace = self.session.policy().grants.workspace.clone();
        if let Some(cwd) = call.cwd.as_ref().filter(|cwd| !cwd.is_within(&workspace)) {
            let message = format!("{cwd} is not in the project {workspace}");
            let hint = format!("run `cd {workspace}` first");
            return Err(SessionError::new("usage", message).with_hint(hint));
        }
        let cwd_link = self
            .begin_directory(&request, &call)
            .map_err(|message| SessionError::new("io", message))?;
        let turn = if request.beside { None } else { self.take_shell() };
        let result = match turn {
            Some(turn) => {
                self.set_shell_client(Some(connection.peer.clone()));
                let result = self.exec_in_shell(connection, request, &call);
                self.set_shell_client(None);
                drop(turn);
                result
            }
            None => {
                let result = self.exec_separately(connection, request, &call);
                self.session.suspend_if_idle();
                result
            }
        };
        let result = result?;
        let cwd = result.cwd.as_deref().and_then(AbsPath::new);
        // The agent has removed the link of a call that it killed.
        if let (Some(link), Some(cwd), false) = (cwd_link, cwd, connection.peer.is_gone()) {
            // On failure, the agent's shell stays in its directory.
            let _ = cwd_link::update_link(&link, &cwd, &self.session.policy().grants);
        }
        Ok(ExecuteResult { restarted, ..result })
    }

    /// Creates the link that the agent's shell follows afterwards, if requested.
    fn begin_directory(
        &self,
        request: &CallRequest,
        call: &SessionCall,
    ) -> Result<Option<PathBuf>, String> {
        let (true, Some(name), Some(cwd)) = (request.keep_directory, &call.name, &call.cwd) else {
            return Ok(None);
        };
        let link = cwd_link_path(&self.session.policy().surroundings.facts.state, name);
        cwd_link::create_link(&link, cwd)
            .map_err(|error| format!("cannot create {}: {error}", link.display()))?;
        Ok(Some(link))
    }

    /// Locks the shell, if no other call uses it. Waits for a call that is being interrupted.
    fn take_shell(&self) -> Option<MutexGuard<'_, ()>> {
        let end = Instant::now() + INTERRUPT_TIMEOUT;
        loop {
            match self.shell_turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock)
                    if self.is_shell_client_gone() && Instant::now() < end =>
                {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    fn set_shell_client(&self, client: Option<Arc<ClientPeer>>) {
        *lock(&self.shell_client) = client;
    }

    /// True if the client of the call in the shell has left: its command is being interrupted.
    fn is_shell_client_gone(&self) -> bool {
        // Between two calls there is no client for a moment.
        lock(&self.shell_client).as_ref().is_none_or(|client| client.is_gone())
    }

    fn exec_in_shell(
        &self,
        connection: &Connection,
        request: CallRequest,
        call: &SessionCall,
    ) -> ReportResult {
        let deadline = self.deadline(request.timeout_ms);
        let input = if request.input { StdinInput::Streamed } else { StdinInput::Empty };
        let errors = if request.merged { Errors::WithOutput } else { Errors::Separate };
        let line = ShellCommand { text: request.line.0, input, deadline, limit: 0, errors };
        self.run_watched(connection, OutputMode::Streamed, |on_start, sink, warn| {
            self.session.execute_as(&line, call, on_start, sink, warn)
        })
    }

    fn exec_separately(
        &self,
        connection: &Connection,
        request: CallRequest,
        call: &SessionCall,
    ) -> ReportResult {
        let deadline = self.deadline(request.timeout_ms);
        let input = if request.input { StdinInput::Streamed } else { StdinInput::Empty };
        let streams = match request.merged {
            true => ProcessStdio::Merged { input, limit: 0 },
            false => ProcessStdio::Pipes { input, limit: 0 },
        };
        let command = vec![self.shell.clone(), "-c".into(), OsString::from_vec(request.line.0)];
        let process = self.session.start_as(call, command, streams, deadline).map_err(failed)?;
        self.wait_watched(connection, OutputMode::Streamed, process)
    }
}
