//! Tests in processes of their own, with a `main` of their own.
//!
//! For what must not be tried among the threads of a test harness, or behind its `main`. The
//! test's target has `harness = false` and hands over here, where the words that cargo and
//! nextest speak with a harness are understood.

use std::error::Error;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use crate::output::TestOutput;
use crate::project::TestProject;
use crate::user::each_user;

/// Tests that each run in a process of their own, as every user the runner can be.
#[derive(Debug, Clone)]
pub struct ProcessPerTest<'a> {
    /// Their names.
    pub names: Vec<String>,
    /// What each has on its standard input.
    pub input: &'a [u8],
    /// A variable that each finds in its environment.
    pub variable: (&'a str, &'a str),
    /// Tries the one of this name, in a fresh directory that is the user's.
    pub body: TestBody,
}

/// Tries the test of this name in this directory.
pub type TestBody = fn(&str, &Path) -> Result<(), Box<dyn Error>>;

/// The word by which the process knows that it is the one.
const HERE: &str = "--here";

impl ProcessPerTest<'_> {
    /// What a `main` is to do.
    pub fn main(&self) -> ExitCode {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        if let [here, name, directory] = words.as_slice()
            && here == HERE
        {
            return self.here(&name.to_string_lossy(), Path::new(directory));
        }
        let asked = |flag: &str| words.iter().any(|word| word == flag);
        if asked("--list") {
            // None is ever ignored.
            self.names
                .iter()
                .filter(|_| !asked("--ignored"))
                .for_each(|name| println!("{name}: test"));
            return ExitCode::SUCCESS;
        }
        let filters: Vec<String> = words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .filter(|word| !word.starts_with('-'))
            .collect();
        let is_meant = |name: &&String| {
            let matches = |filter: &String| {
                if asked("--exact") { *name == filter } else { name.contains(filter) }
            };
            filters.is_empty() || filters.iter().any(matches)
        };
        let failed: Vec<&String> =
            self.names.iter().filter(is_meant).filter(|name| !self.passes(name)).collect();
        if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn here(&self, name: &str, directory: &Path) -> ExitCode {
        match (self.body)(name, directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                std::iter::successors(error.source(), |error| (*error).source())
                    .for_each(|cause| eprintln!("  caused by: {cause}"));
                ExitCode::FAILURE
            }
        }
    }

    fn passes(&self, name: &str) -> bool {
        let tried = catch_unwind(AssertUnwindSafe(|| {
            each_user(|user| {
                let project = TestProject::new(
                    user,
                    std::env::current_exe().expect("a program knows where it is"),
                );
                let directory = project.home().join("alone");
                project.make_directories(&directory);
                let mut command = project.command(project.binary());
                command.args([HERE, name]).arg(&directory).env(self.variable.0, self.variable.1);
                TestOutput::of(&mut command, self.input).ok();
            });
        }));
        println!("test {name} ... {}", if tried.is_ok() { "ok" } else { "FAILED" });
        tried.is_ok()
    }
}
