//! `ringfence question`: what `run --ask` asks, without a command that waits for it.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use ringfence_api::{Ask, AskAnswer, Asker, Denial, DenialEvidence, Operation};
use ringfence_audit::now_ms;

use super::resolve_args::duration;
use crate::asker::{PATIENCE, TerminalAsker};
use crate::error::CliError;
use crate::output;

/// Ask the question of `run --ask` about a path, and print the answer
#[derive(Debug, Args)]
pub(crate) struct QuestionArgs {
    /// How long an answer may take
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// How often to ask
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Ask all of them at once
    #[arg(long)]
    together: bool,
    /// What is asked about
    target: String,
}

pub(crate) fn run(arguments: QuestionArgs) -> Result<ExitCode, CliError> {
    let patience = arguments
        .timeout
        .as_deref()
        .map(duration)
        .transpose()?
        .map_or(PATIENCE, Duration::from_millis);
    let terminal = TerminalAsker::new(patience);
    let denial = Denial {
        operation: Operation::Read,
        target: arguments.target,
        rule: Denial::NOTHING_OPENS_IT.into(),
        origin: "a question without a command".into(),
        explicit: false,
        pid: std::process::id(),
        program: "ringfence question".into(),
        time_ms: now_ms(),
        evidence: DenialEvidence::Kernel,
        count: 1,
        optional: false,
    };
    let ask = Ask { denial, options: AskAnswer::ALL.to_vec() };
    let put = || output::text(&format!("{}\n", terminal.ask(&ask)));
    if !arguments.together {
        (0..arguments.times).try_for_each(|_| put())?;
        return Ok(ExitCode::SUCCESS);
    }
    thread::scope(|scope| {
        let asked: Vec<_> = (0..arguments.times).map(|_| scope.spawn(put)).collect();
        asked.into_iter().try_for_each(|asked| asked.join().expect("asking does not panic"))
    })?;
    Ok(ExitCode::SUCCESS)
}
