//! The processes of a sandbox, as init reaches them.

use std::os::fd::AsFd;

use ringfence_sys::process::{self, Wait};
use ringfence_sys::{landlock, signal};

use super::descendants::signal_descendants;
use super::{SetupError, SetupStep, freeze};

/// The processes that init stops and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessScope {
    /// All others of the pid namespace, whose first process is init.
    PidNamespace,
    /// All others of the Landlock domain of init, which keeps its signals inside.
    LandlockDomain,
    /// The descendants of init, which is a subreaper in the host's pid namespace.
    Descendants,
}

impl ProcessScope {
    /// Signals every other process. False if there is none; in a Landlock domain that is not known.
    fn signal(self, number: i32) -> bool {
        match self {
            ProcessScope::PidNamespace | ProcessScope::LandlockDomain => {
                signal::kill(-1, number).is_ok()
            }
            ProcessScope::Descendants => signal_descendants(number) > 0,
        }
    }

    /// Enters a Landlock domain from which no signal reaches a process outside, if the kernel has
    /// such domains (ABI 6). Then one syscall signals every process of the sandbox at once, also
    /// those that replace themselves faster than they can be listed.
    pub(super) fn enter_domain(has_scopes: bool) -> Result<Self, SetupError> {
        if !has_scopes {
            return Ok(ProcessScope::Descendants);
        }
        let parent = std::os::unix::process::parent_id() as i32;
        let was_open = signal::kill(parent, 0).is_ok();
        let rules = landlock::create_scope_ruleset(landlock::scope::SIGNAL)
            .during("landlock_create_ruleset")?;
        landlock::restrict_self(rules.as_fd()).during("landlock_restrict_self")?;
        // In doubt, no signal to `-1`: outside a domain it would reach every process of the user.
        let is_closed =
            signal::kill(parent, 0).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM));
        Ok(if was_open && is_closed {
            ProcessScope::LandlockDomain
        } else {
            ProcessScope::Descendants
        })
    }

    /// Stops them; true if there may have been any.
    pub(super) fn stop_all(self) -> bool {
        match self {
            ProcessScope::PidNamespace => freeze::stop_every_process(),
            ProcessScope::LandlockDomain | ProcessScope::Descendants => self.signal(libc::SIGSTOP),
        }
    }

    pub(super) fn continue_all(self) {
        self.signal(libc::SIGCONT);
    }

    /// Kills and reaps every other process of the sandbox: orphans become children of init.
    pub(super) fn end_all(self) {
        // Repeated after reaping: a killed process may have just started another one.
        while self.signal(libc::SIGKILL) || (self != ProcessScope::PidNamespace && has_child()) {
            match process::wait(-1, Wait::Block) {
                Ok(_) => while let Ok(Some(_)) = process::wait(-1, Wait::Poll) {},
                // The remaining processes are not ours: FIFO openers of the notify handler, which
                // end with us.
                Err(_) => return,
            }
        }
    }
}

/// True if init has a child, alive or not: an orphan of the sandbox is one. A process that replaces
/// itself may be missed by a list of all processes.
fn has_child() -> bool {
    process::wait(-1, Wait::Poll).is_ok()
}
