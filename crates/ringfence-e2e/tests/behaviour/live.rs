//! Denied and protected names that appear while a command runs.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use ringfence_testkit::{
    SECRET, TestProject, TestUser, becomes_true, each_user, fuse_for_all, needs, python,
    repetitions, signal,
};
use serde_json::Value;

use crate::project;

/// Inside: opens each given path until it is denied, and prints for how many microseconds after the
/// first success it could still be opened.
const READER: &str = "
import os, sys, time
for line in sys.stdin:
    way, path = line.rstrip('\\n').split(' ', 1)
    flags = os.O_RDONLY if way == 'read' else os.O_RDWR
    first, last, end = None, 0, time.monotonic() + 10
    print('ready', flush=True)
    while time.monotonic() < end:
        try:
            begun = time.monotonic_ns()
            os.close(os.open(path, flags))
            first, last = first or begun, begun
        except FileNotFoundError: pass
        except OSError: break
    else:
        print('never', flush=True); continue
    print((last - first) // 1000 if first else 0, flush=True)
";

/// A running command that tries the paths it is given.
struct PollingReader {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl PollingReader {
    fn start(project: &TestProject, words: &[&str]) -> Self {
        let mut command = project.ringfence();
        command.arg("run").args(words).args(["--", "python3", "-u", "-c", READER]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ringfence starts");
        let (input, output) = (
            child.stdin.take().expect("a pipe"),
            BufReader::new(child.stdout.take().expect("a pipe")),
        );
        let mut reader = Self { child, input, output };
        // From now on files appear while the command runs; the watcher is ready once it has masked
        // one.
        reader.exposed(project, "read", Path::new("first.pem"), || {
            project.write("first.pem", SECRET)
        });
        reader
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the command speaks");
        line.trim().to_owned()
    }

    /// Microseconds for which `path` could be opened after `appear`; panics if it still can.
    #[track_caller]
    fn exposed(
        &mut self,
        project: &TestProject,
        way: &str,
        path: &Path,
        appear: impl FnOnce(),
    ) -> u64 {
        writeln!(self.input, "{way} {}", project.at(path).display()).expect("the command listens");
        assert_eq!(self.line(), "ready");
        appear();
        let said = self.line();
        said.parse().unwrap_or_else(|_| panic!("{} can be opened: {said}", path.display()))
    }

    fn end(self) {
        drop(self.input);
        let ended = self.child.wait_with_output().expect("it ends");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// Number of tries; in each, the file is denied 50 ms after it appeared.
const TRIES: usize = 100;
const TRIES_UNDER_STRESS: usize = 1000;
const WINDOW_US: u64 = 50_000;

#[track_caller]
fn check(way: &str, appear: impl Fn(&TestProject, usize) -> (PathBuf, Box<dyn FnOnce() + '_>)) {
    if !fuse_for_all() || python().is_none() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let mut reader = PollingReader::start(&project, &[]);
        let tries = repetitions(TRIES, TRIES_UNDER_STRESS);
        let mut windows: Vec<u64> = (0..tries)
            .map(|number| {
                let (path, act) = appear(&project, number);
                reader.exposed(&project, "read", &path, act)
            })
            .collect();
        reader.end();
        windows.sort_unstable();
        let [median, most, longest] =
            [tries / 2, tries * 99 / 100, tries - 1].map(|at| windows[at]);
        println!(
            "{user}: {way}: open for {median} us (median), {most} us (99 %), {longest} us (longest of {tries})"
        );
        assert!(longest < WINDOW_US, "{user}: {way}: open for {longest} us");
    });
}

/// The watcher batches events: a secret may appear shortly after files that need no mask.
///
/// Promise: live-deny
#[test]
fn secret_created_among_other_files_is_masked() {
    check("created among trifles", |project, number| {
        project.write(format!("trifle{number}"), "");
        std::thread::sleep(Duration::from_millis(number as u64 % 20));
        let path = PathBuf::from(format!("src/d{number}.pem"));
        (path.clone(), Box::new(move || project.write(path, SECRET)))
    });
}

/// Promise: live-deny
#[test]
fn secret_created_by_the_host_is_masked() {
    check("created", |project, number| {
        let path = PathBuf::from(format!("d{number}/.env"));
        (path.clone(), Box::new(move || project.write(path, SECRET)))
    });
}

/// Promise: live-deny
#[test]
fn secret_moved_in_is_masked() {
    check("moved in", |project, number| {
        let (from, path) =
            (project.home().join(format!("m{number}")), PathBuf::from(format!("m{number}.pem")));
        project.write_at(&from, SECRET);
        let to = project.at(&path);
        (path, Box::new(move || fs::rename(from, to).expect("the directories exist")))
    });
}

/// Promise: live-deny
#[test]
fn secret_linked_in_is_masked() {
    check("linked in", |project, number| {
        let (from, path) =
            (project.home().join(format!("l{number}")), PathBuf::from(format!("l{number}.key")));
        project.write_at(&from, SECRET);
        let to = project.at(&path);
        (path, Box::new(move || fs::hard_link(from, to).expect("the directories exist")))
    });
}

/// Promise: live-deny
#[test]
fn secret_in_a_tree_moved_in_is_masked() {
    check("in a tree", |project, number| {
        let (from, path) = (
            project.home().join(format!("t{number}")),
            PathBuf::from(format!("t{number}/a/b/.env")),
        );
        project.write_at(&from.join("a/b/.env"), SECRET);
        let to = project.at(format!("t{number}"));
        (path, Box::new(move || fs::rename(from, to).expect("the directories exist")))
    });
}

/// As an editor saves: the mask was over the replaced file.
///
/// Promise: live-deny
#[test]
fn secret_replaced_by_the_host_is_masked() {
    check("replaced", |project, number| {
        let (from, path) = (
            project.home().join(format!("r{number}")),
            PathBuf::from(format!("sub/{}.pem", number % 7)),
        );
        project.write_at(&from, SECRET);
        let to = project.at(&path);
        // Absent for a moment, so that the reader is not denied before.
        let _ = fs::remove_file(&to);
        while to.symlink_metadata().is_ok() {}
        (path, Box::new(move || fs::rename(from, to).expect("the directories exist")))
    });
}

/// Promise: live-deny
#[test]
fn secret_unpacked_inside_is_masked() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("mkdir t && cd t && for i in $(seq 1000); do mkdir $i; echo s > $i/.env; echo x > $i/x; done && tar cf ../t.tar . && cd .. && rm -r t").ok();
        let ran = project
            .sh("mkdir t; tar xf t.tar -C t; cat t/*/.env 2>/dev/null | wc -l; cat t/*/x | wc -l");
        assert_eq!(ran.text().split_whitespace().collect::<Vec<_>>(), ["0", "1000"], "{user}");
        assert!((1..=1000).all(|number| !project.has(format!("t/{number}/.env"))), "{user}");
    });
}

/// Runs `test` with a reader in a fresh project.
fn reading(user: TestUser, words: &[&str], test: impl FnOnce(&TestProject, &mut PollingReader)) {
    if python().is_none() {
        return;
    }
    let project = project(user);
    let mut reader = PollingReader::start(&project, words);
    test(&project, &mut reader);
    reader.end();
}

/// Promise: live-deny
#[test]
fn denied_directories_and_user_patterns_are_masked_when_they_appear() {
    each_user(|user| {
        reading(user, &["--deny", "**/vault", "--deny", "*.vlt"], |project, reader| {
            reader.exposed(project, "read", Path::new("deep/down/vault"), || {
                project.write("deep/down/vault/x", SECRET)
            });
            reader.exposed(project, "read", Path::new("deep/down/vault/x"), || {});
            reader.exposed(project, "read", Path::new("SUB/.ENV"), || {
                project.write("SUB/.ENV", SECRET)
            });
            reader.exposed(project, "read", Path::new("node_modules/a/b.vlt"), || {
                project.write("node_modules/a/b.vlt", SECRET)
            });
        });
    });
}

/// Promise: live-deny
#[test]
fn excepted_names_stay_open_when_they_appear() {
    each_user(|user| {
        let project = project(user);
        let line = "sleep 0.3; cat new/.env.example fresh/plain.txt; cat new/.env";
        let child = project
            .ringfence()
            .args(["run", "-c", line])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        std::thread::sleep(Duration::from_millis(100));
        for name in ["new/.env.example", "fresh/plain.txt", "new/.env"] {
            project.write(name, name);
        }
        let ended = child.expect("ringfence starts").wait_with_output().expect("it ends");
        assert_eq!(
            String::from_utf8_lossy(&ended.stdout),
            "new/.env.examplefresh/plain.txt",
            "{user}"
        );
    });
}

/// Promise: live-deny
#[test]
fn new_hard_link_to_a_secret_is_masked() {
    each_user(|user| {
        reading(user, &[], |project, reader| {
            let link = |name: &str| {
                fs::hard_link(project.at(".env"), project.at(name)).expect("the same directory")
            };
            reader.exposed(project, "read", Path::new("plain.txt"), || link("plain.txt"));
            // A tree with both names in it.
            let tree = project.home().join("both");
            project.write_at(&tree.join("z/.env"), SECRET);
            project.make_directories(&tree.join("a"));
            fs::hard_link(tree.join("z/.env"), tree.join("a/plain")).expect("the same file system");
            reader.exposed(project, "read", Path::new("both/a/plain"), || {
                fs::rename(&tree, project.at("both")).expect("the directories exist")
            });
        });
    });
}

/// Promise: live-deny
#[test]
fn protected_file_replaced_by_the_host_stays_protected() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q; echo {} > .mcp.json").ok();
        let mut reader = PollingReader::start(&project, &[]);
        reader.exposed(&project, "write", Path::new(".git/config"), || {
            project.sh_bare("git config ring.fence 1").ok();
        });
        reader.exposed(&project, "write", Path::new(".mcp.json"), || {
            project.sh_bare("echo '{ }' > t; mv t .mcp.json").ok();
        });
        reader.exposed(&project, "write", Path::new("pkg/.envrc"), || {
            project.write("pkg/.envrc", "x")
        });
        reader.end();
        assert!(project.sh_bare("git config ring.fence").ok() == "1");
    });
}

