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
use ringfence_audit::session_id;
use ringfence_engine::{RunRequest, accept, plan, run as run_engine};
use ringfence_local::LocalProvider;

use super::resolve_args::{ResolvedArgs, RunOverrides, meant_to_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, ColorMode, short};
use choose::{DecoyFiles, ProbeChooser, VARIABLE};
use probe::{HostObservation, ProbeAttempt, ProbeFunction, ProbeReply, PromiseProbe, SCRIPT};
use table::TestTable;

/// Try the policy for real, from inside the sandbox
///
/// Does what the policy forbids and shows what came of it: reads your keys, writes outside the
/// project, looks for a token, connects, kills. What it makes has a name of its own and is removed.
/// With `--unconfined` the same is done without the sandbox, to show that each attempt can succeed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence test
  ringfence test --unconfined
  ringfence test -C ~/project --mode read-only

Exit status: 0 every promise held, 1 one was broken, 125 ringfence failed.")]
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

/// How long all attempts together may take.
const PATIENCE_MS: u64 = 30_000;
/// How much of their answers is kept.
const KEPT: usize = 1024 * 1024;
/// How often a sandbox is started to see how long that takes.
const STARTS: usize = 3;

pub(crate) fn run(arguments: TestArgs) -> Result<ExitCode, CliError> {
    let mut meant = meant_to_run(&arguments.policy, RunOverrides::default())?;
    if !meant.resolved.grants.is_confined() {
        return Err(CliError::Words {
            what: "nothing is confined, so nothing is promised".into(),
            hint: "use `--mode workspace-write`, or see `ringfence policy show --origin`".into(),
        });
    }
    meant.resolved.surroundings.variables.push((VARIABLE.into(), "not-a-secret".into()));
    meant.resolved.grants.limits.wall_ms = Some(PATIENCE_MS);
    let plan = plan(&LocalProvider::default(), &meant.resolved)?;
    accept(&plan.gaps, meant.resolved.grants.on_gap)?;
    for gap in plan.gaps.iter().filter(|gap| gap.refuses()) {
        messages::warning(&format!("not enforced, and not tried: {}: {}", gap.what, gap.why));
    }
    let start_ms = if arguments.unconfined { None } else { Some(start_ms(&meant)?) };
    let mut outside = HostBaits::lay_out();
    let copies = meant.resolved.settings_copies().into_iter().map(|copy| copy.path).collect();
    let chooser = ProbeChooser {
        grants: &meant.resolved.grants,
        plan: &plan,
        name: unique_name(),
        baits: outside.baits(),
        copies,
    };
    let probes = chooser.probes();
    let headline = headline(&meant);
    if arguments.unconfined {
        messages::warning("these attempts are not confined");
        meant.resolved.grants.enabled = false;
    }
    let replies = probe::replies(&attempt(&probes, &meant)?.stdout.bytes());
    let table = TestTable { headline, rows: judge(probes, replies, &mut outside), start_ms };
    if arguments.json {
        output::json(&table.json())?;
    } else {
        output::text(&table.text(ColorMode::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(table.broken() > 0)))
}

fn headline(meant: &ResolvedArgs) -> String {
    let grants = &meant.resolved.grants;
    let place = short(&grants.workspace, &grants.home);
    format!(
        "ringfence test in {place} (mode {}, network {})",
        grants.mode.word(),
        grants.network.mode.word()
    )
}

/// Different from everything in the project: files of this name are made and removed.
fn unique_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("ringfence-test-{}-{:x}", process::id(), now.as_nanos())
}

/// The middle of a few starts of the shortest command.
fn start_ms(meant: &ResolvedArgs) -> Result<f64, CliError> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let begun = Instant::now();
        shell(":", Vec::new(), meant)?;
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[STARTS / 2])
}

fn attempt(probes: &[PromiseProbe], meant: &ResolvedArgs) -> Result<Outcome, CliError> {
    shell(SCRIPT, probe::arguments(probes.iter().flat_map(|probe| probe.trial.acts())), meant)
}

fn shell(
    script: &str,
    arguments: Vec<OsString>,
    meant: &ResolvedArgs,
) -> Result<Outcome, CliError> {
    let mut command: Vec<OsString> =
        ["/bin/sh", "-c", script, "ringfence-test"].map(Into::into).to_vec();
    command.extend(arguments);
    let asked = RunRequest {
        command,
        cwd: meant.cwd.clone(),
        flags: meant.flags.clone(),
        files: meant.files.clone(),
        stdio: StdioMode::Capture { limit: KEPT },
        asker: None,
        agent: Some("ringfence test".into()),
        session: session_id(),
    };
    Ok(run_engine(&LocalProvider::default(), &asked, &meant.resolved, &mut messages::unrecorded)?)
}

fn judge(
    probes: Vec<PromiseProbe>,
    mut replies: BTreeMap<usize, ProbeReply>,
    outside: &mut HostBaits,
) -> Vec<(PromiseProbe, probe::ProbeVerdict)> {
    let mut numbers = 0..;
    let one = |probe: PromiseProbe| {
        let acts = probe.trial.acts().iter();
        let answers: Vec<_> = acts
            .zip(&mut numbers)
            .map(|(act, number)| (replies.remove(&number), outside.see(act)))
            .collect();
        let verdict = probe.trial.judge(&answers);
        (probe, verdict)
    };
    probes.into_iter().map(one).collect()
}

/// What the host has for the sandbox to be kept from.
struct HostBaits {
    process: Option<Child>,
    server: Option<TcpListener>,
}

impl HostBaits {
    fn lay_out() -> Self {
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

    fn baits(&self) -> DecoyFiles {
        let server = self.server.as_ref().and_then(|server| server.local_addr().ok());
        DecoyFiles { process: self.process.as_ref().map(Child::id), server }
    }

    /// What `act` left on the host; files are removed.
    fn see(&mut self, act: &ProbeAttempt) -> HostObservation {
        let is_traced = match act.deed {
            ProbeFunction::Make | ProbeFunction::Leave => {
                let is_there = fs::symlink_metadata(&act.target).is_ok();
                if is_there {
                    let _ = fs::remove_file(&act.target);
                }
                is_there
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
