//! Hints for exhausted host limits.
//!
//! The errnos are Linux's; a test of `ringfence-linux` compares each with `libc`.

use std::io;

/// Resource temporarily unavailable: the limit of processes.
pub const EAGAIN: i32 = 11;
/// Out of memory.
pub const ENOMEM: i32 = 12;
/// Too many open files on the host.
pub const ENFILE: i32 = 23;
/// Too many open files in the process.
pub const EMFILE: i32 = 24;
/// No space left: also the limit of namespaces and mounts.
pub const ENOSPC: i32 = 28;
/// Too many users: the limit of nested user namespaces.
pub const EUSERS: i32 = 87;

/// A command to type if `error` comes from an exhausted limit of a Linux host; `None` for any other
/// error.
pub fn limit_hint(error: &io::Error) -> Option<&'static str> {
    let is_linux = std::env::consts::OS == "linux";
    error.raw_os_error().filter(|_| is_linux).and_then(hint_for_errno)
}

fn hint_for_errno(errno: i32) -> Option<&'static str> {
    Some(match errno {
        EMFILE => "too many open files in this process; run `ulimit -n 65536` before you start it",
        ENFILE => "too many open files on this host; run `sudo sysctl fs.file-max=1048576`",
        EAGAIN => {
            "too many processes and threads; `ulimit -u` shows your limit, `sudo sysctl kernel.threads-max` that of this host"
        }
        ENOSPC | EUSERS => {
            "too many user namespaces, other namespaces or mounts on this host; `sysctl user fs.mount-max` shows the limits, and `sudo sysctl NAME=VALUE` raises one"
        }
        ENOMEM => "out of memory",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exhausted_limits_get_a_hint() {
        let hint_for = |errno| hint_for_errno(errno).unwrap_or_default();
        assert!(hint_for(EMFILE).contains("ulimit -n") && hint_for(EAGAIN).contains("ulimit -u"));
        assert!(hint_for(ENOSPC).contains("sysctl user"));
        assert_eq!((hint_for(1), hint_for(2)), ("", ""));
    }
}
