//! A shell of a sandbox at a terminal, over a WebSocket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use ringfence_engine::session::{CommandControl, SessionProcess};
use ringfence_provider::TerminalSize;
use rustix::termios::Winsize;
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
use super::super::skills::apart;
use super::find;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::sandboxes::{TerminalSlot, awaited};
use crate::tenants::ApiCaller;

/// So much that was typed waits; then no more is listened to.
const TYPED: usize = 64 << 10;

/// How large the terminal is.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct TerminalQuery {
    #[param(minimum = 1, maximum = 65535, default = 80)]
    columns: u16,
    #[param(minimum = 1, maximum = 65535, default = 24)]
    rows: u16,
}

impl Default for TerminalQuery {
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

/// What may be said beside what is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TerminalMessage {
    resize: TerminalQuery,
}

/// A shell at a terminal, over a WebSocket
///
/// Binary messages are bytes, both ways; `{"resize": {"columns": 80, "rows": 24}}` as text changes
/// its size. At the end `{"exitCode": 0}` comes as text. Where no header can be set, the token is
/// offered as the protocol `ringfence.token.TOKEN`, beside `ringfence`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/terminal", tag = "sandboxes", operation_id = "openTerminal", params(IdPath, TerminalQuery),
    responses((status = 101, description = "The terminal"), ParameterErrors, NotFoundError, GoneError, PolicyDeniedError, UnavailableError, AuthErrors))]
pub(in crate::server) async fn terminal(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(size): QueryParams<TerminalQuery>,
    Extension(stay): Extension<Arc<RequestLease>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let sandbox = find(&house, &caller, &id)?;
    let upgrade = upgrade.map_err(|rejection| {
        ApiError::wrong("websocket", rejection.body_text()).hint("POST …/exec needs none")
    })?;
    let (beside, seat) = apart(move || {
        sandbox.attach(TerminalSize { rows: size.rows.max(1), columns: size.columns.max(1) })
    })
    .await?;
    let seated = TerminalClient::new(beside, seat)?;
    Ok(upgrade.protocols([PROTOCOL]).max_message_size(1 << 20).on_upgrade(|socket| async move {
        tokio::select! {
            () = seated.converse(socket) => {}
            () = stay.ends() => {}
        }
    }))
}

/// Somebody at a terminal. Dropped, the shell is told to end.
struct TerminalClient {
    master: AsyncFd<OwnedFd>,
    reach: CommandControl,
    /// What became of the shell.
    status: oneshot::Receiver<i32>,
}

impl TerminalClient {
    fn new(beside: SessionProcess, seat: TerminalSlot) -> ApiResult<Self> {
        let ours = |error: &(dyn std::error::Error + 'static)| ApiError::ours(error);
        let reach = beside.reach();
        let held =
            beside.terminal().ok_or_else(|| ours(&io::Error::other("there is no terminal")))?;
        let master = rustix::io::fcntl_dupfd_cloexec(held, 3).map_err(|error| ours(&error))?;
        rustix::io::ioctl_fionbio(&master, true).map_err(|error| ours(&error))?;
        let master = awaited(master).map_err(|error| ours(&error))?;
        let (ends, status) = oneshot::channel();
        let wait = move || {
            let ended = beside.wait(&mut |_, _| (), &mut |error| crate::server::log::failed(error));
            let _ = ends.send(ended.map_or(137, |executed| executed.outcome.exit_code()));
            drop(seat);
        };
        thread::Builder::new().name("terminal".into()).spawn(wait).map_err(|error| ours(&error))?;
        Ok(Self { master, reach, status })
    }

    async fn converse(mut self, mut socket: WebSocket) {
        let mut buffer = vec![0; 16 << 10];
        let mut status = None;
        // Typed, and not yet taken: nobody waits for that with what is to be shown in hand.
        let mut typed: Vec<u8> = Vec::new();
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
                // What a program left at the terminal has open would keep it.
                ended = &mut self.status, if status.is_none() => status = Some(ended.unwrap_or(137)),
                written = write(&self.master, &typed), if !typed.is_empty() => match written {
                    Ok(length) => drop(typed.drain(..length)),
                    Err(_) => break,
                },
                said = socket.recv(), if status.is_none() && typed.len() < TYPED => match said {
                    Some(Ok(Message::Binary(bytes))) => typed.extend_from_slice(&bytes),
                    Some(Ok(Message::Text(text))) => {
                        if let Ok(TerminalMessage { resize }) = serde_json::from_str(&text) {
                            let size = Winsize { ws_row: resize.rows.max(1), ws_col: resize.columns.max(1), ws_xpixel: 0, ws_ypixel: 0 };
                            let _ = rustix::termios::tcsetwinsize(self.master.get_ref(), size);
                        }
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => {}
                },
                // Nothing is left to read of one that has ended.
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
        // As every terminal does that is gone; whoever does not mind is ended a little later.
        self.reach.interrupter.signal(rustix::process::Signal::HUP.as_raw());
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
