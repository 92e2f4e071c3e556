//! Where a sandbox can be a control group, the kernel counts for it, and no group is left.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user, soon};

use crate::limits::{MIB, breaches, each_ends, ends_by, limited_by};
use crate::project;

/// Groups that were given to somebody, below which they can make their own.
struct Given {
    /// One for each hierarchy.
    groups: Vec<PathBuf>,
    /// Where whoever gets them is.
    seats: Vec<PathBuf>,
}

impl Given {
    /// Nobody but the superuser can give any, and not everywhere.
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
            eprintln!("no control groups can be made here: they are not tried");
            return None;
        }
        let seats: Vec<PathBuf> = groups
            .iter()
            .map(|group| if is_second { group.join("ringfence") } else { group.clone() })
            .collect();
        if is_second {
            fs::write(groups[0].join("cgroup.subtree_control"), "+memory +pids")
                .expect("it can be divided");
            fs::create_dir(&seats[0]).expect("it can be divided");
        }
        let (uid, gid) = user.ids();
        for group in groups.iter().chain(&seats) {
            for file in [group.clone(), group.join("cgroup.procs")] {
                chown(file, Some(uid), Some(gid)).expect("it can be given away");
            }
        }
        Some(Self { groups, seats })
    }

    /// `ringfence` as somebody who is in them.
    fn ringfence(&self, project: &TestProject) -> Command {
        let seats: Vec<String> = self
            .seats
            .iter()
            .map(|seat| format!("echo $$ > {}/cgroup.procs", seat.display()))
            .collect();
        project.ringfence_after(&seats.join(" && "))
    }

    /// The groups of sandboxes that there are now.
    fn found(&self) -> Vec<PathBuf> {
        let all = self
            .groups
            .iter()
            .flat_map(|group| fs::read_dir(group).expect("it is there").flatten());
        all.map(|entry| entry.path())
            .filter(|path| path.is_dir() && !self.seats.contains(path))
            .collect()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let all: Vec<PathBuf> =
            self.found().into_iter().chain(self.seats.clone()).chain(self.groups.clone()).collect();
        soon(Duration::from_secs(5), || {
            all.iter().filter(|group| fs::remove_dir(group).is_err() && group.exists()).count() == 0
        });
    }
}

/// `ringfence` on a host that has no groups.
pub(crate) fn ungrouped(project: &TestProject) -> Command {
    project.ringfence_after("[ ! -d /sys/fs/cgroup ] || mount -t tmpfs none /sys/fs/cgroup")
}

fn in_given_groups(check: impl Fn(&TestProject, &Given)) {
    each_user(|user| {
        if let Some(given) = Given::to(user) {
            check(&project(user), &given);
        }
    });
}

/// Promise: P82
#[test]
fn each_limit_ends_what_goes_beyond_it() {
    in_given_groups(|project, given| {
        each_ends(project, &|| given.ringfence(project));
        assert_eq!(given.found(), Vec::<PathBuf>::new());
    });
}

/// The superuser has groups on most hosts: what counts without them is tried here.
///
/// Promise: P82
#[test]
fn so_it_does_where_there_are_none() {
    each_user(|user| {
        let project = project(user);
        each_ends(&project, &|| ungrouped(&project));
    });
}

/// Promise: P82
#[test]
fn time_cannot_be_hidden() {
    // Nobody waits for whoever spends it.
    const SPENDERS: &str = "import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.004
        while time.process_time() < end: pass
        os._exit(0)
    time.sleep(0.006)
";
    in_given_groups(|project, given| {
        project.write("spend.py", SPENDERS);
        let spent = limited_by(
            given.ringfence(project),
            &["cpu=700ms", "wall=20s"],
            &["--", "python3", "spend.py"],
        );
        ends_by(&spent, "cpu", 700);
    });
}

/// Promise: P82
#[test]
fn files_in_memory_count() {
    in_given_groups(|project, given| {
        let line = "head -c 60000000 /dev/zero > /tmp/a; head -c 60000000 /dev/zero > /dev/shm/b; sleep 20";
        let full = limited_by(given.ringfence(project), &["memory=100MiB"], &["-c", line]);
        ends_by(&full, "memory", 100 * MIB);
        // What is on a disk is not memory, however much of it the kernel keeps there.
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

/// Promise: P116
#[test]
fn nothing_is_left_of_whoever_is_killed() {
    in_given_groups(|project, given| {
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
            // At its beginning, and at moments after it had its groups.
            if wait > 0 {
                assert!(
                    soon(Duration::from_secs(10), || !given.found().is_empty()),
                    "there is no group"
                );
            }
            std::thread::sleep(Duration::from_millis(wait));
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
            assert!(
                soon(Duration::from_secs(1), || given.found().is_empty()),
                "after {wait} ms: {:?}",
                given.found()
            );
        }
    });
}

/// Promise: P116
#[test]
fn what_somebody_left_is_removed_and_nothing_else() {
    in_given_groups(|project, given| {
        let (uid, gid) = project.user.ids();
        // Nobody has such a number, in whichever way they are counted here.
        let numbers = fs::metadata("/proc/self/ns/pid").expect("there are such").ino();
        let (gone, elsewhere) =
            (format!("ringfence-{numbers}-4194305-7-1-0"), "ringfence-1-4194305-7-1-0");
        for name in [gone.as_str(), elsewhere, "ringfence-of-somebody", "other"] {
            let path = given.groups[0].join(name);
            fs::create_dir(&path).expect("it can be made");
            chown(path, Some(uid), Some(gid)).expect("it can be given away");
        }
        let inside = TestOutput::of(
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
        // What is seen inside is as if there were nothing above.
        assert!(inside.contains(":memory:/\n") || inside.contains("0::/\n"), "{inside}");
        assert!(!inside.contains("ringfence"), "{inside}");
        let mut left: Vec<_> = given
            .found()
            .iter()
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect();
        left.sort();
        assert_eq!(left, ["other", elsewhere, "ringfence-of-somebody"]);
    });
}
