//! Processes around a sandbox that outlive `ringfence run` by a moment.
//!
//! The supervisor ends soon after the command, the watcher up to 20 ms later: the kernel removes
//! its inotify watches first. An init reaps both. In most containers PID 1 is another program,
//! which reaps nothing, and each run would leave zombies there.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ringfence_sys::process::{self, Wait};

/// Programs that reap orphans as PID 1, by the name the kernel shows.
const REAPERS: &[&str] = &[
    "systemd",
    "init",
    "tini",
    "docker-init",
    "dumb-init",
    "catatonit",
    "pause",
    "s6-svscan",
    "runit",
    "runsvdir",
    "openrc-init",
    "dinit",
    "busybox",
    "bash",
    "sh",
    "dash",
    "zsh",
];

/// Teardown of a sandbox in which everything has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TeardownMode {
    /// Wait until the kernel has torn it down.
    #[default]
    Wait,
    /// Return: the caller exits now, and PID 1 or [`reap_children`] reaps its children.
    Leave,
}

/// True if PID 1 reaps orphans.
pub(crate) fn does_pid1_reap() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        fs::read_to_string("/proc/1/comm").is_ok_and(|name| REAPERS.contains(&name.trim_end()))
    })
}

/// Reaps the processes around an ended sandbox if PID 1 does not, for a caller about to exit.
///
/// The wait is bounded: one more zombie is better than a command that takes long to end.
pub fn reap_children() {
    const MAX_WAIT: Duration = Duration::from_millis(200);
    const PAUSE: Duration = Duration::from_micros(50);
    let begun = Instant::now();
    while !does_pid1_reap() {
        match process::wait(-1, Wait::Poll) {
            Ok(Some(_)) => {}
            Ok(None) if begun.elapsed() < MAX_WAIT => std::thread::sleep(PAUSE),
            // No child is left, or one takes too long.
            Ok(None) | Err(_) => return,
        }
    }
}
