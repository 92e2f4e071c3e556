//! All processes of a sandbox, from one look to the next.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use ringfence_enforce::apply::{CgroupUsage, InitUsage};
use ringfence_policy::Limits;

use super::proc_usage::{self, ProcUsage};
use super::share::{self, Demand, Lowered};

/// What was found out by earlier looks.
#[derive(Debug, Default)]
pub(super) struct UsageLedger {
    /// The most that all wrote who were there, since something was lost last.
    written: u64,
    /// For so many looks it has been less.
    less: u32,
    /// What those wrote who have ended, where nobody tells of it: whoever does not mind that its
    /// children end has not waited for them.
    lost: u64,
    looks: u64,
    /// Bytes of files that are memory, as they were when that was last found out.
    files: u64,
    /// Descendants of init at the last look.
    inside: Vec<i32>,
    /// The look at which they last gave way.
    gave_way: Option<u64>,
    demand: Demand,
}

impl UsageLedger {
    /// Looks at everything that comes from `warden`, which itself does not count. `told` is
    /// what the sandbox's first process knows beside, and `counted` what the kernel has counted for
    /// all together: none of it is found out anew.
    ///
    /// Of too many processes no more is found out than that: there are those who make them faster
    /// than all can be looked at.
    pub(super) fn look(
        &mut self,
        warden: i32,
        most: &Limits,
        told: InitUsage,
        counted: CgroupUsage,
    ) -> ProcUsage {
        let ProcessTree { members, outer, threads, is_whole } =
            ProcessTree::of(warden, most.processes.unwrap_or(u64::MAX));
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
            tally.disk += most.disk.and_then(|_| proc_usage::written(*pid)).unwrap_or_default();
            tally.open_files =
                tally.open_files.max(most.open_files.map_or(0, |_| proc_usage::open_files(*pid)));
        }
        tally.disk = self.disk(tally.disk + told.written);
        if let Some(limit) = most.memory.filter(|_| counted.memory.is_none()) {
            // It takes a look at every descriptor.
            const SELDOM: u64 = 8;
            if self.looks.is_multiple_of(SELDOM) {
                self.files = memory_files(&members);
            }
            let files = self.files + told.shared + told.sockets;
            tally.memory = files + memory(&members, limit.saturating_sub(files));
        }
        self.looks += 1;
        self.inside = members.get(outer..).unwrap_or_default().to_vec();
        tally
    }

    /// Puts the sandbox's processes behind those of others if there are too few CPUs for all, now
    /// and then anew: one may have come from another that had not given way yet.
    pub(super) fn give_way(&mut self) {
        const SELDOM: u64 = 25;
        if self.demand.exceeds_cpus(&self.inside)
            && self.gave_way.is_none_or(|last| self.looks >= last + SELDOM)
        {
            self.gave_way =
                Some(self.looks).filter(|_| share::give_way(&self.inside) == Lowered::All);
        }
    }

    /// Nothing that was written is ever less: what is missing, and stays so, is lost. What somebody
    /// wrote who has just ended is told of a little later.
    fn disk(&mut self, written: u64) -> u64 {
        const PATIENCE: u32 = 5;
        self.less = if written < self.written { self.less + 1 } else { 0 };
        if self.less > PATIENCE {
            self.lost += self.written - written;
            (self.written, self.less) = (written, 0);
        }
        self.written = self.written.max(written);
        self.written + self.lost
    }
}

/// Only where it could be too much, it is counted exactly.
fn memory(all: &[i32], limit: u64) -> u64 {
    let rough: u64 = all.iter().map(|pid| proc_usage::roughly(*pid)).sum();
    if rough <= limit {
        return rough;
    }
    all.iter()
        .map(|pid| proc_usage::exactly(*pid).unwrap_or_else(|| proc_usage::roughly(*pid)))
        .sum()
}

/// Bytes of files without a name that are memory, whether or not somebody has them in view. What
/// somebody has counts twice, which matters where it would have been too much soon.
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

/// All that come from a process.
struct ProcessTree {
    members: Vec<i32>,
    /// So many at their beginning are its own children.
    outer: usize,
    /// Of all of them but its own children: the sandbox's first process is nobody's command.
    threads: u64,
    is_whole: bool,
}

impl ProcessTree {
    /// Those of `pid`, until there are more than `most` threads.
    fn of(pid: i32, most: u64) -> Self {
        let mut family = Self { members: Vec::new(), outer: 0, threads: 0, is_whole: true };
        // Descendants of init: they count before their threads are listed.
        let mut inside = 0;
        let mut waiting = vec![(pid, 0)];
        while let Some((pid, generation)) = waiting.pop() {
            for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten()
            {
                family.threads += u64::from(generation > 1);
                let children =
                    fs::read_to_string(thread.path().join("children")).unwrap_or_default();
                for child in
                    children.split_whitespace().filter_map(|child| child.parse::<i32>().ok())
                {
                    family.members.push(child);
                    inside += u64::from(generation > 0);
                    family.outer += usize::from(generation == 0);
                    waiting.push((child, generation + 1));
                }
                if family.threads.max(inside) > most {
                    family.threads = family.threads.max(inside);
                    family.is_whole = false;
                    return family;
                }
            }
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use super::UsageLedger;

    #[test]
    fn what_was_written_is_never_less() {
        let mut ledger = UsageLedger::default();
        let mut see = |written: &[u64]| {
            written.iter().map(|written| ledger.disk(*written)).collect::<Vec<u64>>()
        };
        assert_eq!(see(&[10, 30, 5, 5, 35]), [10, 30, 30, 30, 35], "told of later");
        assert_eq!(see(&[5, 5, 5, 5, 5, 5, 25]), [35, 35, 35, 35, 35, 35, 55], "lost");
    }
}
