//! The client of a connection, as the session sees it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use ringfence_api::lock;
use ringfence_api::session_protocol::{
    PROTOCOL_VERSION, SessionError, SessionReply, SessionRequest, TERMINAL_BYTE,
};
use ringfence_client::{LineStream, write_line};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::Timespec;

/// The client of a connection, as the session sees it.
pub(super) struct ClientPeer {
    input: OwnedFd,
    output: Mutex<File>,
}

/// The reply to a request, if it has one.
pub(super) type RequestResult = Result<Option<SessionReply>, SessionError>;

impl ClientPeer {
    pub(super) fn new(input: OwnedFd, output: OwnedFd) -> Self {
        Self { input, output: Mutex::new(output.into()) }
    }

    pub(super) fn from_socket(socket: UnixStream) -> io::Result<Self> {
        Ok(Self::new(socket.try_clone()?.into(), socket.into()))
    }

    /// Handles requests until the client leaves. The first one must be `hello`, so that a client
    /// of another version gets an error that says so.
    pub(super) fn serve(
        &self,
        session: &str,
        mut handle: impl FnMut(SessionRequest) -> RequestResult,
    ) -> io::Result<()> {
        let mut lines = LineStream::new(File::from(self.input.try_clone()?));
        let mut is_greeted = false;
        while let Some(line) = lines.next_line()? {
            let request = match serde_json::from_slice::<SessionRequest>(&line) {
                Ok(request) => request,
                Err(error) => {
                    let what = format!("invalid request: {error}");
                    self.reply(None, Err(SessionError::not_understood("protocol", what, session)))?;
                    continue;
                }
            };
            let word = request.word();
            let result = match request {
                SessionRequest::Hello { version } => {
                    let greeting = greet(version, session);
                    is_greeted = greeting.is_ok();
                    greeting
                }
                SessionRequest::Stop {} => handle(request),
                _ if is_greeted => handle(request),
                _ => {
                    let what = format!("`{word}` came before a successful `hello`");
                    Err(SessionError::not_understood("protocol", what, session))
                }
            };
            self.reply(Some(word), result)?;
        }
        Ok(())
    }

    /// Sends the reply to the request `ask`.
    pub(super) fn reply(&self, ask: Option<&str>, result: RequestResult) -> io::Result<()> {
        match result {
            Ok(None) => Ok(()),
            Ok(Some(reply)) => self.send(&reply),
            Err(error) => self.send(&SessionReply::Error { ask: ask.map(str::to_owned), error }),
        }
    }

    pub(super) fn send(&self, reply: &SessionReply) -> io::Result<()> {
        write_line(&mut *lock(&self.output), reply)
    }

    /// True if the client has closed its side.
    pub(super) fn is_gone(&self) -> bool {
        self.waits_for(Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    /// Waits until the client has closed its side; returns false after `long`.
    pub(super) fn waits_for(&self, long: Timespec) -> bool {
        poll(&mut [PollFd::new(&self.input, PollFlags::RDHUP)], Some(&long)) != Ok(0)
    }

    /// True if fds can be sent to the client.
    pub(super) fn can_receive_fds(&self) -> bool {
        fstat(&*lock(&self.output))
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
    }

    /// Sends the terminal's fd to the client; returns true on success.
    pub(super) fn send_terminal(&self, terminal: BorrowedFd<'_>) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [terminal];
        let output = lock(&self.output);
        let byte = [TERMINAL_BYTE];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors))
            && sendmsg(&*output, &[IoSlice::new(&byte)], &mut ancillary, SendFlags::NOSIGNAL)
                .is_ok()
    }
}

fn greet(version: u32, session: &str) -> RequestResult {
    if version == PROTOCOL_VERSION {
        return Ok(Some(SessionReply::Hello { version, session: session.to_owned() }));
    }
    let what = format!(
        "session {session} speaks version {PROTOCOL_VERSION} of the session protocol, the client \
         version {version}"
    );
    Err(SessionError::not_understood("protocol-version", what, session))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Sends lines to a session that answers `inspect` only; returns its replies.
    fn replies(lines: &str) -> String {
        let (client, server) = UnixStream::pair().unwrap();
        (&client).write_all(lines.as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let peer = ClientPeer::from_socket(server).unwrap();
        let _ = peer.serve("s1", |_| Ok(Some(SessionReply::Begun {})));
        drop(peer);
        io::read_to_string(client).unwrap()
    }

    #[test]
    fn request_after_hello_is_answered() {
        assert_eq!(
            replies("{\"ask\":\"hello\",\"version\":1}\n{\"ask\":\"inspect\"}\n"),
            "{\"reply\":\"hello\",\"version\":1,\"session\":\"s1\"}\n{\"reply\":\"begun\"}\n"
        );
    }

    #[test]
    fn other_version_is_named_with_a_hint() {
        let said = replies("{\"ask\":\"hello\",\"version\":2}\n{\"ask\":\"inspect\"}\n");
        assert!(said.contains("speaks version 1 of the session protocol, the client version 2"));
        assert!(said.contains("restart the session: `ringfence session stop s1`"), "{said}");
        assert!(said.contains("`inspect` came before a successful `hello`"), "{said}");
    }

    #[test]
    fn stop_needs_no_version() {
        assert_eq!(replies("{\"ask\":\"stop\"}\n"), "{\"reply\":\"begun\"}\n");
    }

    #[test]
    fn invalid_request_is_named_and_the_next_is_answered() {
        let said = replies("{\"ask\":\"inspect\",\"x\":1}\n?\n{\"ask\":\"stop\"}\n");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].contains("unknown field `x`") && lines[0].contains("hint"), "{said}");
        assert!(lines[1].contains("invalid request: expected value"), "{said}");
        assert_eq!(lines[2], "{\"reply\":\"begun\"}");
    }
}
