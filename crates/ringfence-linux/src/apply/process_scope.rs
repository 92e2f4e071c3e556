//! The processes of a sandbox, as init reaches them.

use ringfence_sys::process::{self, Wait};
use ringfence_sys::signal;

use super::descendants::signal_descendants;
use super::freeze;

/// The processes that init stops and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessScope {
    /// All others of the pid namespace, whose first process is init.
    PidNamespace,
    /// The descendants of init, which is a subreaper in the host's pid namespace.
    Descendants,
}

impl ProcessScope {
    /// True if there is another process that can be signalled.
    fn signal(self, number: i32) -> bool {
        match self {
            ProcessScope::PidNamespace => signal::kill(-1, number).is_ok(),
            ProcessScope::Descendants => signal_descendants(number) > 0,
        }
    }

    /// Stops them; true if there was any.
    pub(super) fn stop_all(self) -> bool {
        match self {
            ProcessScope::PidNamespace => freeze::stop_every_process(),
            ProcessScope::Descendants => self.signal(libc::SIGSTOP),
        }
    }

    pub(super) fn continue_all(self) {
        self.signal(libc::SIGCONT);
    }

    /// Kills and reaps every other process of the sandbox: orphans become children of init.
    pub(super) fn end_all(self) {
        // Repeated after reaping: a killed process may have just started another one.
        while self.signal(libc::SIGKILL) {
            match process::wait(-1, Wait::Block) {
                Ok(_) => while let Ok(Some(_)) = process::wait(-1, Wait::Poll) {},
                // The remaining processes are not ours: FIFO openers of the notify handler, which
                // end with us.
                Err(_) => return,
            }
        }
    }
}
