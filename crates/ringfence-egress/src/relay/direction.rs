//! One direction of a connection.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::pipe::{SpliceFlags, splice};

use super::check::{StreamCheck, StreamObjection};
use super::inspect::{HELD, StreamInspector};
use super::pipes::{LARGE, PipePool, SplicePipe};

/// How much of one connection is carried before others have their turn.
const TURN: usize = 4 * 1024 * 1024;

/// One end of a connection, and what the kernel last said of it.
#[derive(Debug)]
pub(super) struct RelayEndpoint {
    pub(super) socket: OwnedFd,
    /// There may be something to read: true until the kernel says no.
    pub(super) readable: bool,
    /// There may be room to write: true until the kernel says no.
    pub(super) writable: bool,
    /// The kernel has said that something is wrong.
    pub(super) failed: bool,
    /// Something urgent was said here once: `splice` stops before it and never gets past.
    pub(super) urgent: bool,
}

impl RelayEndpoint {
    pub(super) fn new(socket: OwnedFd) -> RelayEndpoint {
        RelayEndpoint { socket, readable: true, writable: true, failed: false, urgent: false }
    }
}

/// What all lanes of a thread share.
pub(super) struct LaneResources {
    pub(super) pipes: PipePool,
    pub(super) scratch: Vec<u8>,
}

impl LaneResources {
    pub(super) fn new() -> LaneResources {
        LaneResources { pipes: PipePool::default(), scratch: vec![0; HELD] }
    }
}

/// One direction: what is read at one side is written at the other.
pub(super) struct RelayDirection {
    /// How many bytes have arrived at the other side.
    pub(super) carried: u64,
    pub(super) sight: StreamInspector,
    /// Read and free to go, of which the first `gone` are gone.
    ready: Vec<u8>,
    gone: usize,
    /// Bytes on their way through a pipe.
    pipe: Option<(SplicePipe, usize)>,
    stage: DirectionStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectionStage {
    Open,
    /// The one side has said everything; the other does not know yet.
    Ending,
    Shut,
}

/// Where a lane has come to a stop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DirectionStop {
    /// Nothing can be done before the kernel says so.
    Blocked,
    /// Others have their turn.
    Turn,
}

/// What a lane cannot get over.
#[derive(Debug)]
pub(super) enum DirectionFault {
    /// The side that is read.
    Source(io::Error),
    /// The side that is written.
    Target(io::Error),
    /// What was said may not go.
    Refused(StreamObjection),
}

impl RelayDirection {
    pub(super) fn free() -> RelayDirection {
        RelayDirection {
            carried: 0,
            sight: StreamInspector::none(),
            ready: Vec::new(),
            gone: 0,
            pipe: None,
            stage: DirectionStage::Open,
        }
    }

    /// A lane that is looked at by `check`, if there is one, and of which `said` was read before.
    pub(super) fn checked(check: Option<Box<dyn StreamCheck>>, said: Vec<u8>) -> RelayDirection {
        match check {
            Some(check) => {
                RelayDirection { sight: StreamInspector::of(check, said), ..RelayDirection::free() }
            }
            None => RelayDirection { ready: said, ..RelayDirection::free() },
        }
    }

    /// Whether nothing will ever be carried again.
    pub(super) fn is_shut(&self) -> bool {
        self.stage == DirectionStage::Shut
    }

    /// Whether everything was read that will ever be.
    pub(super) fn is_read(&self) -> bool {
        self.stage != DirectionStage::Open
    }

    /// Carries what can be carried.
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
            let went = if self.gone < self.ready.len() {
                self.send_ready(to)?
            } else if self.pipe.is_some() {
                self.splice_out(to, tools)?
            } else if let Some(free) = self.sight.judge().map_err(DirectionFault::Refused)? {
                // What was let through before is on its way by now, whatever is said of this.
                self.load(&free);
                Some(0)
            } else if self.stage == DirectionStage::Ending {
                // If the other side is gone already, whoever reads it finds out.
                let _ = shutdown(&to.socket, Shutdown::Write);
                self.stage = DirectionStage::Shut;
                return Ok(DirectionStop::Blocked);
            } else if self.stage == DirectionStage::Open
                && from.readable
                && (to.writable || self.sight.is_looking())
            {
                self.fill(from, tools)?
            } else {
                None
            };
            match went {
                Some(bytes) => moved += bytes,
                None => return Ok(DirectionStop::Blocked),
            }
        }
    }

    /// Gives back what was lent; what was on its way is lost.
    pub(super) fn clear(&mut self, tools: &mut LaneResources) {
        if let Some((pipe, _)) = self.pipe.take() {
            tools.pipes.lose(pipe);
        }
    }

    /// Reads once. How much, or `None` if there is nothing.
    fn fill(
        &mut self,
        from: &mut RelayEndpoint,
        tools: &mut LaneResources,
    ) -> Result<Option<usize>, DirectionFault> {
        let limit = usize::try_from(self.sight.unseen()).unwrap_or(usize::MAX).min(LARGE);
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
            let read = self.understand(read, from);
            match read {
                Ok(Some(count)) if count > 0 => {
                    self.pipe = Some((pipe, count));
                    self.sight.spend(count);
                }
                _ => tools.pipes.put(pipe),
            }
            return read;
        }
        self.copy(from, tools, limit)
    }

    /// Reads once, into memory: at most `limit`, or what is to be looked at if that is nothing.
    fn copy(
        &mut self,
        from: &mut RelayEndpoint,
        tools: &mut LaneResources,
        limit: usize,
    ) -> Result<Option<usize>, DirectionFault> {
        let room = if limit > 0 { limit.min(HELD) } else { self.sight.room() };
        let read = recv(&from.socket, &mut tools.scratch[..room], RecvFlags::empty())
            .map(|(_, count)| count);
        let read = self.understand(read, from)?;
        let bytes = &tools.scratch[..read.unwrap_or(0)];
        if limit > 0 {
            self.load(bytes);
            self.sight.spend(bytes.len());
        } else {
            self.sight.hold(bytes);
        }
        Ok(read)
    }

    /// What a call that reads has answered.
    fn understand(
        &mut self,
        read: rustix::io::Result<usize>,
        from: &mut RelayEndpoint,
    ) -> Result<Option<usize>, DirectionFault> {
        match read {
            Ok(0) => {
                self.sight.forget();
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

    /// Puts bytes after those that wait to be sent.
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
            self.delivered(send(&to.socket, &self.ready[self.gone..], SendFlags::NOSIGNAL), to)?;
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
        // Exactly what is in the pipe: asked for more, the kernel would wait for more before it
        // sends.
        let sent = splice(
            &pipe.reader,
            None,
            &to.socket,
            None,
            count,
            SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
        );
        let sent = self.delivered(sent, to);
        match count - sent.as_ref().map_or(0, |sent| sent.unwrap_or(0)) {
            0 => tools.pipes.put(pipe),
            left => self.pipe = Some((pipe, left)),
        }
        sent
    }

    /// What a call that writes has answered.
    fn delivered(
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
