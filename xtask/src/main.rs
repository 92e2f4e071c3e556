//! Chores of this workspace: `cargo xtask tidy`, `gen`, `ci`, `stress`, `fuzz`, `precision`,
//! `bench`, `soak` and `kernels`.
//!
//! One file per chore. Nothing here ships, and nothing that ships depends on it.

mod bench;
mod ci;
mod fuzz;
mod generate;
mod kernels;
mod precision;
mod probe;
mod soak;
mod stress;
mod tidy;
mod workspace;

use std::error::Error;
use std::process::ExitCode;

/// What a chore comes to: done, or one message that says why not.
type Done = Result<(), Box<dyn Error>>;

const USAGE: &str = "\
usage: cargo xtask CHORE

  tidy                                        check the rules that no compiler knows
  gen [--check]                               write the generated documents, or fail where they differ
  ci                                          everything a change must pass
  stress                                      repeat races and generated inputs many times (30 minutes)
  fuzz commands [--seconds N] [--seed N]      generated lines for the parser of command lines
  fuzz archives [--seconds N] [--seed N]      generated archives for the store of skills
  precision                                   how exactly refusals are told, beside what stderr would tell
  bench [--quick] [--only ROW] [--enforce]    measure against bare and bwrap
  soak                                        1,000 sandboxes in one program, and what is left of them
  kernels --image FILE [--modules DIRECTORY] [--busybox FILE] [--target TRIPLE]
                                              try the release binary on another kernel, in qemu";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match chore(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn chore(words: &[&str]) -> Done {
    match words {
        ["tidy"] => tidy::run(),
        ["gen"] => generate::run(generate::Purpose::Write),
        ["gen", "--check"] => generate::run(generate::Purpose::Check),
        ["ci"] => ci::run(),
        ["stress"] => stress::run(),
        ["fuzz", target] => fuzz::run(target, fuzz::SECONDS, None),
        ["fuzz", target, "--seconds", seconds] => fuzz::run(target, seconds, None),
        ["fuzz", target, "--seed", seed] => fuzz::run(target, fuzz::SECONDS, Some(seed)),
        ["fuzz", target, "--seconds", seconds, "--seed", seed] => {
            fuzz::run(target, seconds, Some(seed))
        }
        ["precision"] => precision::run(),
        ["bench", flags @ ..] => bench::run(&bench::Asked::parse(flags)?),
        ["soak"] => soak::run(),
        ["kernels", flags @ ..] => kernels::run(&kernels::Asked::parse(flags)?),
        // Started by the bench, inside the sandboxes it measures.
        ["probe", task @ ..] => probe::run(task),
        _ => Err(USAGE.into()),
    }
}
