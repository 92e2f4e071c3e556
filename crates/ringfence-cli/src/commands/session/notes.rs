//! Notes and warnings about the result of a command.

use std::process::ExitCode;

use ringfence_api::session_protocol::PolicyReport;
use ringfence_api::{ExecuteResult, OutputStream, ShellState};

use super::forward::forward_output;
use crate::{messages, output};

/// Prints notes and warnings; returns the exit status.
pub(super) fn conclude(result: &ExecuteResult) -> ExitCode {
    print_notes(result);
    exit_status(result)
}

pub(super) fn exit_status(result: &ExecuteResult) -> ExitCode {
    ExitCode::from(u8::try_from(result.exit_code).unwrap_or(125))
}

fn print_notes(result: &ExecuteResult) {
    if result.restarted {
        messages::print_note(
            "the policy became stricter: the sandbox was recreated, without /tmp files and background processes of earlier commands",
        );
    }
    if result.shell == ShellState::Ended {
        messages::print_note(
            "the command ended the session's shell; the next command gets a new one",
        );
    }
    if !result.background.bytes.is_empty() {
        let dropped = match result.background.dropped {
            0 => String::new(),
            dropped => format!(" ({dropped} bytes omitted)"),
        };
        messages::print_note(&format!(
            "output of background processes from earlier commands{dropped}:"
        ));
        let _ = forward_output(OutputStream::Err, &result.background.bytes);
    }
    for breach in &result.breaches {
        messages::print_warning(&breach.to_string());
    }
    print_policy_notes(&result.policy, &result.session);
    for warning in &result.warnings {
        messages::print_warning(&output::printable(warning));
    }
}

fn print_policy_notes(policy: &PolicyReport, session: &str) {
    for change in &policy.said {
        messages::print_note(&format!("the policy was changed: {}", output::printable(change)));
    }
    if policy.changes.iter().any(|change| change.pending.is_some()) {
        let session = output::printable(session);
        messages::print_line(&format!(
            "hint: `ringfence session stop {session}`, then `ringfence session start`"
        ));
    }
    for problem in &policy.problems {
        let message = output::printable(&problem.message);
        messages::print_warning(&format!("the policy is unchanged: {message}"));
        if let Some(hint) = &problem.hint {
            messages::print_line(&format!("hint: {}", output::printable(hint)));
        }
    }
}
