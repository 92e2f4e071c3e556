//! One direction of a connection.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustix::pipe::{SpliceFlags, splice};

use super::check::{Check, Objection, Verdict};
use super::pipes::{LARGE, Pipe, Pipes};

/// What is held of a connection at most while it cannot be judged.
const HELD: usize = 64 * 1024;
/// How much of one connection is carried before others have their turn.
const TURN: usize = 4 * 1024 * 1024;

/// One end of a connection, and what the kernel last said of it.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) socket: OwnedFd,
    /// There may be something to read: true until the kernel says no.
    pub(super) readable: bool,
    /// There may be room to write: true until the kernel says no.
    pub(super) writable: bool,
    /// The kernel has said that something is wrong.
    pub(super) failed: bool,
}

impl Side {
    pub(super) fn new(socket: OwnedFd) -> Side {
        Side { socket, readable: true, writable: true, failed: false }
    }
}

/// What all lanes of a thread share.
pub(super) struct Tools {
    pub(super) pipes: Pipes,
    pub(super) scratch: Vec<u8>,
}

impl Tools {
    pub(super) fn new() -> Tools {
        Tools { pipes: Pipes::default(), scratch: vec![0; HELD] }
    }
}

/// One direction: what is read at one side is written at the other.
pub(super) struct Lane {
    /// How many bytes have arrived at the other side.
    pub(super) carried: u64,
    rule: Rule,
    /// Read and not judged.
    held: Vec<u8>,
    /// Read and free to go, of which the first `gone` are gone.
    ready: Vec<u8>,
    gone: usize,
    /// Bytes on their way through a pipe.
    pipe: Option<(Pipe, usize)>,
    stage: Stage,
    /// Something is held that was not looked at.
    fresh: bool,
    /// Something was said of what is said, or nobody wants to know.
    judged: bool,
}

/// Who sees the bytes.
enum Rule {
    /// Nobody.
    Free,
    /// So many go unseen, then they are looked at again.
    Credit(u64, Box<dyn Check>),
    Look(Box<dyn Check>),
    /// What is still read is dropped.
    Drop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The one side has said everything; the other does not know yet.
    Ending,
    Shut,
}

/// Where a lane has come to a stop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Nothing can be done before the kernel says so.
    Blocked,
    /// Others have their turn.
    Turn,
}

/// What a lane cannot get over.
#[derive(Debug)]
pub(super) enum Fault {
    /// The side that is read.
    Source(io::Error),
    /// The side that is written.
    Target(io::Error),
    /// What was said may not go.
    Refused(Objection),
}

impl Lane {
    pub(super) fn free() -> Lane {
        Lane {
            carried: 0,
            rule: Rule::Free,
            held: Vec::new(),
            ready: Vec::new(),
            gone: 0,
            pipe: None,
            stage: Stage::Open,
            fresh: false,
            judged: true,
        }
    }

    /// A lane that is looked at by `check`, if there is one, and of which `said` was read before.
    pub(super) fn checked(check: Option<Box<dyn Check>>, said: Vec<u8>) -> Lane {
        match check {
            Some(check) => Lane { rule: Rule::Look(check), held: said, fresh: true, judged: false, ..Lane::free() },
            None => Lane { ready: said, ..Lane::free() },
        }
    }

    /// Whether nothing will ever be carried again.
    pub(super) fn is_shut(&self) -> bool {
        self.stage == Stage::Shut
    }

    /// Whether everything was read that will ever be.
    pub(super) fn is_read(&self) -> bool {
        self.stage != Stage::Open
    }

    /// Whether what was said first has been judged.
    pub(super) fn is_judged(&self) -> bool {
        self.judged
    }

    /// Whether what is read next is looked at.
    fn is_looking(&self) -> bool {
        matches!(self.rule, Rule::Look(_))
    }

    /// Carries what can be carried.
    pub(super) fn pump(&mut self, from: &mut Side, to: &mut Side, tools: &mut Tools) -> Result<Stop, Fault> {
        let mut moved = 0;
        loop {
            if moved >= TURN {
                return Ok(Stop::Turn);
            }
            let went = if self.gone < self.ready.len() {
                self.send_ready(to)?
            } else if self.pipe.is_some() {
                self.splice_out(to, tools)?
            } else if std::mem::take(&mut self.fresh) {
                // What was let through before is on its way by now, whatever is said of the rest.
                self.judge()?;
                Some(0)
            } else if self.stage == Stage::Ending {
                // If the other side is gone already, whoever reads it finds out.
                let _ = shutdown(&to.socket, Shutdown::Write);
                self.stage = Stage::Shut;
                return Ok(Stop::Blocked);
            } else if self.stage == Stage::Open && from.readable && (to.writable || self.is_looking()) {
                self.fill(from, tools)?
            } else {
                None
            };
            match went {
                Some(bytes) => moved += bytes,
                None => return Ok(Stop::Blocked),
            }
        }
    }

    /// Gives back what was lent; what was on its way is lost.
    pub(super) fn clear(&mut self, tools: &mut Tools) {
        if let Some((pipe, _)) = self.pipe.take() {
            tools.pipes.lose(pipe);
        }
    }

