//! Standard streams of this process as the streams of a session's command.

use std::io::{self, Write};
use std::thread;

use ringfence_api::OutputStream;
use ringfence_client::SocketClient;

use crate::error::CliError;

/// Forwards standard input to its end, in a thread.
pub(super) fn forward_input(session: &SocketClient) -> Result<(), CliError> {
    let sender = session.sender();
    let fail = |source| CliError::File { what: "read", path: "standard input".into(), source };
    thread::Builder::new()
        .name("input".into())
        // The connection has ended; the main thread reports it.
        .spawn(move || drop(sender.forward_input(io::stdin())))
        .map(drop)
        .map_err(fail)
}

/// Writes output of the command to the stream of the same name. Fails if its reader has left: the
/// command need not go on.
pub(super) fn forward_output(stream: OutputStream, data: &[u8]) -> io::Result<()> {
    match stream {
        OutputStream::Out => io::stdout().write_all(data).and_then(|()| io::stdout().flush()),
        OutputStream::Err => io::stderr().write_all(data),
    }
}
