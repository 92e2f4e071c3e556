//! Clients of a running ringfence, for programs that embed it and for the command line.
//!
//! [`SessionClient`] speaks the session protocol over any transport: the pipes of a child process
//! ([`ChildSession`]), or, on Unix, the socket of a running session ([`SocketClient`]).
//! [`ServiceClient`] speaks HTTP with `ringfence serve`.
//!
//! ```no_run
//! use std::process::Command;
//!
//! use ringfence_api::session_protocol::{ExecRequest, SessionRequest};
//! use ringfence_client::ChildSession;
//!
//! let mut command = Command::new("ringfence");
//! command.args(["session", "serve", "--stdio", "-C", "/home/me/project"]);
//! let mut session = ChildSession::spawn(&mut command)?;
//! let line = ExecRequest { line: "make test".as_bytes().into(), ..ExecRequest::default() };
//! session.client().send(&SessionRequest::Exec(line))?;
//! let result = session.client().result(|_, _| Ok(()))?;
//! println!("{}: {}", result.exit_code, String::from_utf8_lossy(&result.stdout.bytes));
//! session.stop()?;
//! # Ok::<(), ringfence_client::SessionClientError>(())
//! ```

mod lines;
mod service;
mod session;

pub use lines::{LineStream, write_line};
pub use service::{CommandEvents, RemoteError, RemoteEvent, ServiceClient, ServiceReply};
pub use session::{
    CommandEvent, RequestSender, SessionClient, SessionClientError, child::ChildSession,
};
#[cfg(unix)]
pub use session::{
    socket::{SocketClient, find_all, find_by_id, find_session},
    socket_dir,
};
