//! One of the two TLS connections: a socket and its TLS state.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_policy::HostName;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

/// Plain text read at once.
const PIECE: usize = 16 * 1024;

/// One TLS connection.
pub(super) struct TlsLeg {
    pub(super) socket: OwnedFd,
    tls: Connection,
    /// Set when the peer has closed its sending side.
    is_heard_out: bool,
    /// Set when the peer closed without `close_notify`.
    is_torn: bool,
    /// Set when this side has closed its sending side.
    is_shut: bool,
}

impl TlsLeg {
    pub(super) fn near(socket: OwnedFd, config: Arc<ServerConfig>) -> io::Result<Self> {
        Self::new(socket, ServerConnection::new(config).map_err(io::Error::other)?.into())
    }

    pub(super) fn far(
        socket: OwnedFd,
        config: Arc<ClientConfig>,
        name: &HostName,
    ) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_string()).map_err(io::Error::other)?;
        // Small writes are passed on as they come: the program's socket controls batching.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        Self::new(socket, ClientConnection::new(config, name).map_err(io::Error::other)?.into())
    }

    fn new(socket: OwnedFd, mut tls: Connection) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // One side is read only while the other has nothing to send, so little is buffered.
        tls.set_buffer_limit(None);
        Ok(Self { socket, tls, is_heard_out: false, is_torn: false, is_shut: false })
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    pub(super) fn is_at_eof(&self) -> bool {
        self.is_heard_out
    }

    /// True if the peer closed without `close_notify`.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_torn
    }

    /// True if data waits to be sent.
    pub(super) fn has_pending_output(&self) -> bool {
        self.tls.wants_write()
    }

    /// Reads available data; returns the plain text, perhaps empty.
    pub(super) fn read_plain(&mut self) -> io::Result<Vec<u8>> {
        match self.tls.read_tls(&mut TlsSocket(&self.socket)) {
            Ok(0) => self.is_heard_out = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // Sends the TLS alert, if the peer still reads.
            let _ = self.flush();
            return Err(io::Error::other(error));
        }
        let mut received = Vec::new();
        let mut piece = [0; PIECE];
        loop {
            match self.tls.reader().read(&mut piece) {
                Ok(0) => {
                    self.is_heard_out = true;
                    return Ok(received);
                }
                Ok(count) => received.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(received),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.is_torn = true;
                    return Ok(received);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Queues plain text to send.
    pub(super) fn write_plain(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(bytes)
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut TlsSocket(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Closes the sending side with `close_notify`; the peer may still send.
    pub(super) fn close_write(&mut self) {
        if !self.is_shut {
            self.tls.send_close_notify();
            let _ = self.flush();
        }
        self.abort_write();
    }

    /// Closes the sending side without `close_notify`, as after a broken connection.
    pub(super) fn abort_write(&mut self) {
        if !std::mem::replace(&mut self.is_shut, true) {
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
    }
}

/// A non-blocking socket as `Read` and `Write`.
struct TlsSocket<'a>(&'a OwnedFd);

impl Read for TlsSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(self.0, &mut *buffer, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                other => return Ok(other?.1),
            }
        }
    }
}

impl Write for TlsSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(self.0, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
