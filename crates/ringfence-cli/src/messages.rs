//! Messages on standard error.

use std::io::{self, Write};

use ringfence_api::{Outcome, error_chain};
use ringfence_audit::AuditError;
use ringfence_engine::{EngineError, RunNotice};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::error::CliError;
use crate::output::printable;

/// Writes one line. Does not use `eprintln!`, which panics if standard error fails
/// (`2>/dev/full`): that must not change the exit status.
pub(crate) fn print_line(text: &str) {
    write(format!("{text}\n").as_bytes());
}

/// Writes while standard error accepts data. Gives up if the reader accepts nothing for one
/// second, so that a blocked reader cannot delay the exit after a time limit.
fn write(bytes: &[u8]) {
    // A pipe reported writable accepts this many bytes without blocking.
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

/// Prints an error, its causes and its hint.
pub(crate) fn print_error(error: &CliError) {
    print_line(&format!("error: {error}"));
    if let CliError::Engine(EngineError::Gaps { gaps }) = error {
        for gap in gaps {
            print_line(&format!("  gap: {}: {}\n       {}", gap.what, gap.why, gap.hint));
        }
    }
    for cause in error.causes() {
        print_line(&format!("  caused by: {cause}"));
    }
    if let Some(hint) = error.hint() {
        print_line(&format!("hint: {hint}"));
    }
}

/// Prints a warning.
pub(crate) fn print_warning(text: &str) {
    print_line(&format!("ringfence: warning: {text}"));
}

/// Prints text that is already complete.
pub(crate) fn print_bytes(text: &[u8]) {
    write(text);
}

/// Prints warnings about a run that has ended.
pub(crate) fn print_outcome_warnings(outcome: &Outcome) {
    // A gap that loses only reports is in the JSON and in the log. Printed here, it would appear in
    // the output of every command.
    for gap in outcome.gaps.iter().filter(|gap| gap.refuses_run()) {
        print_warning(&format!("not enforced: {}: {}", gap.what, gap.why));
    }
    for moved in &outcome.quarantined {
        // The command chose these names.
        print_warning(&printable(&format!(
            "{} was moved to {}: {}",
            moved.path, moved.moved_to, moved.reason
        )));
    }
    for breach in &outcome.breaches {
        print_warning(&breach.to_string());
    }
}

/// Prints a notice about a run.
pub(crate) fn print_notice(notice: &RunNotice) {
    print_warning(&notice.to_string());
}

/// Prints a warning that a record was not written.
pub(crate) fn warn_unrecorded(error: &AuditError) {
    print_notice(&RunNotice::Unrecorded(error_chain(error)));
}

/// Prints a note.
pub(crate) fn print_note(text: &str) {
    print_line(&format!("ringfence: note: {text}"));
}
