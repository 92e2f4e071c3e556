//! Commands that a rule refuses by their text, before anything starts.

use std::ffi::{OsStr, OsString};

use ringfence_api::{
    CommandRefusal, Denial, DenialEvidence, ExitStatus, Operation, Outcome, StreamOutput,
    escape_hidden,
};
use ringfence_audit::now_ms;
use ringfence_cmdline::{
    ParseProblem, ParsedLine, ShellDialect, find_doubt, find_refusal, parse_for_rules,
};
use ringfence_policy::{CommandRules, Grants};
use tracing::trace_span;

/// The argv that makes bash run `line` and then report its final working directory through standard
/// input's fd. The line itself reads from `/dev/null`.
pub fn with_directory_report(line: OsString) -> Vec<OsString> {
    vec!["/bin/bash".into(), "-c".into(), REPORT_DIRECTORY.into(), "bash".into(), line]
}

/// The report comes from untrusted code and must be checked like any other input.
const REPORT_DIRECTORY: &str = r#"exec {ringfence}>&0 </dev/null; ringfence_line=$1; set --; eval "$ringfence_line" && { pwd -P >&$ringfence || :; } 2>/dev/null"#;

/// A command to run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CommandText<'a> {
    /// A program and its arguments, without a shell.
    Words(&'a [OsString]),
    /// A line for this shell.
    Line(&'a [u8], &'a OsStr),
}

impl CommandText<'_> {
    /// The parsed command.
    fn line(&self, rules: &CommandRules) -> Result<ParsedLine, ParseProblem> {
        match self {
            CommandText::Words(words) => match shell_line(words) {
                Some((line, dialect)) => {
                    parse_for_rules(text(line.as_encoded_bytes())?, dialect, rules)
                }
                None => {
                    let words: Result<Vec<&str>, ParseProblem> =
                        words.iter().map(|word| text(word.as_encoded_bytes())).collect();
                    ParsedLine::from_literal_words(&words?)
                }
            },
            CommandText::Line(line, shell) => {
                let name = std::path::Path::new(shell).file_name().unwrap_or(shell);
                let dialect = if name == "bash" { ShellDialect::Bash } else { ShellDialect::Posix };
                parse_for_rules(text(line)?, dialect, rules)
            }
        }
    }

    fn display_text(&self) -> String {
        match self {
            CommandText::Words(words) => match shell_line(words) {
                Some((line, _)) => line.to_string_lossy().into_owned(),
                None => crate::recorder::command_line(words),
            },
            CommandText::Line(line, _) => String::from_utf8_lossy(line).into_owned(),
        }
    }
}

/// The line that `/bin/sh` or `/bin/bash` is to run, and its dialect. Rules apply to the line, not
/// to the shell, because ringfence added the shell.
fn shell_line(words: &[OsString]) -> Option<(&OsStr, ShellDialect)> {
    let (shell, line) = match words {
        [shell, option, line] if option == "-c" => (shell, line),
        [shell, option, script, _, line] if option == "-c" && script == REPORT_DIRECTORY => {
            (shell, line)
        }
        _ => return None,
    };
    let dialect = match shell.to_str()? {
        "/bin/sh" => ShellDialect::Posix,
        "/bin/bash" => ShellDialect::Bash,
        _ => return None,
    };
    Some((line, dialect))
}

fn text(bytes: &[u8]) -> Result<&str, ParseProblem> {
    let wrong = |error: std::str::Utf8Error| ParseProblem {
        position: error.valid_up_to(),
        reason: "it is not UTF-8".into(),
    };
    std::str::from_utf8(bytes).map_err(wrong)
}

/// The outcome of a command that a rule on its text refuses; `None` if no rule does.
///
/// These rules apply in every mode: they do not need a sandbox.
pub(crate) fn check_command(grants: &Grants, command: CommandText<'_>) -> Option<Outcome> {
    let _stage = trace_span!(target: "stage", "check_command").entered();
    if !grants.commands.has_guards() {
        return None;
    }
    let line = command.line(&grants.commands);
    let refusal = find_refusal(line.as_ref(), &grants.commands)?;
    let whole = line.map_or_else(|_| command.display_text(), |line| line.text);
    let characters =
        |end: usize| whole.get(..end.min(whole.len())).map_or(0, |text| text.chars().count());
    let position = characters(refusal.span.start);
    let length = characters(refusal.span.end).saturating_sub(position);
    let target = if refusal.what.is_empty() { whole.clone() } else { refusal.what };
    let denial = Denial {
        operation: Operation::Command,
        target,
        rule: refusal.rule,
        origin: refusal.origin.to_string(),
        explicit: true,
        pid: 0,
        program: String::new(),
        time_ms: now_ms(),
        evidence: DenialEvidence::Guard,
        count: 1,
        optional: false,
    };
    let refusal = CommandRefusal { reason: refusal.reason, position, length };
    let message = refusal_message(&denial, &refusal);
    Some(Outcome {
        stderr: StreamOutput { head: message.into_bytes(), ..StreamOutput::default() },
        status: ExitStatus::Exited(ExitStatus::REFUSED),
        denials: vec![denial],
        refusal: Some(refusal),
        ..Outcome::default()
    })
}

/// The rule on command text that would have refused a command that runs anyway.
pub(crate) fn doubt_about(grants: &Grants, command: CommandText<'_>) -> Option<String> {
    if !grants.commands.has_guards() {
        return None;
    }
    let doubt = find_doubt(command.line(&grants.commands).as_ref(), &grants.commands)?;
    Some(format!("in doubt: {} ({}, {})", doubt.reason, doubt.rule, doubt.origin))
}

/// The message that replaces the command's output.
fn refusal_message(denial: &Denial, refusal: &CommandRefusal) -> String {
    let CommandRefusal { reason, position, .. } = refusal;
    let (reason, rule, origin) =
        (escape_hidden(reason), escape_hidden(&denial.rule), escape_hidden(&denial.origin));
    format!(
        "ringfence: command not started: {reason}, at character {}; denied by {rule} ({origin})\n",
        position + 1
    )
}
