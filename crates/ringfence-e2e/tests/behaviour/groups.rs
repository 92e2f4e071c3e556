//! Limits by cgroup, where a sandbox can have one; no cgroup is left behind.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence_testkit::{TestOutput, TestProject, TestUser, becomes_true, each_user};

use crate::limits::{MIB, breaches, each_ends, ends_by, limited_by};
use crate::project;

/// Cgroups delegated to a user, who can make others below them.
struct DelegatedCgroups {
    /// One cgroup for each hierarchy.
    groups: Vec<PathBuf>,
    /// The cgroups that the user's processes are in.
    members: Vec<PathBuf>,
}

impl DelegatedCgroups {
    /// Delegates cgroups to `user`; `None` without root, or where cgroups cannot be made.
    fn to(user: TestUser) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("given-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let memberships = fs::read_to_string("/proc/self/cgroup").expect("there is a /proc");
        let own = |controller: &str| {
            let line = memberships.lines().find(|line| {
                line.split(':')
                    .nth(1)
                    .is_some_and(|names| names.split(',').any(|one| one == controller))
            })?;
            let path = line.splitn(3, ':').nth(2)?;
            Some(Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/')))
        };
        let is_second = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let above = if is_second {
            vec![PathBuf::from("/sys/fs/cgroup")]
        } else {
            ["memory", "pids", "cpuacct"].iter().filter_map(|name| own(name)).collect()
        };
        let groups: Vec<PathBuf> = above.iter().map(|above| above.join(&name)).collect();
        if groups.is_empty()
            || !TestUser::runner_is_root()
            || groups.iter().any(|group| fs::create_dir(group).is_err())
        {
            eprintln!("no cgroups can be made here: they are not tested");
            return None;
        }
        let members: Vec<PathBuf> = groups
            .iter()
            .map(|group| if is_second { group.join("ringfence") } else { group.clone() })
            .collect();
        if is_second {
            fs::write(groups[0].join("cgroup.subtree_control"), "+memory +pids")
                .expect("it can be divided");
            fs::create_dir(&members[0]).expect("it can be divided");
        }
        let (uid, gid) = user.ids();
        for group in groups.iter().chain(&members) {
            for file in [group.clone(), group.join("cgroup.procs")] {
                chown(file, Some(uid), Some(gid)).expect("it can be given away");
            }
        }
        Some(Self { groups, members })
    }

    /// `ringfence` in these cgroups.
    fn ringfence(&self, project: &TestProject) -> Command {
        let members: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("echo $$ > {}/cgroup.procs", member.display()))
            .collect();
        project.ringfence_after(&members.join(" && "))
    }

    /// The existing cgroups of sandboxes.
    fn found(&self) -> Vec<PathBuf> {
        let all = self
            .groups
            .iter()
            .flat_map(|group| fs::read_dir(group).expect("it is there").flatten());
        all.map(|entry| entry.path())
            .filter(|path| path.is_dir() && !self.members.contains(path))
            .collect()
    }
}

impl Drop for DelegatedCgroups {
    fn drop(&mut self) {
        let all: Vec<PathBuf> = self
            .found()
            .into_iter()
            .chain(self.members.clone())
            .chain(self.groups.clone())
            .collect();
        becomes_true(Duration::from_secs(5), || {
            all.iter().filter(|group| fs::remove_dir(group).is_err() && group.exists()).count() == 0
        });
    }
}

/// `ringfence` on a host without cgroups.
pub(crate) fn ungrouped(project: &TestProject) -> Command {
    project.ringfence_after("[ ! -d /sys/fs/cgroup ] || mount -t tmpfs none /sys/fs/cgroup")
}

fn in_delegated_cgroups(check: impl Fn(&TestProject, &DelegatedCgroups)) {
    each_user(|user| {
        if let Some(given) = DelegatedCgroups::to(user) {
            check(&project(user), &given);
        }
    });
}

/// Promise: limits
#[test]
fn each_limit_ends_a_command_in_a_cgroup() {
    in_delegated_cgroups(|project, given| {
        each_ends(project, &|| given.ringfence(project));
        assert_eq!(given.found(), Vec::<PathBuf>::new());
    });
}

