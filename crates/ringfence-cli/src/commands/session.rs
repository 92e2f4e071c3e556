//! `ringfence session`: a sandbox that stands, with a shell that lives on.
//!
//! Each session has a process of its own that keeps it, and a socket that only its owner can
//! use. There is no other daemon.

mod attach;
mod client;
pub(crate) mod conversation;
mod desk;
mod lifetime;
mod place;
mod questions;
mod server;
mod wire;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, Subcommand, ValueEnum};
use ringfence_api::Answer;

pub(crate) use desk::Desk;

use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::show;

/// Keep a sandbox with a shell that lives on
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  id=$(ringfence session start)
  ringfence session exec $id -c 'cd src && export DEBUG=1'
  ringfence session exec $id -c 'pwd; make test'
  ringfence session stop $id")]
pub(crate) struct SessionCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Start(Start),
    Exec(Exec),
    /// Open a shell of its own in a session, at this terminal
    #[command(after_help = "Examples:\n  ringfence session attach tests")]
    Attach(Which),
    List(List),
    /// Print what is known of a session as one JSON object
    #[command(after_help = "Examples:\n  ringfence session inspect tests")]
    Inspect(Which),
    /// Send a signal to what the commands of a session have started
    #[command(after_help = "Examples:\n  ringfence session signal tests TERM")]
    Signal(Signalled),
    /// End a session and everything in it
    #[command(after_help = "Examples:\n  ringfence session stop tests")]
    Stop(Which),
    #[command(hide = true)]
    Serve(Start),
    #[command(hide = true)]
    Keep(Box<Keep>),
}

/// Keep the sandbox of a conversation, as a call of it asks for it
#[derive(Debug, Args)]
pub(crate) struct Keep {
    /// Leave the process that started this one, and keep the sandbox in another
    #[arg(long)]
    detach: bool,
    /// The process that the conversation ends with, and when it was started
    #[arg(long, value_name = "PID:START")]
    watch: Option<String>,
    #[command(flatten)]
    run: crate::args::Run,
}

/// Open a session and print its id
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session start
  ringfence session start --name tests --mode read-only --read ~/data")]
pub(crate) struct Start {
    /// What to call it by, beside its id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// On whose behalf, for the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Let what is about to be refused wait for an answer (`ringfence ask`)
    #[arg(long)]
    ask: bool,
    /// How long a question waits for its answer, which is then no [default: 60s]
    #[arg(long, value_name = "DURATION", requires = "ask")]
    ask_timeout: Option<String>,
    /// The shell
    #[arg(long, value_name = "PROGRAM", default_value = "bash")]
    shell: OsString,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// Run a line in the shell of a session, or a program beside it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session exec tests -c 'cd src && make'
  ringfence session exec tests --json --timeout 5m -c 'cargo test'
  ringfence session exec tests -- git status

Exit status: the command's own; 124 time limit, 125 ringfence failed.")]
pub(crate) struct Exec {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The line
    #[arg(
        short = 'c',
        value_name = "LINE",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    line: Option<OsString>,
    /// Print one JSON object with the outcome instead of the command's output
    #[arg(long)]
    json: bool,
    /// Do not print which hosts and paths were denied to a command that failed
    /// [default: $RINGFENCE_QUIET]
    #[arg(short, long)]
    quiet: bool,
    /// Interrupt the command after this long (`90s`, `5m`, `2h`)
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Let the command read standard input, as it comes
    #[arg(short, long)]
    input: bool,
    /// A program and its arguments, to be run beside the shell
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// List the sessions there are
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session list
  ringfence session list --json")]
pub(crate) struct List {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Which session is meant
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
}

#[derive(Debug, Args)]
pub(crate) struct Signalled {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The signal
    #[arg(value_name = "SIGNAL", ignore_case = true)]
    signal: Signal,
}

/// One that a program may want to hear of.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Signal {
    Hup,
    Int,
    Quit,
    Kill,
    Usr1,
    Usr2,
    Term,
    Cont,
    Stop,
    Winch,
}

impl Signal {
    fn number(self) -> i32 {
        use rustix::process::Signal as Known;
        let known = match self {
            Signal::Hup => Known::HUP,
            Signal::Int => Known::INT,
            Signal::Quit => Known::QUIT,
            Signal::Kill => Known::KILL,
            Signal::Usr1 => Known::USR1,
            Signal::Usr2 => Known::USR2,
            Signal::Term => Known::TERM,
            Signal::Cont => Known::CONT,
            Signal::Stop => Known::STOP,
            Signal::Winch => Known::WINCH,
        };
        known.as_raw()
    }
}

/// Answer what the commands of sessions ask
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session start --ask
  ringfence ask list
  ringfence ask answer tests 1 allow-once")]
pub(crate) struct AskCommand {
    #[command(subcommand)]
    what: Asks,
}

#[derive(Debug, Subcommand)]
enum Asks {
    /// List the questions that wait for an answer
    #[command(after_help = "Examples:\n  ringfence ask list\n  ringfence ask list --json")]
    List(List),
    /// Answer a question
    #[command(after_help = "Examples:\n  ringfence ask answer tests 1 allow-session")]
    Answer(Answered),
}

#[derive(Debug, Args)]
pub(crate) struct Answered {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The number of the question
    #[arg(value_name = "QUESTION")]
    question: u64,
    /// What to say
    #[arg(value_enum, value_name = "ANSWER")]
    answer: AnswerArg,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum AnswerArg {
    AllowOnce,
    AllowSession,
    AllowPermanent,
    Deny,
}

impl From<AnswerArg> for Answer {
    fn from(answer: AnswerArg) -> Self {
        match answer {
            AnswerArg::AllowOnce => Answer::AllowOnce,
            AnswerArg::AllowSession => Answer::AllowSession,
            AnswerArg::AllowPermanent => Answer::AllowPermanent,
            AnswerArg::Deny => Answer::Deny,
        }
    }
}

impl AskCommand {
    /// Whether a program reads the answer.
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.what, Asks::List(arguments) if arguments.json)
    }
}

