//! Usage of a process, from /proc.

use std::fs;

/// Usage of all processes of a sandbox together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProcUsage {
    pub(super) cpu_ms: u64,
    pub(super) memory: u64,
    pub(super) processes: u64,
    /// Of the process with the most.
    pub(super) open_files: u64,
    pub(super) disk: u64,
}

/// Ticks per second, the same on every kernel in /proc.
const TICKS: u64 = 100;

/// CPU time of the process and its reaped children, in milliseconds.
pub(super) fn cpu_ms(pid: i32) -> Option<u64> {
    // The name of a process need not be UTF-8.
    parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Threads of a process that run or wait for a CPU.
pub(super) fn runnable(pid: i32) -> usize {
    let is_runnable = |thread: &fs::DirEntry| {
        let stat = fs::read(thread.path().join("stat")).unwrap_or_default();
        let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
        state == Some(&b'R')
    };
    fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(is_runnable)
        .count()
}

fn parse(stat: &str) -> Option<u64> {
    // Starts after the name, which may hold anything: the state is the third field.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok());
    let ticks = field(14)? + field(15)? + field(16)? + field(17)?;
    Some(ticks * 1000 / TICKS)
}

/// Private memory in bytes, without file pages, which the kernel can reclaim. Pages shared with a
/// fork count for both. Page tables count too: a program that only reads a large mapping has
/// nothing else.
pub(super) fn memory_upper_bound(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"]
        .iter()
        .map(|name| kilobytes(&text, name))
        .sum::<u64>()
        * 1024
}

/// Private memory in bytes, with shared pages counted in part. The kernel takes longer for it.
pub(super) fn memory_exact(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let tables =
        kilobytes(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), "VmPTE:")
            * 1024;
    Some(
        tables
            + ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"]
                .iter()
                .map(|name| kilobytes(&text, name))
                .sum::<u64>()
                * 1024,
    )
}

fn kilobytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Bytes that the process and its reaped children wrote to disks.
pub(super) fn bytes_written(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    field("write_bytes:")
}

/// Number of open files.
pub(super) fn open_files(pid: i32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).map(|files| files.count() as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_may_hold_parentheses() {
        let stat = "7 (a) R 1 (b)) S 3 7 7 0 -1 4194304 90 0 0 0 5 6 70 8 20 0 4 0 12345 9 9";
        assert_eq!(parse(stat), Some(890));
        assert_eq!(parse("7 (a) S"), None);
    }

    #[test]
    fn own_process_has_plausible_usage() {
        let pid = std::process::id() as i32;
        assert!(cpu_ms(pid).is_some());
        let (rough, exact) = (memory_upper_bound(pid), memory_exact(pid).unwrap_or(u64::MAX));
        assert!(rough > 0 && exact > 0 && exact <= rough + (1 << 20), "{rough} {exact}");
        assert!(open_files(pid) >= 3);
    }
}
