//! `ringfence session attach`: a separate shell in a session, at this terminal.

use std::io::{self, IoSliceMut, IsTerminal};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use ringfence_api::session_protocol::{SessionRequest, TERMINAL_BYTE};
use ringfence_client::find_session;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::termios::{
    OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};
use rustix::time::Timespec;

use super::SessionRef;
use super::forward::forward_output;
use super::notes::conclude;
use crate::error::CliError;

pub(super) fn attach(arguments: &SessionRef) -> Result<ExitCode, CliError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CliError::Usage {
            what: "cannot attach: standard input or output is not a terminal".into(),
            hint: "use `ringfence session exec SESSION -c LINE`".into(),
        });
    }
    let mut session = find_session(&arguments.session)?;
    let failed = |error: Errno| CliError::File {
        what: "attach to",
        path: format!("session {}", arguments.session),
        source: error.into(),
    };
    let size = tcgetwinsize(io::stdin()).map_err(failed)?;
    session.send(&SessionRequest::Attach { rows: size.ws_row, columns: size.ws_col })?;
    if let Some(terminal) = receive_terminal(session.transport()) {
        let raw = RawTerminal::begin().map_err(failed)?;
        forward(&terminal, size);
        drop(raw);
    }
    Ok(conclude(&session.result(forward_output)?))
}

/// Receives the fd of the terminal; `None` if the server sends an answer instead.
fn receive_terminal(stream: impl AsFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    // Any other byte begins a reply, which stays in the stream.
    let mut byte = [0];
    let (first, _) = rustix::net::recv(&stream, &mut byte[..], RecvFlags::PEEK).ok()?;
    if first == 0 || byte != [TERMINAL_BYTE] {
        return None;
    }
    recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Raw mode on this terminal; restored on drop.
struct RawTerminal(Termios);

impl RawTerminal {
    fn begin() -> rustix::io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}

/// Forwards input and output until the other side closes.
fn forward(terminal: &OwnedFd, mut size: Winsize) {
    /// The interval between checks of the window size.
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut buffer = [0; 16 * 1024];
    loop {
        let mut ends = [PollFd::new(terminal, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
        if poll(&mut ends, Some(&LOOK)).is_err_and(|error| error != Errno::INTR) {
            return;
        }
        let [shown, typed] = [ends[0].revents(), ends[1].revents()].map(|ready| !ready.is_empty());
        if shown && !copy(terminal, &stdout, &mut buffer) {
            return;
        }
        if typed && !copy(&stdin, terminal, &mut buffer) {
            return;
        }
        if let Ok(now) = tcgetwinsize(&stdin)
            && (now.ws_row, now.ws_col) != (size.ws_row, size.ws_col)
        {
            let _ = tcsetwinsize(terminal, now);
            size = now;
        }
    }
}

/// Copies available bytes; returns `false` at the end.
fn copy(from: impl AsFd, to: impl AsFd, buffer: &mut [u8]) -> bool {
    let length = match rustix::io::read(from, &mut *buffer) {
        Ok(0) => return false,
        Ok(length) => length,
        Err(error) => return error == Errno::INTR,
    };
    let mut written = 0;
    while written < length {
        match rustix::io::write(&to, &buffer[written..length]) {
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
