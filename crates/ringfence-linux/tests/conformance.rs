//! Provider conformance of `local`.
//!
//! From a single-threaded program, which is forked to become the supervisor, and from one with
//! several threads, which is executed anew: both as root and as an ordinary user.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use ringfence_linux::LocalProvider;
use ringfence_policy::AbsPath;
use ringfence_provider::conformance::{ConformanceFixture, INPUT, VARIABLE, checks};
use ringfence_testkit::ProcessPerTest;

// A test of another provider needs neither `SEVERAL` nor `enter_if_helper`: only `local` forks or
// executes the calling program to get its helper processes.
const ONE: &str = "one_thread";
const SEVERAL: &str = "several_threads";

fn main() -> ExitCode {
    // For `local` only: its helpers are this program, executed anew.
    ringfence_linux::enter_if_helper();
    let names = checks()
        .flat_map(|check| [ONE, SEVERAL].map(|threads| format!("{threads}::{}", check.name)))
        .collect();
    ProcessPerTest { names, input: INPUT, variable: VARIABLE, body }.main()
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let (threads, name) = name.split_once("::").ok_or("a name has two parts")?;
    let check = checks().find(|check| check.name == name).ok_or("no such check")?;
    let fixture = ConformanceFixture::prepare(
        &AbsPath::new(directory).ok_or("the directory is not absolute")?,
    )?;
    let (end, ended) = mpsc::channel::<()>();
    let other = (threads == SEVERAL).then(|| thread::spawn(move || ended.recv()));
    let verdict = check.run(&LocalProvider::default(), &fixture);
    drop(end);
    if let Some(other) = other {
        let _ = other.join();
    }
    Ok(verdict?)
}
