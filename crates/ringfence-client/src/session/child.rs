//! A session in a child process.

use std::io;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use ringfence_api::QuarantinedFile;

use super::{ClientResult, SessionClient, SessionClientError};

/// The session of a child process, `ringfence session serve --stdio`. It ends on drop.
#[derive(Debug)]
pub struct ChildSession {
    child: Child,
    client: SessionClient<ChildStdout, ChildStdin>,
}

impl ChildSession {
    /// Starts the command, with flags of `session start`, and waits until its sandbox is ready. It
    /// writes errors to our standard error.
    pub fn spawn(command: &mut Command) -> ClientResult<Self> {
        let session = format!("of `{}`", command.get_program().display());
        let fail = |source| SessionClientError::Connection {
            what: "start",
            session: session.clone(),
            source,
        };
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(fail)?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let (from, to) = pipes.ok_or_else(|| fail(io::ErrorKind::BrokenPipe.into()))?;
        let mut started = Self { child, client: SessionClient::new(&session, from, to) };
        match started.client.greet() {
            Err(SessionClientError::Connection { source, .. }) => Err(fail(
                started.kill().map_or(source, |status| io::Error::other(status.to_string())),
            )),
            greeted => greeted.map(|()| started),
        }
    }

    /// The connection to the session.
    pub fn client(&mut self) -> &mut SessionClient<ChildStdout, ChildStdin> {
        &mut self.client
    }

    /// Ends the session and all its processes. Returns the files that were moved away because they
    /// could have run on the host.
    pub fn stop(mut self) -> ClientResult<Vec<QuarantinedFile>> {
        self.client.stop()
    }

    fn kill(&mut self) -> io::Result<ExitStatus> {
        // Fails if it has ended.
        let _ = self.child.kill();
        self.child.wait()
    }
}

impl Drop for ChildSession {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
