//! The tools as agents use them, as root and as an ordinary user.
//!
//! Each test runs in its own process, in a home directory with secrets.

/// Tests with a stage as parameter.
macro_rules! tests {
    ($module:literal: $($(#[doc = $doc:literal])* #[test] fn $name:ident($stage:ident) $body:block)*) => {
        pub(crate) const TESTS: &[crate::ToolTest] = &[$((concat!($module, "::", stringify!($name)), $name)),*];
        $($(#[doc = $doc])* fn $name($stage: &crate::stage::ToolStage) $body)*
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
use stage::ToolStage;

/// A test, by its name.
type ToolTest = (&'static str, fn(&ToolStage));

fn tests() -> impl Iterator<Item = ToolTest> {
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
    test(&ToolStage::new(directory));
    Ok(())
}
