//! Room for one sandbox more, and for what it connects to.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use ringfence_provider::ProviderError;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// So many descriptors a sandbox and its shell take while they are made; some twenty of them
/// are kept.
const DESCRIPTORS: usize = 40;

/// The highest number that one of them has for a moment, in the sandbox's first process.
const HIGHEST: i32 = 535;

/// Found out before anything is made: one that is short of descriptors half-way would say
/// whatever it failed at, and one that is to be handed over would just be missing.
pub(crate) fn make_sure(any: &OwnedFd) -> Result<(), ProviderError> {
    let copy = |from| rustix::io::fcntl_dupfd_cloexec(any, from);
    let tried = copy(HIGHEST)
        .and_then(|_| (0..DESCRIPTORS).map(|_| copy(3)).collect::<Result<Vec<_>, _>>());
    tried.map(drop).map_err(|error| {
        // So a number is refused that is higher than any may be.
        let error = if error == Errno::INVAL { Errno::MFILE } else { error };
        ProviderError::System {
            what: "open a sandbox beside what is open already",
            source: error.into(),
        }
    })
}

/// So many connections one sandbox may have carried at a time. Each takes two descriptors, and this
/// program may have other sandboxes and work of its own.
pub(crate) fn for_connections() -> usize {
    const MOST: u64 = 8192;
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((files / 3).min(MOST)).unwrap_or(usize::MAX)
}

/// This program's limit of open files, as far as it is ours to change. Every connection that is
/// carried takes two of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenFileLimit {
    /// What it was before; `None` in a program that is somebody else's.
    before: Option<Arc<OnceLock<Option<u64>>>>,
}

impl OpenFileLimit {
    /// In a program that is nothing but us.
    pub(crate) fn ours() -> Self {
        Self { before: Some(Arc::default()) }
    }

    /// Raises the limit as far as that needs no privilege; answers the one that commands are to
    /// have, since they would inherit ours: programs that use `select` or close every number there
    /// could be are made for the lower one.
    pub(crate) fn raise(&self) -> Option<u64> {
        let raised = || {
            let before = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before })
                .ok()
                .and(before.current)
        };
        self.before.as_ref().and_then(|before| *before.get_or_init(raised))
    }
}
