//! `ringfence run`

pub(crate) mod cwd_link;
mod sandbox_flag;
mod untold;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Asker, ExitStatus, StdioMode};
use ringfence_enforce::SandboxUser;
use ringfence_engine::{EngineError, permission, run as run_engine, telling_directory};
use ringfence_local::LocalProvider;
use ringfence_policy::{Asking, Grants, Observe};
use ringfence_provider::{PreparedSandbox, Provider, ProviderError};

use super::resolve_args::{RunOverrides, TypedCommand, agent, duration};
use super::session::conversation;
use crate::args::{AskArg, ObserveArg, RunArgs, ShellArg};
use crate::asker::{PATIENCE, TerminalAsker};
use crate::error::CliError;
use crate::{denied, messages, output};
use cwd_link::CwdLink;
pub(crate) use sandbox_flag::{CommandAuthor, SandboxFlag};

/// How much of each stream `--json` keeps.
const KEPT: usize = 16 * 1024 * 1024;
/// `SIGINT`, the same number everywhere.
const INTERRUPT: i32 = 2;

/// An error with the name of the run, by which the log has it too.
fn refused(error: &CliError, session: &str) -> Result<ExitCode, CliError> {
    messages::error(error);
    output::json(&serde_json::json!({ "session": session, "error": error.json() }))?;
    Ok(ExitCode::from(error.status()))
}

/// The name of a run, as it stands in the log and in names of files.
pub(crate) fn named(name: String) -> Result<String, CliError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !name.is_empty() && name.len() <= 128 && name.chars().all(is_plain) {
        return Ok(name);
    }
    Err(CliError::Words {
        what: format!("`{}` is no name for a run", output::printable(&name)),
        hint: "letters, digits, `-` and `_`, at most 128".into(),
    })
}

/// A line for bash, which is where it is on every system that has it.
fn in_bash(line: String) -> Vec<OsString> {
    vec!["/bin/bash".into(), "-c".into(), line.into()]
}

/// This machine's sandbox. Says that there is none when a command is about to run without: a
/// command that is refused is not.
struct Announced<'a>(&'a LocalProvider);

impl Provider for Announced<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn open(
        &self,
        grants: &Grants,
        person: &SandboxUser,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        if !grants.is_confined() {
            messages::warning("nothing is confined: the command can do whatever you can");
        }
        self.0.open(grants, person)
    }
}

pub(crate) fn run(arguments: RunArgs, local: &LocalProvider) -> Result<ExitCode, CliError> {
    if arguments.conversation.is_some()
        && let Some(status) = conversation::run(&arguments)?
    {
        return Ok(status);
    }
    run_for(arguments, SandboxFlag::AsWritten, CommandAuthor::Persons, local)
}

pub(crate) fn run_for(
    arguments: RunArgs,
    wall: SandboxFlag,
    whose: CommandAuthor,
    local: &LocalProvider,
) -> Result<ExitCode, CliError> {
    let observe = arguments.observe.map(|observe| match observe {
        ObserveArg::Denials => Observe::Denials,
        ObserveArg::All => Observe::All,
    });
    let ask = arguments
        .ask
        .map(|ask| if ask == AskArg::Never { Asking::Never } else { Asking::Terminal });
    let patience = arguments
        .ask_timeout
        .as_deref()
        .map(duration)
        .transpose()?
        .map_or(PATIENCE, Duration::from_millis);
    let agent = arguments.agent.clone().or_else(agent);
    let chosen = RunOverrides {
        timeout: arguments.timeout.as_deref(),
        agent: agent.as_deref(),
        sandbox: None,
        observe,
        ask,
    };
    let meant = sandbox_flag::walled(&arguments, (wall, whose), chosen)?;
    let grants = &meant.resolved.grants;
    if grants.ask == Asking::Never && grants.is_confined() {
        grants.network.refuse_empty_list().map_err(EngineError::from)?;
    }
    let stdio =
        if arguments.json { StdioMode::Capture { limit: KEPT } } else { StdioMode::Inherit };
    let terminal = (grants.ask == Asking::Terminal && grants.is_confined())
        .then(|| Arc::new(TerminalAsker::new(patience)));
    let (line, command) = match (arguments.line, arguments.shell) {
        (Some(line), ShellArg::Bash) if arguments.keep_directory => {
            (None, telling_directory(line.into()))
        }
        (Some(line), ShellArg::Bash) => (None, in_bash(line)),
        (line, _) => (line, arguments.command),
    };
    let (mut asked, resolved) =
        meant.asked(TypedCommand { line, command, agent: arguments.agent }, stdio);
    if let Some(name) = arguments.session {
        asked.session = named(name)?;
    }
    let state = &resolved.surroundings.facts.state;
    let ended = arguments
        .keep_directory
        .then(|| CwdLink::begin(state, &asked.session, &asked.cwd))
        .transpose()?;
    asked.asker = terminal.clone().map(|terminal| terminal as Arc<dyn Asker>);
    let mut result = run_engine(&Announced(local), &asked, &resolved, &mut messages::unrecorded);
    if let Some(outside) = sandbox_flag::outside(&result, &resolved, whose) {
        messages::warning(
            "no sandbox can be made here, and the policy accepts that: the command can do whatever you can",
        );
        result = run_engine(local, &asked, &outside, &mut messages::unrecorded);
    }
    // Whatever was still to be asked has nobody to wait for it, and we are about to leave.
    terminal.iter().for_each(|terminal| terminal.close());
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) if arguments.json => return refused(&error.into(), &asked.session),
        Err(error) => return Err(error.into()),
    };
    ended.into_iter().for_each(|ended| ended.end(&resolved.grants));
    if arguments.json {
        let was_asked = terminal.as_ref().is_some_and(|terminal| terminal.is_there());
        let permission =
            if was_asked { None } else { permission(&outcome, &asked.files, &resolved) };
        let shown = output::json(&crate::json::outcome(&outcome, &asked.session, permission));
        if let Err(error) = shown {
            // A result that does not arrive is a failure of ringfence, and not the command's
            // status.
            messages::ended(&outcome);
            messages::warning(&format!(
                "the command ended with status {}, and its result is lost",
                outcome.exit_code()
            ));
            return Err(error);
        }
    }
    if outcome.refusal.is_some() && !arguments.json {
        messages::verbatim(&outcome.stderr.head);
    }
    messages::ended(&outcome);
    if !arguments.json {
        if !arguments.quiet {
            denied::report_failure(&outcome, &resolved.grants.home);
        }
        untold::warn_once(&outcome.gaps, &resolved.surroundings.facts.state);
    }
    ringfence_local::reap_children();
    if outcome.status == ExitStatus::Killed(INTERRUPT) && !outcome.timed_out {
        ringfence_local::die_of_interrupt();
    }
    // At once: giving back memory piece by piece takes longer than the kernel takes for all of it.
    std::process::exit(outcome.exit_code())
}
