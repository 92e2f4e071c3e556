//! `ringfence explain`

mod command;
mod connect;
mod last;
mod path;
mod pushed;
mod variable;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_policy::ExplainLine;
use serde_json::{Map, Value, json};

use super::resolve_args::{ResolvedArgs, resolve_for_display};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::origins::PolicyOrigins;
use crate::output::{self, ColorMode, printable};
pub(crate) use connect::decide_host;

/// Show which rule decides about a path, a host, an environment variable or a command line
///
/// Prints the decision in the sandbox, the rule that makes it, the file and line of that rule, its
/// reason, and the command that changes it. Runs nothing. A path through a symbolic link is
/// explained twice, as given and as resolved: both must be allowed. For a command line, prints how
/// ringfence parses it, the wrappers it ignores (such as `timeout`), and the result of each command
/// rule.
///
/// With `--last`, explains why the last command in this project failed: its denials, the rules
/// that caused them, and what these rules decide now.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence explain read ~/.ssh/id_rsa
  ringfence explain write .git/config
  ringfence explain exec npm
  ringfence explain connect example.com:443
  ringfence explain env GITHUB_TOKEN
  ringfence explain command 'docker ps && curl example.com'
  ringfence explain --last

Exit status: 0 allowed, or no denials; 1 denied, 125 ringfence failed.")]
pub(crate) struct ExplainArgs {
    /// The access to explain
    #[arg(value_enum, value_name = "ACCESS", required_unless_present = "last")]
    query: Option<ExplainAccess>,
    /// A path, a program, a host with or without a port, a variable name, or a command line
    #[arg(value_name = "TARGET", required_unless_present = "last")]
    target: Option<OsString>,
    /// Explain the denials of the last command that ran in this project
    #[arg(long, conflicts_with_all = ["query", "target"])]
    last: bool,
    /// With `--last`: the session with this id, or a prefix or suffix of it, in any project
    #[arg(long, value_name = "ID", requires = "last")]
    session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// The access that the user asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExplainAccess {
    /// Read a file or list a directory
    Read,
    /// Write, create, rename or remove a file
    Write,
    /// Start a program, by path or by name
    Exec,
    /// Connect to a host or a socket
    Connect,
    /// Pass an environment variable
    Env,
    /// Run a command line
    Command,
}

impl ExplainAccess {
    fn word(self) -> &'static str {
        match self {
            ExplainAccess::Read => "read",
            ExplainAccess::Write => "write",
            ExplainAccess::Exec => "exec",
            ExplainAccess::Connect => "connect",
            ExplainAccess::Env => "env",
            ExplainAccess::Command => "command",
        }
    }
}

/// The explanation of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Explanation {
    target: String,
    /// One or two words.
    verdict: &'static str,
    result: ExplainVerdict,
    /// Labels are `rule`, `from`, `why`, `kept`, `change`, `secret`, `copy`.
    lines: Vec<ExplainLine>,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExplainFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExplainVerdict {
    Allowed,
    Refused,
}

impl Explanation {
    fn new(target: impl Into<String>, verdict: &'static str, result: ExplainVerdict) -> Self {
        Self { target: target.into(), verdict, result, lines: Vec::new() }
    }

    fn line(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.lines.push(ExplainLine { label, text: text.into() });
        self
    }

    fn line_if_some(self, label: &'static str, text: Option<String>) -> Self {
        match text {
            Some(text) => self.line(label, text),
            None => self,
        }
    }
}

