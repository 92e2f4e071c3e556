//! Provider conformance of `local`.
//!
//! From a single-threaded program, which is forked to become the supervisor, and from one with
//! several threads, which is executed anew: both as root and as an ordinary user.

use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use ringfence_conformance::{checks, find_check, run_each};
use ringfence_linux::LocalProvider;

const ONE: &str = "one_thread";
const SEVERAL: &str = "several_threads";

fn main() -> ExitCode {
    // The helpers of `local` are this program, executed anew.
    ringfence_linux::enter_if_helper();
    let names = checks()
        .flat_map(|check| [ONE, SEVERAL].map(|threads| format!("{threads}::{}", check.name)))
        .collect();
    run_each(names, |name, directory| {
        let (threads, name) = name.split_once("::").ok_or("a name has two parts")?;
        let (end, ended) = mpsc::channel::<()>();
        let other = (threads == SEVERAL).then(|| thread::spawn(move || ended.recv()));
        let verdict = find_check(name)?.run(&LocalProvider::default(), directory);
        drop(end);
        if let Some(other) = other {
            let _ = other.join();
        }
        Ok(verdict?)
    })
}
