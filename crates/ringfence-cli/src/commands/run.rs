//! `ringfence run`

pub(crate) mod cwd_link;
mod sandbox_flag;
mod unreported;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::session_protocol::CommandReport;
use ringfence_api::{Asker, ExitStatus, HostFacts, Outcome, Permission, StdioMode};
use ringfence_engine::{
    EngineError, ResolvedPolicy, check_gaps, permission_for_outcome, run as run_engine,
    with_directory_report,
};
use ringfence_policy::{Asking, Grants, Observe};
use ringfence_provider::{Capabilities, PreparedSandbox, Provider, ProviderError};

use super::resolve_args::{RunOverrides, TypedCommand, agent_from_env, parse_duration_ms};
use super::session::conversation;
use crate::args::{AskArg, ObserveArg, RunArgs, ShellArg};
use crate::asker::{ANSWER_TIMEOUT, TerminalAsker};
use crate::error::CliError;
use crate::providers::EarlyProviders;
use crate::{denied, messages, output};
use cwd_link::CwdLink;
pub(crate) use sandbox_flag::{CommandAuthor, SandboxFlag};
use tracing::trace_span;

/// The number of bytes of each stream that `--json` keeps.
const KEPT: usize = 16 * 1024 * 1024;
/// `SIGINT` has the same number on every platform.
const INTERRUPT: i32 = 2;

/// Prints an error as JSON, with the session name that the audit log also uses.
fn refused(error: &CliError, session: &str) -> Result<ExitCode, CliError> {
    messages::print_error(error);
    output::print_json(&serde_json::json!({ "session": session, "error": error.to_json() }))?;
    Ok(ExitCode::from(error.exit_status()))
}

/// Checks a session name: it is used in the audit log and in file names.
pub(crate) fn check_session_name(name: String) -> Result<String, CliError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !name.is_empty() && name.len() <= 128 && name.chars().all(is_plain) {
        return Ok(name);
    }
    Err(CliError::Usage {
        what: format!("invalid session name `{}`", output::printable(&name)),
        hint: "use letters, digits, `-` and `_`, at most 128 characters".into(),
    })
}

/// Returns the command for a bash line. Every system that has bash has `/bin/bash`.
fn in_bash(line: String) -> Vec<OsString> {
    vec!["/bin/bash".into(), "-c".into(), line.into()]
}

/// The registry, with a warning before a command runs unconfined. A refused command prints
/// no such warning.
struct WarnsUnconfined<'a>(&'a EarlyProviders);

impl Provider for WarnsUnconfined<'_> {
    fn name(&self) -> &str {
        self.0.registry.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.registry.capabilities()
    }

    fn prepare(
        &self,
        grants: &Grants,
        host_facts: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        let prepared = self.0.registry.prepare(grants, host_facts)?;
        if !prepared.is_confined() {
            self.0.end_early_start();
            let is_refused = grants.is_confined() && grants.sandbox.is_required;
            if !is_refused && check_gaps(prepared.gaps(), grants.on_gap).is_ok() {
                messages::print_warning(
                    "nothing is confined: the command has all your permissions",
                );
            }
        }
        Ok(prepared)
    }
}

pub(crate) fn run(arguments: RunArgs, providers: &EarlyProviders) -> Result<ExitCode, CliError> {
    if arguments.conversation.is_some()
        && let Some(status) = conversation::run(&arguments)?
    {
        return Ok(status);
    }
    run_for(arguments, SandboxFlag::FromPolicy, CommandAuthor::User, providers)
}

/// The choices of `run`'s flags that override the policy.
fn overrides<'a>(arguments: &'a RunArgs, agent: Option<&'a str>) -> RunOverrides<'a> {
    RunOverrides {
        timeout: arguments.timeout.as_deref(),
        agent,
        sandbox: None,
        observe: arguments.observe.map(|observe| match observe {
            ObserveArg::Denials => Observe::Denials,
            ObserveArg::All => Observe::All,
        }),
        ask: arguments
            .ask
            .map(|ask| if ask == AskArg::Never { Asking::Never } else { Asking::Terminal }),
    }
}

/// Writes the result as JSON. If that fails, ringfence failed: the command's status is not used.
fn write_json(
    outcome: &Outcome,
    session: &str,
    permission: Option<Permission>,
) -> Result<(), CliError> {
    output::print_json(&CommandReport::from_outcome(outcome, session, permission)).inspect_err(
        |_| {
            messages::print_outcome_warnings(outcome);
            messages::print_warning(&format!(
                "the command ended with status {}, but its result could not be written",
                outcome.exit_code()
            ));
        },
    )
}

