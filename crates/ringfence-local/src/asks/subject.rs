//! What is asked about, and who waits for it: one of three kinds.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use ringfence_enforce::apply::PendingWrite;
use ringfence_tripwire::PendingOpen;

use super::connect::{HostPort, ParkedConnect};
use super::read_target::ReadTarget;
use super::write_target::{TargetOrigin, WriteResult, WriteTarget};

/// What a question is about.
#[derive(Debug)]
pub(crate) enum AskSubject {
    /// Something that is there, to be read or started.
    Read(ReadTarget),
    /// Something to be written or made.
    Write(WriteTarget),
    /// A host to be reached.
    Connect(HostPort),
}

/// Somebody who waits.
#[derive(Debug)]
pub(crate) enum ParkedRequest {
    /// At the tripwire.
    Open(PendingOpen),
    /// In a call that came by the usher.
    Call(PendingWrite),
    /// To be connected.
    Connect(ParkedConnect),
}

/// Something that is ready for whoever waits for it.
pub(crate) enum ReadyGrant<'a> {
    Read(PendingOpen, OwnedFd),
    Write(PendingWrite, WriteResult, &'a WriteTarget),
    Connect(ParkedConnect),
}

impl AskSubject {
    /// What it is known by.
    pub(crate) fn name(&self) -> OsString {
        match self {
            AskSubject::Read(target) => target.path.as_path().into(),
            AskSubject::Write(place) => place.path.as_path().into(),
            AskSubject::Connect(wanted) => wanted.target.clone(),
        }
    }

    /// Gets it ready; gives back whoever waits if it is not what was asked about any more.
    pub(crate) fn through(&self, held: ParkedRequest) -> Result<ReadyGrant<'_>, ParkedRequest> {
        match (self, held) {
            (AskSubject::Read(target), ParkedRequest::Open(pending)) => match target.open() {
                Some(opened) => Ok(ReadyGrant::Read(pending, opened)),
                None => Err(ParkedRequest::Open(pending)),
            },
            (AskSubject::Write(place), ParkedRequest::Call(plea)) => {
                match place.carry_out(plea.deed()) {
                    Some(done) => Ok(ReadyGrant::Write(plea, done, place)),
                    None => Err(ParkedRequest::Call(plea)),
                }
            }
            (AskSubject::Connect(_), ParkedRequest::Connect(halted)) => {
                Ok(ReadyGrant::Connect(halted))
            }
            (_, held) => Err(held),
        }
    }
}

impl ParkedRequest {
    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            ParkedRequest::Open(pending) => pending.is_waiting(),
            ParkedRequest::Call(plea) => plea.is_waiting(),
            ParkedRequest::Connect(halted) => halted.is_waiting(),
        }
    }

    /// Whoever waits at the tripwire is called away by the kernel.
    pub(crate) fn mind_signals(&mut self) {
        match self {
            ParkedRequest::Open(_) => {}
            ParkedRequest::Call(plea) => plea.mind_signals(),
            ParkedRequest::Connect(halted) => halted.mind_signals(),
        }
    }

    /// Whether somebody has to look after whoever waits.
    pub(crate) fn is_to_be_minded(&self) -> bool {
        !matches!(self, ParkedRequest::Open(_))
    }
}

impl ReadyGrant<'_> {
    /// Lets whoever waits have it.
    pub(crate) fn tell(self) {
        match self {
            ReadyGrant::Read(pending, opened) => pending.open(opened),
            ReadyGrant::Connect(halted) => halted.release(),
            ReadyGrant::Write(plea, WriteResult::Opened { file, origin }, place) => {
                if plea.give(file).is_err() {
                    place.undo(origin);
                }
            }
            ReadyGrant::Write(plea, WriteResult::Made, place) => {
                if plea.done().is_err() {
                    place.undo(TargetOrigin::New);
                }
            }
        }
    }
}
