//! Talk, to standard error.

use ringfence_api::{Outcome, whole};
use ringfence_audit::AuditError;
use ringfence_engine::EngineError;

use crate::error::CliError;
use crate::show::printable;

/// An error, its causes and a hint.
pub(crate) fn error(error: &CliError) {
    eprintln!("error: {error}");
    if let CliError::Engine(EngineError::Gaps { gaps }) = error {
        for gap in gaps {
            eprintln!("  gap: {}: {}\n       {}", gap.what, gap.why, gap.hint);
        }
    }
    for cause in error.causes() {
        eprintln!("  caused by: {cause}");
    }
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
}

/// Something worth knowing that stops nobody.
pub(crate) fn warning(text: &str) {
    eprintln!("ringfence: warning: {text}");
}

/// What was said already.
pub(crate) fn verbatim(text: &[u8]) {
    eprint!("{}", String::from_utf8_lossy(text));
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
        warning(&printable(&format!("{} was moved to {}: {}", moved.path, moved.moved_to, moved.reason)));
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
    eprintln!("ringfence: note: {text}");
}
