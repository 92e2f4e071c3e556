//! One direction of a connection.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::pipe::{SpliceFlags, splice};

use super::check::{StreamCheck, StreamObjection};
use super::inspect::{MAX_HELD, StreamInspector};
use super::pipes::{LARGE, PipePool, SplicePipe};

/// Bytes moved for one connection before the next one gets its turn.
const TURN: usize = 4 * 1024 * 1024;

/// One socket of a connection, and its last known readiness.
#[derive(Debug)]
pub(super) struct RelayEndpoint {
    pub(super) socket: OwnedFd,
    /// There may be data to read: true until `EAGAIN`.
    pub(super) readable: bool,
    /// There may be space to write: true until `EAGAIN`.
    pub(super) writable: bool,
    /// Set when epoll reported an error.
    pub(super) failed: bool,
    /// Set once urgent data arrived: `splice` stops before it and never gets past it.
    pub(super) urgent: bool,
}

impl RelayEndpoint {
    pub(super) fn new(socket: OwnedFd) -> RelayEndpoint {
        RelayEndpoint { socket, readable: true, writable: true, failed: false, urgent: false }
    }
}

/// Resources shared by all directions of a thread.
pub(super) struct LaneResources {
    pub(super) pipes: PipePool,
    pub(super) scratch: Vec<u8>,
}

impl LaneResources {
    pub(super) fn new() -> LaneResources {
        LaneResources { pipes: PipePool::default(), scratch: vec![0; MAX_HELD] }
    }
}

/// One direction: bytes read from one socket are written to the other.
pub(super) struct RelayDirection {
    /// Bytes delivered to the other side.
    pub(super) carried: u64,
    pub(super) inspector: StreamInspector,
    /// Bytes free to send, of which the first `gone` are sent.
    ready: Vec<u8>,
    gone: usize,
    /// The pipe with bytes in transit, and their count.
    pipe: Option<(SplicePipe, usize)>,
    stage: DirectionStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectionStage {
    Open,
    /// The source has sent EOF; the target does not know yet.
    Ending,
    Shut,
}

/// Reason why a direction stopped for now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DirectionStop {
    /// Waits for an epoll event.
    Blocked,
    /// Used up its turn.
    Turn,
}

/// Fatal fault of a direction.
#[derive(Debug)]
pub(super) enum DirectionFault {
    /// The socket that is read.
    Source(io::Error),
    /// The socket that is written.
    Target(io::Error),
    /// The check refused the bytes.
    Refused(StreamObjection),
}

impl RelayDirection {
    pub(super) fn unchecked() -> RelayDirection {
        RelayDirection {
            carried: 0,
            inspector: StreamInspector::without_check(),
            ready: Vec::new(),
            gone: 0,
            pipe: None,
            stage: DirectionStage::Open,
        }
    }

    /// A direction with an optional check, and with the bytes in `early` already read.
    pub(super) fn checked(check: Option<Box<dyn StreamCheck>>, early: Vec<u8>) -> RelayDirection {
        match check {
            Some(check) => RelayDirection {
                inspector: StreamInspector::with_check(check, early),
                ..RelayDirection::unchecked()
            },
            None => RelayDirection { ready: early, ..RelayDirection::unchecked() },
        }
    }

    /// True if nothing more will be relayed.
    pub(super) fn is_closed(&self) -> bool {
        self.stage == DirectionStage::Shut
    }

    /// True if the source has reached its end.
    pub(super) fn is_at_eof(&self) -> bool {
        self.stage != DirectionStage::Open
    }

    /// Moves all bytes that can be moved now.
    pub(super) fn pump(
        &mut self,
        from: &mut RelayEndpoint,
        to: &mut RelayEndpoint,
        tools: &mut LaneResources,
    ) -> Result<DirectionStop, DirectionFault> {
        let mut moved = 0;
        loop {
            if moved >= TURN {
                return Ok(DirectionStop::Turn);
            }
            let progress = if self.gone < self.ready.len() {
                self.send_ready(to)?
            } else if self.pipe.is_some() {
                self.splice_out(to, tools)?
            } else if let Some(free) = self.inspector.judge().map_err(DirectionFault::Refused)? {
                // Bytes let through earlier are already sent at this point, so a later refusal does
                // not affect them.
                self.load(&free);
                Some(0)
            } else if self.stage == DirectionStage::Ending {
                // If the other side is closed already, the direction that reads it notices.
                let _ = shutdown(&to.socket, Shutdown::Write);
                self.stage = DirectionStage::Shut;
                return Ok(DirectionStop::Blocked);
            } else if self.stage == DirectionStage::Open
                && from.readable
                && (to.writable || self.inspector.is_checking())
            {
                self.fill(from, tools)?
            } else {
                None
            };
            match progress {
                Some(bytes) => moved += bytes,
                None => return Ok(DirectionStop::Blocked),
            }
        }
    }

