//! `ringfence session`: a long-lived sandbox with a persistent shell.
//!
//! Each session has one server process, and a socket that only its owner can use. There is no
//! other daemon.

mod ask_socket;
mod attach;
mod client;
mod client_peer;
mod command_slot;
pub(crate) mod conversation;
mod forward;
mod lifetime;
mod notes;
mod questions;
mod server;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};

use clap::{Args, Subcommand, ValueEnum};
use ringfence_api::session_protocol::protocol_schema;
use ringfence_api::{AskAnswer, Signal};

pub(crate) use ask_socket::AskSocket;

use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::output;

/// Keep a sandbox with a persistent shell
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
    /// Open a separate shell in a session, at this terminal
    #[command(after_help = "Examples:\n  ringfence session attach tests")]
    Attach(SessionRef),
    List(SessionListArgs),
    /// Print the state of a session as one JSON object
    #[command(after_help = "Examples:\n  ringfence session inspect tests")]
    Inspect(SessionRef),
    /// Send a signal to the processes that a session's commands have started
    #[command(after_help = "Examples:\n  ringfence session signal tests TERM")]
    Signal(SessionSignalArgs),
    /// Stop a session and all its processes
    #[command(after_help = "Examples:\n  ringfence session stop tests")]
    Stop(SessionRef),
    Serve(SessionServeArgs),
    /// Print the JSON Schema of the session protocol
    #[command(after_help = "Examples:\n  ringfence session schema > protocol.schema.json")]
    Schema,
    #[command(hide = true)]
    Keep(Box<Keep>),
}

/// Serve the sandbox of a conversation, as its first call requests it
#[derive(Debug, Args)]
pub(crate) struct Keep {
    /// Detach from the parent process, and serve the sandbox in a child
    #[arg(long)]
    detach: bool,
    /// The process whose end ends the conversation, and its start time
    #[arg(long, value_name = "PID:START")]
    watch: Option<String>,
    #[command(flatten)]
    run: crate::args::RunArgs,
}

/// Start a session and print its id
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session start
  ringfence session start --name tests --mode read-only --read ~/data")]
pub(crate) struct SessionStartArgs {
    /// A name for the session, in addition to its id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The agent name to record in the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Ask before an access is denied; the command waits for the answer (`ringfence ask`)
    #[arg(long)]
    ask: bool,
    /// Deny the access if there is no answer within this time [default: 60s]
    #[arg(long, value_name = "DURATION", requires = "ask")]
    ask_timeout: Option<String>,
    /// The shell
    #[arg(long, value_name = "PROGRAM", default_value = "bash")]
    shell: OsString,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// Serve a session from this process
///
/// With `--stdio`, for a program that embeds ringfence: one session, one client, JSON lines on
/// standard input and output. It ends when standard input is closed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session serve --stdio -C ~/project")]
pub(crate) struct SessionServeArgs {
    /// Serve standard input and output, instead of a socket
    #[arg(long)]
    stdio: bool,
    #[command(flatten)]
    start: SessionStartArgs,
}

/// Run a line in a session's shell, or a program in its sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session exec tests -c 'cd src && make'
  ringfence session exec tests --json --timeout 5m -c 'cargo test'
  ringfence session exec tests -- git status

Exit status: the command's own; 124 time limit, 125 ringfence failed.")]
pub(crate) struct SessionExecArgs {
    /// The session: its id, a prefix of its id, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The shell command line
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
    /// Forward standard input to the command
    #[arg(short, long)]
    input: bool,
    /// A program and its arguments, run outside the session's shell
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// List the running sessions
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence session list
  ringfence session list --json")]
pub(crate) struct SessionListArgs {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// A reference to a session
#[derive(Debug, Args)]
pub(crate) struct SessionRef {
    /// The session: its id, a prefix of its id, or its name
    #[arg(value_name = "SESSION")]
    session: String,
}

#[derive(Debug, Args)]
pub(crate) struct SessionSignalArgs {
    /// The session: its id, a prefix of its id, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The signal
    #[arg(value_name = "SIGNAL", ignore_case = true)]
    signal: SignalName,
}

/// A signal that `session signal` can send.
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
    fn signal(self) -> Signal {
        match self {
            SignalName::Hup => Signal::Hangup,
            SignalName::Int => Signal::Interrupt,
            SignalName::Quit => Signal::Quit,
            SignalName::Kill => Signal::Kill,
            SignalName::Usr1 => Signal::User1,
            SignalName::Usr2 => Signal::User2,
            SignalName::Term => Signal::Terminate,
            SignalName::Cont => Signal::Continue,
            SignalName::Stop => Signal::Stop,
            SignalName::Winch => Signal::WindowChange,
        }
    }
}

/// Answer questions from sessions
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
    /// The session: its id, a prefix of its id, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// The number of the question
    #[arg(value_name = "QUESTION")]
    question: u64,
    /// The answer
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
    /// True if the result is printed as JSON.
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
    /// True if the command starts a session.
    pub(crate) fn makes_sandboxes(&self) -> bool {
        matches!(self.what, SessionSub::Start(_) | SessionSub::Serve(_) | SessionSub::Keep(_))
    }

    /// True if the result is printed as JSON.
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
            | SessionSub::Schema
            | SessionSub::Keep(_) => false,
        }
    }
}

pub(crate) fn run(arguments: SessionCommand) -> Result<ExitCode, CliError> {
    match arguments.what {
        SessionSub::Start(_) => start(),
        SessionSub::Serve(arguments) => server::serve(arguments),
        SessionSub::Keep(arguments) => conversation::serve_conversation(*arguments),
        SessionSub::Schema => {
            output::print_text(&format!("{:#}\n", protocol_schema().to_value()))?;
            Ok(ExitCode::SUCCESS)
        }
        SessionSub::Exec(arguments) => client::exec(arguments),
        SessionSub::Attach(arguments) => attach::attach(&arguments),
        SessionSub::List(arguments) => client::list(&arguments),
        SessionSub::Inspect(arguments) => client::inspect(&arguments),
        SessionSub::Signal(arguments) => client::signal(&arguments),
        SessionSub::Stop(arguments) => client::stop(&arguments),
    }
}

/// Starts the session's server process, with the same arguments.
fn start() -> Result<ExitCode, CliError> {
    let mut server = Command::new("/proc/self/exe");
    server.args(["session", "serve"]).args(std::env::args_os().skip(3));
    let (id_line, mut server) = spawn_server(&mut server)?;
    if !id_line.is_empty() {
        output::print_text(&id_line)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The server has printed its error.
    let status = server.wait().map_err(server_error)?.code();
    let status = status.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
    Ok(ExitCode::from(status.unwrap_or(125)))
}

/// Starts a session's server process; returns the line with its id, empty if there is no session.
fn spawn_server(server: &mut Command) -> Result<(String, Child), CliError> {
    server.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = server.spawn().map_err(server_error)?;
    let mut id_line = String::new();
    if let Some(stdout) = server.stdout.take() {
        BufReader::new(stdout).read_line(&mut id_line).map_err(server_error)?;
    }
    Ok((id_line, server))
}

fn server_error(source: io::Error) -> CliError {
    CliError::File { what: "start", path: "the session server".into(), source }
}
