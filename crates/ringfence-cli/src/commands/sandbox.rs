//! `ringfence sandbox` and `ringfence debug`: the command lines of `codex sandbox`.
//!
//! Each of them is another spelling of `run`, `log` or `test`, and goes through the same pipeline.

mod given_policy;

use std::env;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ringfence_engine::EngineError;
use ringfence_policy::PolicyError;

use super::log::LogArgs;
use super::run::{CommandAuthor, run_for};
use super::test::TestArgs;
use super::{log, test};
use crate::args::{ModeArg, RunArgs};
use crate::error::CliError;
use crate::providers::EarlyProviders;
use given_policy::{FLAG as POLICY, GivenPolicyArgs};

/// Run a command as `codex sandbox` does: read-only, or with `--full-auto` in a writable project
///
/// The command runs as with `ringfence run`: under the same policy files, denials and audit log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence sandbox linux -- cargo check
  ringfence sandbox linux --full-auto -- cargo test
  ringfence sandbox log --blocked-only
  ringfence sandbox test")]
pub(crate) struct SandboxCliCommand {
    #[command(subcommand)]
    what: SandboxSub,
}

#[derive(Debug, Subcommand)]
enum SandboxSub {
    Linux(Box<LinuxSandboxArgs>),
    Macos(Box<MacosSandboxArgs>),
    Windows(Box<WindowsSandboxArgs>),
    Log(LogArgs),
    Test(Box<TestArgs>),
}

/// Run a command as `codex debug` does: older names of `ringfence sandbox`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence debug landlock -- cargo check
  ringfence debug landlock --full-auto -- cargo test")]
pub(crate) struct DebugCliCommand {
    #[command(subcommand)]
    what: DebugSub,
}

#[derive(Debug, Subcommand)]
enum DebugSub {
    /// The same as `ringfence sandbox linux`
    #[command(after_help = "Examples:
  ringfence debug landlock -- cargo check
  ringfence debug landlock --full-auto -- cargo test")]
    Landlock(Box<LinuxSandboxArgs>),
    /// The same as `ringfence sandbox macos`
    #[command(after_help = "Examples:\n  ringfence debug seatbelt -- cargo check")]
    Seatbelt(Box<MacosSandboxArgs>),
}

/// Run a command in the sandbox of Linux
///
/// Nothing but `/tmp` is writable, whatever the policy files say; `--full-auto`, `--mode` and
/// `--sandbox-policy` change that. A command is required: `ringfence shell --mode read-only` opens
/// an interactive shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence sandbox linux -- cargo check
  ringfence sandbox linux --full-auto -- cargo test
  ringfence sandbox linux --sandbox-policy '{\"type\":\"workspace-write\"}' -- make

Exit status: the command's own; 124 time limit, 125 ringfence failed, 126 not executable,
127 not found.")]
pub(crate) struct LinuxSandboxArgs {
    #[command(flatten)]
    given: GivenPolicyArgs,
    #[command(flatten)]
    sandbox: PlatformSandboxArgs,
}

/// Run a command in the sandbox of macOS (not supported yet)
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence sandbox macos -- cargo check

Exit status: 125, because ringfence runs on Linux only.")]
pub(crate) struct MacosSandboxArgs {
    #[command(flatten)]
    sandbox: PlatformSandboxArgs,
}

/// Run a command in the sandbox of Windows (not supported yet)
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence sandbox windows -- cargo check

Exit status: 125, because ringfence runs on Linux only.")]
pub(crate) struct WindowsSandboxArgs {
    #[command(flatten)]
    sandbox: PlatformSandboxArgs,
}

/// The arguments of `codex sandbox`, and those of `ringfence run`.
#[derive(Debug, Args)]
struct PlatformSandboxArgs {
    /// Allow writing in the project: the mode workspace-write instead of read-only
    #[arg(long, conflicts_with = "mode")]
    full_auto: bool,
    #[command(flatten)]
    run: RunArgs,
}

impl SandboxCliCommand {
    /// True if the command runs something in a new sandbox.
    pub(crate) fn creates_sandbox(&self) -> bool {
        matches!(self.what, SandboxSub::Linux(_))
    }

