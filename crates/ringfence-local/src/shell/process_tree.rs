//! What a shell has started.

use std::collections::BTreeSet;
use std::fs;

use ringfence_api::ResourceUsage;
use ringfence_sys::{process, signal};

/// Sends a signal to a shell and to what it runs.
pub(crate) fn signal_group(shell: i32, number: i32) {
    // Whoever has ended needs none.
    let _ = signal::kill(-shell, number);
}

/// Ends a shell, and what it runs.
pub(crate) fn end(shell: i32) {
    let _ = signal::kill(shell, libc::SIGKILL);
}

/// When a command began.
#[derive(Debug, Clone)]
pub(crate) struct CommandStart {
    /// In ticks.
    pub(crate) at: u64,
    /// What the shell had started before, in that tick too.
    pub(crate) before: Vec<i32>,
}

/// Sends a signal to everything below a shell that was started since.
pub(crate) fn signal_since(shell: i32, beginning: &CommandStart, number: i32) {
    let is_new = |pid: i32| facts(pid).is_some_and(|facts| facts.started >= beginning.at);
    for pid in below(shell, &beginning.before).into_iter().filter(|pid| is_new(*pid)) {
        // Held first, and looked at again: its number may be another's by now.
        let Ok(pidfd) = process::pidfd(pid) else { continue };
        if is_new(pid) {
            let _ = process::signal_by(std::os::fd::AsFd::as_fd(&pidfd), number);
        }
    }
}

/// All below a process, but for some and what is below them.
fn below(pid: i32, but: &[i32]) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![pid];
    while let Some(pid) = waiting.pop() {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            waiting.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<i32>().ok())
                    .filter(|child| !but.contains(child) && found.insert(*child)),
            );
        }
    }
    found
}

/// The most memory that a process has had, in kilobytes.
pub(crate) fn peak(pid: i32) -> Option<u64> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    // A process may call itself what is no text.
    let status = String::from_utf8_lossy(&status);
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The most that one process below a shell has had that was started since.
pub(crate) fn peak_since(shell: i32, beginning: &CommandStart) -> u64 {
    below(shell, &beginning.before).into_iter().filter_map(peak).max().unwrap_or_default()
}

/// What the kernel tells of a process.
pub(crate) struct ProcStat {
    /// When it was started, in ticks since the machine was.
    pub(crate) started: u64,
    /// What it and those it waited for have used.
    pub(crate) used: ResourceUsage,
}

/// Ticks in a second, as they are told to everybody.
const TICKS: u64 = 100;

pub(crate) fn facts(pid: i32) -> Option<ProcStat> {
    // A process may call itself what is no text.
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // Behind the name, which may hold anything: the state is the third field.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok());
    let us = |ticks: u64| ticks * (1_000_000 / TICKS);
    let used = ResourceUsage {
        user_us: us(field(14)? + field(16)?),
        system_us: us(field(15)? + field(17)?),
        max_rss_kb: 0,
    };
    Some(ProcStat { started: field(22)?, used })
}

/// This moment, in the same ticks.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * TICKS + now.tv_nsec as u64 / (1_000_000_000 / TICKS)
}

/// The number of what a process is about to read, if it waits for that.
pub(crate) fn reads(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let call: i64 = words.next()?.parse().ok()?;
    let number = i32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    (call == libc::SYS_read).then_some(number)
}
