//! `local` does what every place must do.
//!
//! From a program of one thread, which is copied to become the helper, and from one of
//! several, which is started anew: both as the superuser and as an ordinary user.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use ringfence_local::LocalProvider;
use ringfence_policy::AbsPath;
use ringfence_provider::conformance::{Fixture, INPUT, VARIABLE, checks};
use ringfence_testkit::ProcessPerTest;

const ONE: &str = "one_thread";
const SEVERAL: &str = "several_threads";

fn main() -> ExitCode {
    ringfence_enforce::apply::helper::enter_if_helper();
    let names = checks()
        .flat_map(|check| [ONE, SEVERAL].map(|threads| format!("{threads}::{}", check.name)))
        .collect();
    ProcessPerTest { names, input: INPUT, variable: VARIABLE, body }.main()
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let (threads, name) = name.split_once("::").ok_or("a name has two parts")?;
    let check = checks().find(|check| check.name == name).ok_or("no such check")?;
    let place = Fixture::prepare(&AbsPath::new(directory).ok_or("the directory is not absolute")?)?;
    let (end, ended) = mpsc::channel::<()>();
    let other = (threads == SEVERAL).then(|| thread::spawn(move || ended.recv()));
    let verdict = check.run(&LocalProvider::default(), &place);
    drop(end);
    if let Some(other) = other {
        let _ = other.join();
    }
    Ok(verdict?)
}
