//! The tools as agents use them, as the superuser and as an ordinary user.
//!
//! Each test runs in a process of its own, in a home with secrets in it.

/// Tests that are given a stage.
macro_rules! tests {
    ($module:literal: $(#[test] fn $name:ident($stage:ident) $body:block)*) => {
        pub(crate) const TESTS: &[crate::Test] = &[$((concat!($module, "::", stringify!($name)), $name)),*];
        $(fn $name($stage: &crate::stage::Stage) $body)*
    };
}

mod bounded;
mod judged;
mod looking;
mod races;
mod reading;
mod recorded;
mod refused;
mod routing;
mod stage;
mod writing;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use ringfence_testkit::ProcessPerTest;
use stage::Stage;

/// A test, by its name.
type Test = (&'static str, fn(&Stage));

fn tests() -> impl Iterator<Item = Test> {
    [
        reading::TESTS,
        judged::TESTS,
        writing::TESTS,
        refused::TESTS,
        looking::TESTS,
        recorded::TESTS,
        routing::TESTS,
        races::TESTS,
        bounded::TESTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

fn main() -> ExitCode {
    let names = tests().map(|(name, _)| name.to_owned()).collect();
    ProcessPerTest { names, input: b"", variable: ("RINGFENCE_TEST", "tools"), body }.main()
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let (_, test) = tests().find(|(known, _)| *known == name).ok_or("no such test")?;
    test(&Stage::new(directory));
    Ok(())
}
