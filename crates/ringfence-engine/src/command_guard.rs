//! Commands that are refused by what they say, before anything is started.

use std::ffi::{OsStr, OsString};

use ringfence_api::{
    CommandRefusal, Denial, DenialEvidence, ExitStatus, Operation, Outcome, ResourceUsage,
    StreamOutput, visible,
};
use ringfence_audit::now_ms;
use ringfence_policy::command::{ParseProblem, ParsedLine, ShellDialect};
use ringfence_policy::{CommandRules, Grants};

/// The words that have bash read `line`, and say in which directory that ended to whoever holds
/// the other end of standard input. The line itself reads nothing.
pub fn telling_directory(line: OsString) -> Vec<OsString> {
    vec!["/bin/bash".into(), "-c".into(), TELLING.into(), "bash".into(), line]
}

/// What is said is said by something untrusted, and to be doubted like anything else it says.
const TELLING: &str = r#"exec {ringfence}>&0 </dev/null; ringfence_line=$1; set --; eval "$ringfence_line" && { pwd -P >&$ringfence || :; } 2>/dev/null"#;

/// A command that somebody wants to run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CommandText<'a> {
    /// A program and its arguments, which no shell reads.
    Words(&'a [OsString]),
    /// A line for this shell.
    Line(&'a [u8], &'a OsStr),
}

impl CommandText<'_> {
    /// As it is read.
    fn line(&self, rules: &CommandRules) -> Result<ParsedLine, ParseProblem> {
        match self {
            CommandText::Words(words) => match of_a_shell(words) {
                Some((line, dialect)) => rules.read(text(line.as_encoded_bytes())?, dialect),
                None => {
                    let words: Result<Vec<&str>, ParseProblem> =
                        words.iter().map(|word| text(word.as_encoded_bytes())).collect();
                    ParsedLine::of_words(&words?)
                }
            },
            CommandText::Line(line, shell) => {
                let name = std::path::Path::new(shell).file_name().unwrap_or(shell);
                let dialect = if name == "bash" { ShellDialect::Bash } else { ShellDialect::Posix };
                rules.read(text(line)?, dialect)
            }
        }
    }

    fn shown(&self) -> String {
        match self {
            CommandText::Words(words) => match of_a_shell(words) {
                Some((line, _)) => line.to_string_lossy().into_owned(),
                None => crate::recorder::line(words),
            },
            CommandText::Line(line, _) => String::from_utf8_lossy(line).into_owned(),
        }
    }
}

/// The line that a shell of the system is to read, and how it reads. The shell around it is
/// ringfence's own doing, and no program that somebody named.
fn of_a_shell(words: &[OsString]) -> Option<(&OsStr, ShellDialect)> {
    let (shell, line) = match words {
        [shell, option, line] if option == "-c" => (shell, line),
        [shell, option, script, _, line] if option == "-c" && script == TELLING => (shell, line),
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

/// What becomes of a command that a rule on its text refuses; `None` if none does.
///
/// These rules hold in every mode: they need nothing of the sandbox.
pub(crate) fn refused(grants: &Grants, command: CommandText<'_>) -> Option<Outcome> {
    if !grants.commands.has_guards() {
        return None;
    }
    let line = command.line(&grants.commands);
    let refusal = grants.commands.refusal(line.as_ref())?;
    let whole = line.map_or_else(|_| command.shown(), |line| line.text);
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
    let said = sentence(&denial, &refusal);
    Some(Outcome {
        stdout: StreamOutput::default(),
        stderr: StreamOutput { head: said.into_bytes(), ..StreamOutput::default() },
        status: ExitStatus::Exited(ExitStatus::REFUSED),
        denials: vec![denial],
        denials_dropped: 0,
        granted: Vec::new(),
        observed: None,
        connections: Vec::new(),
        connections_dropped: 0,
        timed_out: false,
        breaches: Vec::new(),
        duration_ms: 0,
        usage: ResourceUsage::default(),
        enforced: Vec::new(),
        gaps: Vec::new(),
        quarantined: Vec::new(),
        refusal: Some(refusal),
    })
}

/// Why a rule on its text would have refused a command that runs all the same.
pub(crate) fn doubted(grants: &Grants, command: CommandText<'_>) -> Option<String> {
    if !grants.commands.has_guards() {
        return None;
    }
    let doubt = grants.commands.doubt(command.line(&grants.commands).as_ref())?;
    Some(format!("in doubt: {} ({}, {})", doubt.reason, doubt.rule, doubt.origin))
}

/// What is said in place of all that the command would have written.
fn sentence(denial: &Denial, refusal: &CommandRefusal) -> String {
    let CommandRefusal { reason, position, .. } = refusal;
    let (reason, rule, origin) = (visible(reason), visible(&denial.rule), visible(&denial.origin));
    format!(
        "ringfence: the command was not started: {reason}, at character {}; refused by {rule} ({origin})\n",
        position + 1
    )
}
