//! `ringfence run`

use std::process::ExitCode;

use ringfence_api::{Status, Stdio};
use ringfence_engine::run as run_engine;
use ringfence_local::Local;
use ringfence_policy::{Mode, Observe};

use super::words::{Typed, meant_to_run};
use crate::args::{ObserveArg, Run};
use crate::error::CliError;
use crate::{say, show};

/// How much of each stream `--json` keeps.
const KEPT: usize = 16 * 1024 * 1024;
/// `SIGINT`, the same number everywhere.
const INTERRUPT: i32 = 2;

/// An error with the name of the run, by which the log has it too.
fn refused(error: &CliError, session: &str) -> Result<ExitCode, CliError> {
    say::error(error);
    show::json(&serde_json::json!({ "session": session, "error": error.json() }))?;
    Ok(ExitCode::from(error.status()))
}

pub(crate) fn run(arguments: Run, local: &Local) -> Result<ExitCode, CliError> {
    let observe = arguments.observe.map(|observe| match observe {
        ObserveArg::Denials => Observe::Denials,
        ObserveArg::All => Observe::All,
    });
    let meant = meant_to_run(&arguments.policy, arguments.timeout.as_deref(), observe)?;
    let grants = &meant.resolved.grants;
    if grants.mode == Mode::FullAccess || !grants.enabled {
        say::warning("nothing is confined: the command can do whatever you can");
    }
    let stdio = if arguments.json { Stdio::Capture { limit: KEPT } } else { Stdio::Inherit };
    let (asked, resolved) = meant.asked(Typed { line: arguments.line, command: arguments.command, agent: arguments.agent }, stdio);
    let outcome = match run_engine(local, &asked, &resolved, &mut say::unrecorded) {
        Ok(outcome) => outcome,
        Err(error) if arguments.json => return refused(&error.into(), &asked.session),
        Err(error) => return Err(error.into()),
    };
    if arguments.json {
        show::json(&crate::json::outcome(&outcome, &asked.session))?;
    }
    // What is only not told of stands in the JSON and in the log: here it would stand at
    // every command, in what is the command's own.
    for gap in outcome.gaps.iter().filter(|gap| gap.refuses()) {
        say::warning(&format!("not enforced: {}: {}", gap.what, gap.why));
    }
    for moved in &outcome.quarantined {
        // Names that the command chose.
        say::warning(&show::printable(&format!("{} was moved to {}: {}", moved.path, moved.moved_to, moved.reason)));
    }
    if outcome.timed_out {
        say::warning("the time limit ended the command");
    }
    if outcome.status == Status::Killed(INTERRUPT) && !outcome.timed_out {
        ringfence_local::die_of_interrupt();
    }
    // At once: giving back memory piece by piece takes longer than the kernel takes for all of it.
    std::process::exit(outcome.exit_code())
}
