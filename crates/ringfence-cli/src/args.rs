//! The arguments, as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use ringfence_api::typed;

use crate::commands::agent::AgentCommand;
use crate::commands::cache::CacheCommand;
use crate::commands::configure::ConfigureArgs;
use crate::commands::docs::{CompletionsArgs, ManArgs, ReferenceArgs};
use crate::commands::doctor::DoctorArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::hook::HookCommand;
use crate::commands::init::InitCommandArgs;
use crate::commands::learn::LearnArgs;
use crate::commands::log::LogArgs;
use crate::commands::mcp::McpArgs;
use crate::commands::plan::PlanArgs;
use crate::commands::policy::PolicyCommand;
use crate::commands::policy::allow::PolicyAllowArgs;
use crate::commands::question::QuestionArgs;
use crate::commands::remote::RemoteCommand;
use crate::commands::serve::ServeArgs;
use crate::commands::session::{AskCommand, SessionCommand};
use crate::commands::test::TestArgs;
use crate::commands::tool::ToolCommand;
use crate::messages;
use crate::output::printable;

/// Run an agent's commands in the project and nowhere else
///
/// The command works in the project as if it ran bare. Secrets stay unread, other projects are
/// not there, and the network is shut unless it was opened.
#[derive(Debug, Parser)]
#[command(
    name = "ringfence",
    version,
    max_term_width = 100,
    after_help = "Examples:
  ringfence test
  ringfence run -- npm test
  ringfence run --net full -- npm install
  ringfence explain read ~/.ssh/id_rsa
  ringfence log --blocked-only
  ringfence doctor"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Run(RunArgs),
    Shell(ShellArgs),
    Session(SessionCommand),
    Ask(AskCommand),
    Agent(AgentCommand),
    Learn(LearnArgs),
    Tool(ToolCommand),
    Hook(HookCommand),
    Init(InitCommandArgs),
    Mcp(Box<McpArgs>),
    Serve(Box<ServeArgs>),
    Remote(Box<RemoteCommand>),
    Plan(PlanArgs),
    Explain(ExplainArgs),
    Doctor(DoctorArgs),
    Test(TestArgs),
    Log(LogArgs),
    Allow(PolicyAllowArgs),
    Policy(PolicyCommand),
    Configure(ConfigureArgs),
    Cache(CacheCommand),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(hide = true)]
    Reference(ReferenceArgs),
    #[command(hide = true)]
    Question(QuestionArgs),
}

impl CliCommand {
    /// Answers whether it runs something in a new sandbox.
    pub(crate) fn makes_sandboxes(&self) -> bool {
        match self {
            CliCommand::Session(arguments) => arguments.makes_sandboxes(),
            CliCommand::Run(_)
            | CliCommand::Shell(_)
            | CliCommand::Learn(_)
            | CliCommand::Mcp(_)
            | CliCommand::Serve(_) => true,
            _ => false,
        }
    }

    /// Whether a program reads the answer.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            CliCommand::Run(arguments) => arguments.json,
            CliCommand::Session(arguments) => arguments.wants_json(),
            CliCommand::Ask(arguments) => arguments.wants_json(),
            CliCommand::Agent(arguments) => arguments.wants_json(),
            CliCommand::Learn(arguments) => arguments.json,
            CliCommand::Tool(_) => true,
            CliCommand::Init(arguments) => arguments.json,
            CliCommand::Plan(arguments) => arguments.json,
            CliCommand::Explain(arguments) => arguments.json,
            CliCommand::Doctor(arguments) => arguments.json,
            CliCommand::Test(arguments) => arguments.json,
            CliCommand::Remote(arguments) => arguments.wants_json(),
            CliCommand::Log(arguments) => arguments.json,
            CliCommand::Allow(arguments) => arguments.json,
            CliCommand::Policy(arguments) => arguments.wants_json(),
            CliCommand::Configure(arguments) => arguments.json,
            CliCommand::Cache(arguments) => arguments.wants_json(),
            CliCommand::Hook(_)
            | CliCommand::Shell(_)
            | CliCommand::Mcp(_)
            | CliCommand::Serve(_)
            | CliCommand::Completions(_)
            | CliCommand::Man(_)
            | CliCommand::Reference(_)
            | CliCommand::Question(_) => false,
        }
    }
}

/// Run a command in the sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence run -- cargo test
  ringfence run -c 'npm ci && npm test'
  ringfence run --read ~/data --timeout 5m -- python3 train.py

