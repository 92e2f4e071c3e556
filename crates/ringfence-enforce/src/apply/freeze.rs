//! Letting nobody in the sandbox go on, also those who let each other go on.

use std::fs;
use std::time::Duration;

use ringfence_sys::{process, signal};

/// Stops every other process of the sandbox. Answers whether there was any.
///
/// A process can undo it for another before it is stopped itself. So it is done again until
/// each has stopped, or will before its next instruction.
pub(super) fn stop_all() -> bool {
    const ROUNDS: usize = 200;
    for _ in 0..ROUNDS {
        if signal::kill(-1, libc::SIGSTOP).is_err() {
            return false;
        }
        if fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .all(|entry| is_still(&entry.file_name().to_string_lossy()))
        {
            break;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}

/// Whether a process is stopped or about to be; what is no process is.
fn is_still(pid: &str) -> bool {
    if pid == "1" || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
        return true;
    }
    pid.parse().map_or(true, |pid| process::status(pid).map_or(true, |status| is_still_by(&status)))
}

fn is_still_by(status: &str) -> bool {
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
    };
    let has_ended_or_stopped = field("State:").starts_with(['T', 't', 'Z', 'X']);
    let is_told = ["SigPnd:", "ShdPnd:"].iter().any(|name| {
        let pending = u64::from_str_radix(field(name), 16).unwrap_or_default();
        pending & (1 << (libc::SIGSTOP - 1)) != 0
    });
    has_ended_or_stopped || is_told
}

#[cfg(test)]
mod tests {
    use super::is_still_by;

    #[test]
    fn who_is_still() {
        let status = |state: &str, shared: &str| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t0000000000000000\nShdPnd:\t{shared}\n")
        };
        assert!(is_still_by(&status("T (stopped)", "0000000000000000")));
        assert!(is_still_by(&status("Z (zombie)", "0000000000000000")));
        assert!(is_still_by(&status("D (disk sleep)", "0000000000040000")));
        assert!(!is_still_by(&status("R (running)", "0000000000000000")));
        assert!(!is_still_by(&status("S (sleeping)", "0000000000020000")));
    }
}
