//! Facts about this host, and the findings that follow from them.

use std::env;
use std::fs;
use std::path::Path;

use ringfence_plan::{FuseSupport, HostSupport, PidAllocation, ProcAccounting};
use ringfence_provider::{DoctorFinding, FindingState};

use crate::apply::{describe_cgroups, support};

/// Facts about the host, read from files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDiagnosis {
    /// The kernel release.
    pub kernel: String,
    /// The supported features.
    pub support: HostSupport,
    /// The container that ringfence itself runs in.
    pub container: Option<&'static str>,
    /// True if AppArmor restricts unprivileged user namespaces.
    pub apparmor_restricts: bool,
    overlay: bool,
    /// `None` if the kernel does not list seccomp actions.
    notify: Option<bool>,
    /// The controllers of the cgroup for a sandbox; `None` if ringfence cannot create one.
    grouping: Option<String>,
}

impl HostDiagnosis {
    /// Reads the facts of this host.
    pub fn detect() -> Self {
        let has_word = |path: &str, word: &str| {
            read(path).map(|text| text.split_whitespace().any(|found| found == word))
        };
        Self {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            support: support(),
            container: container(),
            apparmor_restricts: read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
                .as_deref()
                == Some("1"),
            overlay: has_word("/proc/filesystems", "overlay") == Some(true),
            notify: has_word("/proc/sys/kernel/seccomp/actions_avail", "user_notif"),
            grouping: describe_cgroups(),
        }
    }

    /// Version, kernel, architecture, user and container in one line.
    pub fn headline(&self) -> String {
        let inside =
            self.container.map_or_else(String::new, |container| format!(", inside {container}"));
        format!(
            "ringfence {} on Linux {} ({}), uid {}{inside}",
            env!("CARGO_PKG_VERSION"),
            self.kernel,
            env::consts::ARCH,
            self.support.uid
        )
    }

    /// True if the engine `landlock` can confine commands.
    pub fn has_landlock(&self) -> bool {
        self.support.landlock > 0
    }

    /// The optional features, and the consequences of missing ones.
    pub fn findings(&self) -> Vec<DoctorFinding> {
        vec![self.landlock(), self.notify(), self.overlay(), self.fuse(), self.groups()]
    }

    fn landlock(&self) -> DoctorFinding {
        const NAME: &str = "Landlock";
        match self.support.landlock {
            0 => DoctorFinding::new(
                NAME,
                FindingState::Limited,
                "none: only mounts confine; `--net full` is refused",
            )
            .fix("boot with `landlock` in the kernel's lsm= list"),
            abi @ 1..6 => DoctorFinding::new(
                NAME,
                FindingState::Limited,
                format!("ABI {abi} cannot scope sockets: `--net full` is refused"),
            )
            .fix("use kernel 6.12 or later"),
            abi => DoctorFinding::new(
                NAME,
                FindingState::Ok,
                format!("ABI {abi}: signals and abstract sockets stay inside"),
            ),
        }
    }

    fn notify(&self) -> DoctorFinding {
        const NAME: &str = "seccomp notify";
        match self.notify {
            Some(true) => DoctorFinding::new(
                NAME,
                FindingState::Ok,
                "denied paths that appear later stay denied",
            ),
            Some(false) => DoctorFinding::new(
                NAME,
                FindingState::Missing,
                "denied paths could appear later: `run` refuses",
            )
            .fix("use kernel 5.9 or later"),
            None => DoctorFinding::new(
                NAME,
                FindingState::Limited,
                "the kernel does not list seccomp actions",
            ),
        }
    }

    fn overlay(&self) -> DoctorFinding {
        const NAME: &str = "overlay";
        if self.overlay {
            return DoctorFinding::new(
                NAME,
                FindingState::Ok,
                "listed, not tested: for caches on top of the host's",
            );
        }
        DoctorFinding::new(
            NAME,
            FindingState::Limited,
            "not listed: no caches on top of the host's",
        )
        .fix("sudo modprobe overlay")
    }

    fn fuse(&self) -> DoctorFinding {
        const NAME: &str = "/dev/fuse";
        let fix = match (self.support.fuse, self.container) {
            (_, Some(DOCKER)) => "docker run --device /dev/fuse …",
            (_, Some(PODMAN)) => "podman run --device /dev/fuse …",
            (FuseSupport::Absent, _) => "sudo modprobe fuse",
            (FuseSupport::Shut | FuseSupport::Opens, _) => "sudo chmod 666 /dev/fuse",
        };
        match self.support.fuse {
            FuseSupport::Opens => DoctorFinding::new(
                NAME,
                FindingState::Ok,
                "can be opened: denials are reported exactly",
            ),
            FuseSupport::Shut => DoctorFinding::new(
                NAME,
                FindingState::Limited,
                "cannot be opened: denied reads are guessed",
            )
            .fix(fix),
            FuseSupport::Absent => DoctorFinding::new(
                NAME,
                FindingState::Limited,
                "not found: denied reads are guessed",
            )
            .fix(fix),
        }
    }

