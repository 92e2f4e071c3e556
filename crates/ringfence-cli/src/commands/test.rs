//! `ringfence test`

mod choose;
mod probe;
mod table;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{self, Child, ExitCode, Stdio as ChildStdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use ringfence_api::{Outcome, StdioMode};
use ringfence_audit::{RecordFields, session_id};
use ringfence_engine::{RunRequest, plan, run as run_engine};
use ringfence_policy::{OnGap, Origin, Source};
use serde_json::Value;

use super::resolve_args::{ResolvedArgs, RunOverrides, resolve_for_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, ColorMode, tilde_path};
use crate::providers::plain_registry;
use choose::{DecoyFiles, ProbeChooser, VARIABLE};
use probe::{HostObservation, ProbeAttempt, ProbeFunction, ProbeReply, PromiseProbe, SCRIPT};
use table::TestTable;

/// Test the policy with real attempts from inside the sandbox
///
/// Attempts what the policy forbids and shows the results: reads your keys, writes outside the
/// project, looks for a token, connects, kills a process. Test files have unique names and are
/// removed. `--unconfined` makes the same attempts without the sandbox, to show that each can
/// succeed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence test
  ringfence test --unconfined
  ringfence test -C ~/project --mode read-only

Exit status: 0 every guarantee held, 1 a guarantee was broken, 125 ringfence failed.")]
pub(crate) struct TestArgs {
    /// Make the same attempts without the sandbox
    #[arg(long)]
    unconfined: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// The time limit of all attempts together.
const TIME_LIMIT_MS: u64 = 30_000;
/// The number of bytes of the replies that are kept.
const KEPT: usize = 1024 * 1024;
/// The number of sandbox starts that are measured.
const STARTS: usize = 3;
/// The script of such a start.
const SHORTEST: &str = ":";
/// The agent of the attempts in the audit log, and the name of their script.
const AGENT: &str = "ringfence test";
const NAME: &str = "ringfence-test";

/// True if a record is the start of a run of `ringfence test`.
///
/// The agent's name alone proves nothing, because any program may give it; the scripts are ours.
pub(crate) fn is_test_run(begun: &RecordFields) -> bool {
    let command = begun.get("command").and_then(Value::as_array);
    let words: Vec<&str> = command.into_iter().flatten().filter_map(Value::as_str).collect();
    let is_ours = match words.as_slice() {
        ["/bin/sh", "-c", script, NAME] => *script == SHORTEST || *script == SCRIPT,
        ["/bin/sh", "-c", script, NAME, ..] => *script == SCRIPT,
        _ => false,
    };
    is_ours && begun.get("agent").and_then(Value::as_str) == Some(AGENT)
}

pub(crate) fn run(arguments: TestArgs) -> Result<ExitCode, CliError> {
    let mut resolved_args = resolve_for_run(&arguments.policy, RunOverrides::default())?;
    if !resolved_args.resolved.is_confined() {
        return Err(CliError::Usage {
            what: "nothing is confined, so there is nothing to test".into(),
            hint: "use `--mode workspace-write`, or see `ringfence policy show --origin`".into(),
        });
    }
    resolved_args.resolved.surroundings.variables.push((VARIABLE.into(), "not-a-secret".into()));
    resolved_args.resolved.grants.limits.wall_ms = Some(TIME_LIMIT_MS);
    let plan = plan(&plain_registry(), &resolved_args.resolved)?;
    let is_accepted = resolved_args.resolved.grants.on_gap == OnGap::Run;
    for gap in plan.gaps.iter().filter(|gap| gap.refuses_run() && is_accepted) {
        messages::print_warning(&format!(
            "not enforced, and not tested: {}: {}",
            gap.what, gap.why
        ));
    }
    let start_ms = if arguments.unconfined { None } else { Some(start_ms(&resolved_args)?) };
    let mut baits = HostBaits::create();
    let copies =
        resolved_args.resolved.settings_copies().into_iter().map(|copy| copy.path).collect();
    let chooser = ProbeChooser {
        grants: &resolved_args.resolved.grants,
        sandbox: &plan.description,
        name: unique_name(),
        baits: baits.decoys(),
        copies,
    };
    let probes = chooser.probes();
    let headline = headline(&resolved_args);
    if arguments.unconfined {
        let off = Origin::new(Source::Flag, "--unconfined");
        resolved_args.resolved = resolved_args.resolved.without_sandbox(off);
    }
    let replies = probe::parse_replies(&attempt(&probes, &resolved_args)?.stdout.bytes());
    let table = TestTable { headline, rows: judge(probes, replies, &mut baits), start_ms };
    if arguments.json {
        output::print_json(&table.json())?;
    } else {
        output::print_text(&table.text(ColorMode::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(table.broken() > 0)))
}

fn headline(resolved_args: &ResolvedArgs) -> String {
    let grants = &resolved_args.resolved.grants;
    let project = tilde_path(&grants.workspace, &grants.home);
    format!(
        "ringfence test in {project} (mode {}, network {})",
        grants.mode.word(),
        grants.network.mode.word()
    )
}

/// Returns a name that differs from everything in the project: such files are created and removed.
fn unique_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("ringfence-test-{}-{:x}", process::id(), now.as_nanos())
}

/// Returns the median time of a few starts of the shortest command.
fn start_ms(resolved_args: &ResolvedArgs) -> Result<f64, CliError> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let begun = Instant::now();
        shell(SHORTEST, Vec::new(), resolved_args)?;
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[STARTS / 2])
}

