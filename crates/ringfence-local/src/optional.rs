//! Marks denials that the program runs without.

use std::fs::File;
use std::io::Read;

use ringfence_api::{Attempt, Denial, Operation};
use ringfence_policy::{AbsPath, Disguise, Grants};

/// The denial, marked as optional if its program tries such a thing by itself and runs without it.
///
/// To be called while the process waits for an answer, or soon after: its command line is read.
pub(crate) fn marked(mut denial: Denial, grants: &Grants) -> Denial {
    denial.optional = is_optional(&denial, grants);
    denial
}

fn is_optional(denial: &Denial, grants: &Grants) -> bool {
    if is_disguised_read(denial, grants) {
        return true;
    }
    let attempt = Attempt {
        operation: denial.operation,
        target: &denial.target,
        program: &denial.program,
        explicit: denial.explicit,
        home: grants.home.as_path(),
        workspace: grants.workspace.as_path(),
    };
    attempt.is_optional(|| command_line(denial.pid))
}

/// Tells whether the program was shown something absent or empty instead of an error. Loaders look
/// for such files at every start, and the policy says that a command does without.
fn is_disguised_read(denial: &Denial, grants: &Grants) -> bool {
    let path = || AbsPath::new(&denial.target);
    denial.operation == Operation::Read && path().is_some_and(|path| grants.disguise(&path) != Disguise::Deny)
}

/// The arguments of a process, as the kernel writes them; empty if it is gone. Their length is the
/// command's choice, so only the first 64 KiB are read.
fn command_line(pid: u32) -> Vec<u8> {
    const LONGEST: u64 = 64 * 1024;
    let mut line = Vec::new();
    let read = File::open(format!("/proc/{pid}/cmdline")).and_then(|file| file.take(LONGEST).read_to_end(&mut line));
    if read.is_err() {
        line.clear();
    }
    line
}
