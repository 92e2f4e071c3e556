//! One of the two connections: a socket, and the TLS that is spoken on it.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_policy::HostName;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

/// Plain text that is taken at once.
const PIECE: usize = 16 * 1024;

/// One connection.
pub(super) struct TlsLeg {
    pub(super) socket: OwnedFd,
    tls: Connection,
    /// The other has said everything.
    is_heard_out: bool,
    /// It broke off in the middle, for all that TLS knows.
    is_torn: bool,
    /// The other was told that we have.
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
        // What comes in pieces goes on in pieces: the program's own socket says how they are cut.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        Self::new(socket, ClientConnection::new(config, name).map_err(io::Error::other)?.into())
    }

    fn new(socket: OwnedFd, mut tls: Connection) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // We read from one side only while the other has nothing to send, so little gathers.
        tls.set_buffer_limit(None);
        Ok(Self { socket, tls, is_heard_out: false, is_torn: false, is_shut: false })
    }

    pub(super) fn is_greeting(&self) -> bool {
        self.tls.is_handshaking()
    }

    pub(super) fn is_heard_out(&self) -> bool {
        self.is_heard_out
    }

    /// Whether it broke off without a farewell.
    pub(super) fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Whether something waits to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.tls.wants_write()
    }

    /// Reads what there is; answers what was said, which may be nothing.
    pub(super) fn hear(&mut self) -> io::Result<Vec<u8>> {
        match self.tls.read_tls(&mut TlsSocket(&self.socket)) {
            Ok(0) => self.is_heard_out = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // The other is told why, if it listens.
            let _ = self.flush();
            return Err(io::Error::other(error));
        }
        let mut said = Vec::new();
        let mut piece = [0; PIECE];
        loop {
            match self.tls.reader().read(&mut piece) {
                Ok(0) => {
                    self.is_heard_out = true;
                    return Ok(said);
                }
                Ok(count) => said.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(said),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.is_torn = true;
                    return Ok(said);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Says this as soon as it can be.
    pub(super) fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(bytes)
    }

    /// Sends what can be sent.
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

    /// Nothing more is said; the other may still speak.
    pub(super) fn shut(&mut self) {
        if !self.is_shut {
            self.tls.send_close_notify();
            let _ = self.flush();
        }
        self.tear();
    }

    /// The same without a farewell, as from somebody who broke off.
    pub(super) fn tear(&mut self) {
        if !std::mem::replace(&mut self.is_shut, true) {
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
    }
}

/// Bytes on a socket that never waits.
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
