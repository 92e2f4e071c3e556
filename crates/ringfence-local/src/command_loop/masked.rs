//! Signals that wait while a command is attended.

use ringfence_provider::ProviderError;
use ringfence_sys::signal::{self, SignalSet};

/// Signals that the kernel sends for a terminal, to the whole process group: the command has them.
pub(super) const OF_THE_TERMINAL: &[i32] =
    &[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP, libc::SIGWINCH];

/// Other signals that would end this process, but for those of its own faults. The first comes from
/// `alarm(2)`, the next three from a limit or timer: all of these outlive `execve`.
const FATAL: &[i32] = &[
    libc::SIGALRM,
    libc::SIGXCPU,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXFSZ,
    libc::SIGSTKFLT,
    libc::SIGIO,
    libc::SIGPWR,
];

/// Signals that are passed on to the command: this process must not end before what the command
/// planted is moved away.
pub(super) fn passed_on() -> Vec<i32> {
    let others = [libc::SIGCONT].into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    OF_THE_TERMINAL.iter().chain(FATAL).copied().chain(others).collect()
}

/// Signals that wait while it lasts; then the mask before holds again.
pub(crate) struct Masked(pub(super) SignalSet);

impl Masked {
    /// Those that are passed on, and SIGCHLD: a watcher of a child reads it from a descriptor.
    pub(crate) fn begin() -> Result<Self, ProviderError> {
        let set = SignalSet::of(&[passed_on(), vec![libc::SIGCHLD]].concat());
        signal::block(&set)
            .map(Self)
            .map_err(|source| ProviderError::System { what: "block signals", source })
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // The caller's signals are its own again, also those that came meanwhile.
        let _ = signal::set_mask(&self.0);
    }
}
