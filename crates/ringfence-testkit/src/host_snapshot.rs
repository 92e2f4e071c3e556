//! Leftovers on the host.

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
        if contains(&words, marker) || contains(&variables, marker) {
            found.push(format!("{pid}: {}", String::from_utf8_lossy(&words).replace('\0', " ")));
        }
    }
    found
}

fn contains(bytes: &[u8], marker: &str) -> bool {
    bytes.windows(marker.len()).any(|window| window == marker.as_bytes())
}

/// State of the host that a run could leave behind, outside its project.
#[derive(Debug, PartialEq, Eq)]
pub struct HostSnapshot {
    /// Lines of the mount table.
    pub mounts: Vec<String>,
    /// Entries of temporary directories whose names contain `ringfence`.
    pub temporary: Vec<PathBuf>,
    /// Unix sockets whose names contain `ringfence`.
    pub sockets: Vec<String>,
}

impl HostSnapshot {
    /// Takes a snapshot now.
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