pub(crate) fn ask(arguments: AskCommand) -> Result<ExitCode, CliError> {
    match arguments.what {
        Asks::List(arguments) => client::questions(&arguments),
        Asks::Answer(arguments) => client::answer(&arguments),
    }
}

impl SessionCommand {
    /// Answers whether it starts a session.
    pub(crate) fn makes_sandboxes(&self) -> bool {
        matches!(self.what, What::Start(_) | What::Serve(_) | What::Keep(_))
    }

    /// Whether a program reads the answer.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.what {
            What::Exec(arguments) => arguments.json,
            What::List(arguments) => arguments.json,
            What::Inspect(_) => true,
            What::Start(_)
            | What::Attach(_)
            | What::Signal(_)
            | What::Stop(_)
            | What::Serve(_)
            | What::Keep(_) => false,
        }
    }
}

pub(crate) fn run(arguments: SessionCommand) -> Result<ExitCode, CliError> {
    match arguments.what {
        What::Start(_) => start(),
        What::Serve(arguments) => server::serve(arguments),
        What::Keep(arguments) => conversation::keep(*arguments),
        What::Exec(arguments) => client::exec(arguments),
        What::Attach(arguments) => attach::attach(&arguments),
        What::List(arguments) => client::list(&arguments),
        What::Inspect(arguments) => client::inspect(&arguments),
        What::Signal(arguments) => client::signal(&arguments),
        What::Stop(arguments) => client::stop(&arguments),
    }
}

/// Starts the process that keeps the session, with the same words.
fn start() -> Result<ExitCode, CliError> {
    let fail =
        |source| CliError::File { what: "start", path: "the keeper of the session".into(), source };
    let words = std::env::args_os().skip(3);
    let mut keeper = Command::new("/proc/self/exe");
    keeper.args(["session", "serve"]).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut keeper = keeper.spawn().map_err(fail)?;
    let mut said = String::new();
    let heard =
        keeper.stdout.take().map_or(Ok(0), |said_by| BufReader::new(said_by).read_line(&mut said));
    match heard.map_err(fail)? {
        0 => {
            // It has said why.
            let status = keeper.wait().map_err(fail)?;
            Ok(ExitCode::from(
                status
                    .code()
                    .and_then(|code| u8::try_from(code).ok())
                    .filter(|code| *code != 0)
                    .unwrap_or(125),
            ))
        }
        _ => {
            show::text(&said)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
