//! Finds the hierarchies and directories in which cgroups can be created.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_sys::process;
use rustix::fs::Access;

/// A counted resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupResource {
    Memory,
    Processes,
    Time,
}

impl CgroupResource {
    pub(super) const ALL: [CgroupResource; 3] =
        [CgroupResource::Memory, CgroupResource::Processes, CgroupResource::Time];

    /// Its controller in v1.
    fn controller(self) -> &'static str {
        match self {
            CgroupResource::Memory => "memory",
            CgroupResource::Processes => "pids",
            CgroupResource::Time => "cpuacct",
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            CgroupResource::Memory => "memory",
            CgroupResource::Processes => "processes",
            CgroupResource::Time => "CPU time",
        }
    }
}

/// The cgroup versions. Their files have different names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupVersion {
    One,
    Two,
}

impl CgroupVersion {
    pub(super) fn word(self) -> &'static str {
        match self {
            CgroupVersion::One => "v1",
            CgroupVersion::Two => "v2",
        }
    }

    /// The file that sets the limit.
    pub(super) fn limit_file(self, of: CgroupResource) -> &'static str {
        match (self, of) {
            (CgroupVersion::One, CgroupResource::Memory) => "memory.limit_in_bytes",
            (CgroupVersion::Two, CgroupResource::Memory) => "memory.max",
            (_, CgroupResource::Processes) => "pids.max",
            // CPU time is not limited.
            (_, CgroupResource::Time) => "cpu.stat",
        }
    }
}

/// A directory below which a cgroup can be created, and the resources counted in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupParent {
    pub(super) directory: PathBuf,
    pub(super) version: CgroupVersion,
    pub(super) counts: Vec<CgroupResource>,
}

/// Purpose of the lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookupPurpose {
    /// Only to report: nothing is changed.
    Ask,
    /// To create a cgroup: our own cgroup is divided for it.
    Make,
}

/// The parent directories of cgroups that count these resources.
pub(super) fn find_parents(wanted: &[CgroupResource], purpose: LookupPurpose) -> Vec<CgroupParent> {
    let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let hierarchies = hierarchies(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
    let mut parents: Vec<CgroupParent> = Vec::new();
    let mut missing = wanted.to_vec();
    for hierarchy in hierarchies.iter().filter(|hierarchy| !hierarchy.controllers.is_empty()) {
        let counts: Vec<CgroupResource> =
            missing.iter().copied().filter(|of| hierarchy.has(of.controller())).collect();
        if !counts.is_empty() && is_writable(&hierarchy.own) {
            missing.retain(|of| !counts.contains(of));
            parents.push(CgroupParent {
                directory: hierarchy.own.clone(),
                version: CgroupVersion::One,
                counts,
            });
        }
    }
    let v2 = hierarchies.iter().find(|hierarchy| hierarchy.controllers.is_empty());
    if let Some(directory) =
        v2.filter(|_| !missing.is_empty()).and_then(|v2| find_v2_parent(v2, &missing, purpose))
    {
        // Our own cgroup can still be divided.
        let file = if purpose == LookupPurpose::Ask && is_delegated_to_us(&directory) {
            "cgroup.controllers"
        } else {
            ENABLED
        };
        let is_counted = |of: &CgroupResource| is_listed(&directory, file, *of);
        let counts: Vec<CgroupResource> = missing.into_iter().filter(is_counted).collect();
        if !counts.is_empty() {
            parents.push(CgroupParent { directory, version: CgroupVersion::Two, counts });
        }
    }
    parents
}

/// The file that lists the controllers enabled for children (v2).
const ENABLED: &str = "cgroup.subtree_control";

/// One cgroup hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct CgroupHierarchy {
    /// Its controllers; empty for v2, where they differ per cgroup.
    controllers: Vec<String>,
    /// The cgroup of this process.
    own: PathBuf,
    /// The root of the hierarchy.
    top: PathBuf,
}

impl CgroupHierarchy {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|one| one == controller)
    }
}

/// Parses `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn hierarchies(memberships: &str, mounts: &str) -> Vec<CgroupHierarchy> {
    let mounts: Vec<CgroupMount<'_>> = mounts.lines().filter_map(parse_mount).collect();
    let one = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let controllers: Vec<String> =
            names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let matches_mount = |mount: &&CgroupMount<'_>| match controllers.first() {
            None => mount.kind == "cgroup2",
            Some(first) => {
                mount.kind == "cgroup" && mount.options.split(',').any(|option| option == first)
            }
        };
        let found = mounts.iter().find(matches_mount)?;
        // The mount may show only a part of the hierarchy.
        let below = Path::new(path).strip_prefix(found.root).ok()?;
        let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        plain.then(|| CgroupHierarchy {
            controllers,
            own: Path::new(found.at).join(below),
            top: found.at.into(),
        })
    };
    memberships
        .lines()
        .filter_map(one)
        .filter(|hierarchy| !hierarchy.controllers.iter().any(|name| name.starts_with("name=")))
        .collect()
}

struct CgroupMount<'a> {
    root: &'a str,
    at: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn parse_mount(line: &str) -> Option<CgroupMount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let mut after = after.split(' ');
    let (root, at) = (before.next()?, before.next()?);
    // A path with an escaped space is not one of ours.
    let is_plain = !root.contains('\\') && !at.contains('\\');
    is_plain.then_some(CgroupMount { root, at, kind: after.next()?, options: after.nth(1)? })
}

