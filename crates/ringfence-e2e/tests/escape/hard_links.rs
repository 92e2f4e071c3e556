//! Files outside cannot be written through hard links that the host made in the project.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use ringfence_testkit::{TestOutput, TestProject, becomes_true, compile, each_user};

use crate::project;

/// Puts a hard link to a file of the home into the project.
fn link_store(project: &TestProject, name: &str) {
    link_to(project, "package.js", name);
}

fn link_to(project: &TestProject, file: &str, name: &str) {
    let store = project.home().join("store").join(file);
    project.write_at(&store, "of the store\n");
    let place = project.at(name);
    project.make_directories(place.parent().expect("a file stands in a directory"));
    let _ = fs::remove_file(&place);
    fs::hard_link(store, place).expect("both are in one file system");
}

fn store(project: &TestProject) -> String {
    content(project, "package.js")
}

fn content(project: &TestProject, file: &str) -> String {
    fs::read_to_string(project.home().join("store").join(file)).expect("it stays")
}

/// Each writes by another syscall. The program finds the same content afterwards as bare.
const WAYS: &[&str] = &[
    "open(N, 'w').write('mine')",
    "open(N, 'a').write('mine')",
    "open(N, 'r+').write('mine')",
    "os.write(os.open(N, os.O_WRONLY), b'mine')",
    "os.write(os.open(N, os.O_RDWR | os.O_CREAT, 0o600), b'mine')",
    "os.open(N, os.O_RDONLY | os.O_TRUNC)",
    "os.truncate(N, 3)",
    "os.truncate(N, 100)",
    "(os.symlink(N, 'link'), open('link', 'a').write('mine'))",
    "(os.symlink(N, 'link'), os.truncate('link', 3))",
    "(lambda m: m.__setitem__(0, 88))(mmap.mmap(os.open(N, os.O_RDWR), 4))",
    "(os.link(N, 'second'), os.unlink(N), open('second', 'a').write('mine'), os.rename('second', N))",
    "(os.link(N, 'second'), os.unlink('second'), open(N, 'a').write('mine'))",
    "(os.rename(N, 'moved'), open('moved', 'a').write('mine'), os.rename('moved', N))",
];