#[test]
fn read_of_a_masked_file_is_reported() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let line = "sleep 0.4; cat later/.env";
        let child =
            project.ringfence().args(["run", "--json", "-c", line]).stdout(Stdio::piped()).spawn();
        std::thread::sleep(Duration::from_millis(150));
        project.write("later/.env", SECRET);
        let ended = child.expect("ringfence starts").wait_with_output().expect("it ends");
        let said: Value = serde_json::from_slice(&ended.stdout).expect("one object of JSON");
        let denial = &said["denials"][0];
        assert_eq!(
            denial["target"],
            project.at("later/.env").to_string_lossy().as_ref(),
            "{user}: {said}"
        );
        assert_eq!(
            (&denial["operation"], &denial["rule"], &said["blocked"]),
            (&"read".into(), &"**/.env".into(), &true.into()),
            "{user}"
        );
    });
}

const KILL: i32 = 9;
const CONTINUE: i32 = 18;
const STOP: i32 = 19;

/// The watcher of a run.
fn watcher(run: u32) -> u32 {
    let is_it = |pid: u32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let parent = format!("PPid:\t{run}\n");
        read("cmdline").ends_with(b"--watcher\0")
            && String::from_utf8_lossy(&read("status")).contains(&parent)
    };
    let mut found = None;
    assert!(becomes_true(Duration::from_secs(10), || {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        found = processes
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .find(|pid| is_it(*pid));
        found.is_some()
    }));
    found.expect("seen just now")
}

