//! Talk, to standard error.

use ringfence_api::whole;
use ringfence_audit::AuditError;
use ringfence_engine::EngineError;

use crate::error::CliError;

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

/// Something that was not recorded.
pub(crate) fn unrecorded(error: &AuditError) {
    warning(&format!("not recorded in the audit log: {}", whole(error)));
}

/// Something to read before going on.
pub(crate) fn note(text: &str) {
    eprintln!("ringfence: note: {text}");
}