/// The parent directory in v2, where a cgroup has either children with controllers or processes,
/// never both. Always below our own: a unit's limits apply to its sandboxes, too.
fn find_v2_parent(
    CgroupHierarchy { own, top, .. }: &CgroupHierarchy,
    wanted: &[CgroupResource],
    purpose: LookupPurpose,
) -> Option<PathBuf> {
    if own == top {
        // There is no parent, and only the host's root cgroup may have both processes and
        // controllers for children.
        let is_divided = wanted.iter().any(|of| is_listed(top, ENABLED, *of));
        return (is_writable(top) && is_writable(&top.join(PROCESSES)) && is_divided)
            .then(|| top.clone());
    }
    // The parent that we, or the service manager, divided before.
    let above = own.parent().filter(|above| {
        is_delegated_to_us(above) && (own.ends_with(OWN_CHILD) || is_marked_delegated(above))
    });
    let parent = above.or_else(|| {
        Some(own.as_path()).filter(|own| is_delegated_to_us(own) && make_room(own, purpose))
    })?;
    if purpose == LookupPurpose::Make {
        enable(parent, wanted);
    }
    Some(parent.to_owned())
}

/// The child cgroup into which this program moves when its own is divided.
const OWN_CHILD: &str = "ringfence";
const PROCESSES: &str = "cgroup.procs";

/// True if the file in the directory lists the resource's controller. CPU time is always counted.
fn is_listed(directory: &Path, file: &str, of: CgroupResource) -> bool {
    of == CgroupResource::Time
        || text_in(directory, file).split_whitespace().any(|one| one == of.controller())
}

/// True if the cgroup was delegated to us. Root could divide every cgroup.
fn is_delegated_to_us(directory: &Path) -> bool {
    is_writable(directory)
        && is_writable(&directory.join(PROCESSES))
        && (process::ids().0 != 0 || is_marked_delegated(directory))
}

/// True if systemd marks it as delegated.
fn is_marked_delegated(directory: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| is_set(directory, name))
}

fn is_set(directory: &Path, name: &str) -> bool {
    let mut value = [0; 1];
    rustix::fs::getxattr(directory, name, &mut value) == Ok(1) && value == *b"1"
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}

/// Enables more controllers for children.
fn enable(directory: &Path, wanted: &[CgroupResource]) {
    let (can, does) = (text_in(directory, "cgroup.controllers"), text_in(directory, ENABLED));
    for controller in
        wanted.iter().filter(|of| **of != CgroupResource::Time).map(|of| of.controller())
    {
        let has = |text: &str| text.split_whitespace().any(|one| one == controller);
        if has(&can) && !has(&does) {
            // A failure is seen when the file is read again.
            let _ = fs::write(directory.join(ENABLED), format!("+{controller}"));
        }
    }
}

/// Moves this program to a child cgroup, so that its own can be divided. Only if no other program
/// is in it.
fn make_room(own: &Path, purpose: LookupPurpose) -> bool {
    const TRIES: usize = 10;
    let below = own.join(OWN_CHILD);
    for _ in 0..TRIES {
        let all: Vec<u32> =
            text_in(own, PROCESSES).split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        if !all.iter().all(|pid| is_descendant(*pid)) {
            return false;
        }
        if all.is_empty() || purpose == LookupPurpose::Ask {
            return true;
        }
        if !below.is_dir() && fs::create_dir(&below).is_err() {
            return false;
        }
        for pid in all {
            let _ = fs::write(below.join(PROCESSES), pid.to_string());
        }
    }
    false
}

fn is_descendant(pid: u32) -> bool {
    const MAX_DEPTH: usize = 32;
    let parent = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    std::iter::successors(Some(pid), parent).take(MAX_DEPTH).any(|pid| pid == std::process::id())
}

fn text_in(directory: &Path, file: &str) -> String {
    fs::read_to_string(directory.join(file)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(memberships: &str, mounts: &str, expect: &[(&str, &str, &str)]) {
        let found = hierarchies(memberships, mounts);
        let found: Vec<_> = found
            .iter()
            .map(|one| {
                (one.controllers.join(","), one.own.to_str().unwrap(), one.top.to_str().unwrap())
            })
            .collect();
        let found: Vec<_> =
            found.iter().map(|(names, own, top)| (names.as_str(), *own, *top)).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn cgroup_path_follows_its_mount() {
        check(
            "0::/user.slice/user-1000.slice/session-3.scope\n",
            "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            &[("", "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope", "/sys/fs/cgroup")],
        );
        let first = "30 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                     31 23 0:28 /docker/7 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        check(
            "9:name=systemd:/a\n4:memory:/docker/7/deep\n2:cpu,cpuacct:/a\n0::/\n",
            first,
            &[
                ("memory", "/sys/fs/cgroup/memory/deep", "/sys/fs/cgroup/memory"),
                ("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/a", "/sys/fs/cgroup/cpu,cpuacct"),
            ],
        );
        // Mounted elsewhere, not at all, or outside the visible part.
        check("4:memory:/other\n0::/../..\n", first, &[]);
        check("0::/../..\n", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", &[]);
        check("", "", &[]);
    }

    #[test]
    fn every_resource_has_a_word_and_controller() {
        assert!(
            CgroupResource::ALL
                .iter()
                .all(|of| !of.word().is_empty() && !of.controller().is_empty())
        );
    }
}
