//! `ringfence question`: the question of `run --ask`, without a command that waits for the answer.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use ringfence_api::{Ask, AskAnswer, Asker, Denial, DenialEvidence, Operation};
use ringfence_audit::now_ms;

use super::resolve_args::parse_duration_ms;
use crate::asker::{ANSWER_TIMEOUT, TerminalAsker};
use crate::error::CliError;
use crate::output;

/// Ask the question of `run --ask` about a path, and print the answer
#[derive(Debug, Args)]
pub(crate) struct QuestionArgs {
    /// The time to wait for an answer
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// The number of questions
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Ask all questions at once
    #[arg(long)]
    together: bool,
    /// The path to ask about
    target: String,
}

pub(crate) fn run(arguments: QuestionArgs) -> Result<ExitCode, CliError> {
    let answer_timeout = arguments
        .timeout
        .as_deref()
        .map(parse_duration_ms)
        .transpose()?
        .map_or(ANSWER_TIMEOUT, Duration::from_millis);
    let terminal = TerminalAsker::new(answer_timeout);
    let denial = Denial {
        operation: Operation::Read,
        target: arguments.target,
        rule: Denial::NO_RULE_ALLOWS.into(),
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
    let put = || output::print_text(&format!("{}\n", terminal.ask(&ask)));
    if !arguments.together {
        (0..arguments.times).try_for_each(|_| put())?;
        return Ok(ExitCode::SUCCESS);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.times).map(|_| scope.spawn(put)).collect();
        threads.into_iter().try_for_each(|threads| threads.join().expect("asking does not panic"))
    })?;
    Ok(ExitCode::SUCCESS)
}
