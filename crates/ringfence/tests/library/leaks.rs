//! Nothing is left of ended sandboxes and of killed programs.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence::{AskAnswer, SandboxSpec, SessionProvider, block_on};
use ringfence_testkit::{HostSnapshot, SECRET, becomes_true, processes_with, repetitions};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::many::{ProcessResources, at_once, lives, memory, raise_fd_limit};
use crate::stage::{LONG, ScriptedAnswer, can_ask, open, part, says};

/// The environment variable with a number that identifies a test's processes.
const MARKER: &str = "RINGFENCE_TEST_MARKER";

/// A program that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The resources of this process when it is idle.
#[track_caller]
fn settled() -> ProcessResources {
    assert!(
        becomes_true(LONG, || ProcessResources::now().threads == 1),
        "{:?}",
        ProcessResources::now()
    );
    ProcessResources::now()
}

#[track_caller]
fn assert_restored(before: &ProcessResources) {
    assert!(before.is_restored(), "{before:?} became {:?}", ProcessResources::now());
}

/// A program with three sandboxes in which processes keep running.
pub(crate) fn embedding() -> Result<(), Box<dyn Error>> {
    let (provider, here) = (SessionProvider::default(), std::env::current_dir()?);
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
    /// Promise: no-growth
    #[test]
    fn sequential_sandboxes_leave_nothing(at) {
        let provider = SessionProvider::default();
        raise_fd_limit().unwrap();
        lives(&provider, at, 20).unwrap();
        let (before, memory_before) = (settled(), memory());
        lives(&provider, at, repetitions(100, 200)).unwrap();
        assert_restored(&before);
        let grown = memory().saturating_sub(memory_before);
        assert!(grown < 4096, "{grown} kB more than {memory_before} kB");
        assert!(provider.list().is_empty());
    }

    /// Promise: no-growth
    #[test]
    fn concurrent_sandboxes_leave_nothing(at) {
        let provider = SessionProvider::default();
        raise_fd_limit().unwrap();
        at_once(&provider, at, 4).unwrap();
        let before = settled();
        at_once(&provider, at, repetitions(50, 200)).unwrap();
        assert_restored(&before);
        assert!(provider.list().is_empty());
    }

    /// Promise: no-growth
    #[test]
    fn sandbox_beyond_the_fd_limit_names_the_limit_and_harms_no_other(at) {
        let provider = SessionProvider::default();
        lives(&provider, at, 1).unwrap();
        let before = settled();
        let limit = |most| setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..getrlimit(Resource::Nofile) }).unwrap();
        let names_it = |error: ringfence::SandboxError| assert!(error.hint().is_some_and(|hint| hint.contains("ulimit -n")), "{error:?}");
        // Too few for any sandbox.
        limit(300);
        names_it(block_on(provider.create(SandboxSpec::new(at))).err().unwrap());
        limit(600);
        let mut all = Vec::new();
        let error = loop {
            match block_on(provider.create(SandboxSpec::new(at))) {
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
        // Earlier sandboxes may have taken some more fds meanwhile.
        all.drain(..5).for_each(|sandbox| drop(block_on(sandbox.dispose()).unwrap()));
        all.push(open(&provider, at));
        assert_eq!(says(all.last().unwrap().execute_blocking("echo anew".into())), "anew");
        all.iter().for_each(|sandbox| drop(block_on(sandbox.dispose()).unwrap()));
        drop(all);
        assert_restored(&before);
    }

    /// Promise: no-growth
    #[test]
    fn sandboxes_with_an_asker_leave_nothing(at) {
        let provider = SessionProvider::default();
        if !can_ask() {
            return;
        }
        let asker = Arc::new(ScriptedAnswer(AtomicUsize::new(0), AskAnswer::AllowOnce));
        let life = |_| {
            let options = SandboxSpec { asker: Some(asker.clone()), ..SandboxSpec::new(at) };
            let sandbox = block_on(provider.create(options)).unwrap();
            assert_eq!(says(sandbox.execute_blocking("cat ~/notes.txt; touch ~/code/other/made".into())), SECRET);
            block_on(sandbox.dispose()).unwrap();
        };
        (0..5).for_each(life);
        let before = settled();
        (0..15).for_each(life);
        assert_restored(&before);
        assert_eq!(asker.0.load(Ordering::SeqCst), 40);
    }

    /// Promise: no-growth
    #[test]
    fn killed_program_leaves_nothing_within_a_second(at) {
        let before = HostSnapshot::take().mounts;
        let marker = format!("7{:08}", std::process::id());
        let mut program = part("embedding", at).env(MARKER, &marker).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map(Killed).unwrap();
        let mut said = String::new();
        BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        // A process that was just started may not have called execve yet.
        let sleeping = || processes_with(&marker).iter().filter(|process| process.contains("sleep")).count();
        assert!(becomes_true(LONG, || sleeping() >= 6), "{:?}", processes_with(&marker));
        program.0.kill().unwrap();
        assert!(becomes_true(Duration::from_secs(1), || processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
        drop(program);
        let new = || HostSnapshot::take().mounts.into_iter().filter(|mount| !before.contains(mount)).collect::<Vec<_>>();
        assert!(becomes_true(LONG, || new().is_empty()), "{:?}", new());
    }
}
