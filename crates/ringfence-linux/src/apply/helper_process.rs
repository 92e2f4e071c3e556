//! Helper processes: our binary, executed again.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use ringfence_sys::process::{self, SpawnIsolation, SpawnOptions};
use ringfence_sys::signal::{self, SignalSet};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::handle::{LaunchError, helper_error, helper_io_error};
use super::supervisor::COMMAND_SIGNALS;
use super::{CONTROL_FD, HELPER};
use crate::open::open;

/// Two connected sockets for messages.
pub(super) fn message_sockets() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Starts the helper that `word` names, without standard streams. Returns our end of its control
/// socket, and its pid.
pub(super) fn start_helper(
    word: &str,
    isolation: SpawnIsolation,
    environment: &[CString],
) -> Result<(OwnedFd, i32), LaunchError> {
    let (ours, theirs) = message_sockets().map_err(helper_error("socketpair"))?;
    let null = open("/dev/null", OFlags::RDWR).map_err(helper_error("open /dev/null"))?;
    let null = clear_of_child(&null)?;
    let streams = [(null.as_fd(), 0), (null.as_fd(), 1), (null.as_fd(), 2)];
    let mask = &SignalSet::from_signals(COMMAND_SIGNALS);
    let how = SpawnOptions { isolation, descriptors: &streams, rlimits: &[], mask, landlock: None };
    Ok((ours, execute_with(&[word], &theirs, environment, &how)?))
}

/// Executes our binary again as a helper that talks through `control`, with our standard streams.
/// Returns its pid.
pub(super) fn execute_again(
    words: &[&str],
    control: &OwnedFd,
    mask: &SignalSet,
) -> Result<i32, LaunchError> {
    let isolation = SpawnIsolation::SameSession;
    let how = SpawnOptions { isolation, descriptors: &[], rlimits: &[], mask, landlock: None };
    execute_with(words, control, &ringfence_log::helper_environment(None), &how)
}

fn execute_with(
    words: &[&str],
    control: &OwnedFd,
    environment: &[CString],
    how: &SpawnOptions<'_>,
) -> Result<i32, LaunchError> {
    let control = clear_of_child(control)?;
    let arguments: Vec<_> = [HELPER]
        .iter()
        .chain(words)
        .map(|word| CString::new(*word).expect("a word without NUL"))
        .collect();
    let descriptors = [how.descriptors, &[(control.as_fd(), CONTROL_FD)]].concat();
    let how = SpawnOptions { descriptors: &descriptors, ..*how };
    process::spawn_with(c"/proc/self/exe", &arguments, environment, &how)
        .map_err(helper_io_error("spawn /proc/self/exe"))
}

/// A copy that is clear of the fd numbers that a child uses.
fn clear_of_child(fd: impl AsFd) -> Result<OwnedFd, LaunchError> {
    rustix::io::fcntl_dupfd_cloexec(fd, 10).map_err(helper_error("fcntl"))
}

/// Kills and reaps a child.
pub(super) fn kill_and_reap(pid: i32) {
    let _ = signal::kill(pid, libc::SIGKILL);
    process::await_end(pid);
}
