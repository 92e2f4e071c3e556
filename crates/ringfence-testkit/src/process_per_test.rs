//! Tests that each run in their own process, with their own `main`.
//!
//! For tests that cannot run among the threads of a test harness, or after its `main`. The test
//! target has `harness = false` and calls [`ProcessPerTest::main`], which supports the arguments
//! that cargo and nextest use.

use std::error::Error;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use crate::output::TestOutput;
use crate::project::TestProject;
use crate::user::each_user;

/// Tests that each run in their own process, as every user that the runner can be.
#[derive(Debug, Clone)]
pub struct ProcessPerTest<'a, F> {
    /// Their names.
    pub names: Vec<String>,
    /// The standard input of each test.
    pub input: &'a [u8],
    /// An environment variable of each test.
    pub variable: (&'a str, &'a str),
    /// Runs the test with this name, in a new directory owned by the user.
    pub body: F,
}

/// The argument of the process that runs one test.
const RUN_HERE: &str = "--here";

impl<F: Fn(&str, &Path) -> Result<(), Box<dyn Error>>> ProcessPerTest<'_, F> {
    /// The `main` function of the test target.
    pub fn main(&self) -> ExitCode {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        if let [run_here, name, directory] = words.as_slice()
            && run_here == RUN_HERE
        {
            return self.run_here(&name.to_string_lossy(), Path::new(directory));
        }
        let has_flag = |flag: &str| words.iter().any(|word| word == flag);
        if has_flag("--list") {
            // No test is ignored.
            self.names
                .iter()
                .filter(|_| !has_flag("--ignored"))
                .for_each(|name| println!("{name}: test"));
            return ExitCode::SUCCESS;
        }
        let filters: Vec<String> = words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .filter(|word| !word.starts_with('-'))
            .collect();
        let is_selected = |name: &&String| {
            let matches = |filter: &String| {
                if has_flag("--exact") { *name == filter } else { name.contains(filter) }
            };
            filters.is_empty() || filters.iter().any(matches)
        };
        let failed: Vec<&String> =
            self.names.iter().filter(is_selected).filter(|name| !self.passes(name)).collect();
        if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn run_here(&self, name: &str, directory: &Path) -> ExitCode {
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
        let result = catch_unwind(AssertUnwindSafe(|| {
            each_user(|user| {
                let project = TestProject::new(
                    user,
                    std::env::current_exe().expect("the path of this program is known"),
                );
                let directory = project.home().join("alone");
                project.make_directories(&directory);
                let mut command = project.command(project.binary());
                command
                    .args([RUN_HERE, name])
                    .arg(&directory)
                    .env(self.variable.0, self.variable.1);
                TestOutput::run(&mut command, self.input).ok();
            });
        }));
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        result.is_ok()
    }
}
