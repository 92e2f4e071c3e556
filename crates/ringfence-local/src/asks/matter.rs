//! What is asked about, and who waits for it: one of two kinds.

use std::os::fd::OwnedFd;

use ringfence_enforce::apply::Plea;
use ringfence_policy::{AbsPath, Access, Effect};
use ringfence_tripwire::Pending;

use super::place::{Done, Origin, Place};
use super::target::Target;

/// What a question is about.
#[derive(Debug)]
pub(crate) enum Matter {
    /// Something that is there, to be read or started.
    Read(Target),
    /// Something to be written or made.
    Write(Place),
}

/// Somebody who waits.
#[derive(Debug)]
pub(crate) enum Held {
    /// At the tripwire.
    Open(Pending),
    /// In a call that came by the usher.
    Call(Plea),
}

/// Something that is ready for whoever waits for it.
pub(crate) enum Through<'a> {
    Read(Pending, OwnedFd),
    Write(Plea, Done, &'a Place),
}

impl Matter {
    pub(crate) fn path(&self) -> &AbsPath {
        match self {
            Matter::Read(target) => &target.path,
            Matter::Write(place) => &place.path,
        }
    }

    /// What has to be allowed for it.
    pub(crate) fn access(&self) -> Access {
        match self {
            Matter::Read(_) => Access::Read,
            Matter::Write(_) => Access::Write,
        }
    }

    /// By which rule.
    pub(crate) fn effect(&self) -> Effect {
        match self {
            Matter::Read(_) => Effect::Read,
            Matter::Write(_) => Effect::Write,
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
            (_, held) => Err(held),
        }
    }
}

impl Held {
    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            Held::Open(pending) => pending.is_waiting(),
            Held::Call(plea) => plea.is_waiting(),
        }
    }

    /// Whoever waits at the tripwire is called away by the kernel.
    pub(crate) fn mind_signals(&mut self) {
        if let Held::Call(plea) = self {
            plea.mind_signals();
        }
    }
}

impl Through<'_> {
    /// Lets whoever waits have it.
    pub(crate) fn tell(self) {
        match self {
            Through::Read(pending, opened) => pending.open(opened),
            Through::Write(plea, Done::Opened { file, origin }, place) => {
                if plea.give(&file).is_err() {
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
