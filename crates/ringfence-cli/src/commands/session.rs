//! `ringfence session`: a sandbox that stands, with a shell that lives on.
//!
//! Each session has a process of its own that keeps it, and a socket that only its owner can
//! use. There is no other daemon.

mod ask_socket;
mod attach;
mod client;
pub(crate) mod conversation;
mod frames;
mod lifetime;
mod questions;
mod server;
mod socket_dir;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, Subcommand, ValueEnum};
use ringfence_api::AskAnswer;

pub(crate) use ask_socket::AskSocket;

use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::output;

/// Keep a sandbox with a shell that lives on
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  id=$(ringfence session start)
  ringfence session exec $id -c 'cd src && export DEBUG=1'
  ringfence session exec $id -c 'pwd; make test'
  ringfence session stop $id")]
pub(crate) struct SessionCommand {
    #[command(subcommand)]
    what: SessionSub,
}

#[derive(Debug, Subcommand)]
enum SessionSub {
    Start(SessionStartArgs),
    Exec(SessionExecArgs),
    /// Open a shell of its own in a session, at this terminal
    #[command(after_help = "Examples:\n  ringfence session attach tests")]
    Attach(SessionRef),
    List(SessionListArgs),
    /// Print what is known of a session as one JSON object
    #[command(after_help = "Examples:\n  ringfence session inspect tests")]
    Inspect(SessionRef),
    /// Send a signal to what the commands of a session have started
    #[command(after_help = "Examples:\n  ringfence session signal tests TERM")]
    Signal(SessionSignalArgs),
    /// End a session and everything in it
    #[command(after_help = "Examples:\n  ringfence session stop tests")]
    Stop(SessionRef),
    #[command(hide = true)]
    Serve(SessionStartArgs),
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
    run: crate::args::RunArgs,
}

/// Open a session and print its id
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session start
  ringfence session start --name tests --mode read-only --read ~/data")]
pub(crate) struct SessionStartArgs {
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
pub(crate) struct SessionExecArgs {
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
pub(crate) struct SessionListArgs {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// Which session is meant
#[derive(Debug, Args)]
pub(crate) struct SessionRef {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
}

#[derive(Debug, Args)]
pub(crate) struct SessionSignalArgs {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The signal
    #[arg(value_name = "SIGNAL", ignore_case = true)]
    signal: SignalName,
}

/// One that a program may want to hear of.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SignalName {
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

impl SignalName {
    fn number(self) -> i32 {
        use rustix::process::Signal as Known;
        let known = match self {
            SignalName::Hup => Known::HUP,
            SignalName::Int => Known::INT,
            SignalName::Quit => Known::QUIT,
            SignalName::Kill => Known::KILL,
            SignalName::Usr1 => Known::USR1,
            SignalName::Usr2 => Known::USR2,
            SignalName::Term => Known::TERM,
            SignalName::Cont => Known::CONT,
            SignalName::Stop => Known::STOP,
            SignalName::Winch => Known::WINCH,
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
    what: AskSub,
}

#[derive(Debug, Subcommand)]
enum AskSub {
    /// List the questions that wait for an answer
    #[command(after_help = "Examples:\n  ringfence ask list\n  ringfence ask list --json")]
    List(SessionListArgs),
    /// Answer a question
    #[command(after_help = "Examples:\n  ringfence ask answer tests 1 allow-session")]
    Answer(AskAnswerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AskAnswerArgs {
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

impl From<AnswerArg> for AskAnswer {
    fn from(answer: AnswerArg) -> Self {
        match answer {
            AnswerArg::AllowOnce => AskAnswer::AllowOnce,
            AnswerArg::AllowSession => AskAnswer::AllowSession,
            AnswerArg::AllowPermanent => AskAnswer::AllowPermanent,
            AnswerArg::Deny => AskAnswer::Deny,
        }
    }
}

impl AskCommand {
    /// Whether a program reads the answer.
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.what, AskSub::List(arguments) if arguments.json)
    }
}

pub(crate) fn ask(arguments: AskCommand) -> Result<ExitCode, CliError> {
    match arguments.what {
        AskSub::List(arguments) => client::questions(&arguments),
        AskSub::Answer(arguments) => client::answer(&arguments),
    }
}

impl SessionCommand {
    /// Answers whether it starts a session.
    pub(crate) fn makes_sandboxes(&self) -> bool {
        matches!(self.what, SessionSub::Start(_) | SessionSub::Serve(_) | SessionSub::Keep(_))
    }

    /// Whether a program reads the answer.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.what {
            SessionSub::Exec(arguments) => arguments.json,
            SessionSub::List(arguments) => arguments.json,
            SessionSub::Inspect(_) => true,
            SessionSub::Start(_)
            | SessionSub::Attach(_)
            | SessionSub::Signal(_)
            | SessionSub::Stop(_)
            | SessionSub::Serve(_)
            | SessionSub::Keep(_) => false,
        }
    }
}

pub(crate) fn run(arguments: SessionCommand) -> Result<ExitCode, CliError> {
    match arguments.what {
        SessionSub::Start(_) => start(),
        SessionSub::Serve(arguments) => server::serve(arguments),
        SessionSub::Keep(arguments) => conversation::keep(*arguments),
        SessionSub::Exec(arguments) => client::exec(arguments),
        SessionSub::Attach(arguments) => attach::attach(&arguments),
        SessionSub::List(arguments) => client::list(&arguments),
        SessionSub::Inspect(arguments) => client::inspect(&arguments),
        SessionSub::Signal(arguments) => client::signal(&arguments),
        SessionSub::Stop(arguments) => client::stop(&arguments),
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
            output::text(&said)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
