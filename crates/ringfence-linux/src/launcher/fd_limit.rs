//! Limits of open fds, for sandboxes and relayed connections.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use ringfence_provider::ProviderError;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fds that a sandbox and its shell take while they are built; some twenty of them stay open.
const FDS_NEEDED: usize = 40;

/// Highest fd number in use for a moment, in the sandbox's init.
const HIGHEST_FD: i32 = 535;

/// Checks for enough fds before anything is built: a shortage half-way would give an unrelated
/// error, or silently lose an fd.
pub(crate) fn check_free_fds(any: &OwnedFd) -> Result<(), ProviderError> {
    let copy = |from| rustix::io::fcntl_dupfd_cloexec(any, from);
    let copies = copy(HIGHEST_FD)
        .and_then(|_| (0..FDS_NEEDED).map(|_| copy(3)).collect::<Result<Vec<_>, _>>());
    copies.map(drop).map_err(|error| {
        // EINVAL means that the number is above the limit.
        let error = if error == Errno::INVAL { Errno::MFILE } else { error };
        ProviderError::System {
            what: "open the files a sandbox needs (limit of open files, `ulimit -n`)",
            source: error.into(),
        }
    })
}

/// Most relayed connections of one sandbox at a time. Each takes two fds, and this process may have
/// other sandboxes and work of its own.
pub(crate) fn max_connections() -> usize {
    const MAX_CONNECTIONS: u64 = 8192;
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((files / 3).min(MAX_CONNECTIONS)).unwrap_or(usize::MAX)
}

/// The limit of open files of this process, if ringfence may change it. Each relayed connection
/// takes two fds.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenFileLimit {
    /// The limit before; `None` in a process that belongs to a caller.
    before: Option<Arc<OnceLock<Option<u64>>>>,
}

impl OpenFileLimit {
    /// For ringfence's own process.
    pub(crate) fn own_process() -> Self {
        Self { before: Some(Arc::default()) }
    }

    /// Raises the soft limit to the hard limit; returns the limit before, which commands get:
    /// programs that use `select`, or close every possible fd, need the lower one.
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
