//! Processes below a shell.

use std::collections::BTreeSet;
use std::fs;

use ringfence_api::ResourceUsage;
use ringfence_sys::{process, signal};

/// Sends a signal to a shell's process group.
pub(crate) fn signal_group(shell: i32, number: i32) {
    // The group may have ended.
    let _ = signal::kill(-shell, number);
}

/// Kills a shell.
pub(crate) fn kill_shell(shell: i32) {
    let _ = signal::kill(shell, libc::SIGKILL);
}

/// Start of a command.
#[derive(Debug, Clone)]
pub(crate) struct CommandStart {
    /// Time in ticks since boot.
    pub(crate) at: u64,
    /// Earlier children of the shell, which may have started in the same tick.
    pub(crate) before: Vec<i32>,
}

/// Sends a signal to every process below a shell that started since.
pub(crate) fn signal_since(shell: i32, command_start: &CommandStart, number: i32) {
    let is_new = |pid: i32| read_stat(pid).is_some_and(|facts| facts.started >= command_start.at);
    for pid in
        descendants_except(shell, &command_start.before).into_iter().filter(|pid| is_new(*pid))
    {
        // Checked again with a pidfd: the pid may have been reused.
        let Ok(pidfd) = process::pidfd(pid) else { continue };
        if is_new(pid) {
            let _ = process::pidfd_send_signal(std::os::fd::AsFd::as_fd(&pidfd), number);
        }
    }
}

/// All descendants of a process, except some and their descendants.
fn descendants_except(pid: i32, excluded: &[i32]) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut pending = vec![pid];
    while let Some(pid) = pending.pop() {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            pending.extend(
                children
                    .split_whitespace()
                    .filter_map(|child| child.parse::<i32>().ok())
                    .filter(|child| !excluded.contains(child) && found.insert(*child)),
            );
        }
    }
    found
}

/// Peak memory of a process, in kilobytes.
pub(crate) fn peak(pid: i32) -> Option<u64> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    // The name of a process need not be UTF-8.
    let status = String::from_utf8_lossy(&status);
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Highest peak memory of a process below a shell that started since.
pub(crate) fn peak_since(shell: i32, command_start: &CommandStart) -> u64 {
    descendants_except(shell, &command_start.before)
        .into_iter()
        .filter_map(peak)
        .max()
        .unwrap_or_default()
}

/// Facts from /proc/PID/stat.
pub(crate) struct ProcStat {
    /// Start time, in ticks since boot.
    pub(crate) started: u64,
    /// Usage of the process and its reaped children.
    pub(crate) used: ResourceUsage,
}

/// Ticks per second, the same on every kernel in /proc.
const TICKS: u64 = 100;

pub(crate) fn read_stat(pid: i32) -> Option<ProcStat> {
    // The name of a process need not be UTF-8.
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // Starts after the name, which may hold anything: the state is the third field.
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

/// The current time in ticks.
pub(crate) fn now_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * TICKS + now.tv_nsec as u64 / (1_000_000_000 / TICKS)
}

/// The fd that a process reads from, if it waits in `read`.
pub(crate) fn blocked_read_fd(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let call: i64 = words.next()?.parse().ok()?;
    let number = i32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    (call == libc::SYS_read).then_some(number)
}
