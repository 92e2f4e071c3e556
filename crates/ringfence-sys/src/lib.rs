//! System calls that no safe crate offers, one function each.
//!
//! This is the only crate with `unsafe`. A function here makes one call, turns its result into
//! `io::Result` and decides nothing. Calls that rustix offers are made through rustix.

#![cfg(target_os = "linux")]

pub mod landlock;
pub mod memory;
pub mod mount;
pub mod names;
pub mod namespace;
pub mod net;
pub mod privilege;
pub mod process;
pub mod seccomp;
pub mod signal;
mod trace;

use std::io;

/// Result of a call that returns -1 and sets `errno`.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for `syscall(2)`, which returns a long.
fn check_long(result: libc::c_long) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
