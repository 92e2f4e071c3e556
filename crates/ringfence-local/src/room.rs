//! Room for one sandbox more.

use std::os::fd::OwnedFd;

use ringfence_provider::ProviderError;
use rustix::io::Errno;

/// So many descriptors a sandbox and its shell take while they are made; some twenty of them
/// are kept.
const DESCRIPTORS: usize = 40;

/// The highest number that one of them has for a moment, in the sandbox's first process.
const HIGHEST: i32 = 535;

/// Found out before anything is made: one that is short of descriptors half-way would say
/// whatever it failed at, and one that is to be handed over would just be missing.
pub(crate) fn make_sure(any: &OwnedFd) -> Result<(), ProviderError> {
    let copy = |from| rustix::io::fcntl_dupfd_cloexec(any, from);
    let tried = copy(HIGHEST).and_then(|_| (0..DESCRIPTORS).map(|_| copy(3)).collect::<Result<Vec<_>, _>>());
    tried.map(drop).map_err(|error| {
        // So a number is refused that is higher than any may be.
        let error = if error == Errno::INVAL { Errno::MFILE } else { error };
        ProviderError::System { what: "open a sandbox beside what is open already", source: error.into() }
    })
}
