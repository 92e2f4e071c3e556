//! Denials that are recorded now.

use ringfence_api::{Denial, DenialEvidence, Operation};

use crate::clock::now_ms;

/// A denial by this rule and origin, for this process and program.
pub(crate) fn new_denial(
    operation: Operation,
    target: String,
    (rule, origin): (String, String),
    (pid, program): (u32, String),
) -> Denial {
    Denial {
        operation,
        target,
        rule,
        origin,
        explicit: false,
        pid,
        program,
        time_ms: now_ms(),
        evidence: DenialEvidence::Kernel,
        count: 1,
        optional: false,
    }
}
