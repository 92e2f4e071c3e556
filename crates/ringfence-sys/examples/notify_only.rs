//! Runs a command under a bare seccomp listener. It is notified of files opened for writing,
//! directories created, and names changed or removed, and lets every call continue at once.
//!
//! For the bench: the cost of notifications alone. It gets fewer calls than ringfence does, but all
//! that `git status` and an archiver make.

use std::io;
use std::os::fd::AsFd;
use std::process::{Command, exit};
use std::thread;

use ringfence_sys::seccomp::{self, BpfInsn};
use ringfence_sys::{privilege, process};

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const NOTIFY: u32 = 0x7fc0_0000;
const ALLOW: u32 = 0x7fff_0000;
const CALL: u32 = 0;
const THIRD_ARGUMENT: u32 = 32;
const WRITES: u32 = (libc::O_CREAT | libc::O_WRONLY | libc::O_RDWR) as u32;

/// Notified with any arguments.
const NOTIFIED: &[libc::c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

fn main() -> io::Result<()> {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        return Err(io::Error::other("usage: notify_only COMMAND [ARGUMENT…]"));
    };
    privilege::set_no_new_privs()?;
    let listener = seccomp::install(&filter())?;
    // Before Linux 6.6 there is no wake-up in place.
    let _ = seccomp::wake_in_place(listener.as_fd());
    let mut child = Command::new(program).args(words).spawn()?;
    thread::spawn(move || exit(child.wait().ok().and_then(|status| status.code()).unwrap_or(125)));
    loop {
        match seccomp::receive(listener.as_fd()) {
            // The caller may have ended.
            Ok(call) => drop(seccomp::continue_syscall(listener.as_fd(), call.id)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {}
            Err(_) => process::exit_now(125),
        }
    }
}

fn filter() -> Vec<BpfInsn> {
    let line = |code, jt, jf, k| BpfInsn { code, jt, jf, k };
    let count = NOTIFIED.len() as u8;
    let mut filter = vec![line(LOAD, 0, 0, CALL)];
    // The jumps lead to the return in the lines about `openat` that follow.
    filter.extend(
        NOTIFIED
            .iter()
            .zip((0..count).rev())
            .map(|(call, left)| line(EQUAL, left + 3, 0, *call as u32)),
    );
    filter.extend([
        line(EQUAL, 0, 3, libc::SYS_openat as u32),
        line(LOAD, 0, 0, THIRD_ARGUMENT),
        line(ANY_BIT, 0, 1, WRITES),
        line(RETURN, 0, 0, NOTIFY),
        line(RETURN, 0, 0, ALLOW),
    ]);
    filter
}