    /// True if the result is printed as JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.what {
            SandboxSub::Linux(arguments) => arguments.sandbox.run.json,
            SandboxSub::Macos(arguments) => arguments.sandbox.run.json,
            SandboxSub::Windows(arguments) => arguments.sandbox.run.json,
            SandboxSub::Log(arguments) => arguments.json,
            SandboxSub::Test(arguments) => arguments.json,
        }
    }
}

impl DebugCliCommand {
    /// True if the command runs something in a new sandbox.
    pub(crate) fn creates_sandbox(&self) -> bool {
        matches!(self.what, DebugSub::Landlock(_))
    }

    /// True if the result is printed as JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.what {
            DebugSub::Landlock(arguments) => arguments.sandbox.run.json,
            DebugSub::Seatbelt(arguments) => arguments.sandbox.run.json,
        }
    }
}

pub(crate) fn run(
    arguments: SandboxCliCommand,
    providers: &EarlyProviders,
) -> Result<ExitCode, CliError> {
    match arguments.what {
        SandboxSub::Linux(arguments) => run_linux(*arguments, providers),
        SandboxSub::Macos(arguments) => {
            run_on_platform("macos", arguments.sandbox, None, providers)
        }
        SandboxSub::Windows(arguments) => {
            run_on_platform("windows", arguments.sandbox, None, providers)
        }
        SandboxSub::Log(arguments) => log::run(arguments),
        SandboxSub::Test(arguments) => test::run(*arguments),
    }
}

pub(crate) fn debug(
    arguments: DebugCliCommand,
    providers: &EarlyProviders,
) -> Result<ExitCode, CliError> {
    match arguments.what {
        DebugSub::Landlock(arguments) => run_linux(*arguments, providers),
        DebugSub::Seatbelt(arguments) => {
            run_on_platform("macos", arguments.sandbox, None, providers)
        }
    }
}

fn run_linux(
    arguments: LinuxSandboxArgs,
    providers: &EarlyProviders,
) -> Result<ExitCode, CliError> {
    run_on_platform("linux", arguments.sandbox, Some(arguments.given), providers)
}

/// Runs a command in the sandbox of a platform, named as in [`env::consts::OS`].
fn run_on_platform(
    platform: &'static str,
    arguments: PlatformSandboxArgs,
    given: Option<GivenPolicyArgs>,
    providers: &EarlyProviders,
) -> Result<ExitCode, CliError> {
    if platform != env::consts::OS {
        return Err(CliError::OtherPlatform { platform: label(platform) });
    }
    let PlatformSandboxArgs { full_auto, mut run } = arguments;
    let own_write = if run.policy.write.is_empty() { POLICY } else { "--write" };
    let is_given = given.map(|given| given.apply(&mut run.policy)).transpose()? == Some(true);
    let typed = match is_given {
        true => [("--mode", POLICY), ("--net", POLICY), ("--write", own_write)].to_vec(),
        false if full_auto => vec![("--mode", "--full-auto")],
        false => Vec::new(),
    };
    let mode = if full_auto { ModeArg::WorkspaceWrite } else { ModeArg::ReadOnly };
    run.policy.mode.get_or_insert(mode);
    run_for(run, None, CommandAuthor::User, providers)
        .map_err(|error| name_typed_flag(error, &typed))
}

fn label(platform: &str) -> &'static str {
    match platform {
        "macos" => "macOS",
        "windows" => "Windows",
        _ => "Linux",
    }
}

/// Names the flag that was typed: the pipeline knows the flags of `run` only.
fn name_typed_flag(error: CliError, typed: &[(&str, &'static str)]) -> CliError {
    match error {
        CliError::Engine(EngineError::Policy(PolicyError::BeyondCeiling { flag, ceiling })) => {
            let found = typed.iter().find(|(known, _)| *known == flag);
            let flag = found.map_or(flag, |(_, typed)| typed);
            PolicyError::BeyondCeiling { flag, ceiling }.into()
        }
        error => error,
    }
}
