//! One directory of a group: the older generation has one for each thing that is counted.

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
    /// What could not be held, and does not count.
    given_up: Vec<CgroupResource>,
    /// Where the counts stood when its sandbox got it.
    before: CgroupBaseline,
}

/// What was counted for others.
#[derive(Debug, Clone, Copy, Default)]
struct CgroupBaseline {
    is_used: bool,
    cpu_ms: u64,
    memory: u64,
    starved: u64,
    hits: u64,
}

impl CgroupDir {
    pub(super) fn make(CgroupParent { directory, version, counts }: CgroupParent) -> Option<Self> {
        let directory = directory.join(pool::name());
        fs::create_dir(&directory).ok()?;
        Some(Self {
            directory,
            version,
            counts,
            given_up: Vec::new(),
            before: CgroupBaseline::default(),
        })
    }

    /// Whether this is counted.
    pub(super) fn counts(&self, of: CgroupResource) -> bool {
        self.counts.contains(&of) && !self.given_up.contains(&of)
    }

    /// Whether all is held that is to be.
    pub(super) fn is_whole(&self) -> bool {
        self.given_up.is_empty()
    }

    /// What cannot be held is not counted, either.
    pub(super) fn hold(&mut self, memory: Option<u64>, processes: Option<u64>) {
        for (of, most) in [(CgroupResource::Memory, memory), (CgroupResource::Processes, processes)]
        {
            let Some(most) = most.filter(|_| self.counts(of)) else { continue };
            if self.write(self.version.ceiling(of), &most.to_string()).is_err() {
                self.given_up.push(of);
            }
        }
        if let Some(most) = memory.filter(|_| self.counts(CgroupResource::Memory)) {
            // What was moved out is memory, too. Where nothing can be, there is no such file.
            let _ = match self.version {
                CgroupVersion::One => self.write("memory.memsw.limit_in_bytes", &most.to_string()),
                CgroupVersion::Two => self.write("memory.swap.max", "0"),
            };
        }
    }

    /// Whether nobody is in it, and nothing of anybody's that matters.
    pub(super) fn is_free(&self) -> bool {
        /// Files that are memory of the host's outlive who wrote them.
        const LITTLE: u64 = 2 << 20;
        let has_little = !self.counts(CgroupResource::Memory)
            || self.all_memory().is_some_and(|memory| memory < LITTLE);
        self.text("cgroup.procs").is_some_and(|all| all.is_empty()) && has_little
    }

    /// What is counted from here on is another's.
    pub(super) fn forget(&mut self) {
        self.before = CgroupBaseline {
            is_used: true,
            cpu_ms: self.all_cpu_ms().unwrap_or_default(),
            memory: self.all_memory().unwrap_or_default(),
            starved: self.all_starved(),
            hits: self.hits(),
        };
        if self.version == CgroupVersion::One {
            let _ = self.write("memory.max_usage_in_bytes", "0");
        }
    }

    pub(super) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        // Never made: a file that is not there is not the kernel's.
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
        Some(self.all_cpu_ms()?.saturating_sub(self.before.cpu_ms))
    }

    fn all_cpu_ms(&self) -> Option<u64> {
        match self.version {
            CgroupVersion::One => self.number("cpuacct.usage").map(|nanos| nanos / 1_000_000),
            CgroupVersion::Two => {
                field(&self.text("cpu.stat")?, "usage_usec").map(|micros| micros / 1000)
            }
        }
    }

    pub(super) fn memory(&self) -> Option<u64> {
        Some(self.all_memory()?.saturating_sub(self.before.memory))
    }

    fn all_memory(&self) -> Option<u64> {
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

    /// How many were ended because this group had no more. Others may end them because the host has
    /// none.
    pub(super) fn starved(&self) -> u64 {
        if self.hits() > self.before.hits {
            self.all_starved().saturating_sub(self.before.starved)
        } else {
            0
        }
    }

    fn all_starved(&self) -> u64 {
        self.event("memory.oom_control", "oom_kill")
    }

    /// How often there was no more.
    fn hits(&self) -> u64 {
        match self.version {
            CgroupVersion::One => self.number("memory.failcnt").unwrap_or_default(),
            CgroupVersion::Two => self.event("", "oom"),
        }
    }

    fn event(&self, of_the_older: &str, name: &str) -> u64 {
        let file = match self.version {
            CgroupVersion::One => of_the_older,
            CgroupVersion::Two => "memory.events",
        };
        self.text(file).and_then(|text| field(&text, name)).unwrap_or_default()
    }

    /// The most memory that there ever was.
    pub(super) fn peak(&self) -> Option<u64> {
        match self.version {
            CgroupVersion::One => self.number("memory.max_usage_in_bytes"),
            // That of others cannot be taken off.
            CgroupVersion::Two => self.number("memory.peak").filter(|_| !self.before.is_used),
        }
    }
}

impl Drop for CgroupDir {
    fn drop(&mut self) {
        // Whoever ends is in it a little longer than it is seen.
        const LONG: Duration = Duration::from_millis(500);
        if !pool::remove(&self.directory, LONG) {
            pool::set_aside(std::mem::take(&mut self.directory));
        }
    }
}

/// A line of a name and a number.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_field_has_exactly_its_name() {
        let stat = "rss_huge 7\nrss 3\nshmem 4\n";
        let events = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\noom 5\n";
        assert_eq!((field(stat, "rss"), field(stat, "swap")), (Some(3), None));
        assert_eq!((field(events, "oom_kill"), field(events, "oom")), (Some(2), Some(5)));
    }
}
