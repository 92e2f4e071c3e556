//! Subject of a question, and the request that waits for the answer.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use crate::apply::PendingWrite;
use crate::fuse::PendingOpen;

use super::connect::{AskedConnect, HostPort};
use super::read_target::ReadTarget;
use super::write_target::{TargetOrigin, WriteResult, WriteTarget};

/// The subject of a question.
#[derive(Debug)]
pub(crate) enum AskSubject {
    /// An existing file to read or execute.
    Read(ReadTarget),
    /// A path to write or create.
    Write(WriteTarget),
    /// A host to connect to.
    Connect(HostPort),
}

/// A request that waits for an answer.
#[derive(Debug)]
pub(crate) enum ParkedRequest {
    /// At the tripwire.
    Open(PendingOpen),
    /// In a syscall that the notify handler holds.
    Call(PendingWrite),
    /// In a connect.
    Connect(AskedConnect),
}

/// A granted access, ready for the request that waits for it.
pub(crate) enum ReadyGrant<'a> {
    Read(PendingOpen, OwnedFd),
    Write(PendingWrite, WriteResult, &'a WriteTarget),
    Connect(AskedConnect),
}

impl AskSubject {
    /// Target of the question.
    pub(crate) fn name(&self) -> OsString {
        match self {
            AskSubject::Read(target) => target.path.as_path().into(),
            AskSubject::Write(place) => place.path.as_path().into(),
            AskSubject::Connect(host) => host.target.clone(),
        }
    }

    /// Prepares the access; gives the request back if the target is no longer the one asked about.
    pub(crate) fn prepare(&self, held: ParkedRequest) -> Result<ReadyGrant<'_>, ParkedRequest> {
        match (self, held) {
            (AskSubject::Read(target), ParkedRequest::Open(pending)) => match target.open() {
                Some(opened) => Ok(ReadyGrant::Read(pending, opened)),
                None => Err(ParkedRequest::Open(pending)),
            },
            (AskSubject::Write(place), ParkedRequest::Call(pending)) => {
                match place.carry_out(pending.intent()) {
                    Some(done) => Ok(ReadyGrant::Write(pending, done, place)),
                    None => Err(ParkedRequest::Call(pending)),
                }
            }
            (AskSubject::Connect(_), ParkedRequest::Connect(parked)) => {
                Ok(ReadyGrant::Connect(parked))
            }
            (_, held) => Err(held),
        }
    }
}

impl ParkedRequest {
    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            ParkedRequest::Open(pending) => pending.is_waiting(),
            ParkedRequest::Call(pending) => pending.is_waiting(),
            ParkedRequest::Connect(parked) => parked.is_waiting(),
        }
    }

    /// The kernel itself interrupts a request at the tripwire.
    pub(crate) fn check_signals(&mut self) {
        match self {
            ParkedRequest::Open(_) => {}
            ParkedRequest::Call(pending) => pending.check_signals(),
            ParkedRequest::Connect(parked) => parked.check_signals(),
        }
    }

    /// True if a pending signal has to be polled for.
    pub(crate) fn needs_signal_polling(&self) -> bool {
        !matches!(self, ParkedRequest::Open(_))
    }
}

impl ReadyGrant<'_> {
    /// Completes the request.
    pub(crate) fn complete(self) {
        match self {
            ReadyGrant::Read(pending, opened) => pending.open(opened),
            ReadyGrant::Connect(parked) => parked.release(),
            ReadyGrant::Write(pending, WriteResult::Opened { file, origin }, place) => {
                if pending.succeed_with_fd(file).is_err() {
                    place.undo(origin);
                }
            }
            ReadyGrant::Write(pending, WriteResult::Made, place) => {
                if pending.succeed().is_err() {
                    place.undo(TargetOrigin::New);
                }
            }
        }
    }
}