/// The event queue overflows while the watcher is stopped.
///
/// Promise: live-deny
#[test]
fn inotify_overflow_is_recovered() {
    if python().is_none() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let mut reader = PollingReader::start(&project, &[]);
        let watcher = watcher(reader.child.id());
        signal(watcher, STOP);
        let kept: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
            .expect("a limit")
            .trim()
            .parse()
            .expect("a number");
        project.make_directories(&project.at("many"));
        for number in 0..kept + 100 {
            fs::write(project.at(format!("many/{number}")), "").expect("a file can be made");
        }
        let exposed = reader.exposed(&project, "read", Path::new("many/.env"), || {
            project.write("many/.env", SECRET);
            signal(watcher, CONTINUE);
        });
        println!("{user}: {exposed} us");
        // No process stays stopped.
        reader.exposed(&project, "read", Path::new("after.pem"), || {
            project.write("after.pem", SECRET)
        });
        reader.end();
    });
}

/// Without a watcher new secrets would stay open, so the command must end.
///
/// Promise: live-deny
#[test]
fn command_ends_without_its_watcher() {
    if python().is_none() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let reader = PollingReader::start(&project, &[]);
        signal(watcher(reader.child.id()), KILL);
        let PollingReader { child, input, .. } = reader;
        let ended = child.wait_with_output().expect("it ends");
        drop(input);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(125), "{user}: {said}");
        assert!(
            said.contains("cannot watch for new files, so the command was ended"),
            "{user}: {said}"
        );
    });
}

