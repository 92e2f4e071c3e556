//! Stops every process in the sandbox, even processes that continue each other.

use std::fs;
use std::time::Duration;

use ringfence_sys::{process, signal};

/// Stops every other process of the sandbox. True if there was any.
///
/// A process can send SIGCONT to another before it is stopped itself. So this repeats until each
/// process has stopped, or will before its next instruction.
pub(super) fn stop_every_process() -> bool {
    const ROUNDS: usize = 200;
    for _ in 0..ROUNDS {
        if signal::kill(-1, libc::SIGSTOP).is_err() {
            return false;
        }
        if fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .all(|entry| is_stopped(&entry.file_name().to_string_lossy()))
        {
            break;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}

/// True if a process is stopped or about to be; also true for an entry that is not a process.
fn is_stopped(pid: &str) -> bool {
    if pid == "1" || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    pid.parse().map_or(true, |pid| {
        process::status(pid).map_or(true, |status| is_stopped_by_status(&status))
    })
}

fn is_stopped_by_status(status: &str) -> bool {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
    };
    let has_ended_or_stopped = field("State:").starts_with(['T', 't', 'Z', 'X']);
    let is_stop_pending = ["SigPnd:", "ShdPnd:"].iter().any(|name| {
        let pending = u64::from_str_radix(field(name), 16).unwrap_or_default();
        pending & (1 << (libc::SIGSTOP - 1)) != 0
    });
    has_ended_or_stopped || is_stop_pending
}

#[cfg(test)]
mod tests {
    use super::is_stopped_by_status;

    #[test]
    fn pending_sigstop_counts_as_stopped() {
        let status = |state: &str, shared: &str| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t0000000000000000\nShdPnd:\t{shared}\n")
        };
        assert!(is_stopped_by_status(&status("T (stopped)", "0000000000000000")));
        assert!(is_stopped_by_status(&status("Z (zombie)", "0000000000000000")));
        assert!(is_stopped_by_status(&status("D (disk sleep)", "0000000000040000")));
        assert!(!is_stopped_by_status(&status("R (running)", "0000000000000000")));
        assert!(!is_stopped_by_status(&status("S (sleeping)", "0000000000020000")));
    }
}
