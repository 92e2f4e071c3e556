//! The store as a service uses it, as root and as an ordinary user.
//!
//! Each test runs in its own process, with its own store.

/// Tests with a stage as parameter.
macro_rules! tests {
    ($module:literal: $($(#[doc = $doc:literal])* #[test] fn $name:ident($stage:ident) $body:block)*) => {
        pub(crate) const TESTS: &[crate::StoreTest] = &[$((concat!($module, "::", stringify!($name)), $name)),*];
        $($(#[doc = $doc])* fn $name($stage: &crate::stage::SkillStage) $body)*
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
use stage::SkillStage;

/// A test, by its name.
type StoreTest = (&'static str, fn(&SkillStage));

fn tests() -> impl Iterator<Item = StoreTest> {
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
    test(&SkillStage::new(directory));
    Ok(())
}
