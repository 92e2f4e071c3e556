//! The library as programs use it, as root and as an ordinary user.
//!
//! Each test runs in a process of its own, whose `main` calls `init` first, as a program must.

/// Tests that get a directory of the user's own, in a home with secrets.
macro_rules! tests {
    ($module:literal: $($(#[doc = $doc:literal])* #[test] fn $name:ident($at:ident) $body:block)*) => {
        pub(crate) const TESTS: &[(&str, fn(&std::path::Path))] = &[$((concat!($module, "::", stringify!($name)), $name)),*];
        $($(#[doc = $doc])* fn $name($at: &std::path::Path) $body)*
    };
}

mod agent;
#[path = "../../examples/agent.rs"]
mod agent_example;
#[path = "../../examples/agent_loop.rs"]
mod agent_loop;
mod cancel;
mod crowd;
mod examples;
mod leaks;
mod manager;
#[path = "../../examples/many.rs"]
mod many;
mod permission;
#[path = "../../examples/permission.rs"]
mod permission_example;
mod provider;
mod provider_backend;
mod session;
mod stage;
mod state;
mod tools;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use ringfence_testkit::{ProcessPerTest, TestUser, fuse_for_all};

/// The environment variable that turns this binary into another test program.
const PART: &str = "RINGFENCE_TEST_PART";

fn all() -> impl Iterator<Item = &'static (&'static str, fn(&Path))> {
    [
        manager::TESTS,
        permission::TESTS,
        session::TESTS,
        state::TESTS,
        crowd::TESTS,
        cancel::TESTS,
        leaks::TESTS,
        examples::TESTS,
        tools::TESTS,
        agent::TESTS,
        provider::TESTS,
    ]
    .into_iter()
    .flatten()
}

fn main() -> ExitCode {
    let part = std::env::var(PART).unwrap_or_default();
    if part == "without-init" {
        return manager::without_init();
    }
    ringfence::init();
    let done = match part.as_str() {
        "agent" => agent_example::main(),
        "agent_loop" => agent_loop::main(),
        "permission" => permission_example::main(),
        "embedding" => leaks::embedding(),
        "crowd" => crowd::crowd(),
        "many" => many::main().map_err(|error| error as Box<dyn Error>),
        _ => {
            // Asking needs FUSE.
            if TestUser::runner_is_root() {
                fuse_for_all();
            }
            return ProcessPerTest {
                names: all().map(|(name, _)| (*name).to_owned()).collect(),
                input: b"",
                variable: ("PART", ""),
                body,
            }
            .main();
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let (_, test) = all().find(|(known, _)| *known == name).ok_or("no such test")?;
    test(directory);
    Ok(())
}
