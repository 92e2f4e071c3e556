//! Command line arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use ringfence_api::shell_word;
use ringfence_policy::ProviderSpec;

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

/// Run an agent's commands in a sandbox around the project
///
/// The command works in the project as if it ran without a sandbox. It cannot read secrets or
/// other projects, and it has no network access unless a policy or a flag allows it.
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
    /// Log what ringfence does to standard error (`-vv`: more, `-vvv`: every event)
    /// [default: $RINGFENCE_LOG]
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 1000)]
    pub(crate) verbose: u8,
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
    /// True if the command runs something in a new sandbox.
    pub(crate) fn creates_sandbox(&self) -> bool {
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

    /// True if the result is printed as JSON.
    pub(crate) fn prints_json(&self) -> bool {
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
    /// The agent name to record in the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Report denials only, or every file opened, program run and host contacted (slower)
    #[arg(long, value_enum, value_name = "EVENTS")]
    pub(crate) observe: Option<ObserveArg>,
    /// Ask on the terminal before an access is denied; the command waits for the answer.
    /// `--ask=never` overrides a policy that asks
    #[arg(long, value_enum, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "terminal")]
    pub(crate) ask: Option<AskArg>,
    /// Deny the access if there is no answer within this time [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ask_timeout: Option<String>,
    /// The session name in the audit log [default: a new one]
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
    /// Run a shell command line instead of a program
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
    /// Remember the directory the line ends in, for hooks that rewrite an agent's command
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
    /// Run the line in a new shell of the conversation's sandbox, not in the shared shell
    #[arg(long, hide = true, requires = "conversation")]
    pub(crate) beside: bool,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// Open an interactive shell in the sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence shell
  ringfence shell --mode read-only --shell zsh")]
pub(crate) struct ShellArgs {
    /// The shell [default: bash, or else sh]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) shell: Option<OsString>,
    /// The agent name to record in the audit log [default: $RINGFENCE_AGENT]
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

impl From<ShellArgs> for RunArgs {
    /// Runs the shell as a program that inherits the terminal.
    fn from(ShellArgs { shell, agent, policy }: ShellArgs) -> Self {
        let is_installed = |name: &str| {
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .any(|path| path.join(name).is_file())
        };
        let shell =
            shell.unwrap_or_else(|| if is_installed("bash") { "bash".into() } else { "sh".into() });
        let command = vec![shell, "-i".into()];
        Self {
            timeout: None,
            json: false,
            // An interactive shell exits with the status of its last command only.
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

/// Arguments of every command that resolves a policy. Each command flattens them last: the help
/// heading applies to every argument after it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyArgs {
    /// Use this policy file instead of the project's `.ringfence/policy.toml`
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The writable paths: none, the project, or all
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<ModeArg>,
    /// Start in this directory
    #[arg(short = 'C', value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// The project directory; starting outside it is refused [default: the project around the
    /// directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// The directory the agent was started in: its settings there are protected
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) started_in: Option<PathBuf>,
    /// Allow reading a path
    #[arg(long, value_name = "PATH")]
    pub(crate) read: Vec<String>,
    /// Allow writing a path
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<String>,
    /// Deny a path or pattern
    #[arg(long, value_name = "PATH")]
    pub(crate) deny: Vec<String>,
    /// Deny a path or pattern, and make it look absent
    #[arg(long, value_name = "PATH")]
    pub(crate) hide: Vec<String>,
    /// Make a path or pattern read-only
    #[arg(long, value_name = "PATH")]
    pub(crate) protect: Vec<String>,
    /// Exempt a path from the deny patterns
    #[arg(long, value_name = "PATH")]
    pub(crate) except: Vec<String>,
    /// Pass an environment variable, or set it
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Network access
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) net: Option<NetArg>,
    /// Allow a host: `host`, `*.host` for all names below it, `host:port`, an address or a CIDR
    /// range
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// Deny a host, even if another rule allows it
    #[arg(long, value_name = "HOST")]
    pub(crate) deny_host: Vec<String>,
    /// Allow a port on the host's loopback
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) allow_localhost: Vec<u16>,
    /// Publish a port of the sandbox on the host's loopback
    #[arg(long, value_name = "PORT", value_parser = published_port)]
    pub(crate) bind: Vec<u16>,
    /// Limit a resource: `memory=2GiB`, `processes=256`, `cpu=10m`, `disk=5GB`,
    /// `open-files=1024`, `file-size=1GB`, `output=10MB`
    #[arg(long, value_name = "LIMIT=AMOUNT")]
    pub(crate) limit: Vec<String>,
    /// The engine that confines the command; if it is missing, nothing runs
    #[arg(long, value_enum, value_name = "ENGINE", default_value = "auto")]
    pub(crate) engine: EngineArg,
    /// The provider of the sandbox, with its options: `local`, or `process`, which confines nothing
    /// and needs `--on-gap run`
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]")]
    pub(crate) provider: Option<ProviderSpec>,
    /// Refuse to run, or run anyway, if part of the policy cannot be enforced
    #[arg(long, value_enum, value_name = "ACTION")]
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
    /// Only hosts allowed by `--allow-host` or a policy
    AllowList,
    /// The host's network, without restrictions
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellArg {
    Sh,
    Bash,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum EngineArg {
    /// Namespaces, or Landlock where the host forbids them; none if the policy confines nothing
    Auto,
    /// Linux namespaces; refuses a policy that confines nothing
    Namespaces,
    /// Landlock and seccomp, without namespaces: single commands, with gaps that must be accepted
    Landlock,
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

/// Parses the command line. On a usage error, prints a message and exits with status 125.
pub(crate) fn parse() -> Arguments {
    let parsed = parse_subcommand::<RunArgs>("run")
        .map(CliCommand::Run)
        .or_else(|| parse_subcommand::<HookCommand>("hook").map(CliCommand::Hook));
    if let Some(command) = parsed {
        return Arguments { command, verbose: 0 };
    }
    Arguments::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        if error.kind() == ErrorKind::InvalidSubcommand
            && let Some(line) = suggest_run_line(std::env::args_os().skip(1))
        {
            messages::print_line(&format!("hint: did you mean: {line}"));
        }
        let wrong = if is_subcommand("hook") { crate::commands::hook::BLOCKED.into() } else { 125 };
        std::process::exit(if error.use_stderr() { wrong } else { 0 })
    })
}

/// Returns the arguments as a `ringfence run -- npm test` line if the first is a program on `PATH`.
fn suggest_run_line(words: impl Iterator<Item = OsString>) -> Option<String> {
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let program = words.first().filter(|word| !word.contains('/'))?;
    let search = std::env::var_os("PATH")?;
    let is_installed =
        std::env::split_paths(&search).any(|directory| directory.join(program).is_file());
    let quoted: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    is_installed.then(|| printable(&format!("ringfence run -- {}", quoted.join(" "))))
}

/// True if the first argument is this subcommand. Does not parse the arguments.
pub(crate) fn is_subcommand(command: &str) -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == command)
}

