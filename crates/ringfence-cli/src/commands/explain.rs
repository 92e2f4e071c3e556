//! `ringfence explain`

mod command;
mod connect;
mod last;
mod path;
mod variable;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_policy::ExplainLine;
use serde_json::{Map, Value, json};

use super::resolve_args::{ResolvedArgs, meant};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::origins::PolicyOrigins;
use crate::output::{self, ColorMode, printable};
pub(crate) use connect::passage;

/// Say which rule decides about a path, a host, a variable or a command line
///
/// Says what would happen in the sandbox, which rule decides, where it was written, why it is
/// there and what would change it. Nothing is run. A path that leads through a symbolic link is
/// explained twice, as asked and as it really is, and both have to be open. Of a command line it
/// shows what is read in it, what was taken away in front of its commands, and what each rule on
/// the text of commands says.
///
/// With `--last`, says why the last command that was run in this project failed: what was refused
/// to it, by which rule, and how that rule decides now.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence explain read ~/.ssh/id_rsa
  ringfence explain write .git/config
  ringfence explain exec npm
  ringfence explain connect example.com:443
  ringfence explain env GITHUB_TOKEN
  ringfence explain command 'docker ps && curl example.com'
  ringfence explain --last

Exit status: 0 allowed, or nothing was refused; 1 refused, 125 ringfence failed.")]
pub(crate) struct ExplainArgs {
    /// What is wanted
    #[arg(value_enum, value_name = "WISH", required_unless_present = "last")]
    wish: Option<ExplainAccess>,
    /// A path, a program, a host with or without a port, the name of a variable, or a command line
    #[arg(value_name = "TARGET", required_unless_present = "last")]
    target: Option<OsString>,
    /// Explain what was refused to the last command that was run in this project
    #[arg(long, conflicts_with_all = ["wish", "target"])]
    last: bool,
    /// With `--last`: the run of this name, or the beginning or end of it, wherever it was
    #[arg(long, value_name = "ID", requires = "last")]
    session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExplainAccess {
    /// Read a file or list a directory
    Read,
    /// Write, make, rename or remove a file
    Write,
    /// Start a program, by path or by name
    Exec,
    /// Reach a host or a socket
    Connect,
    /// Have a variable
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

/// What is said about one target.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Explanation {
    target: String,
    /// One or two words.
    verdict: &'static str,
    fate: ExplainVerdict,
    /// Labels are `rule`, `from`, `why`, `kept`, `change`, `secret`, `copy`.
    lines: Vec<ExplainLine>,
}

/// In which form it is said.
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
    fn new(target: impl Into<String>, verdict: &'static str, fate: ExplainVerdict) -> Self {
        Self { target: target.into(), verdict, fate, lines: Vec::new() }
    }

    fn line(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.lines.push(ExplainLine { label, text: text.into() });
        self
    }

    fn maybe(self, label: &'static str, text: Option<String>) -> Self {
        match text {
            Some(text) => self.line(label, text),
            None => self,
        }
    }
}

pub(crate) fn run(arguments: ExplainArgs) -> Result<ExitCode, CliError> {
    let meant = meant(&arguments.policy)?;
    let form = if arguments.json { ExplainFormat::Json } else { ExplainFormat::Text };
    // Without `--last` both are there; the words were checked.
    let (Some(wish), Some(target)) = (arguments.wish, &arguments.target) else {
        return last::explain(&meant, arguments.session.as_deref(), form);
    };
    if wish == ExplainAccess::Command {
        let line = target.to_str().ok_or_else(|| CliError::Words {
            what: "the command line is not UTF-8, so no rule on commands lets it pass".into(),
            hint: "write it in UTF-8".into(),
        })?;
        return command::explain(line, &meant.resolved.grants.commands, form);
    }
    let answers = answers(wish, target, &meant)?;
    if arguments.json {
        output::json(&as_json(wish, &answers))?;
    } else {
        output::text(&as_text(wish, &answers, ColorMode::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(fate(&answers) == ExplainVerdict::Refused)))
}

/// One answer, or two where a link leads elsewhere.
fn answers(
    wish: ExplainAccess,
    target: &OsStr,
    meant: &ResolvedArgs,
) -> Result<Vec<Explanation>, CliError> {
    Ok(match wish {
        ExplainAccess::Read | ExplainAccess::Write | ExplainAccess::Exec => {
            path::explain(wish, target, meant)?
        }
        ExplainAccess::Connect => {
            vec![connect::explain(&target.to_string_lossy(), meant, &PolicyOrigins::of(meant)?)?]
        }
        ExplainAccess::Env => vec![variable::explain(
            &target.to_string_lossy(),
            &meant.resolved,
            &PolicyOrigins::of(meant)?,
        )],
        // Has more to say than answers hold.
        ExplainAccess::Command => Vec::new(),
    })
}

/// Whoever goes through a link needs both the link and what it leads to.
fn fate(answers: &[Explanation]) -> ExplainVerdict {
    if answers.iter().all(|answer| answer.fate == ExplainVerdict::Allowed) {
        ExplainVerdict::Allowed
    } else {
        ExplainVerdict::Refused
    }
}

fn as_text(wish: ExplainAccess, answers: &[Explanation], paint: ColorMode) -> String {
    let mut text = String::new();
    for (at, answer) in answers.iter().enumerate() {
        let verdict = match answer.fate {
            ExplainVerdict::Allowed => paint.good(answer.verdict),
            ExplainVerdict::Refused => paint.bad(answer.verdict),
        };
        let lead = if at == 0 { wish.word() } else { "which is" };
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

fn as_json(wish: ExplainAccess, answers: &[Explanation]) -> Value {
    json!({
        "wish": wish.word(),
        "allowed": fate(answers) == ExplainVerdict::Allowed,
        "answers": answers.iter().map(one_as_json).collect::<Vec<_>>(),
    })
}

fn one_as_json(answer: &Explanation) -> Value {
    let mut object = Map::new();
    object.insert("target".into(), answer.target.clone().into());
    object.insert("verdict".into(), answer.verdict.replace(' ', "-").into());
    object.insert("allowed".into(), (answer.fate == ExplainVerdict::Allowed).into());
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
                .maybe("why", Some("private keys".into()))
                .maybe("change", None),
        ]
    }

    #[test]
    fn both_ends_of_a_link_are_told_and_both_count() {
        let expect = "read /p/link: allowed\n  rule    write /p\n  from    the mode\nwhich is /h/.ssh: denied\n  rule    deny ~/.ssh\n  why     private keys\n";
        assert_eq!(as_text(ExplainAccess::Read, &answers(), ColorMode::Plain), expect);
        assert_eq!(fate(&answers()), ExplainVerdict::Refused);
        assert_eq!(fate(&answers()[..1]), ExplainVerdict::Allowed);
    }

    #[test]
    fn programs_get_the_same_words() {
        let value = as_json(ExplainAccess::Read, &answers());
        assert_eq!(value["allowed"], false);
        assert_eq!(value["answers"][1]["why"], "private keys");
        assert_eq!(value["answers"][0]["verdict"], "allowed");
    }
}
