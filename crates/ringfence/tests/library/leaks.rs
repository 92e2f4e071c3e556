//! Nothing is left: of sandboxes that ended, and of programs that were killed.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence::{AskAnswer, LocalSandboxProvider, SandboxCreateOptions, SandboxProvider, block_on};
use ringfence_testkit::{HostSnapshot, SECRET, processes_with, repetitions, soon};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::many::{Holdings, at_once, lives, make_room, memory};
use crate::stage::{LONG, Says, can_ask, open, part, says};

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

/// What this program has when nothing goes on.
#[track_caller]
fn settled() -> Holdings {
    assert!(soon(LONG, || Holdings::now().threads == 1), "{:?}", Holdings::now());
    Holdings::now()
}

#[track_caller]
fn is_again(before: &Holdings) {
    assert!(before.is_again(), "{before:?} became {:?}", Holdings::now());
}

/// A program with three sandboxes, in which something goes on and on.
pub(crate) fn embedding() -> Result<(), Box<dyn Error>> {
    let (provider, here) = (LocalSandboxProvider::default(), std::env::current_dir()?);
    let all: Vec<_> = (0..3).map(|_| open(&provider, &here)).collect();
    let marker = std::env::var(MARKER)?;
    for sandbox in &all {
        sandbox.execute_blocking(
            format!("trap '' INT TERM HUP; sleep {marker} & (setsid sleep {marker} &)").into(),
        )?;
    }
    println!("ready");
    all[0].execute_blocking(format!("sleep {marker}").into())?;
    Ok(())
}

tests! { "leaks":
    /// Promise: P59
    #[test]
    fn many_sandboxes_one_after_the_other_leave_nothing(at) {
        let provider = LocalSandboxProvider::default();
        make_room().unwrap();
        lives(&provider, at, 20).unwrap();
        let (before, memory_before) = (settled(), memory());
        lives(&provider, at, repetitions(100, 200)).unwrap();
        is_again(&before);
        let grown = memory().saturating_sub(memory_before);
        assert!(grown < 4096, "{grown} kB more than {memory_before} kB");
        assert!(block_on(provider.list()).unwrap().is_empty());
    }

    /// Promise: P59
    #[test]
    fn many_sandboxes_at_once_leave_nothing(at) {
        let provider = LocalSandboxProvider::default();
        make_room().unwrap();
        at_once(&provider, at, 4).unwrap();
        let before = settled();
        at_once(&provider, at, repetitions(50, 200)).unwrap();
        is_again(&before);
        assert!(block_on(provider.list()).unwrap().is_empty());
    }

    /// Promise: P59
    #[test]
    fn one_sandbox_too_many_names_the_limit_and_harms_no_other(at) {
        let provider = LocalSandboxProvider::default();
        lives(&provider, at, 1).unwrap();
        let before = settled();
        let limit = |most| setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..getrlimit(Resource::Nofile) }).unwrap();
        let names_it = |error: ringfence::SandboxError| assert!(error.hint().is_some_and(|hint| hint.contains("ulimit -n")), "{error:?}");
        // Too few for any.
        limit(300);
        names_it(block_on(provider.create(SandboxCreateOptions::new(at))).err().unwrap());
        limit(600);
        let mut all = Vec::new();
        let error = loop {
            match block_on(provider.create(SandboxCreateOptions::new(at))) {
                Ok(sandbox) => all.push(sandbox),
                Err(error) => break error,
            }
        };
        // Each has about 27 fds: its own, and a lock for each private cache.
        assert!(all.len() >= 20, "{} have room", all.len());
        names_it(error);
        for (number, sandbox) in all.iter().enumerate() {
            assert_eq!(says(sandbox.execute_blocking(format!("echo {number}").into())), number.to_string());
        }
        // Those that were there before may have wanted some more of it meanwhile.
        all.drain(..5).for_each(|sandbox| drop(block_on(sandbox.dispose()).unwrap()));
        all.push(open(&provider, at));
        assert_eq!(says(all.last().unwrap().execute_blocking("echo anew".into())), "anew");
        all.iter().for_each(|sandbox| drop(block_on(sandbox.dispose()).unwrap()));
        drop(all);
        is_again(&before);
    }

    /// Promise: P59
    #[test]
    fn whoever_is_asked_leaves_nothing_either(at) {
        let provider = LocalSandboxProvider::default();
        if !can_ask() {
            return;
        }
        let asker = Arc::new(Says(AtomicUsize::new(0), AskAnswer::AllowOnce));
        let life = |_| {
            let options = SandboxCreateOptions { asker: Some(asker.clone()), ..SandboxCreateOptions::new(at) };
            let sandbox = block_on(provider.create(options)).unwrap();
            assert_eq!(says(sandbox.execute_blocking("cat ~/notes.txt; touch ~/code/other/made".into())), SECRET);
            block_on(sandbox.dispose()).unwrap();
        };
        (0..5).for_each(life);
        let before = settled();
        (0..15).for_each(life);
        is_again(&before);
        assert_eq!(asker.0.load(Ordering::SeqCst), 40);
    }

    /// Promise: P59
    #[test]
    fn a_program_that_is_killed_leaves_nothing_within_a_second(at) {
        let before = HostSnapshot::take().mounts;
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
        let new = || HostSnapshot::take().mounts.into_iter().filter(|mount| !before.contains(mount)).collect::<Vec<_>>();
        assert!(soon(LONG, || new().is_empty()), "{:?}", new());
    }
}