/// The form in which a run is reported on standard error.
struct RunReport {
    is_json: bool,
    is_quiet: bool,
}

impl RunReport {
    fn print(&self, outcome: &Outcome, resolved: &ResolvedPolicy) {
        if outcome.refusal.is_some() && !self.is_json {
            messages::print_bytes(&outcome.stderr.head);
        }
        messages::print_outcome_warnings(outcome);
        if !self.is_json {
            if !self.is_quiet {
                denied::report_failure(outcome, &resolved.grants.home);
            }
            unreported::warn_once(&outcome.gaps, &resolved.surroundings.facts.state);
        }
    }
}

pub(crate) fn run_for(
    arguments: RunArgs,
    sandbox_flag: SandboxFlag,
    author: CommandAuthor,
    providers: &EarlyProviders,
) -> Result<ExitCode, CliError> {
    let _stage = trace_span!(target: "stage", "run_for").entered();
    let answer_timeout = arguments.ask_timeout.as_deref().map(parse_duration_ms).transpose()?;
    let answer_timeout = answer_timeout.map_or(ANSWER_TIMEOUT, Duration::from_millis);
    let agent = arguments.agent.clone().or_else(agent_from_env);
    let chosen = overrides(&arguments, agent.as_deref());
    let resolved_args = sandbox_flag::resolve_policy(&arguments, (sandbox_flag, author), chosen)?;
    let grants = &resolved_args.resolved.grants;
    if grants.ask == Asking::Never && grants.is_confined() {
        grants.network.refuse_empty_list().map_err(EngineError::from)?;
    }
    let stdio =
        if arguments.json { StdioMode::Capture { limit: KEPT } } else { StdioMode::Inherit };
    let terminal = (grants.ask == Asking::Terminal && grants.is_confined())
        .then(|| Arc::new(TerminalAsker::new(answer_timeout)));
    let report = RunReport { is_json: arguments.json, is_quiet: arguments.quiet };
    let (line, command) = match (arguments.line, arguments.shell) {
        (Some(line), ShellArg::Bash) if arguments.keep_directory => {
            (None, with_directory_report(line.into()))
        }
        (Some(line), ShellArg::Bash) => (None, in_bash(line)),
        (line, _) => (line, arguments.command),
    };
    let (mut request, resolved) =
        resolved_args.into_request(TypedCommand { line, command, agent: arguments.agent }, stdio);
    if let Some(name) = arguments.session {
        request.session = check_session_name(name)?;
    }
    let state = &resolved.surroundings.facts.state;
    let cwd_link = arguments
        .keep_directory
        .then(|| CwdLink::begin(state, &request.session, &request.cwd))
        .transpose()?;
    request.asker = terminal.clone().map(|terminal| terminal as Arc<dyn Asker>);
    let warn = &mut messages::warn_unrecorded;
    let mut result = run_engine(&WarnsUnconfined(providers), &request, &resolved, warn);
    if let Some(outside) = sandbox_flag::without_sandbox(&result, &resolved, author) {
        messages::print_warning(
            "the sandbox is unavailable here, and the policy accepts that: the command has all your permissions",
        );
        result = run_engine(&providers.registry, &request, &outside, warn);
    }
    // The command has ended: no process waits for the answer to an open question.
    terminal.iter().for_each(|terminal| terminal.close());
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(error) if arguments.json => return refused(&error.into(), &request.session),
        Err(error) => return Err(error.into()),
    };
    cwd_link.into_iter().for_each(|link| link.end(&resolved.grants));
    let was_asked = terminal.as_ref().is_some_and(|terminal| terminal.has_terminal());
    if report.is_json {
        let permission = permission_for_outcome(&outcome, &request.files, &resolved);
        write_json(&outcome, &request.session, permission.filter(|_| !was_asked))?;
    }
    report.print(&outcome, &resolved);
    ringfence_linux::reap_children();
    if outcome.status == ExitStatus::Killed(INTERRUPT) && !outcome.timed_out {
        ringfence_linux::die_of_interrupt();
    }
    // Exits without dropping values: the kernel frees memory faster than destructors do.
    std::process::exit(outcome.exit_code())
}
