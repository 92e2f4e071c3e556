//! Resource limits.

use std::io;

/// No core file for this process and its children.
pub fn no_core() -> io::Result<()> {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live `rlimit`, which the call only reads.
    super::check(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) }).map(drop)
}
