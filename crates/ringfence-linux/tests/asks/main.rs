//! The user is asked about accesses that would be denied, and the waiting access goes through.
//!
//! Each test runs as root and as an ordinary user, in a process of its own.

mod once;
mod session;
mod stage;
mod swaps;
mod waiting;
mod writing;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use ringfence_testkit::{ProcessPerTest, fuse_for_all};

use stage::AskFixture;

/// A test, by its name.
type AskTest = (&'static str, fn(&AskFixture));

fn tests() -> impl Iterator<Item = AskTest> {
    once::TESTS
        .iter()
        .chain(session::TESTS)
        .chain(waiting::TESTS)
        .chain(writing::TESTS)
        .chain(swaps::TESTS)
        .copied()
}

fn main() -> ExitCode {
    ringfence_linux::enter_if_helper();
    let is_listed = std::env::args().any(|word| word == "--list");
    if !is_listed && !fuse_for_all() {
        return ExitCode::SUCCESS;
    }
    let names = tests().map(|(name, _)| name.to_owned()).collect();
    ProcessPerTest { names, input: b"", variable: ("RINGFENCE_TEST", "asks"), body }.main()
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let (_, test) = tests().find(|(known, _)| *known == name).ok_or("no such test")?;
    test(&AskFixture::new(directory));
    Ok(())
}
