//! Waiting for the processes of a sandbox that has ended.

use std::fs;

/// What is done about a sandbox in which everything has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Wait until the kernel has taken it down.
    #[default]
    Wait,
    /// Go: for a caller that ends now, and whose children PID 1 reaps.
    Leave,
}

impl Farewell {
    /// The one for a program that ends after its sandbox. To wait takes some milliseconds, so it is
    /// done only where PID 1 is not known to reap: in a container it may be any program, and each run
    /// would leave a zombie or two.
    pub(crate) fn at_exit() -> Self {
        match fs::read_to_string("/proc/1/comm") {
            Ok(name) if !reaps(name.trim_end()) => Farewell::Wait,
            _ => Farewell::Leave,
        }
    }
}

/// Tells whether a PID 1 of this name waits for every child that it inherits.
fn reaps(name: &str) -> bool {
    const INITS: &[&str] = &[
        "systemd",
        "init",
        "tini",
        "tini-static",
        "docker-init",
        "podman-init",
        "catatonit",
        "dumb-init",
        "s6-svscan",
        "runit",
        "runit-init",
        "openrc-init",
        "busybox",
        "pause",
        "bash",
        "launchd",
        "my_init",
        "finit",
        "dinit",
        "procd",
    ];
    INITS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::reaps;

    #[test]
    fn only_known_inits_are_left_to_reap() {
        assert!(["systemd", "tini", "docker-init"].into_iter().all(reaps));
        assert!(!["sleep", "node", "python3", ""].into_iter().any(reaps));
    }
}
