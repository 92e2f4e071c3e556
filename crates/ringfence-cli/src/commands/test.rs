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
use ringfence_api::{Outcome, Stdio};
use ringfence_audit::session_id;
use ringfence_engine::{Asked, accept, plan, run as run_engine};
use ringfence_local::Local;

use super::words::{Chosen, Meant, meant_to_run};
use crate::args::PolicyArgs;
use crate::error::CliError;
use crate::say;
use crate::show::{self, Paint, short};
use choose::{Baits, Chooser, VARIABLE};
use probe::{Act, Deed, Probe, Reply, SCRIPT, Seen};
use table::Table;

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
pub(crate) struct Test {
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

pub(crate) fn run(arguments: Test) -> Result<ExitCode, CliError> {
    let mut meant = meant_to_run(&arguments.policy, Chosen::default())?;
    if !meant.resolved.grants.is_confined() {
        return Err(CliError::Words {
            what: "nothing is confined, so nothing is promised".into(),
            hint: "use `--mode workspace-write`, or see `ringfence policy show --origin`".into(),
        });
    }
    meant.resolved.surroundings.variables.push((VARIABLE.into(), "not-a-secret".into()));
    meant.resolved.grants.limits.wall_ms = Some(PATIENCE_MS);
    let plan = plan(&Local::default(), &meant.resolved)?;
    accept(&plan.gaps, meant.resolved.grants.on_gap)?;
    for gap in plan.gaps.iter().filter(|gap| gap.refuses()) {
        say::warning(&format!("not enforced, and not tried: {}: {}", gap.what, gap.why));
    }
    let start_ms = if arguments.unconfined { None } else { Some(start_ms(&meant)?) };
    let mut outside = Outside::lay_out();
    let copies = meant.resolved.settings_copies().into_iter().map(|copy| copy.path).collect();
    let chooser = Chooser {
        grants: &meant.resolved.grants,
        plan: &plan,
        name: unique_name(),
        baits: outside.baits(),
        copies,
    };
    let probes = chooser.probes();
    let headline = headline(&meant);
    if arguments.unconfined {
        say::warning("these attempts are not confined");
        meant.resolved.grants.enabled = false;
    }
    let replies = probe::replies(&attempt(&probes, &meant)?.stdout.bytes());
    let table = Table { headline, rows: judge(probes, replies, &mut outside), start_ms };
    if arguments.json {
        show::json(&table.json())?;
    } else {
        show::text(&table.text(Paint::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(table.broken() > 0)))
}

fn headline(meant: &Meant) -> String {
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
fn start_ms(meant: &Meant) -> Result<f64, CliError> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let begun = Instant::now();
        shell(":", Vec::new(), meant)?;
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[STARTS / 2])
}

fn attempt(probes: &[Probe], meant: &Meant) -> Result<Outcome, CliError> {
    shell(SCRIPT, probe::arguments(probes.iter().flat_map(|probe| probe.trial.acts())), meant)
}

fn shell(script: &str, arguments: Vec<OsString>, meant: &Meant) -> Result<Outcome, CliError> {
    let mut command: Vec<OsString> =
        ["/bin/sh", "-c", script, "ringfence-test"].map(Into::into).to_vec();
    command.extend(arguments);
    let asked = Asked {
        command,
        cwd: meant.cwd.clone(),
        flags: meant.flags.clone(),
        files: meant.files.clone(),
        stdio: Stdio::Capture { limit: KEPT },
        asker: None,
        agent: Some("ringfence test".into()),
        session: session_id(),
    };
    Ok(run_engine(&Local::default(), &asked, &meant.resolved, &mut say::unrecorded)?)
}

fn judge(
    probes: Vec<Probe>,
    mut replies: BTreeMap<usize, Reply>,
    outside: &mut Outside,
) -> Vec<(Probe, probe::Verdict)> {
    let mut numbers = 0..;
    let one = |probe: Probe| {
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
struct Outside {
    process: Option<Child>,
    server: Option<TcpListener>,
}

impl Outside {
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

    fn baits(&self) -> Baits {
        let server = self.server.as_ref().and_then(|server| server.local_addr().ok());
        Baits { process: self.process.as_ref().map(Child::id), server }
    }

    /// What `act` left on the host; files are removed.
    fn see(&mut self, act: &Act) -> Seen {
        let is_traced = match act.deed {
            Deed::Make | Deed::Leave => {
                let is_there = fs::symlink_metadata(&act.target).is_ok();
                if is_there {
                    let _ = fs::remove_file(&act.target);
                }
                is_there
            }
            Deed::Signal => {
                self.process.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))))
            }
            Deed::Look
            | Deed::List
            | Deed::Append
            | Deed::Variable
            | Deed::Namespaces
            | Deed::Connect
            | Deed::Interface => false,
        };
        if is_traced { Seen::Trace } else { Seen::Nothing }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
