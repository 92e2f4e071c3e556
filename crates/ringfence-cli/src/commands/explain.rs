//! `ringfence explain`

mod command;
mod connect;
mod last;
mod path;
mod variable;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_policy::Line;
use serde_json::{Map, Value, json};

use super::words::{Meant, meant};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::origins::Origins;
use crate::show::{self, Paint, printable};
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
pub(crate) struct Explain {
    /// What is wanted
    #[arg(value_enum, value_name = "WISH", required_unless_present = "last")]
    wish: Option<Wish>,
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
enum Wish {
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

impl Wish {
    fn word(self) -> &'static str {
        match self {
            Wish::Read => "read",
            Wish::Write => "write",
            Wish::Exec => "exec",
            Wish::Connect => "connect",
            Wish::Env => "env",
            Wish::Command => "command",
        }
    }
}

/// What is said about one target.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    target: String,
    /// One or two words.
    verdict: &'static str,
    fate: Fate,
    /// Labels are `rule`, `from`, `why`, `kept`, `change`, `secret`, `copy`.
    lines: Vec<Line>,
}

/// In which form it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Allowed,
    Refused,
}

impl Answer {
    fn new(target: impl Into<String>, verdict: &'static str, fate: Fate) -> Self {
        Self { target: target.into(), verdict, fate, lines: Vec::new() }
    }

    fn line(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.lines.push(Line { label, text: text.into() });
        self
    }

    fn maybe(self, label: &'static str, text: Option<String>) -> Self {
        match text {
            Some(text) => self.line(label, text),
            None => self,
        }
    }
}

pub(crate) fn run(arguments: Explain) -> Result<ExitCode, CliError> {
    let meant = meant(&arguments.policy)?;
    let form = if arguments.json { Form::Json } else { Form::Text };
    // Without `--last` both are there; the words were checked.
    let (Some(wish), Some(target)) = (arguments.wish, &arguments.target) else {
        return last::explain(&meant, arguments.session.as_deref(), form);
    };
    if wish == Wish::Command {
        let line = target.to_str().ok_or_else(|| CliError::Words {
            what: "the command line is not UTF-8, so no rule on commands lets it pass".into(),
            hint: "write it in UTF-8".into(),
        })?;
        return command::explain(line, &meant.resolved.grants.commands, form);
    }
    let answers = answers(wish, target, &meant)?;
    if arguments.json {
        show::json(&as_json(wish, &answers))?;
    } else {
        show::text(&as_text(wish, &answers, Paint::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(fate(&answers) == Fate::Refused)))
}

/// One answer, or two where a link leads elsewhere.
fn answers(wish: Wish, target: &OsStr, meant: &Meant) -> Result<Vec<Answer>, CliError> {
    Ok(match wish {
        Wish::Read | Wish::Write | Wish::Exec => path::explain(wish, target, meant)?,
        Wish::Connect => {
            vec![connect::explain(&target.to_string_lossy(), meant, &Origins::of(meant)?)?]
        }
        Wish::Env => vec![variable::explain(
            &target.to_string_lossy(),
            &meant.resolved,
            &Origins::of(meant)?,
        )],
        // Has more to say than answers hold.
        Wish::Command => Vec::new(),
    })
}

/// Whoever goes through a link needs both the link and what it leads to.
fn fate(answers: &[Answer]) -> Fate {
    if answers.iter().all(|answer| answer.fate == Fate::Allowed) {
        Fate::Allowed
    } else {
        Fate::Refused
    }
}

fn as_text(wish: Wish, answers: &[Answer], paint: Paint) -> String {
    let mut text = String::new();
    for (at, answer) in answers.iter().enumerate() {
        let verdict = match answer.fate {
            Fate::Allowed => paint.good(answer.verdict),
            Fate::Refused => paint.bad(answer.verdict),
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

fn as_json(wish: Wish, answers: &[Answer]) -> Value {
    json!({
        "wish": wish.word(),
        "allowed": fate(answers) == Fate::Allowed,
        "answers": answers.iter().map(one_as_json).collect::<Vec<_>>(),
    })
}

fn one_as_json(answer: &Answer) -> Value {
    let mut object = Map::new();
    object.insert("target".into(), answer.target.clone().into());
    object.insert("verdict".into(), answer.verdict.replace(' ', "-").into());
    object.insert("allowed".into(), (answer.fate == Fate::Allowed).into());
    object.extend(
        answer.lines.iter().map(|line| (line.label.to_owned(), Value::from(line.text.clone()))),
    );
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Vec<Answer> {
        vec![
            Answer::new("/p/link", "allowed", Fate::Allowed)
                .line("rule", "write /p")
                .line("from", "the mode"),
            Answer::new("/h/.ssh", "denied", Fate::Refused)
                .line("rule", "deny ~/.ssh")
                .maybe("why", Some("private keys".into()))
                .maybe("change", None),
        ]
    }

    #[test]
    fn both_ends_of_a_link_are_told_and_both_count() {
        let expect = "read /p/link: allowed\n  rule    write /p\n  from    the mode\nwhich is /h/.ssh: denied\n  rule    deny ~/.ssh\n  why     private keys\n";
        assert_eq!(as_text(Wish::Read, &answers(), Paint::Plain), expect);
        assert_eq!(fate(&answers()), Fate::Refused);
        assert_eq!(fate(&answers()[..1]), Fate::Allowed);
    }

    #[test]
    fn programs_get_the_same_words() {
        let value = as_json(Wish::Read, &answers());
        assert_eq!(value["allowed"], false);
        assert_eq!(value["answers"][1]["why"], "private keys");
        assert_eq!(value["answers"][0]["verdict"], "allowed");
    }
}
