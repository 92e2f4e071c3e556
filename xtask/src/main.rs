//! Tasks of this workspace: `cargo xtask tidy`, `gen`, `walk`, `ci`, `stress`, `fuzz`,
//! `precision`, `bench`, `soak` and `kernels`.
//!
//! One file per task. Nothing here ships, and nothing that ships depends on it.

mod bench;
mod ci;
mod fuzz;
mod generate;
mod kernels;
mod precision;
mod probe;
mod promises;
mod soak;
mod stress;
mod tidy;
mod walk;
mod workspace;

use std::error::Error;
use std::process::ExitCode;

/// The result of a task: done, or one error message.
type TaskResult = Result<(), Box<dyn Error>>;

const USAGE: &str = "\
usage: cargo xtask TASK

  tidy [--stats]                              check rules that the compiler does not check, or count
  gen [--check]                               write the generated documents, or fail if they differ
  walk                                        print the stages of one command, from a real run
  ci                                          everything a change must pass
  stress                                      repeat races and generated inputs many times (30 minutes)
  fuzz commands [--seconds N] [--seed N]      generated command lines for the shell parser
  fuzz archives [--seconds N] [--seed N]      generated archives for the skill store
  precision                                   precision of reported denials, compared with stderr
  bench [--quick] [--only ROW] [--before PATH] [--enforce]
                                              measure against bare, bwrap and another build
  soak                                        1,000 sandboxes in one program, and a check for leftovers
  kernels --image FILE [--modules DIRECTORY] [--busybox FILE] [--target TRIPLE]
                                              test the release binary on another kernel, in qemu";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run_task(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_task(words: &[&str]) -> TaskResult {
    match words {
        ["tidy"] => tidy::run(),
        ["tidy", "--stats"] => tidy::print_stats(),
        ["gen"] => generate::run(generate::GenerateMode::Write),
        ["gen", "--check"] => generate::run(generate::GenerateMode::Check),
        ["walk"] => walk::run(),
        ["ci"] => ci::run(),
        ["stress"] => stress::run(),
        ["fuzz", target] => fuzz::run(target, fuzz::SECONDS, None),
        ["fuzz", target, "--seconds", seconds] => fuzz::run(target, seconds, None),
        ["fuzz", target, "--seed", seed] => fuzz::run(target, fuzz::SECONDS, Some(seed)),
        ["fuzz", target, "--seconds", seconds, "--seed", seed] => {
            fuzz::run(target, seconds, Some(seed))
        }
        ["precision"] => precision::run(),
        ["bench", flags @ ..] => bench::run(&bench::BenchOptions::parse(flags)?),
        ["soak"] => soak::run(),
        ["kernels", flags @ ..] => kernels::run(&kernels::KernelOptions::parse(flags)?),
        // Started by the bench, inside the measured sandboxes.
        ["probe", task @ ..] => probe::run(task),
        _ => Err(USAGE.into()),
    }
}
