//! Signals that are blocked while a command is supervised.

use crate::launcher::system_step::SystemStep;
use ringfence_provider::ProviderError;
use ringfence_sys::signal::{self, SignalSet};

/// Signals that the kernel sends for a terminal to the whole process group: the command receives
/// them itself.
pub(super) const TERMINAL_SIGNALS: &[i32] =
    &[libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP, libc::SIGWINCH];

/// Other signals that would end this process, except those of its own faults. The first comes from
/// `alarm(2)`, the next three from a limit or timer: all of these survive `execve`.
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

/// Signals that are passed on to the command. This process must not end before the git sweep has
/// run.
pub(super) fn forwarded_signals() -> Vec<i32> {
    let others = [libc::SIGCONT].into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    TERMINAL_SIGNALS.iter().chain(FATAL).copied().chain(others).collect()
}

/// Blocks signals while it lives, then restores the mask.
pub(crate) struct Masked(pub(super) SignalSet);

impl Masked {
    /// Blocks the signals that are passed on, and SIGCHLD: ringfence reads it from a signalfd.
    pub(crate) fn begin() -> Result<Self, ProviderError> {
        let set = SignalSet::from_signals(&[forwarded_signals(), vec![libc::SIGCHLD]].concat());
        signal::block(&set).map(Self).during("block signals")
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // Signals that came meanwhile are delivered to the caller now.
        let _ = signal::set_mask(&self.0);
    }
}
