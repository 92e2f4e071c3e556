//! The intent of a process that waits in a syscall: for reports, never for decisions.
//!
//! The tripwire sees one component of a path at a time. A process that was denied at `/opt` may
//! have wanted `/opt/tool/config`; the syscall it waits in shows that.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use ringfence_api::Operation;
use ringfence_plan::seccomp::calls::{Arch, Call};
use ringfence_policy::AbsPath;
use ringfence_sys::memory;

/// The intent of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intent {
    /// The path as written, without resolving symlinks.
    pub path: AbsPath,
    /// The operation.
    pub operation: Operation,
    /// The effect on the file.
    pub end: IntentEffect,
}

/// The effect of a syscall on the file it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntentEffect {
    /// Opens it for reading, or executes it.
    Use,
    /// Inspects it, or changes it.
    Other,
}

/// The argument positions of a syscall that takes a path.
struct PathArgs {
    directory: Option<usize>,
    path: usize,
    operation: IntentOperation,
}

enum IntentOperation {
    Always(Operation),
    /// Depends on the flags in this argument.
    AsFlagged(usize),
}

/// The intent of process `pid`, from the syscall it waits in; `None` if it cannot be determined.
pub(crate) fn intent(pid: u32) -> Option<Intent> {
    let text = current_syscall(pid)?;
    let mut words = text.split_whitespace();
    let call = Call::from_number(*Arch::NATIVE_FIRST.first()?, words.next()?.parse().ok()?)?;
    let arguments: Vec<u64> =
        words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let path_args = path_args(call)?;
    let written = text_at(pid, *arguments.get(path_args.path)?)?;
    let path = if written.as_bytes().starts_with(b"/") {
        AbsPath::new(&written)?
    } else {
        base(pid, path_args.directory.and_then(|number| arguments.get(number)).copied())?
            .join(&written)
    };
    let (operation, end) = match path_args.operation {
        IntentOperation::Always(Operation::Execute) => (Operation::Execute, IntentEffect::Use),
        IntentOperation::Always(operation) => (operation, IntentEffect::Other),
        IntentOperation::AsFlagged(number) => intent_of_flags(*arguments.get(number)?),
    };
    Some(Intent { path, operation, end })
}

/// The purpose of an open with these flags.
fn intent_of_flags(flags: u64) -> (Operation, IntentEffect) {
    let is = |flag: i32| flags & flag as u64 == flag as u64;
    match flags & libc::O_ACCMODE as u64 == libc::O_RDONLY as u64 {
        true if is(libc::O_PATH) || is(libc::O_CREAT) || is(libc::O_TRUNC) => {
            (Operation::Read, IntentEffect::Other)
        }
        true => (Operation::Read, IntentEffect::Use),
        false => (Operation::Write, IntentEffect::Other),
    }
}

/// The syscall in which a process waits, with its arguments, from `/proc`. Read at once: the
/// process waits for us as well.
fn current_syscall(pid: u32) -> Option<String> {
    const LONGEST: usize = 256;
    let mut text = vec![0; LONGEST];
    let length = fs::File::open(format!("/proc/{pid}/syscall")).ok()?.read(&mut text).ok()?;
    text.truncate(length);
    String::from_utf8(text).ok()
}

fn path_args(call: Call) -> Option<PathArgs> {
    use Operation::{Execute, Read, Write};
    let at = |directory, path, operation| Some(PathArgs { directory, path, operation });
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

/// The directory at which a path begins.
fn base(pid: u32, directory: Option<u64>) -> Option<AbsPath> {
    let link = match directory.map(|number| number as i32) {
        None | Some(libc::AT_FDCWD) => format!("/proc/{pid}/cwd"),
        Some(number) => format!("/proc/{pid}/fd/{number}"),
    };
    AbsPath::new(fs::read_link(link).ok()?)
}

/// The NUL-terminated string at an address of the process.
fn text_at(pid: u32, address: u64) -> Option<std::ffi::OsString> {
    const PAGE: u64 = 4096;
    // Most names are short, so the first read is short.
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