    /// Releases the pipe; bytes in transit are lost.
    pub(super) fn clear(&mut self, tools: &mut LaneResources) {
        if let Some((pipe, _)) = self.pipe.take() {
            tools.pipes.close(pipe);
        }
    }

    /// Reads once. Returns the number of bytes, or `None` if there are none.
    fn fill(
        &mut self,
        from: &mut RelayEndpoint,
        tools: &mut LaneResources,
    ) -> Result<Option<usize>, DirectionFault> {
        let limit =
            usize::try_from(self.inspector.unchecked_allowance()).unwrap_or(usize::MAX).min(LARGE);
        if limit > 0
            && let Some(pipe) = tools.pipes.take()
        {
            let read = splice(
                &from.socket,
                None,
                &pipe.writer,
                None,
                limit,
                SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
            );
            if read == Err(Errno::AGAIN) && from.urgent {
                tools.pipes.put(pipe);
                return self.copy(from, tools, limit);
            }
            let read = self.read_result(read, from);
            match read {
                Ok(Some(count)) if count > 0 => {
                    self.pipe = Some((pipe, count));
                    self.inspector.spend(count);
                }
                _ => tools.pipes.put(pipe),
            }
            return read;
        }
        self.copy(from, tools, limit)
    }

    /// Reads once into memory: at most `limit` bytes, or bytes for the check if `limit` is 0.
    fn copy(
        &mut self,
        from: &mut RelayEndpoint,
        tools: &mut LaneResources,
        limit: usize,
    ) -> Result<Option<usize>, DirectionFault> {
        let space = if limit > 0 { limit.min(MAX_HELD) } else { self.inspector.free_space() };
        let read = recv(&from.socket, &mut tools.scratch[..space], RecvFlags::empty())
            .map(|(_, count)| count);
        let read = self.read_result(read, from)?;
        let bytes = &tools.scratch[..read.unwrap_or(0)];
        if limit > 0 {
            self.load(bytes);
            self.inspector.spend(bytes.len());
        } else {
            self.inspector.hold(bytes);
        }
        Ok(read)
    }

    /// Translates the result of a read call.
    fn read_result(
        &mut self,
        read: rustix::io::Result<usize>,
        from: &mut RelayEndpoint,
    ) -> Result<Option<usize>, DirectionFault> {
        match read {
            Ok(0) => {
                self.inspector.drop_held();
                self.stage = DirectionStage::Ending;
                Ok(Some(0))
            }
            Ok(count) => Ok(Some(count)),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(Errno::AGAIN) => {
                from.readable = false;
                Ok(None)
            }
            Err(error) => Err(DirectionFault::Source(error.into())),
        }
    }

    /// Appends bytes to the send buffer.
    fn load(&mut self, bytes: &[u8]) {
        if self.gone == self.ready.len() {
            self.ready.clear();
            self.gone = 0;
        }
        self.ready.extend_from_slice(bytes);
    }

    fn send_ready(&mut self, to: &mut RelayEndpoint) -> Result<Option<usize>, DirectionFault> {
        if !to.writable {
            return Ok(None);
        }
        let sent =
            self.write_result(send(&to.socket, &self.ready[self.gone..], SendFlags::NOSIGNAL), to)?;
        self.gone += sent.unwrap_or(0);
        if self.gone == self.ready.len() {
            // An idle connection keeps no buffer.
            self.ready = Vec::new();
            self.gone = 0;
        }
        Ok(sent)
    }

    fn splice_out(
        &mut self,
        to: &mut RelayEndpoint,
        tools: &mut LaneResources,
    ) -> Result<Option<usize>, DirectionFault> {
        let Some((pipe, count)) = self.pipe.take() else { return Ok(None) };
        if !to.writable {
            self.pipe = Some((pipe, count));
            return Ok(None);
        }
        // Exactly the number of bytes in the pipe: with a larger count the kernel waits for more
        // before it sends.
        let sent = splice(
            &pipe.reader,
            None,
            &to.socket,
            None,
            count,
            SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
        );
        let sent = self.write_result(sent, to);
        match count - sent.as_ref().map_or(0, |sent| sent.unwrap_or(0)) {
            0 => tools.pipes.put(pipe),
            left => self.pipe = Some((pipe, left)),
        }
        sent
    }

    /// Translates the result of a write call.
    fn write_result(
        &mut self,
        sent: rustix::io::Result<usize>,
        to: &mut RelayEndpoint,
    ) -> Result<Option<usize>, DirectionFault> {
        match sent {
            Ok(count) => {
                self.carried += count as u64;
                Ok(Some(count))
            }
            Err(Errno::INTR) => Ok(Some(0)),
            Err(Errno::AGAIN) => {
                to.writable = false;
                Ok(None)
            }
            Err(error) => Err(DirectionFault::Target(error.into())),
        }
    }
}