/// With few inotify watches, the watcher polls the whole tree.
///
/// Promise: live-deny
#[test]
fn too_few_inotify_watches_are_reported_and_replaced_by_polling() {
    // The limits on watches and on inotify instances.
    for (most, setting) in [
        ("watches=5", "fs.inotify.max_user_watches="),
        ("instances=0", "fs.inotify.max_user_instances="),
    ] {
        too_few(most, setting);
    }
}

fn too_few(most: &str, setting: &str) {
    if !needs(&["unshare"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        for number in 0..20 {
            project.write(format!("d{number}/x"), "");
        }
        let binary = project.binary().display().to_string();
        let inside = "sleep 1; cat d19/.env d0/.env && echo open";
        let (what, count) = most.split_once('=').expect("a name and a number");
        let line = format!(
            "echo {count} > /proc/sys/user/max_inotify_{what} && exec {binary} run --json -c '{inside}'"
        );
        let child = project
            .command("unshare")
            .args(["-Ur", "sh", "-c", &line])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        std::thread::sleep(Duration::from_millis(400));
        for name in ["d0/.env", "d19/.env"] {
            project.write(name, SECRET);
        }
        let ended = child.expect("unshare starts").wait_with_output().expect("it ends");
        let said: Value = serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ended.stderr)));
        assert_eq!(said["stdout"], "", "{user}: {said}");
        let gaps = said["gaps"].to_string();
        assert!(
            gaps.contains("directories could not be watched") && gaps.contains(setting),
            "{user}: {said}"
        );
    });
}

/// Runs `line` inside and, while it waits for the file `go`, calls `outside`.
fn meanwhile(project: &TestProject, line: &str, outside: impl FnOnce()) -> String {
    let line = format!("touch here; while [ ! -e go ]; do sleep 0.05; done; {line}");
    let child = project
        .ringfence()
        .args(["run", "-c", &line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    assert!(becomes_true(Duration::from_secs(10), || project.has("here")));
    outside();
    // Longer than any mask takes.
    std::thread::sleep(Duration::from_millis(300));
    project.write("go", "");
    let ended = child.expect("ringfence starts").wait_with_output().expect("it ends");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// Promise: live-deny
#[test]
fn repository_made_by_the_host_is_protected() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q ~/second").ok();
        let line = "for r in second made deep/er; do cd $r; echo $r; \
            (echo x >> .git/config) 2>/dev/null && echo config; (echo x > .git/hooks/pre-commit) 2>/dev/null && echo hook; \
            (echo x > .git/config.worktree) 2>/dev/null && echo worktree; mv .git .tig 2>/dev/null && echo moved; \
            python3 -c 'open(\".git/config\", \"r+\").write(\"x\")' 2>/dev/null && echo written; \
            echo y > f && git add f && git commit -qm x && echo committed; cd - > /dev/null; done";
        let said = meanwhile(&project, line, || {
            project
                .sh_bare("mkdir deep; git init -q made; git init -q deep/er; mv ~/second .")
                .ok();
        });
        assert_eq!(said, "second\ncommitted\nmade\ncommitted\ndeep/er\ncommitted\n", "{user}");
    });
}