Exit status: the command's own; 124 time limit, 125 ringfence failed, 126 not executable,
127 not found.")]
pub(crate) struct RunArgs {
    /// End the command after this long (`90s`, `5m`, `2h`)
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Print one JSON object with the outcome instead of the command's output
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not print which hosts and paths were denied to a command that failed
    /// [default: $RINGFENCE_QUIET]
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// On whose behalf, for the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// What to tell of the run: what was refused, or also everything that was opened, started
    /// and reached, which takes longer
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) observe: Option<ObserveArg>,
    /// Ask on the terminal about what is about to be refused, while the command waits;
    /// `--ask=never` if a policy says otherwise
    #[arg(long, value_enum, value_name = "WHOM", num_args = 0..=1, require_equals = true, default_missing_value = "terminal")]
    pub(crate) ask: Option<AskArg>,
    /// How long an answer may take; then it is denied [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ask_timeout: Option<String>,
    /// The name of the run in the audit log [default: a new one]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Run a line of shell instead of a program
    #[arg(
        short = 'c',
        value_name = "STRING",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    pub(crate) line: Option<String>,
    /// The shell for `-c`: `sh` or `bash`
    #[arg(long, value_enum, value_name = "SHELL", default_value = "sh", requires = "line")]
    pub(crate) shell: ShellArg,
    /// Keep in mind where the line ended, for hooks that rewrite an agent's command
    #[arg(long, hide = true, requires = "line", requires = "session", conflicts_with = "json")]
    pub(crate) keep_directory: bool,
    /// Run the line in the sandbox of this conversation, for hooks that rewrite an agent's command
    #[arg(
        long,
        value_name = "ID",
        hide = true,
        requires = "line",
        requires = "session",
        conflicts_with = "json"
    )]
    pub(crate) conversation: Option<String>,
    /// Run the line beside the shell of the conversation
    #[arg(long, hide = true, requires = "conversation")]
    pub(crate) beside: bool,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// Open a shell in the sandbox, at this terminal
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence shell
  ringfence shell --mode read-only --shell zsh")]
