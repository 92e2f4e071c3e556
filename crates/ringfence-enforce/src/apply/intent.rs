//! What a process that waits in a call wants: for telling, never for deciding.
//!
//! The tripwire sees one name of a path at a time. Who was refused at `/opt` may have
//! wanted `/opt/tool/config`; the call it waits in says so.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use ringfence_api::Operation;
use ringfence_policy::AbsPath;
use ringfence_sys::memory;

use crate::seccomp::calls::{Arch, Call};

/// What somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// On what, as it was written, without looking at links.
    pub path: AbsPath,
    /// For what.
    pub operation: Operation,
    /// What would become of it.
    pub end: IntentEffect,
}

/// What a call is going to do with what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentEffect {
    /// Open it for reading, or start it as a program.
    Use,
    /// Look at it, or change it.
    Other,
}

/// Where the arguments of a call stand that takes a path.
struct PathArgs {
    directory: Option<usize>,
    path: usize,
    wants: IntentOperation,
}

enum IntentOperation {
    Always(Operation),
    /// As the flags in this argument say.
    AsFlagged(usize),
}

/// What the process `pid` wants by the call it waits in; `None` if that cannot be told.
pub fn intent(pid: u32) -> Option<Intent> {
    let text = waits_in(pid)?;
    let mut words = text.split_whitespace();
    let call = Call::from_number(*Arch::NATIVE_FIRST.first()?, words.next()?.parse().ok()?)?;
    let arguments: Vec<u64> =
        words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let form = form(call)?;
    let written = text_at(pid, *arguments.get(form.path)?)?;
    let path = if written.as_bytes().starts_with(b"/") {
        AbsPath::new(&written)?
    } else {
        base(pid, form.directory.and_then(|number| arguments.get(number)).copied())?.join(&written)
    };
    let (operation, end) = match form.wants {
        IntentOperation::Always(Operation::Execute) => (Operation::Execute, IntentEffect::Use),
        IntentOperation::Always(operation) => (operation, IntentEffect::Other),
        IntentOperation::AsFlagged(number) => flagged(*arguments.get(number)?),
    };
    Some(Intent { path, operation, end })
}

/// What an open with these flags is for.
fn flagged(flags: u64) -> (Operation, IntentEffect) {
    let is = |flag: i32| flags & flag as u64 == flag as u64;
    match flags & libc::O_ACCMODE as u64 == libc::O_RDONLY as u64 {
        true if is(libc::O_PATH) || is(libc::O_CREAT) || is(libc::O_TRUNC) => {
            (Operation::Read, IntentEffect::Other)
        }
        true => (Operation::Read, IntentEffect::Use),
        false => (Operation::Write, IntentEffect::Other),
    }
}

/// The call that a process waits in, with its arguments, as the kernel writes it. Read at
/// once: the process waits for us as well.
fn waits_in(pid: u32) -> Option<String> {
    const LONGEST: usize = 256;
    let mut text = vec![0; LONGEST];
    let length = fs::File::open(format!("/proc/{pid}/syscall")).ok()?.read(&mut text).ok()?;
    text.truncate(length);
    String::from_utf8(text).ok()
}

fn form(call: Call) -> Option<PathArgs> {
    use Operation::{Execute, Read, Write};
    let at = |directory, path, wants| Some(PathArgs { directory, path, wants });
    match call {
        Call::Open => at(None, 0, IntentOperation::AsFlagged(1)),
        Call::Openat => at(Some(0), 1, IntentOperation::AsFlagged(2)),
        Call::Stat
        | Call::Lstat
        | Call::Access
        | Call::Readlink
        | Call::Chdir
        | Call::Statfs
        | Call::Getxattr
        | Call::Lgetxattr
        | Call::Listxattr
        | Call::Llistxattr => at(None, 0, IntentOperation::Always(Read)),
        Call::InotifyAddWatch => at(None, 1, IntentOperation::Always(Read)),
        Call::Newfstatat | Call::Statx | Call::Faccessat | Call::Faccessat2 | Call::Readlinkat => {
            at(Some(0), 1, IntentOperation::Always(Read))
        }
        Call::Execve => at(None, 0, IntentOperation::Always(Execute)),
        Call::Execveat => at(Some(0), 1, IntentOperation::Always(Execute)),
        Call::Truncate | Call::Unlink | Call::Rmdir | Call::Chmod | Call::Chown | Call::Lchown => {
            at(None, 0, IntentOperation::Always(Write))
        }
        Call::Unlinkat | Call::Fchmodat | Call::Fchownat | Call::Utimensat => {
            at(Some(0), 1, IntentOperation::Always(Write))
        }
        _ => None,
    }
}

/// The directory that a path begins at.
fn base(pid: u32, directory: Option<u64>) -> Option<AbsPath> {
    let link = match directory.map(|number| number as i32) {
        None | Some(libc::AT_FDCWD) => format!("/proc/{pid}/cwd"),
        Some(number) => format!("/proc/{pid}/fd/{number}"),
    };
    AbsPath::new(fs::read_link(link).ok()?)
}

/// The text that ends with NUL at an address of the process.
fn text_at(pid: u32, address: u64) -> Option<std::ffi::OsString> {
    const PAGE: u64 = 4096;
    // Few names are long, so the first look is a short one.
    const SHORT: usize = 256;
    let mut text = Vec::new();
    let mut buffer = [0; PAGE as usize];
    while text.len() < PAGE as usize {
        let from = address.checked_add(text.len() as u64)?;
        let left = (PAGE - from % PAGE) as usize;
        let want = if text.is_empty() { left.min(SHORT) } else { left };
        let got = memory::read_process(pid as i32, from, &mut buffer[..want])
            .ok()
            .filter(|got| *got > 0)?;
        if let Some(end) = buffer[..got].iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&buffer[..end]);
            return Some(OsStr::from_bytes(&text).to_owned());
        }
        text.extend_from_slice(&buffer[..got]);
    }
    None
}