/// Promise: hard-link-writes
#[test]
fn file_outside_keeps_its_content_when_its_hard_link_is_written() {
    each_user(|user| {
        let project = project(user);
        // The last name matches a deny pattern.
        for name in ["lib/package.js", "node_modules/.pnpm/p/package.js", "secrets.rs"] {
            let places: Vec<String> = (0..WAYS.len()).map(|i| format!("way{i}/{name}")).collect();
            let link_all = || {
                places
                    .iter()
                    .enumerate()
                    .for_each(|(i, place)| link_to(&project, &i.to_string(), place))
            };
            let each = WAYS.iter().zip(&places).map(|(way, place)| {
                format!("N = os.path.join(os.getcwd(), '{place}')\n{way}\nif os.path.islink('link'): os.unlink('link')\nprint(read(N))\n")
            });
            let code: String = each.collect();
            link_all();
            let bare = project.python_bare(&code).ok();
            for (i, way) in WAYS.iter().enumerate() {
                assert_ne!(
                    content(&project, &i.to_string()),
                    "of the store\n",
                    "{way}: the probe cannot succeed"
                );
            }
            link_all();
            assert_eq!(project.python(&code).ok(), bare, "{name}");
            for (i, way) in WAYS.iter().enumerate() {
                assert_eq!(content(&project, &i.to_string()), "of the store\n", "{way} {name}");
            }
        }
        let left: Vec<_> = project
            .entries()
            .into_keys()
            .filter(|path| path.to_string_lossy().contains(".ringfence-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

/// Promise: hard-link-writes
#[test]
fn file_outside_is_not_written_through_an_fd_of_an_unlinked_name() {
    each_user(|user| {
        let project = project(user);
        for way in [
            "os.open('/proc/self/fd/%d' % fd, os.O_WRONLY | os.O_TRUNC)",
            "os.truncate('/proc/self/fd/%d' % fd, 0)",
            "os.open('/dev/fd/%d' % fd, os.O_RDWR | os.O_CREAT | os.O_TRUNC)",
        ] {
            for gone in ["os.unlink('package.js')", "os.rename('README', 'package.js')", "None"] {
                link_store(&project, "package.js");
                project.write("README", "hello\n");
                let code = format!(
                    "fd = os.open('package.js', os.O_RDONLY)\n{gone}\nprint(outcome(lambda: {way}))"
                );
                assert_eq!(project.python(&code).ok(), "EACCES", "{gone} {way}");
                assert_eq!(store(&project), "of the store\n", "{gone} {way}");
            }
        }
    });
}

/// The open of a named pipe waits in another process: a file that replaces it was not checked.
///
/// Promise: hard-link-writes
#[test]
fn file_outside_is_not_written_when_it_replaces_a_named_pipe() {
    each_user(|user| {
        let project = project(user);
        link_store(&project, "package.js");
        let code = "
import threading
os.mkfifo('pipe')
def swap():
    time.sleep(0.2)
    os.link('package.js', 'again'); os.rename('again', 'pipe')
threading.Thread(target=swap).start()
print(outcome(lambda: os.write(os.open('pipe', os.O_WRONLY), b'mine')))
";
        assert_eq!(project.python(code).ok(), "ENXIO");
        assert_eq!(store(&project), "of the store\n");
    });
}

#[test]
fn copy_keeps_mode_times_and_attributes() {
    each_user(|user| {
        let project = project(user);
        link_store(&project, "package.js");
        let code = "
os.chmod('package.js', 0o750); os.utime('package.js', (1000, 2000))
try: os.setxattr('package.js', 'user.kept', b'yes')
except OSError: pass
state = lambda: (oct(os.stat('package.js').st_mode), os.stat('package.js').st_mtime, os.stat('package.js').st_size, os.listxattr('package.js'))
before, inode = state(), os.stat('package.js').st_ino
fd = os.open('package.js', os.O_WRONLY)
print(before == state(), inode != os.stat('package.js').st_ino, os.stat('package.js').st_nlink)
";
        assert_eq!(project.python(code).ok(), "True True 1");
    });
}

/// Promise: hard-link-writes
#[test]
fn shared_file_that_cannot_be_copied_is_refused_and_reported() {
    each_user(|user| {
        let project = project(user);
        link_store(&project, "package.js");
        let code = "os.chmod('package.js', 0o200); print(outcome(lambda: open('package.js', 'a'))); os.chmod('package.js', 0o600); sys.exit(1)";
        let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
        let said = project
            .run([
                "--json",
                "--",
                python,
                "-Bc",
                &format!("{}\n{code}", ringfence_testkit::PRELUDE),
            ])
            .text();
        let said: serde_json::Value = serde_json::from_str(&said).expect("one object of JSON");
        assert_eq!(
            said["denials"][0]["rule"],
            "the file has another name (a hard link) outside the writable trees",
            "{said}"
        );
        assert!(
            said["denials"][0]["target"]
                .as_str()
                .is_some_and(|target| target.ends_with("/package.js")),
            "{said}"
        );
        assert_eq!(store(&project), "of the store\n");
    });
}

/// Cargo, ccache and `cp -l` expect all names to stay one file.
///
/// Promise: hard-links-stay
#[test]
fn hard_links_within_the_project_stay_linked() {
    each_user(|user| {
        let project = project(user);
        // Made inside.
        assert_eq!(project.sh("echo a > a; ln a b; echo b > a; cat b; echo c >> b; cat a; truncate -s 2 b; cat a").ok(), "b\nb\nc\nb");
        // Made by the host, near and far, in surveyed and in skipped trees.
        project.write("target/debug/deps/app-1", "old\n");
        for name in ["target/debug/app", "src/app", ".git/app"] {
            project.make_directories(project.at(name).parent().expect("a directory"));
            fs::hard_link(project.at("target/debug/deps/app-1"), project.at(name))
                .expect("one file system");
        }
        let inode = fs::metadata(project.at("src/app")).expect("it is there").ino();
        assert_eq!(
            project.sh("echo new > target/debug/app; cat src/app; echo more >> .git/app; cat target/debug/deps/app-1").ok(),
            "new\nnew\nmore"
        );
        assert_eq!(fs::metadata(project.at("target/debug/app")).expect("it is there").ino(), inode);
        // As soon as one of them is outside, none is written.
        fs::hard_link(project.at("src/app"), project.home().join("code/other/app"))
            .expect("one file system");
        assert_eq!(
            project.sh("echo mine > src/app; ln .git/app x; echo mine > x; cat src/app x target/debug/app").ok(),
            "mine\nmine\nnew\nmore"
        );
        assert_eq!(
            fs::read_to_string(project.home().join("code/other/app")).expect("it is there"),
            "new\nmore\n"
        );
    });
}

/// The host may add a name while the command runs.
///
/// Promise: hard-link-writes
#[test]
fn hard_link_added_by_the_host_during_a_run_is_detected() {
    each_user(|user| {
        let project = project(user);
        let code = "
open('a', 'w').write('old'); os.link('a', 'b'); open('a', 'w').write('new'); print(read('b')); os.link('b', 'c'); open('c', 'w').write('newer'); print(read('a'))
open('ready', 'w')
while not os.path.exists('go'): time.sleep(0.01)
open('a', 'w').write('mine'); print(read('a'), read('b'))
";
        let child = std::thread::scope(|scope| {
            let ran = scope.spawn(|| project.python(code));
            assert!(
                becomes_true(Duration::from_secs(20), || project.has("ready")),
                "it does not begin"
            );
            fs::hard_link(project.at("a"), project.home().join("code/other/a"))
                .expect("one file system");
            project.sh_bare("touch go").ok();
            ran.join().expect("it ends")
        });
        assert_eq!(child.ok(), "b'new'\nb'newer'\nb'mine' b'newer'");
        assert_eq!(
            fs::read_to_string(project.home().join("code/other/a")).expect("it is there"),
            "newer"
        );
    });
}

/// Promise: hard-links-stay
#[test]
fn hard_link_within_two_writable_trees_stays_linked() {
    each_user(|user| {
        let project = project(user);
        let other = project.home().join("code/other/shared");
        project.write_at(&other, "old\n");
        fs::hard_link(&other, project.at("shared")).expect("one file system");
        let flag = project.home().join("code/other");
        let ran = project.run(["--write", &flag.to_string_lossy(), "-c", "echo new > shared"]);
        assert_eq!(
            (ran.status, fs::read_to_string(&other).ok().as_deref()),
            (0, Some("new\n")),
            "{}",
            ran.stderr_text()
        );
    });
}

/// Bounds the cost where a whole tree is linked: one walk, not one per file.
#[test]
fn many_hard_linked_files_are_written_in_one_walk() {
    each_user(|user| {
        let project = project(user);
        for i in 0..400 {
            let store = project.home().join(format!("store/{i}"));
            project.write_at(&store, "of the store\n");
            project.make_directories(&project.at(format!("node_modules/{}", i % 50)));
            fs::hard_link(&store, project.at(format!("node_modules/{}/{i}", i % 50)))
                .expect("one file system");
        }
        let code = "
begun = time.monotonic()
for i in range(400): open('node_modules/%d/%d' % (i % 50, i), 'a').write('mine')
print(time.monotonic() - begun < 20)
";
        assert_eq!(project.python(code).ok(), "True");
        for i in 0..400 {
            assert_eq!(
                fs::read_to_string(project.home().join(format!("store/{i}"))).expect("it stays"),
                "of the store\n"
            );
        }
    });
}

/// One thread removes the name that another opens; the file gets it again by its fd.
const UNLINK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static char name[4096];
static volatile int turn, over;
static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}
static void *removes(void *unused) {
    pin(1);
    while (!over)
        if (turn) { unlink(name); turn = 0; } else sched_yield();
    return 0;
}
int main() {
    pthread_t thread;
    char again[64], content[5] = "";
    struct timespec begun, now;
    int outside = open("a", O_RDONLY), opened = 0;
    sprintf(again, "/proc/self/fd/%d", outside);
    pin(0);
    pthread_create(&thread, 0, removes, 0);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int round = 0; strcmp(content, "mine"); round++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begun.tv_sec > 1) break;
        unlink("a");
        linkat(AT_FDCWD, again, AT_FDCWD, "a", AT_SYMLINK_FOLLOW);
        /* The longer the path, the later the name is gone. */
        name[0] = 0;
        for (int i = 0; i < round * 37 % 1900; i++) memcpy(name + 2 * i, "./", 3);
        strcat(name, "a");
        turn = 1;
        int file = open("a", O_WRONLY);
        if (file >= 0) { opened++; pwrite(file, "mine", 4, 0); close(file); }
        while (turn) sched_yield();
        pread(outside, content, 4, 0);
    }
    over = 1;
    pthread_join(thread, 0);
    printf("%d\n", opened > 0);
}
"#;

/// Promise: unlinked-hard-link
#[test]
fn file_outside_keeps_its_content_while_its_link_is_removed() {
    each_user(|user| {
        let project = project(user);
        let Some(program) = compile(&project, "unlink", UNLINK) else { return };
        link_store(&project, "a");
        assert_eq!(project.run([std::ffi::OsStr::new("--"), program.as_os_str()]).ok(), "1");
        assert_eq!(store(&project), "of the store\n");
        link_store(&project, "a");
        TestOutput::run(&mut project.command(&program), b"").ok();
        assert_eq!(store(&project), "minehe store\n", "the probe cannot succeed");
    });
}

/// Removed names do not hide one that the host adds outside.
///
/// Promise: unlinked-hard-link
#[test]
fn hard_link_added_after_others_were_removed_is_detected() {
    each_user(|user| {
        let project = project(user);
        let code = "
open('a', 'w').write('old'); open('b', 'w').write('old'); open('other', 'w').write('other')
for name in ['a', 'b']:
    for i in range(4): os.link(name, name + str(i)); open(name, 'w').write('new')
for i in range(4): os.unlink('a%d' % i)
os.rename('other', 'b0')
open('ready', 'w')
while not os.path.exists('go'): time.sleep(0.01)
open('a', 'a').write('mine'); open('b', 'a').write('mine'); print(read('a'), read('b'), read('b1'))
";
        let ran = std::thread::scope(|scope| {
            let ran = scope.spawn(|| project.python(code));
            assert!(
                becomes_true(Duration::from_secs(20), || project.has("ready")),
                "it does not begin"
            );
            for name in ["a", "b"] {
                fs::hard_link(project.at(name), project.home().join("code/other").join(name))
                    .expect("one file system");
            }
            project.sh_bare("touch go").ok();
            ran.join().expect("it ends")
        });
        assert_eq!(ran.ok(), "b'newmine' b'newmine' b'new'");
        for name in ["a", "b"] {
            assert_eq!(
                fs::read_to_string(project.home().join("code/other").join(name))
                    .expect("it is there"),
                "new",
                "{name}"
            );
        }
    });
}