fn attempt(probes: &[PromiseProbe], resolved_args: &ResolvedArgs) -> Result<Outcome, CliError> {
    shell(
        SCRIPT,
        probe::script_arguments(probes.iter().flat_map(|probe| probe.trial.attempts())),
        resolved_args,
    )
}

fn shell(
    script: &str,
    arguments: Vec<OsString>,
    resolved_args: &ResolvedArgs,
) -> Result<Outcome, CliError> {
    let mut command: Vec<OsString> = ["/bin/sh", "-c", script, NAME].map(Into::into).to_vec();
    command.extend(arguments);
    let request = RunRequest {
        command,
        stdio: StdioMode::Capture { limit: KEPT },
        agent: Some(AGENT.into()),
        session: session_id(),
        ..resolved_args.request.clone()
    };
    let resolved = &resolved_args.resolved;
    Ok(run_engine(&plain_registry(), &request, resolved, &mut messages::print_notice)?)
}

fn judge(
    probes: Vec<PromiseProbe>,
    mut replies: BTreeMap<usize, ProbeReply>,
    baits: &mut HostBaits,
) -> Vec<(PromiseProbe, probe::ProbeVerdict)> {
    let mut numbers = 0..;
    let one = |probe: PromiseProbe| {
        let acts = probe.trial.attempts().iter();
        let answers: Vec<_> = acts
            .zip(&mut numbers)
            .map(|(act, number)| (replies.remove(&number), baits.observe(act)))
            .collect();
        let verdict = probe.trial.judge(&answers);
        (probe, verdict)
    };
    probes.into_iter().map(one).collect()
}

/// Targets on the host that the sandbox must not reach.
struct HostBaits {
    process: Option<Child>,
    server: Option<TcpListener>,
}

impl HostBaits {
    fn create() -> Self {
        let mut sleep = process::Command::new("sleep");
        sleep
            .arg("60")
            .stdin(ChildStdio::null())
            .stdout(ChildStdio::null())
            .stderr(ChildStdio::null());
        Self {
            process: sleep.spawn().ok(),
            server: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok(),
        }
    }

    fn decoys(&self) -> DecoyFiles {
        let server = self.server.as_ref().and_then(|server| server.local_addr().ok());
        DecoyFiles { process: self.process.as_ref().map(Child::id), server }
    }

    /// Checks for a trace of `act` on the host; removes files.
    fn observe(&mut self, act: &ProbeAttempt) -> HostObservation {
        let is_traced = match act.function {
            ProbeFunction::Make | ProbeFunction::Leave => {
                let exists = fs::symlink_metadata(&act.target).is_ok();
                if exists {
                    let _ = fs::remove_file(&act.target);
                }
                exists
            }
            ProbeFunction::Signal => {
                self.process.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))))
            }
            ProbeFunction::Look
            | ProbeFunction::List
            | ProbeFunction::Append
            | ProbeFunction::Variable
            | ProbeFunction::Namespaces
            | ProbeFunction::Connect
            | ProbeFunction::Interface => false,
        };
        if is_traced { HostObservation::Trace } else { HostObservation::Nothing }
    }
}

impl Drop for HostBaits {
    fn drop(&mut self) {
        if let Some(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