pub(crate) fn run(arguments: ExplainArgs) -> Result<ExitCode, CliError> {
    let resolved_args = resolve_for_display(&arguments.policy)?;
    let form = if arguments.json { ExplainFormat::Json } else { ExplainFormat::Text };
    // Without `--last`, clap guarantees that both are present.
    let (Some(query), Some(target)) = (arguments.query, &arguments.target) else {
        return last::explain(&resolved_args, arguments.session.as_deref(), form);
    };
    if query == ExplainAccess::Command {
        let line = target.to_str().ok_or_else(|| CliError::Usage {
            what: "the command line is not UTF-8, so the command rules refuse it".into(),
            hint: "pass it as UTF-8".into(),
        })?;
        return command::explain(line, &resolved_args.resolved.grants.commands, form);
    }
    let answers = answers(query, target, &resolved_args)?;
    if arguments.json {
        output::print_json(&as_json(query, &answers))?;
    } else {
        output::print_text(&as_text(query, &answers, ColorMode::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(combined_result(&answers) == ExplainVerdict::Refused)))
}

/// Returns one explanation, or two if the path goes through a symbolic link.
fn answers(
    query: ExplainAccess,
    target: &OsStr,
    resolved_args: &ResolvedArgs,
) -> Result<Vec<Explanation>, CliError> {
    Ok(match query {
        ExplainAccess::Read | ExplainAccess::Write | ExplainAccess::Exec => {
            path::explain(query, target, resolved_args)?
        }
        ExplainAccess::Connect => {
            vec![connect::explain(
                &target.to_string_lossy(),
                resolved_args,
                &PolicyOrigins::read(resolved_args)?,
            )?]
        }
        ExplainAccess::Env => vec![variable::explain(
            &target.to_string_lossy(),
            &resolved_args.resolved,
            &PolicyOrigins::read(resolved_args)?,
        )],
        // `command::explain` handles it.
        ExplainAccess::Command => Vec::new(),
    })
}

/// Combines the results: access through a link needs both the link and its target.
fn combined_result(answers: &[Explanation]) -> ExplainVerdict {
    if answers.iter().all(|answer| answer.result == ExplainVerdict::Allowed) {
        ExplainVerdict::Allowed
    } else {
        ExplainVerdict::Refused
    }
}

fn as_text(query: ExplainAccess, answers: &[Explanation], paint: ColorMode) -> String {
    let mut text = String::new();
    for (at, answer) in answers.iter().enumerate() {
        let verdict = match answer.result {
            ExplainVerdict::Allowed => paint.good(answer.verdict),
            ExplainVerdict::Refused => paint.bad(answer.verdict),
        };
        let lead = if at == 0 { query.word() } else { "which is" };
        text.push_str(&format!("{lead} {}: {verdict}\n", printable(&answer.target)));
        for line in &answer.lines {
            text.push_str(&format!(
                "  {} {}\n",
                paint.faint(&format!("{:<7}", line.label)),
                printable(&line.text)
            ));
        }
    }
    text
}

fn as_json(query: ExplainAccess, answers: &[Explanation]) -> Value {
    json!({
        "wish": query.word(),
        "allowed": combined_result(answers) == ExplainVerdict::Allowed,
        "answers": answers.iter().map(explanation_json).collect::<Vec<_>>(),
    })
}

fn explanation_json(answer: &Explanation) -> Value {
    let mut object = Map::new();
    object.insert("target".into(), answer.target.clone().into());
    object.insert("verdict".into(), answer.verdict.replace(' ', "-").into());
    object.insert("allowed".into(), (answer.result == ExplainVerdict::Allowed).into());
    object.extend(
        answer.lines.iter().map(|line| (line.label.to_owned(), Value::from(line.text.clone()))),
    );
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Vec<Explanation> {
        vec![
            Explanation::new("/p/link", "allowed", ExplainVerdict::Allowed)
                .line("rule", "write /p")
                .line("from", "the mode"),
            Explanation::new("/h/.ssh", "denied", ExplainVerdict::Refused)
                .line("rule", "deny ~/.ssh")
                .line_if_some("why", Some("private keys".into()))
                .line_if_some("change", None),
        ]
    }

    #[test]
    fn explanation_covers_link_and_target_and_both_count() {
        let expect = "read /p/link: allowed\n  rule    write /p\n  from    the mode\nwhich is /h/.ssh: denied\n  rule    deny ~/.ssh\n  why     private keys\n";
        assert_eq!(as_text(ExplainAccess::Read, &answers(), ColorMode::Plain), expect);
        assert_eq!(combined_result(&answers()), ExplainVerdict::Refused);
        assert_eq!(combined_result(&answers()[..1]), ExplainVerdict::Allowed);
    }

    #[test]
    fn json_holds_the_same_text() {
        let value = as_json(ExplainAccess::Read, &answers());
        assert_eq!(value["allowed"], false);
        assert_eq!(value["answers"][1]["why"], "private keys");
        assert_eq!(value["answers"][0]["verdict"], "allowed");
    }
}