/// True if the arguments run a command in the existing sandbox of a conversation.
pub(crate) fn runs_in_conversation() -> bool {
    std::env::args_os().nth(2).is_some_and(|word| word == "--conversation")
}

/// True if the arguments may ask for log lines. Does not parse them: the words of a command without
/// `--` may count, if they stand behind a flag.
pub(crate) fn may_be_verbose() -> bool {
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    let (mut is_after_run, mut is_value, mut is_over) = (false, false, false);
    words.any(|word| {
        let word = word.as_encoded_bytes();
        let is_flag = word.starts_with(b"-");
        // The first word of the command ends the flags of `run`.
        is_over |= is_after_run && !is_flag && !is_value;
        is_value = word.starts_with(b"--") && !word.contains(&b'=');
        is_after_run |= word == b"run";
        !is_over
            && (word == b"--verbose" || is_flag && !word.starts_with(b"--") && word.contains(&b'v'))
    })
}

/// Parses a port to publish. Other tools accept two ports or an address here.
fn published_port(text: &str) -> Result<u16, String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    match (port(text), text.rsplit_once(':')) {
        (Some(port), _) => Ok(port),
        (None, Some((first, last))) => match (port(last), port(first)) {
            (Some(last), Some(first)) if first != last => Err(format!(
                "the port number cannot change: make the server listen on {first}, and use `--bind {first}`"
            )),
            (Some(last), Some(_)) => Err(format!("give the port once: use `--bind {last}`")),
            (Some(last), None) => {
                Err(format!("ports are published on the host's loopback only: use `--bind {last}`"))
            }
            _ => Err("not a port: use a number from 1 to 65535, such as `--bind 3000`".to_owned()),
        },
        _ => Err("not a port: use a number from 1 to 65535, such as `--bind 3000`".to_owned()),
    }
}

/// Parses the arguments of one subcommand alone: building clap's other subcommands takes most of
/// the parsing time. Returns `None` on any error; the full parser then reports it.
fn parse_subcommand<T: Args + FromArgMatches>(name: &'static str) -> Option<T> {
    if !is_subcommand(name) || may_be_verbose() {
        return None;
    }
    let matches = T::augment_args(clap::Command::new(name))
        .try_get_matches_from(std::env::args_os().skip(1))
        .ok()?;
    T::from_arg_matches(&matches).ok()
}
