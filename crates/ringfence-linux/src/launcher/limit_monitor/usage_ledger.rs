//! Usage of all processes of a sandbox, over several measurements.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::apply::{CgroupUsage, InitUsage};
use ringfence_policy::Limits;

use super::proc_usage::{self, ProcUsage};
use super::share::{self, Demand, Lowered};

/// State kept between measurements.
#[derive(Debug, Default)]
pub(super) struct UsageLedger {
    /// Highest sum of bytes written by all processes, since the last loss.
    written: u64,
    /// Number of measurements in which the sum was lower.
    lower_count: u32,
    /// Bytes written by ended processes that no process reports: a parent that ignores SIGCHLD does
    /// not inherit the counters of its children.
    lost: u64,
    measurements: u64,
    /// Bytes of memory files, when last measured.
    files: u64,
    /// Descendants of init at the last measurement.
    inside: Vec<i32>,
    /// Measurement at which their priority was last lowered.
    gave_way: Option<u64>,
    demand: Demand,
}

impl UsageLedger {
    /// Measures all descendants of `supervisor`, without itself. `reported` is the usage that only
    /// init knows, and `counted` that of the cgroup; neither is measured again.
    ///
    /// Above the process limit, only the number of processes is measured: they can fork faster than
    /// all can be read.
    pub(super) fn measure(
        &mut self,
        supervisor: i32,
        most: &Limits,
        reported: InitUsage,
        counted: CgroupUsage,
    ) -> ProcUsage {
        let ProcessTree { members, outer, threads, is_whole } =
            ProcessTree::read(supervisor, most.processes.unwrap_or(u64::MAX));
        let memory_so_far = counted.memory.unwrap_or_default();
        let mut tally = ProcUsage {
            processes: threads,
            cpu_ms: counted.cpu_ms.unwrap_or_default(),
            memory: memory_so_far,
            ..ProcUsage::default()
        };
        let counts_cpu = counted.cpu_ms.is_none() && (most.cpu_ms.is_some() || share::is_shared());
        if !is_whole {
            return tally;
        }
        for pid in &members {
            tally.cpu_ms +=
                counts_cpu.then(|| proc_usage::cpu_ms(*pid)).flatten().unwrap_or_default();
            tally.disk +=
                most.disk.and_then(|_| proc_usage::bytes_written(*pid)).unwrap_or_default();
            tally.open_files =
                tally.open_files.max(most.open_files.map_or(0, |_| proc_usage::open_files(*pid)));
        }
        tally.disk = self.disk(tally.disk + reported.written);
        if let Some(limit) = most.memory.filter(|_| counted.memory.is_none()) {
            // Reads every fd, so only at some measurements.
            const EVERY: u64 = 8;
            if self.measurements.is_multiple_of(EVERY) {
                self.files = memory_files(&members);
            }
            let files = self.files + reported.shared + reported.sockets;
            tally.memory = files + memory(&members, limit.saturating_sub(files));
        }
        self.measurements += 1;
        self.inside = members.get(outer..).unwrap_or_default().to_vec();
        tally
    }

    /// Lowers the priority of the sandbox's processes if there are too few CPUs for all. Repeated
    /// now and then: a process may come from a parent that was not lowered yet.
    pub(super) fn give_way(&mut self) {
        const EVERY: u64 = 25;
        if self.demand.exceeds_cpus(&self.inside)
            && self.gave_way.is_none_or(|last| self.measurements >= last + EVERY)
        {
            self.gave_way = Some(self.measurements)
                .filter(|_| share::lower_priority(&self.inside) == Lowered::All);
        }
    }

    /// Total bytes written, which never shrinks: a sum that stays lower means lost counters. Init
    /// reports the bytes of an ended process a little later.
    fn disk(&mut self, written: u64) -> u64 {
        const MAX_LOWER: u32 = 5;
        self.lower_count = if written < self.written { self.lower_count + 1 } else { 0 };
        if self.lower_count > MAX_LOWER {
            self.lost += self.written - written;
            (self.written, self.lower_count) = (written, 0);
        }
        self.written = self.written.max(written);
        self.written + self.lost
    }
}

/// Memory in bytes, measured exactly only near the limit.
fn memory(all: &[i32], limit: u64) -> u64 {
    let rough: u64 = all.iter().map(|pid| proc_usage::memory_upper_bound(*pid)).sum();
    if rough <= limit {
        return rough;
    }
    all.iter()
        .map(|pid| {
            proc_usage::memory_exact(*pid).unwrap_or_else(|| proc_usage::memory_upper_bound(*pid))
        })
        .sum()
}

/// Bytes of memfds, mapped or not. Mapped ones count twice, which matters only near the limit.
fn memory_files(all: &[i32]) -> u64 {
    let mut found = HashMap::new();
    for pid in all {
        for file in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let is_memory = fs::read_link(file.path())
                .is_ok_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"));
            if let Some(status) = is_memory.then(|| fs::metadata(file.path()).ok()).flatten() {
                found.insert((status.dev(), status.ino()), status.blocks() * 512);
            }
        }
    }
    found.into_values().sum()
}

/// Descendants of a process.
struct ProcessTree {
    members: Vec<i32>,
    /// Number of direct children, which come first in `members`.
    outer: usize,
    /// Threads of all but the direct children: init is not part of a command.
    threads: u64,
    is_whole: bool,
}

impl ProcessTree {
    /// Descendants of `pid`, up to `most` threads.
    fn read(pid: i32, most: u64) -> Self {
        let mut tree = Self { members: Vec::new(), outer: 0, threads: 0, is_whole: true };
        // Descendants of init count before their threads are listed.
        let mut inside = 0;
        let mut pending = vec![(pid, 0)];
        while let Some((pid, generation)) = pending.pop() {
            for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten()
            {
                tree.threads += u64::from(generation > 1);
                let children =
                    fs::read_to_string(thread.path().join("children")).unwrap_or_default();
                for child in
                    children.split_whitespace().filter_map(|child| child.parse::<i32>().ok())
                {
                    tree.members.push(child);
                    inside += u64::from(generation > 0);
                    tree.outer += usize::from(generation == 0);
                    pending.push((child, generation + 1));
                }
                if tree.threads.max(inside) > most {
                    tree.threads = tree.threads.max(inside);
                    tree.is_whole = false;
                    return tree;
                }
            }
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::UsageLedger;

    #[test]
    fn bytes_written_never_shrink() {
        let mut ledger = UsageLedger::default();
        let mut see = |written: &[u64]| {
            written.iter().map(|written| ledger.disk(*written)).collect::<Vec<u64>>()
        };
        assert_eq!(see(&[10, 30, 5, 5, 35]), [10, 30, 30, 30, 35], "reported later");
        assert_eq!(see(&[5, 5, 5, 5, 5, 5, 25]), [35, 35, 35, 35, 35, 35, 55], "lost");
    }
}
