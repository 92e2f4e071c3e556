//! Talk, to standard error.

use std::io::{self, Write};

use ringfence_api::{Outcome, whole};
use ringfence_audit::AuditError;
use ringfence_engine::EngineError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::error::CliError;
use crate::output::printable;

/// Writes one line. A standard error that takes nothing more (`2>/dev/full`) must not change how a
/// command ends: `eprintln!` would panic.
pub(crate) fn line(text: &str) {
    write(format!("{text}\n").as_bytes());
}

/// Writes as long as standard error takes it. A reader that takes nothing for a second gets no
/// more: a command whose time is up must not be waited for because of what is said about it.
fn write(bytes: &[u8]) {
    // A pipe that has room takes as many at once without waiting.
    const AT_ONCE: usize = 4096;
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    for piece in bytes.chunks(AT_ONCE) {
        let has_room = poll(
            &mut [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)],
            Some(&second),
        ) != Ok(0);
        if !has_room || io::stderr().write_all(piece).is_err() {
            return;
        }
    }
}

/// An error, its causes and a hint.
pub(crate) fn error(error: &CliError) {
    line(&format!("error: {error}"));
    if let CliError::Engine(EngineError::Gaps { gaps }) = error {
        for gap in gaps {
            line(&format!("  gap: {}: {}\n       {}", gap.what, gap.why, gap.hint));
        }
    }
    for cause in error.causes() {
        line(&format!("  caused by: {cause}"));
    }
    if let Some(hint) = error.hint() {
        line(&format!("hint: {hint}"));
    }
}

/// Something worth knowing that stops nobody.
pub(crate) fn warning(text: &str) {
    line(&format!("ringfence: warning: {text}"));
}

/// What was said already.
pub(crate) fn verbatim(text: &[u8]) {
    write(text);
}

/// What a person should know of a run that has ended.
pub(crate) fn ended(outcome: &Outcome) {
    // What is only not told of stands in the JSON and in the log: here it would stand at
    // every command, in what is the command's own.
    for gap in outcome.gaps.iter().filter(|gap| gap.refuses()) {
        warning(&format!("not enforced: {}: {}", gap.what, gap.why));
    }
    for moved in &outcome.quarantined {
        // Names that the command chose.
        warning(&printable(&format!(
            "{} was moved to {}: {}",
            moved.path, moved.moved_to, moved.reason
        )));
    }
    for breach in &outcome.breaches {
        warning(&breach.to_string());
    }
}

/// Something that was not recorded.
pub(crate) fn unrecorded(error: &AuditError) {
    warning(&format!("not recorded in the audit log: {}", whole(error)));
}

/// Something to read before going on.
pub(crate) fn note(text: &str) {
    line(&format!("ringfence: note: {text}"));
}
