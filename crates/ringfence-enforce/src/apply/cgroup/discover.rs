//! Where groups can be made: in which hierarchy, and below which directory.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_sys::process;
use rustix::fs::Access;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CgroupResource {
    Memory,
    Processes,
    Time,
}

impl CgroupResource {
    pub(super) const ALL: [CgroupResource; 3] =
        [CgroupResource::Memory, CgroupResource::Processes, CgroupResource::Time];

    /// Who counts it, in the older generation.
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

/// The two generations of control groups. They call everything differently.
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

    /// The file that says how much there may be.
    pub(super) fn ceiling(self, of: CgroupResource) -> &'static str {
        match (self, of) {
            (CgroupVersion::One, CgroupResource::Memory) => "memory.limit_in_bytes",
            (CgroupVersion::Two, CgroupResource::Memory) => "memory.max",
            (_, CgroupResource::Processes) => "pids.max",
            // Nobody is held by it.
            (_, CgroupResource::Time) => "cpu.stat",
        }
    }
}

/// A directory below which a group can be made, and what is counted in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupParent {
    pub(super) directory: PathBuf,
    pub(super) version: CgroupVersion,
    pub(super) counts: Vec<CgroupResource>,
}

/// What for it is wanted to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookupPurpose {
    /// To tell somebody: nothing is changed.
    Ask,
    /// To make one: what is ours is divided for it.
    Make,
}

/// Where there are groups that count these.
pub(super) fn places(wanted: &[CgroupResource], aim: LookupPurpose) -> Vec<CgroupParent> {
    let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let hierarchies = hierarchies(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
    let mut places: Vec<CgroupParent> = Vec::new();
    let mut missing = wanted.to_vec();
    for hierarchy in hierarchies.iter().filter(|hierarchy| !hierarchy.controllers.is_empty()) {
        let counts: Vec<CgroupResource> =
            missing.iter().copied().filter(|of| hierarchy.has(of.controller())).collect();
        if !counts.is_empty() && is_open(&hierarchy.own) {
            missing.retain(|of| !counts.contains(of));
            places.push(CgroupParent {
                directory: hierarchy.own.clone(),
                version: CgroupVersion::One,
                counts,
            });
        }
    }
    let second = hierarchies.iter().find(|hierarchy| hierarchy.controllers.is_empty());
    if let Some(directory) =
        second.filter(|_| !missing.is_empty()).and_then(|second| base(second, &missing, aim))
    {
        // What is ours can still be divided.
        let file = if aim == LookupPurpose::Ask && is_ours(&directory) {
            "cgroup.controllers"
        } else {
            ENABLED
        };
        let is_counted = |of: &CgroupResource| is_listed(&directory, file, *of);
        let counts: Vec<CgroupResource> = missing.into_iter().filter(is_counted).collect();
        if !counts.is_empty() {
            places.push(CgroupParent { directory, version: CgroupVersion::Two, counts });
        }
    }
    places
}

/// What is counted for those below a directory of the newer generation.
const ENABLED: &str = "cgroup.subtree_control";

/// One tree of groups.
#[derive(Debug, PartialEq, Eq)]
struct CgroupHierarchy {
    /// What it counts; empty where that is another thing for every group.
    controllers: Vec<String>,
    /// The group that this process is in.
    own: PathBuf,
    /// The one that all others are in.
    top: PathBuf,
}

impl CgroupHierarchy {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|one| one == controller)
    }
}

/// Out of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn hierarchies(memberships: &str, mounts: &str) -> Vec<CgroupHierarchy> {
    let mounted: Vec<CgroupMount<'_>> = mounts.lines().filter_map(mounted).collect();
    let one = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let controllers: Vec<String> =
            names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_it = |mount: &&CgroupMount<'_>| match controllers.first() {
            None => mount.kind == "cgroup2",
            Some(first) => {
                mount.kind == "cgroup" && mount.options.split(',').any(|option| option == first)
            }
        };
        let found = mounted.iter().find(is_it)?;
        // A part of the tree may be all that is shown.
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