/// Promise: live-deny
#[test]
fn repository_made_by_the_command_stays_writable() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let line = "exec 2>&1; for i in 1 2 3 4 5 6 7 8 9; do git init -q r$i && cd r$i && git config a.b $i && echo x > .git/hooks/x && git config a.c $i || echo no; \
            sleep 0.02; git config a.d $i && mv ../r$i ../s$i && sleep 0.02 && git config a.e $i || echo no; cd ..; done; git clone -q s1 c; cd c && git config a.b c && git init -q --bare ../b.git && cd ../b.git && git config x.y z && echo all";
        assert_eq!(
            meanwhile(&project, line, || ()),
            "warning: You appear to have cloned an empty repository.\nall\n",
            "{user}"
        );
    });
}

/// The survey skips vendored trees, so the next command would find the secret open.
///
/// Promise: live-deny
#[test]
fn directory_with_a_new_secret_cannot_be_moved_to_a_vendored_tree() {
    each_user(|user| {
        let project = project(user);
        let line = "mv new node_modules/new; mv new/sub node_modules/sub; mv plain node_modules/plain; ls node_modules";
        let said = meanwhile(&project, &format!("{line} 2>/dev/null"), || {
            for name in ["node_modules/x", "new/sub/.env", "plain/file"] {
                project.write(name, SECRET);
            }
        });
        assert_eq!(said, "plain\nx\n", "{user}");
    });
}

/// The command makes a `.git` where the host will make one, and removes it again.
///
/// Promise: live-deny
#[test]
fn repository_cannot_be_claimed_before_the_host_makes_it() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let line = "mkdir -p d; for i in 1 2 3; do mkdir .git d/.git; rmdir .git d/.git; done; touch here; while [ ! -e go ]; do sleep 0.05; done; \
            for r in . d; do (echo x >> $r/.git/config) 2>/dev/null && echo config; (echo x > $r/.git/hooks/pre-commit) 2>/dev/null && echo hook; done; echo end";
        let child = project.ringfence().args(["run", "-c", line]).stdout(Stdio::piped()).spawn();
        assert!(becomes_true(Duration::from_secs(10), || project.has("here")));
        project.sh_bare("git init -q; git init -q d").ok();
        std::thread::sleep(Duration::from_millis(300));
        project.write("go", "");
        let ended = child.expect("ringfence starts").wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "end\n", "{user}");
    });
}

/// Promise: live-deny
#[test]
fn submodule_added_by_the_host_stays_protected() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let commit = "git -c user.name=a -c user.email=b commit -q --allow-empty -m x";
        project
            .sh_bare(&format!("git init -q; {commit}; git init -q ~/lib; cd ~/lib; {commit}"))
            .ok();
        let line = "(echo x >> .git/modules/lib/config) 2>/dev/null && echo config; (echo x > .git/modules/lib/hooks/h) 2>/dev/null && echo hook; \
            mkdir -p .git/modules/own; (echo x > .git/modules/own/config) 2>/dev/null && echo made; echo end";
        let said = meanwhile(&project, line, || {
            project
                .sh_bare("git -c protocol.file.allow=always submodule --quiet add ~/lib lib 2>&1")
                .ok();
        });
        // A repository of the command is swept when it has ended.
        assert_eq!(said, "made\nend\n", "{user}");
        assert_eq!(project.read(".git/modules/own/config").unwrap_or_default(), "", "{user}");
        assert!(project.has("lib/.git"), "{user}: it was moved away");
        project.sh_bare("cd lib && git status").ok();
    });
}
