//! Nothing is left: of sandboxes that ended, and of programs that were killed.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence::{Answer, LocalSandboxProvider, SandboxCreateOptions, SandboxProvider, block_on};
use ringfence_testkit::{Census, SECRET, processes_with, soon};

use crate::stage::{LONG, Says, can_ask, children, open, part, says};

/// The variable with a number by which processes are known to belong to a test.
const MARKER: &str = "RINGFENCE_TEST_MARKER";

/// A program that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a process has.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    children: usize,
    mounts: usize,
}

fn holdings() -> Holdings {
    let count = |directory: &str| fs::read_dir(directory).unwrap().count();
    Holdings {
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
        children: children("self").len(),
        mounts: fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
    }
}

/// How much memory this process has, in kilobytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A program with three sandboxes, in which something goes on and on.
pub(crate) fn embedding() -> Result<(), Box<dyn Error>> {
    let (provider, here) = (LocalSandboxProvider::default(), std::env::current_dir()?);
    let all: Vec<_> = (0..3).map(|_| open(&provider, &here)).collect();
    let marker = std::env::var(MARKER)?;
    for sandbox in &all {
        sandbox.execute_blocking(format!("trap '' INT TERM HUP; sleep {marker} & (setsid sleep {marker} &)").into())?;
    }
    println!("ready");
    all[0].execute_blocking(format!("sleep {marker}").into())?;
    Ok(())
}

tests! { "leaks":
    #[test]
    fn two_hundred_sandboxes_one_after_the_other_leave_nothing(at) {
        let provider = LocalSandboxProvider::default();
        let life = |number: usize| {
            let sandbox = open(&provider, at);
            assert_eq!(says(sandbox.execute_blocking(format!("echo {number}; sleep 1000 & true").into())), number.to_string());
            block_on(sandbox.dispose()).unwrap();
        };
        (0..20).for_each(life);
        assert!(soon(LONG, || holdings().threads == 1), "{:?}", holdings());
        let (before, memory_before) = (holdings(), memory());
        (0..200).for_each(life);
        assert!(soon(LONG, || holdings() == before), "{:?} became {before:?}", holdings());
        let grown = memory().saturating_sub(memory_before);
        assert!(grown < 4096, "{grown} kB more than {memory_before} kB");
        assert!(block_on(provider.list()).unwrap().is_empty());
    }

    #[test]
    fn whoever_is_asked_leaves_nothing_either(at) {
        let provider = LocalSandboxProvider::default();
        if !can_ask() {
            return;
        }
        let asker = Arc::new(Says(AtomicUsize::new(0), Answer::AllowOnce));
        let life = |_| {
            let options = SandboxCreateOptions { asker: Some(asker.clone()), ..SandboxCreateOptions::new(at) };
            let sandbox = block_on(provider.create(options)).unwrap();
            assert_eq!(says(sandbox.execute_blocking("cat ~/notes.txt".into())), SECRET);
            block_on(sandbox.dispose()).unwrap();
        };
        (0..5).for_each(life);
        assert!(soon(LONG, || holdings().threads == 1), "{:?}", holdings());
        let before = holdings();
        (0..30).for_each(life);
        assert!(soon(LONG, || holdings() == before), "{:?} became {before:?}", holdings());
        assert_eq!(asker.0.load(Ordering::SeqCst), 35);
    }

    #[test]
    fn a_program_that_is_killed_leaves_nothing_within_a_second(at) {
        let before = Census::take().mounts;
        let marker = format!("7{:08}", std::process::id());
        let mut program = part("embedding", at).env(MARKER, &marker).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map(Killed).unwrap();
        let mut said = String::new();
        BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        // What was just started may not have become what it is to be.
        let sleeping = || processes_with(&marker).iter().filter(|process| process.contains("sleep")).count();
        assert!(soon(LONG, || sleeping() >= 6), "{:?}", processes_with(&marker));
        program.0.kill().unwrap();
        assert!(soon(Duration::from_secs(1), || processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
        drop(program);
        assert_eq!(Census::take().mounts, before);
    }
}
