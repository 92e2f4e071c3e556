//! A shell of a sandbox on a terminal, over a WebSocket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use ringfence_api::{Signal, TerminalSize};
use ringfence_engine::session::{CommandControl, SessionProcess};
use ringfence_provider::Terminal;
use serde::Deserialize;
use serde_json::json;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use utoipa::IntoParams;

use super::super::auth::PROTOCOL;
use super::super::extract::{IdPath, PathParams, QueryParams};
use super::super::lease::RequestLease;
use super::super::schema::errors::{
    AuthErrors, GoneError, NotFoundError, ParameterErrors, PolicyDeniedError, UnavailableError,
};
use super::super::skills::run_blocking;
use super::find;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::sandboxes::{TerminalSlot, async_fd};
use crate::tenants::ApiCaller;

/// Bytes of input that may be queued; then the socket is not read.
const MAX_QUEUED_INPUT: usize = 64 << 10;

/// The size of the terminal.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct TerminalQuery {
    #[param(minimum = 1, maximum = 65535, default = 80)]
    columns: u16,
    #[param(minimum = 1, maximum = 65535, default = 24)]
    rows: u16,
}

impl TerminalQuery {
    fn size(&self) -> TerminalSize {
        TerminalSize { rows: self.rows.max(1), columns: self.columns.max(1) }
    }
}

impl Default for TerminalQuery {
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

/// A control message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TerminalMessage {
    resize: TerminalQuery,
}

/// Open a shell on a terminal, over a WebSocket
///
/// Binary messages are bytes in both directions; the text message `{"resize": {"columns": 80,
/// "rows": 24}}` changes the size. The last message is the text `{"exitCode": 0}`. A client that
/// cannot set headers offers the token as the subprotocol `ringfence.token.TOKEN`, together with
/// `ringfence`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/terminal", tag = "sandboxes", operation_id = "openTerminal", params(IdPath, TerminalQuery),
    responses((status = 101, description = "The terminal"), ParameterErrors, NotFoundError, GoneError, PolicyDeniedError, UnavailableError, AuthErrors))]
pub(in crate::server) async fn terminal(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(size): QueryParams<TerminalQuery>,
    Extension(lease): Extension<Arc<RequestLease>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let sandbox = find(&app, &caller, &id)?;
    let upgrade = upgrade.map_err(|rejection| {
        ApiError::bad_request("websocket", rejection.body_text())
            .hint("POST …/exec works without a WebSocket")
    })?;
    let (process, slot) = run_blocking(move || sandbox.attach(size.size())).await?;
    let client = TerminalClient::new(process, slot)?;
    Ok(upgrade.protocols([PROTOCOL]).max_message_size(1 << 20).on_upgrade(|socket| async move {
        tokio::select! {
            () = client.serve_socket(socket) => {}
            () = lease.expired() => {}
        }
    }))
}

/// The client of a terminal. Dropping it ends the shell.
struct TerminalClient {
    terminal: Box<dyn Terminal>,
    /// The same terminal, which does not block.
    master: AsyncFd<OwnedFd>,
    reach: CommandControl,
    /// The exit status of the shell.
    status: oneshot::Receiver<i32>,
}

impl TerminalClient {
    fn new(process: SessionProcess, slot: TerminalSlot) -> ApiResult<Self> {
        let internal = |error: &(dyn std::error::Error + 'static)| ApiError::internal(error);
        let reach = process.control();
        let absent = || internal(&io::Error::other("the process has no terminal of this host"));
        let terminal = process.terminal().ok_or_else(absent)?;
        let pty = terminal.as_fd().ok_or_else(absent)?;
        let master = rustix::io::fcntl_dupfd_cloexec(pty, 3).map_err(|error| internal(&error))?;
        rustix::io::ioctl_fionbio(&master, true).map_err(|error| internal(&error))?;
        let master = async_fd(master).map_err(|error| internal(&error))?;
        let (ends, status) = oneshot::channel();
        let wait = move || {
            let ended =
                process.wait(&mut |_, _| (), &mut |error| crate::server::log::log_failure(error));
            let _ = ends.send(ended.map_or(137, |outcome| outcome.exit_code()));
            drop(slot);
        };
        thread::Builder::new()
            .name("terminal".into())
            .spawn(wait)
            .map_err(|error| internal(&error))?;
        Ok(Self { terminal, master, reach, status })
    }

    async fn serve_socket(mut self, mut socket: WebSocket) {
        let mut buffer = vec![0; 16 << 10];
        let mut status = None;
        // Input that the terminal has not accepted yet: it must not block the output.
        let mut queued_input: Vec<u8> = Vec::new();
        loop {
            tokio::select! {
                read = read(&self.master, &mut buffer) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(length) => {
                        if socket.send(Message::Binary(buffer[..length].to_vec().into())).await.is_err() {
                            return;
                        }
                    }
                },
                // A background program that keeps the terminal open would delay the end of output.
                ended = &mut self.status, if status.is_none() => status = Some(ended.unwrap_or(137)),
                written = write(&self.master, &queued_input), if !queued_input.is_empty() => match written {
                    Ok(length) => drop(queued_input.drain(..length)),
                    Err(_) => break,
                },
                said = socket.recv(), if status.is_none() && queued_input.len() < MAX_QUEUED_INPUT => match said {
                    Some(Ok(Message::Binary(bytes))) => queued_input.extend_from_slice(&bytes),
                    Some(Ok(Message::Text(text))) => {
                        if let Ok(TerminalMessage { resize }) = serde_json::from_str(&text) {
                            let _ = self.terminal.resize(resize.size());
                        }
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => {}
                },
                // The shell has ended, and no output is left.
                () = tokio::time::sleep(std::time::Duration::from_millis(50)), if status.is_some() => break,
            }
        }
        let status = match status {
            Some(status) => status,
            None => (&mut self.status).await.unwrap_or(137),
        };
        let _ = socket.send(Message::Text(json!({ "exitCode": status }).to_string().into())).await;
        let reason = format!("exit {status}").into();
        let _ = socket.send(Message::Close(Some(CloseFrame { code: 1000, reason }))).await;
    }
}

impl Drop for TerminalClient {
    fn drop(&mut self) {
        // SIGHUP, as for any terminal that closes; a shell that ignores it is killed a little
        // later.
        self.reach.interrupter.signal(Signal::Hangup);
        self.reach.interrupter.interrupt();
    }
}

async fn read(from: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let mut ready = from.readable().await?;
        match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref().as_fd(), &mut *buffer)?)) {
            Ok(read) => return read,
            Err(_) => continue,
        }
    }
}

async fn write(to: &AsyncFd<OwnedFd>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        let mut ready = to.writable().await?;
        match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref().as_fd(), bytes)?)) {
            Ok(written) => return written,
            Err(_) => continue,
        }
    }
}