fn mounted(line: &str) -> Option<CgroupMount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let mut after = after.split(' ');
    let (root, at) = (before.next()?, before.next()?);
    // Who writes a name with a space here means somebody else.
    let is_plain = !root.contains('\\') && !at.contains('\\');
    is_plain.then_some(CgroupMount { root, at, kind: after.next()?, options: after.nth(1)? })
}

/// Where in the newer generation, whose groups are divided or have processes, and never both.
/// Always below what holds us: a unit's limits are its sandboxes', too.
fn base(
    CgroupHierarchy { own, top, .. }: &CgroupHierarchy,
    wanted: &[CgroupResource],
    aim: LookupPurpose,
) -> Option<PathBuf> {
    if own == top {
        // There is nothing above, and only the host's very first group has processes and is
        // divided.
        let is_divided = wanted.iter().any(|of| is_listed(top, ENABLED, *of));
        return (is_open(top) && is_open(&top.join(PROCESSES)) && is_divided).then(|| top.clone());
    }
    // Where we have made room before, or whoever gave it to us has.
    let above =
        own.parent().filter(|above| is_ours(above) && (own.ends_with(ROOM) || is_given(above)));
    let base =
        above.or_else(|| Some(own.as_path()).filter(|own| is_ours(own) && has_room(own, aim)))?;
    if aim == LookupPurpose::Make {
        enable(base, wanted);
    }
    Some(base.to_owned())
}

/// The group one step below, in which we are where our own is divided.
const ROOM: &str = "ringfence";
const PROCESSES: &str = "cgroup.procs";

/// Whether such a file of a directory names what counts this. Time is always counted.
fn is_listed(directory: &Path, file: &str, of: CgroupResource) -> bool {
    of == CgroupResource::Time
        || text_in(directory, file).split_whitespace().any(|one| one == of.controller())
}

/// Whether somebody has given it to us to divide. Root could divide everybody's.
fn is_ours(directory: &Path) -> bool {
    is_open(directory)
        && is_open(&directory.join(PROCESSES))
        && (process::ids().0 != 0 || is_given(directory))
}

/// Whether systemd says so.
fn is_given(directory: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| is_set(directory, name))
}

fn is_set(directory: &Path, name: &str) -> bool {
    let mut value = [0; 1];
    rustix::fs::getxattr(directory, name, &mut value) == Ok(1) && value == *b"1"
}

fn is_open(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}

/// Has more counted below a directory.
fn enable(directory: &Path, wanted: &[CgroupResource]) {
    let (can, does) = (text_in(directory, "cgroup.controllers"), text_in(directory, ENABLED));
    for controller in
        wanted.iter().filter(|of| **of != CgroupResource::Time).map(|of| of.controller())
    {
        let has = |text: &str| text.split_whitespace().any(|one| one == controller);
        if has(&can) && !has(&does) {
            // What is not counted is seen by reading it again.
            let _ = fs::write(directory.join(ENABLED), format!("+{controller}"));
        }
    }
}

/// Moves this program one step down, so that its group can be divided. Only where nobody else is
/// in it.
fn has_room(own: &Path, aim: LookupPurpose) -> bool {
    const TRIES: usize = 10;
    let below = own.join(ROOM);
    for _ in 0..TRIES {
        let all: Vec<u32> =
            text_in(own, PROCESSES).split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        if !all.iter().all(|pid| comes_from_us(*pid)) {
            return false;
        }
        if all.is_empty() || aim == LookupPurpose::Ask {
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

fn comes_from_us(pid: u32) -> bool {
    const DEEPEST: usize = 32;
    let parent = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    std::iter::successors(Some(pid), parent).take(DEEPEST).any(|pid| pid == std::process::id())
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
    fn a_group_is_found_where_it_is_mounted() {
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
        // Mounted elsewhere, not at all, or beyond what is shown.
        check("4:memory:/other\n0::/../..\n", first, &[]);
        check("0::/../..\n", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", &[]);
        check("", "", &[]);
    }

    #[test]
    fn everything_has_a_word() {
        assert!(
            CgroupResource::ALL
                .iter()
                .all(|of| !of.word().is_empty() && !of.controller().is_empty())
        );
    }
}
