//! Facts about the host of a measurement.

use std::fs;

use serde_json::{Value, json};

/// The facts that a reader needs for a comparison.
pub(super) fn facts() -> Value {
    let model = read("/proc/cpuinfo").lines().find_map(|line| {
        line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned())
    });
    json!({
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "processor": model,
        "load": read("/proc/loadavg").split(' ').next(),
        "root": is_root(),
    })
}

/// True if this process may install packages.
pub(super) fn is_root() -> bool {
    read("/proc/self/status")
        .lines()
        .any(|line| line.strip_prefix("Uid:\t").is_some_and(|ids| ids.starts_with("0\t")))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
