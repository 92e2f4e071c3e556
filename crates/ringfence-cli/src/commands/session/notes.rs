//! Notes and warnings about the result of a command.

use std::process::ExitCode;

use ringfence_api::OutputStream;
use ringfence_api::session_protocol::{CommandReport, PolicyReport, ShellFate};

use super::forward::forward_output;
use crate::{messages, output};

/// Prints notes and warnings; returns the exit status.
pub(super) fn conclude(report: &CommandReport) -> ExitCode {
    print_notes(report);
    exit_status(report)
}

pub(super) fn exit_status(report: &CommandReport) -> ExitCode {
    ExitCode::from(u8::try_from(report.exit_code).unwrap_or(125))
}

fn print_notes(report: &CommandReport) {
    if report.restarted {
        messages::print_note(
            "the policy became stricter: the sandbox was recreated, without /tmp files and background processes of earlier commands",
        );
    }
    if report.shell == Some(ShellFate::Ended) {
        messages::print_note(
            "the command ended the session's shell; the next command gets a new one",
        );
    }
    if let Some(text) = &report.background {
        let dropped = match report.background_dropped {
            0 => String::new(),
            dropped => format!(" ({dropped} bytes omitted)"),
        };
        messages::print_note(&format!(
            "output of background processes from earlier commands{dropped}:"
        ));
        let _ = forward_output(OutputStream::Err, text.as_bytes());
    }
    for breach in &report.breaches {
        messages::print_warning(&breach.to_string());
    }
    if let Some(policy) = &report.policy {
        print_policy_notes(policy, &report.session);
    }
    for warning in &report.warnings {
        messages::print_warning(&format!(
            "not recorded in the audit log: {}",
            output::printable(warning)
        ));
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
