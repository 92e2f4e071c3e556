//! What is left on the host.

use std::fs;
use std::path::{Path, PathBuf};

/// Processes whose command line or environment holds `marker`, as `pid: command line`.
pub fn processes_with(marker: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == own || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let read =
            |name: &str| fs::read(Path::new("/proc").join(&pid).join(name)).unwrap_or_default();
        let (words, variables) = (read("cmdline"), read("environ"));
        if holds(&words, marker) || holds(&variables, marker) {
            found.push(format!("{pid}: {}", String::from_utf8_lossy(&words).replace('\0', " ")));
        }
    }
    found
}

fn holds(bytes: &[u8], marker: &str) -> bool {
    bytes.windows(marker.len()).any(|window| window == marker.as_bytes())
}

/// What a run could leave on the host, outside of its project.
#[derive(Debug, PartialEq, Eq)]
pub struct HostSnapshot {
    /// Lines of the mount table.
    pub mounts: Vec<String>,
    /// Names in the places for temporary files that speak of ringfence.
    pub temporary: Vec<PathBuf>,
    /// Unix sockets with a name that speaks of ringfence.
    pub sockets: Vec<String>,
}

impl HostSnapshot {
    /// Looks now.
    pub fn take() -> HostSnapshot {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mounts = read("/proc/self/mountinfo")
            .lines()
            .map(str::to_owned)
            .filter(|line| line.contains("ringfence"))
            .collect();
        let sockets = read("/proc/net/unix")
            .lines()
            .filter(|line| line.contains("ringfence"))
            .map(str::to_owned)
            .collect();
        let mut temporary = Vec::new();
        for place in ["/tmp", "/var/tmp", "/dev/shm", "/run"] {
            for entry in fs::read_dir(place).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().contains("ringfence") {
                    temporary.push(entry.path());
                }
            }
        }
        temporary.sort();
        HostSnapshot { mounts, temporary, sockets }
    }
}
