//! The store as a service uses it, as the superuser and as an ordinary user.
//!
//! Each test runs in a process of its own, with a store of its own.

/// Tests that are given a stage.
macro_rules! tests {
    ($module:literal: $(#[test] fn $name:ident($stage:ident) $body:block)*) => {
        pub(crate) const TESTS: &[crate::Test] = &[$((concat!($module, "::", stringify!($name)), $name)),*];
        $(fn $name($stage: &crate::stage::Stage) $body)*
    };
}

mod crashed;
mod edited;
mod hostile;
mod pack;
mod refused;
mod replaced;
mod stage;
mod taken;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use ringfence_testkit::ProcessPerTest;
use stage::Stage;

/// A test, by its name.
type Test = (&'static str, fn(&Stage));

fn tests() -> impl Iterator<Item = Test> {
    [taken::TESTS, refused::TESTS, hostile::TESTS, replaced::TESTS, edited::TESTS, crashed::TESTS]
        .into_iter()
        .flatten()
        .copied()
}

fn main() -> ExitCode {
    let words: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    if let [word, root] = words.as_slice()
        && word == crashed::VICTIM
    {
        crashed::victim(Path::new(root));
    }
    let names = tests().map(|(name, _)| name.to_owned()).collect();
    ProcessPerTest { names, input: b"", variable: ("RINGFENCE_TEST", "store"), body }.main()
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let (_, test) = tests().find(|(known, _)| *known == name).ok_or("no such test")?;
    test(&Stage::new(directory));
    Ok(())
}