pub(crate) struct ShellArgs {
    /// The shell [default: bash, or else sh]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) shell: Option<OsString>,
    /// On whose behalf, for the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

impl From<ShellArgs> for RunArgs {
    /// A program like any other: it has the terminal.
    fn from(ShellArgs { shell, agent, policy }: ShellArgs) -> Self {
        let is_there = |name: &str| {
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .any(|path| path.join(name).is_file())
        };
        let shell =
            shell.unwrap_or_else(|| if is_there("bash") { "bash".into() } else { "sh".into() });
        let command = vec![shell, "-i".into()];
        Self {
            timeout: None,
            json: false,
            // The status of an interactive shell is that of its last command only.
            quiet: true,
            agent,
            observe: None,
            ask: None,
            ask_timeout: None,
            session: None,
            line: None,
            shell: ShellArg::Sh,
            keep_directory: false,
            conversation: None,
            beside: false,
            command,
            policy,
        }
    }
}

/// What every command that resolves a policy takes. It stands last in each of them: its heading
/// would go on over what follows.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyArgs {
    /// Use this policy file instead of the project's `.ringfence/policy.toml`
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// How much may be written
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeArg>,
    /// Start in this directory
    #[arg(short = 'C', value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Which project is worked on; whoever starts elsewhere is refused [default: the one around
    /// the directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Where the agent was started that wants this: its settings there are protected
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) started_in: Option<PathBuf>,
    /// Open a path for reading
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<String>,
    /// Open a path for writing
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<String>,
    /// Deny a path or pattern
    #[arg(long, value_name = "PATH")]
    pub(crate) deny: Vec<String>,
    /// Deny a path or pattern, and let it look absent
    #[arg(long, value_name = "PATH")]
    pub(crate) hide: Vec<String>,
    /// Keep a path or pattern from being written
    #[arg(long, value_name = "PATH")]
    pub(crate) protect: Vec<String>,
    /// Re-open what a pattern caught
    #[arg(long, value_name = "PATH")]
    pub(crate) except: Vec<String>,
    /// Pass a variable, or set it
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Whether the network is open
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) net: Option<NetArg>,
    /// Open a host: `host`, `*.host` for all names below it, `host:port`, an address or a CIDR
    /// range
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// Deny a host, whatever allows it
    #[arg(long, value_name = "HOST")]
    pub(crate) deny_host: Vec<String>,
    /// Open a port of this machine's own loopback
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) allow_localhost: Vec<u16>,
    /// Publish a port of the sandbox to this machine's loopback
    #[arg(long, value_name = "PORT", value_parser = published_port)]
    pub(crate) bind: Vec<u16>,
    /// Let only so much of something be used: `memory=2GiB`, `processes=256`, `cpu=10m`,
    /// `disk=5GB`, `open-files=1024`, `file-size=1GB`, `output=10MB`
    #[arg(long, value_name = "LIMIT=AMOUNT")]
    pub(crate) limit: Vec<String>,
    /// Which engine is to confine the command; without it nothing runs
    #[arg(long, value_enum, value_name = "ENGINE", default_value = "auto")]
    pub(crate) engine: EngineArg,
    /// What to do when something cannot be enforced
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_gap: Option<OnGapArg>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ModeArg {
    ReadOnly,
    WorkspaceWrite,
    FullAccess,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum NetArg {
    /// Loopback between the command's own processes only
    None,
    /// What was allowed by `--allow-host` or a policy
    AllowList,
    /// The host's own
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellArg {
    Sh,
    Bash,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum EngineArg {
    /// The strongest one there is; none where the policy confines nothing
    Auto,
    /// Linux namespaces; a policy that confines nothing is refused
    Namespaces,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OnGapArg {
    Refuse,
    Run,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ObserveArg {
    Denials,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AskArg {
    Never,
    Terminal,
}

/// Reads the command line; wrong words end the program with a message and status 125.
pub(crate) fn parse() -> Arguments {
    let only = only::<RunArgs>("run")
        .map(CliCommand::Run)
        .or_else(|| only::<HookCommand>("hook").map(CliCommand::Hook));
    if let Some(command) = only {
        return Arguments { command };
    }
    Arguments::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        if error.kind() == ErrorKind::InvalidSubcommand
            && let Some(line) = run_line(std::env::args_os().skip(1))
        {
            messages::line(&format!("hint: did you mean: {line}"));
        }
        let wrong = if names("hook") { crate::commands::hook::BLOCKED.into() } else { 125 };
        std::process::exit(if error.use_stderr() { wrong } else { 0 })
    })
}

/// The words as a command to run, if the first is a program on `PATH`: `ringfence run -- npm test`.
fn run_line(words: impl Iterator<Item = OsString>) -> Option<String> {
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let program = words.first().filter(|word| !word.contains('/'))?;
    let search = std::env::var_os("PATH")?;
    let is_there =
        std::env::split_paths(&search).any(|directory| directory.join(program).is_file());
    let quoted: Vec<String> = words.iter().map(|word| typed(word)).collect();
    is_there.then(|| printable(&format!("ringfence run -- {}", quoted.join(" "))))
}

/// Whether the words ask for this command, before they are understood.
pub(crate) fn names(command: &str) -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == command)
}

/// Answers whether the words run a command in the sandbox of a conversation, which stands already.
pub(crate) fn is_of_conversation() -> bool {
    std::env::args_os().nth(2).is_some_and(|word| word == "--conversation")
}

/// A port to publish. Other tools take two ports or an address here.
fn published_port(text: &str) -> Result<u16, String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    match (port(text), text.rsplit_once(':')) {
        (Some(port), _) => Ok(port),
        (None, Some((first, last))) => match (port(last), port(first)) {
            (Some(last), Some(first)) if first != last => Err(format!(
                "a port keeps its number: have the server listen on {first}, and write `--bind {first}`"
            )),
            (Some(last), Some(_)) => Err(format!("a port keeps its number: write `--bind {last}`")),
            (Some(last), None) => Err(format!(
                "it is published to this machine's loopback only: write `--bind {last}`"
            )),
            _ => {
                Err("it is no port: write a number from 1 to 65535, such as `--bind 3000`"
                    .to_owned())
            }
        },
        _ => Err("it is no port: write a number from 1 to 65535, such as `--bind 3000`".to_owned()),
    }
}

/// The words of one command alone: most of the time is spent on the commands that are not meant.
/// What is wrong with them is left to the whole to say.
fn only<T: Args + FromArgMatches>(name: &'static str) -> Option<T> {
    if !names(name) {
        return None;
    }
    let matches = T::augment_args(clap::Command::new(name))
        .try_get_matches_from(std::env::args_os().skip(1))
        .ok()?;
    T::from_arg_matches(&matches).ok()
}