/// Root has cgroups on most hosts, so the limits without cgroups need their own test.
///
/// Promise: limits
#[test]
fn each_limit_ends_a_command_without_cgroups() {
    each_user(|user| {
        let project = project(user);
        each_ends(&project, &|| ungrouped(&project));
    });
}

/// Promise: limits
#[test]
fn cpu_time_of_unwaited_children_is_counted() {
    // No process waits for those that use the CPU.
    const SPENDERS: &str = "import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.004
        while time.process_time() < end: pass
        os._exit(0)
    time.sleep(0.006)
";
    in_delegated_cgroups(|project, given| {
        project.write("spend.py", SPENDERS);
        let spent = limited_by(
            given.ringfence(project),
            &["cpu=700ms", "wall=20s"],
            &["--", "python3", "spend.py"],
        );
        ends_by(&spent, "cpu", 700);
    });
}

/// Promise: limits
#[test]
fn tmpfs_files_count_as_memory() {
    in_delegated_cgroups(|project, given| {
        let line = "head -c 60000000 /dev/zero > /tmp/a; head -c 60000000 /dev/zero > /dev/shm/b; sleep 20";
        let full = limited_by(given.ringfence(project), &["memory=100MiB"], &["-c", line]);
        ends_by(&full, "memory", 100 * MIB);
        // Page cache of files on disk does not count as memory.
        let kept = limited_by(
            given.ringfence(project),
            &["memory=100MiB"],
            &["-c", "head -c 200000000 /dev/zero > big; cat big | wc -c; rm big"],
        );
        assert_eq!(
            (breaches(&kept), kept["stdout"].as_str()),
            (Vec::new(), Some("200000000\n")),
            "{kept}"
        );
    });
}

/// Promise: cgroups
#[test]
fn killed_ringfence_leaves_no_cgroups() {
    in_delegated_cgroups(|project, given| {
        for wait in [0, 2, 5, 10, 20, 40, 80, 160] {
            let mut command = given.ringfence(project);
            command.args([
                "run",
                "--limit=memory=100MiB",
                "--limit=processes=50",
                "--limit=cpu=1m",
                "-c",
                "sleep 3333",
            ]);
            let mut child =
                command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
            // At the start, and at moments after the cgroups were made.
            if wait > 0 {
                assert!(
                    becomes_true(Duration::from_secs(10), || !given.found().is_empty()),
                    "there is no group"
                );
            }
            std::thread::sleep(Duration::from_millis(wait));
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
            assert!(
                becomes_true(Duration::from_secs(1), || given.found().is_empty()),
                "after {wait} ms: {:?}",
                given.found()
            );
        }
    });
}

/// Promise: cgroups
#[test]
fn stale_cgroups_are_removed_and_no_others() {
    in_delegated_cgroups(|project, given| {
        let (uid, gid) = project.user.ids();
        // No process has such a pid, in any pid namespace.
        let numbers = fs::metadata("/proc/self/ns/pid").expect("there are such").ino();
        let (gone, elsewhere) =
            (format!("ringfence-{numbers}-4194305-7-1-0"), "ringfence-1-4194305-7-1-0");
        for name in [gone.as_str(), elsewhere, "ringfence-of-another", "other"] {
            let path = given.groups[0].join(name);
            fs::create_dir(&path).expect("it can be made");
            chown(path, Some(uid), Some(gid)).expect("it can be given away");
        }
        let inside = TestOutput::run(
            given.ringfence(project).args([
                "run",
                "--limit=memory=1GiB",
                "--limit=processes=99",
                "-c",
                "cat /proc/self/cgroup",
            ]),
            b"",
        )
        .ok();
        // Inside, the cgroup looks like the root.
        assert!(inside.contains(":memory:/\n") || inside.contains("0::/\n"), "{inside}");
        assert!(!inside.contains("ringfence"), "{inside}");
        let mut left: Vec<_> = given
            .found()
            .iter()
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect();
        left.sort();
        assert_eq!(left, ["other", elsewhere, "ringfence-of-another"]);
    });
}
