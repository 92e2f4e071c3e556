//! What is asked about, and who waits for it: one of three kinds.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use ringfence_enforce::apply::Plea;
use ringfence_tripwire::Pending;

use super::connect::{Halted, Wanted};
use super::place::{Done, Origin, Place};
use super::target::Target;

/// What a question is about.
#[derive(Debug)]
pub(crate) enum Matter {
    /// Something that is there, to be read or started.
    Read(Target),
    /// Something to be written or made.
    Write(Place),
    /// A host to be reached.
    Connect(Wanted),
}

/// Somebody who waits.
#[derive(Debug)]
pub(crate) enum Held {
    /// At the tripwire.
    Open(Pending),
    /// In a call that came by the usher.
    Call(Plea),
    /// To be connected.
    Connect(Halted),
}

/// Something that is ready for whoever waits for it.
pub(crate) enum Through<'a> {
    Read(Pending, OwnedFd),
    Write(Plea, Done, &'a Place),
    Connect(Halted),
}

impl Matter {
    /// What it is known by.
    pub(crate) fn name(&self) -> OsString {
        match self {
            Matter::Read(target) => target.path.as_path().into(),
            Matter::Write(place) => place.path.as_path().into(),
            Matter::Connect(wanted) => wanted.target.clone(),
        }
    }

    /// Gets it ready; gives back whoever waits if it is not what was asked about any more.
    pub(crate) fn through(&self, held: Held) -> Result<Through<'_>, Held> {
        match (self, held) {
            (Matter::Read(target), Held::Open(pending)) => match target.open() {
                Some(opened) => Ok(Through::Read(pending, opened)),
                None => Err(Held::Open(pending)),
            },
            (Matter::Write(place), Held::Call(plea)) => match place.carry_out(plea.deed()) {
                Some(done) => Ok(Through::Write(plea, done, place)),
                None => Err(Held::Call(plea)),
            },
            (Matter::Connect(_), Held::Connect(halted)) => Ok(Through::Connect(halted)),
            (_, held) => Err(held),
        }
    }
}

impl Held {
    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            Held::Open(pending) => pending.is_waiting(),
            Held::Call(plea) => plea.is_waiting(),
            Held::Connect(halted) => halted.is_waiting(),
        }
    }

    /// Whoever waits at the tripwire is called away by the kernel.
    pub(crate) fn mind_signals(&mut self) {
        match self {
            Held::Open(_) => {}
            Held::Call(plea) => plea.mind_signals(),
            Held::Connect(halted) => halted.mind_signals(),
        }
    }

    /// Whether somebody has to look after whoever waits.
    pub(crate) fn is_to_be_minded(&self) -> bool {
        !matches!(self, Held::Open(_))
    }
}

impl Through<'_> {
    /// Lets whoever waits have it.
    pub(crate) fn tell(self) {
        match self {
            Through::Read(pending, opened) => pending.open(opened),
            Through::Connect(halted) => halted.release(),
            Through::Write(plea, Done::Opened { file, origin }, place) => {
                if plea.give(file).is_err() {
                    place.undo(origin);
                }
            }
            Through::Write(plea, Done::Made, place) => {
                if plea.done().is_err() {
                    place.undo(Origin::New);
                }
            }
        }
    }
}