    /// Reads once. How much, or `None` if there is nothing.
    fn fill(&mut self, from: &mut Side, tools: &mut Tools) -> Result<Option<usize>, Fault> {
        let most = match &self.rule {
            Rule::Free => u64::MAX,
            Rule::Credit(left, _) => *left,
            Rule::Look(_) | Rule::Drop => 0,
        };
        let limit = usize::try_from(most).unwrap_or(usize::MAX).min(LARGE);
        if limit > 0
            && let Some(pipe) = tools.pipes.take()
        {
            let read = splice(&from.socket, None, &pipe.writer, None, limit, SpliceFlags::MOVE | SpliceFlags::NONBLOCK);
            let read = self.understand(read, from);
            match read {
                Ok(Some(count)) if count > 0 => {
                    self.pipe = Some((pipe, count));
                    self.spend(count);
                }
                _ => tools.pipes.put(pipe),
            }
            return read;
        }
        let room = if limit > 0 { limit.min(HELD) } else { HELD.saturating_sub(self.held.len()).max(1) };
        let read = recv(&from.socket, &mut tools.scratch[..room], RecvFlags::empty()).map(|(_, count)| count);
        let read = self.understand(read, from)?;
        if let Some(count) = read
            && count > 0
        {
            let bytes = &tools.scratch[..count];
            match self.rule {
                Rule::Free | Rule::Credit(..) => {
                    self.load(bytes);
                    self.spend(count);
                }
                Rule::Look(_) => {
                    self.held.extend_from_slice(bytes);
                    self.fresh = true;
                }
                Rule::Drop => {}
            }
        }
        Ok(read)
    }

    /// What a call that reads has answered.
    fn understand(&mut self, read: rustix::io::Result<usize>, from: &mut Side) -> Result<Option<usize>, Fault> {
        match read {
            Ok(0) => {
                // What was held and never understood does not go.
                self.held = Vec::new();
                self.stage = Stage::Ending;
                Ok(Some(0))
            }
            Ok(count) => Ok(Some(count)),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(Errno::AGAIN) => {
                from.readable = false;
                Ok(None)
            }
            Err(error) => Err(Fault::Source(error.into())),
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

    /// Takes what has passed unseen off what may.
    fn spend(&mut self, count: usize) {
        if let Rule::Credit(left, _) = &mut self.rule {
            *left -= count as u64;
            if *left == 0
                && let Rule::Credit(_, check) = std::mem::replace(&mut self.rule, Rule::Drop)
            {
                self.rule = Rule::Look(check);
            }
        }
    }

    /// Has what is held looked at.
    fn judge(&mut self) -> Result<(), Fault> {
        let Rule::Look(check) = &mut self.rule else { return Ok(()) };
        if self.held.is_empty() {
            return Ok(());
        }
        let verdict = check.look(&self.held);
        self.judged |= verdict != Verdict::NeedMore;
        match verdict {
            Verdict::NeedMore if self.held.len() < HELD => {}
            Verdict::NeedMore | Verdict::Through(0) => {
                let reason = format!("it could not be told from {} bytes what is said", self.held.len());
                return Err(Fault::Refused(Objection { reason, answer: Vec::new() }));
            }
            Verdict::Pass => {
                self.rule = Rule::Free;
                let held = std::mem::take(&mut self.held);
                self.load(&held);
            }
            Verdict::Through(count) => self.let_through(count),
            Verdict::Finish => {
                self.rule = Rule::Drop;
                self.held = Vec::new();
            }
            Verdict::Refuse(objection) => return Err(Fault::Refused(objection)),
        }
        Ok(())
    }

    fn let_through(&mut self, count: u64) {
        let now = usize::try_from(count).unwrap_or(usize::MAX).min(self.held.len());
        let rest = self.held.split_off(now);
        let free = std::mem::replace(&mut self.held, rest);
        self.load(&free);
        self.fresh = !self.held.is_empty();
        let left = count - now as u64;
        if left > 0
            && let Rule::Look(check) = std::mem::replace(&mut self.rule, Rule::Drop)
        {
            self.rule = Rule::Credit(left, check);
        }
    }

    fn send_ready(&mut self, to: &mut Side) -> Result<Option<usize>, Fault> {
        if !to.writable {
            return Ok(None);
        }
        let sent = self.delivered(send(&to.socket, &self.ready[self.gone..], SendFlags::NOSIGNAL), to)?;
        self.gone += sent.unwrap_or(0);
        if self.gone == self.ready.len() {
            // An idle connection keeps no buffer.
            self.ready = Vec::new();
            self.gone = 0;
        }
        Ok(sent)
    }

    fn splice_out(&mut self, to: &mut Side, tools: &mut Tools) -> Result<Option<usize>, Fault> {
        let Some((pipe, count)) = self.pipe.take() else { return Ok(None) };
        if !to.writable {
            self.pipe = Some((pipe, count));
            return Ok(None);
        }
        // Exactly what is in the pipe: asked for more, the kernel would wait for more before it sends.
        let sent = splice(&pipe.reader, None, &to.socket, None, count, SpliceFlags::MOVE | SpliceFlags::NONBLOCK);
        let sent = self.delivered(sent, to);
        match count - sent.as_ref().map_or(0, |sent| sent.unwrap_or(0)) {
            0 => tools.pipes.put(pipe),
            left => self.pipe = Some((pipe, left)),
        }
        sent
    }

    /// What a call that writes has answered.
    fn delivered(&mut self, sent: rustix::io::Result<usize>, to: &mut Side) -> Result<Option<usize>, Fault> {
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
            Err(error) => Err(Fault::Target(error.into())),
        }
    }
}
