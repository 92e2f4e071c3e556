//! Helpers shared by the tests.

use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ringfence::{
    Ask, AskAnswer, Asker, ExecuteResult, SandboxBackend, SandboxConfig, SandboxManager,
    SandboxSpec, SessionProvider, block_on,
};
use ringfence_testkit::{becomes_true, skip};
use serde_json::Value;

/// A timeout that only a bug exceeds.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Counts questions, and always gives the same answer.
#[derive(Debug)]
pub(crate) struct ScriptedAnswer(pub(crate) AtomicUsize, pub(crate) AskAnswer);

impl Asker for ScriptedAnswer {
    fn ask(&self, _: &Ask) -> AskAnswer {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1
    }
}

/// True if the user can be asked; skips the test where denials cannot wait.
pub(crate) fn can_ask() -> bool {
    let is_open = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !is_open {
        skip("cannot open /dev/fuse, so no user can be asked");
    }
    is_open
}

/// The home directory around a test's directory, with secrets in it.
pub(crate) fn home(directory: &Path) -> PathBuf {
    directory.parent().expect("a home").to_owned()
}

pub(crate) fn manager() -> SandboxManager {
    SandboxManager::new(SandboxConfig::default()).unwrap()
}

pub(crate) fn open(provider: &SessionProvider, directory: &Path) -> Arc<dyn SandboxBackend> {
    block_on(provider.create(SandboxSpec::new(directory))).unwrap()
}

/// The trimmed output of a command that must succeed.
#[track_caller]
pub(crate) fn says(result: Result<ExecuteResult, ringfence::SandboxError>) -> String {
    let result = result.unwrap();
    assert_eq!(result.exit_code, 0, "{}", result.stderr);
    result.stdout.text().trim_end().to_owned()
}

/// Polls a future once.
pub(crate) fn once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
pub(crate) fn appears(path: &Path) {
    assert!(becomes_true(LONG, || path.exists()), "{} does not appear", path.display());
}

/// This binary as another test program.
pub(crate) fn part(name: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(super::PART, name).current_dir(directory);
    command
}

/// The pids of the supervisors of this process's sandboxes.
pub(crate) fn supervisors() -> Vec<String> {
    let is_supervisor = |pid: &String| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| words == b"ringfence-supervisor\0")
    };
    children("self").into_iter().filter(is_supervisor).collect()
}

/// The children of a process, of all its threads.
pub(crate) fn children(pid: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// All records of the audit log.
pub(crate) fn records(at: &Path) -> Vec<Value> {
    let pages = fs::read_dir(home(at).join(".local/state/ringfence/audit"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let text: String = pages
        .filter(|page| page.extension().is_some())
        .map(|page| fs::read_to_string(page).unwrap())
        .collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