    fn groups(&self) -> DoctorFinding {
        const NAME: &str = "control groups";
        let fix = match self.support.uid {
            0 => "systemd-run --scope -p Delegate=yes ringfence …",
            _ => "systemd-run --user --scope -p Delegate=yes ringfence …",
        };
        match &self.grouping {
            Some(grouping) => DoctorFinding::new(NAME, FindingState::Ok, grouping.as_str()),
            None => DoctorFinding::new(
                NAME,
                FindingState::Limited,
                "not available: limits are counted per process",
            )
            .fix(fix),
        }
    }

    /// A host with all features, for tests.
    #[doc(hidden)]
    pub fn example() -> Self {
        Self {
            kernel: "6.12.0".into(),
            support: HostSupport {
                uid: 1000,
                gid: 1000,
                landlock: 6,
                fuse: FuseSupport::Opens,
                accounts: ProcAccounting::Full,
                numbers: PidAllocation::Own,
            },
            container: None,
            apparmor_restricts: false,
            overlay: true,
            notify: Some(true),
            grouping: Some("v2 counts memory, processes, CPU time".into()),
        }
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

const DOCKER: &str = "a Docker container";
const PODMAN: &str = "a Podman container";

fn container() -> Option<&'static str> {
    if env::var_os("RINGFENCE").is_some() {
        return Some("a ringfence sandbox");
    }
    let marks = [
        ("/.dockerenv", DOCKER),
        ("/run/.containerenv", PODMAN),
        ("/run/systemd/container", "a container"),
    ];
    let mark = marks.into_iter().find(|(path, _)| Path::new(path).exists());
    let is_pod = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    mark.map(|(_, name)| name).or(is_pod.then_some("a Kubernetes pod"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &HostDiagnosis, name: &str, state: FindingState, text: &str) {
        let finding = host.findings().into_iter().find(|finding| finding.name == name).unwrap();
        assert_eq!(finding.state, state, "{finding:?}");
        assert!(finding.text.contains(text), "{finding:?}");
        assert_eq!(finding.fix.is_none(), state == FindingState::Ok, "{finding:?}");
    }

    #[test]
    fn each_problem_is_reported_with_consequence_and_fix() {
        let good = HostDiagnosis::example();
        let landlock = |landlock| HostDiagnosis {
            support: HostSupport { landlock, ..good.support.clone() },
            ..good.clone()
        };
        check(&good, "Landlock", FindingState::Ok, "ABI 6");
        check(&landlock(0), "Landlock", FindingState::Limited, "only mounts confine");
        check(&landlock(3), "Landlock", FindingState::Limited, "`--net full`");
        check(&good, "seccomp notify", FindingState::Ok, "");
        check(
            &HostDiagnosis { notify: Some(false), ..good.clone() },
            "seccomp notify",
            FindingState::Missing,
            "refuse",
        );
        check(
            &HostDiagnosis { overlay: false, ..good.clone() },
            "overlay",
            FindingState::Limited,
            "not listed",
        );
        let fuse = |fuse| HostDiagnosis {
            support: HostSupport { fuse, ..good.support.clone() },
            ..good.clone()
        };
        check(&fuse(FuseSupport::Absent), "/dev/fuse", FindingState::Limited, "not found");
        check(&fuse(FuseSupport::Shut), "/dev/fuse", FindingState::Limited, "cannot be opened");
        check(&good, "control groups", FindingState::Ok, "v2 counts memory");
        check(
            &HostDiagnosis { grouping: None, ..good.clone() },
            "control groups",
            FindingState::Limited,
            "per process",
        );
    }

    #[test]
    fn no_finding_is_wider_than_a_terminal() {
        let good = HostDiagnosis::example();
        let poor = HostDiagnosis {
            support: HostSupport { landlock: 3, fuse: FuseSupport::Shut, ..good.support.clone() },
            overlay: false,
            grouping: None,
            ..good.clone()
        };
        for finding in good.findings().into_iter().chain(poor.findings()) {
            assert!(28 + finding.text.chars().count() <= 80, "{finding:?}");
        }
    }
}
