//! One directory of a cgroup: v1 has one for each controller.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::discover::{CgroupParent, CgroupResource, CgroupVersion};
use super::pool;

#[derive(Debug)]
pub(super) struct CgroupDir {
    directory: PathBuf,
    version: CgroupVersion,
    counts: Vec<CgroupResource>,
    /// Resources whose limit could not be set; they do not count.
    unlimited: Vec<CgroupResource>,
    /// The counters when its sandbox got it.
    baseline: CgroupBaseline,
}

/// Usage of earlier sandboxes.
#[derive(Debug, Clone, Copy, Default)]
struct CgroupBaseline {
    is_used: bool,
    cpu_ms: u64,
    memory: u64,
    oom_kills: u64,
    limit_hits: u64,
}

impl CgroupDir {
    pub(super) fn make(CgroupParent { directory, version, counts }: CgroupParent) -> Option<Self> {
        let directory = directory.join(pool::name());
        fs::create_dir(&directory).ok()?;
        Some(Self {
            directory,
            version,
            counts,
            unlimited: Vec::new(),
            baseline: CgroupBaseline::default(),
        })
    }

    /// True if the resource is counted.
    pub(super) fn counts(&self, of: CgroupResource) -> bool {
        self.counts.contains(&of) && !self.unlimited.contains(&of)
    }

    /// True if every limit could be set.
    pub(super) fn has_all_limits(&self) -> bool {
        self.unlimited.is_empty()
    }

    /// Sets the limits. A resource whose limit cannot be set is not counted either.
    pub(super) fn set_limits(&mut self, memory: Option<u64>, processes: Option<u64>) {
        for (of, most) in [(CgroupResource::Memory, memory), (CgroupResource::Processes, processes)]
        {
            let Some(most) = most.filter(|_| self.counts(of)) else { continue };
            if self.write(self.version.limit_file(of), &most.to_string()).is_err() {
                self.unlimited.push(of);
            }
        }
        if let Some(most) = memory.filter(|_| self.counts(CgroupResource::Memory)) {
            // Swap is memory, too. Without swap accounting there is no such file.
            let _ = match self.version {
                CgroupVersion::One => self.write("memory.memsw.limit_in_bytes", &most.to_string()),
                CgroupVersion::Two => self.write("memory.swap.max", "0"),
            };
        }
    }

    /// True if no process is in it, and almost no memory.
    pub(super) fn is_free(&self) -> bool {
        /// Files in host tmpfs outlive their writers.
        const MAX_LEFTOVER: u64 = 2 << 20;
        let has_little = !self.counts(CgroupResource::Memory)
            || self.total_memory().is_some_and(|memory| memory < MAX_LEFTOVER);
        self.text("cgroup.procs").is_some_and(|all| all.is_empty()) && has_little
    }

    /// Starts counting for the next sandbox.
    pub(super) fn reset_baseline(&mut self) {
        self.baseline = CgroupBaseline {
            is_used: true,
            cpu_ms: self.total_cpu_ms().unwrap_or_default(),
            memory: self.total_memory().unwrap_or_default(),
            oom_kills: self.total_oom_kills(),
            limit_hits: self.limit_hits(),
        };
        if self.version == CgroupVersion::One {
            let _ = self.write("memory.max_usage_in_bytes", "0");
        }
    }

    pub(super) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        // Never created: an absent file is not the kernel's.
        let mut opened = fs::File::options().write(true).open(self.directory.join(file))?;
        io::Write::write_all(&mut opened, text.as_bytes())
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(file)).ok()
    }

    fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.trim().parse().ok()
    }

    pub(super) fn cpu_ms(&self) -> Option<u64> {
        Some(self.total_cpu_ms()?.saturating_sub(self.baseline.cpu_ms))
    }

    fn total_cpu_ms(&self) -> Option<u64> {
        match self.version {
            CgroupVersion::One => self.number("cpuacct.usage").map(|nanos| nanos / 1_000_000),
            CgroupVersion::Two => {
                field(&self.text("cpu.stat")?, "usage_usec").map(|micros| micros / 1000)
            }
        }
    }

    pub(super) fn memory(&self) -> Option<u64> {
        Some(self.total_memory()?.saturating_sub(self.baseline.memory))
    }

    fn total_memory(&self) -> Option<u64> {
        let stat = self.text("memory.stat")?;
        match self.version {
            CgroupVersion::One => Some(
                field(&stat, "rss")?
                    + field(&stat, "shmem")?
                    + field(&stat, "swap").unwrap_or_default(),
            ),
            CgroupVersion::Two => Some(
                field(&stat, "anon")?
                    + field(&stat, "shmem")?
                    + self.number("memory.swap.current").unwrap_or_default(),
            ),
        }
    }

    /// Number of processes killed because this cgroup reached its limit. Others may be killed
    /// because the host is out of memory.
    pub(super) fn oom_kills(&self) -> u64 {
        if self.limit_hits() > self.baseline.limit_hits {
            self.total_oom_kills().saturating_sub(self.baseline.oom_kills)
        } else {
            0
        }
    }

    fn total_oom_kills(&self) -> u64 {
        self.event("memory.oom_control", "oom_kill")
    }

    /// Number of times the limit was reached.
    fn limit_hits(&self) -> u64 {
        match self.version {
            CgroupVersion::One => self.number("memory.failcnt").unwrap_or_default(),
            CgroupVersion::Two => self.event("", "oom"),
        }
    }

    fn event(&self, v1_file: &str, name: &str) -> u64 {
        let file = match self.version {
            CgroupVersion::One => v1_file,
            CgroupVersion::Two => "memory.events",
        };
        self.text(file).and_then(|text| field(&text, name)).unwrap_or_default()
    }

    /// Peak memory.
    pub(super) fn peak(&self) -> Option<u64> {
        match self.version {
            CgroupVersion::One => self.number("memory.max_usage_in_bytes"),
            // The peak of earlier sandboxes cannot be subtracted.
            CgroupVersion::Two => self.number("memory.peak").filter(|_| !self.baseline.is_used),
        }
    }
}

impl Drop for CgroupDir {
    fn drop(&mut self) {
        // An ending process stays in the cgroup a little longer than it is visible.
        const TIMEOUT: Duration = Duration::from_millis(500);
        if !pool::remove(&self.directory, TIMEOUT) {
            pool::note_unremoved(std::mem::take(&mut self.directory));
        }
    }
}

/// The value of the line `name value`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn field_name_must_match_exactly() {
        let stat = "rss_huge 7\nrss 3\nshmem 4\n";
        let events = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\noom 5\n";
        assert_eq!((field(stat, "rss"), field(stat, "swap")), (Some(3), None));
        assert_eq!((field(events, "oom_kill"), field(events, "oom")), (Some(2), Some(5)));
    }
}
