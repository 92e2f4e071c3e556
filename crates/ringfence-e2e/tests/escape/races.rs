//! Races against the check of a name, in bounded loops.

use std::ffi::OsStr;

use ringfence_testkit::{SECRET, TestOutput, TestProject, compile, each_user, repetitions};

use crate::project;

/// One thread makes names while another changes the name in memory.
const FLIP: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
static char name[2][64] = {"ok-file.x", ".mcp.json"};
static char buffer[64];
static volatile int over;
static void *flip(void *unused) {
    for (unsigned i = 0; !over; i++)
        for (int j = 0; j < 10; j++) ((volatile char *)buffer)[j] = name[i & 1][j];
    return 0;
}
int main(int argc, char **argv) {
    pthread_t thread;
    int made = 0, rounds = atoi(argv[1]);
    memcpy(buffer, name[0], 64);
    pthread_create(&thread, 0, flip, 0);
    for (int way = 0; way < 6; way++)
        for (int i = 0; i < rounds; i++) {
            int done = -1;
            if (way == 0) { done = open(buffer, O_CREAT | O_WRONLY, 0644); if (done >= 0) close(done); }
            if (way == 1) done = mkdir(buffer, 0755);
            if (way == 2) done = symlink("README", buffer);
            if (way == 3) done = link("README", buffer);
            if (way == 4) { close(open("scratch", O_CREAT | O_WRONLY, 0644)); done = rename("scratch", buffer); }
            if (way == 5) done = mknod(buffer, S_IFREG | 0644, 0);
            made += done >= 0;
            unlink("ok-file.x");
            rmdir("ok-file.x");
        }
    over = 1;
    pthread_join(thread, 0);
    printf("%d\n", made > 100);
    return 0;
}
"#;

#[track_caller]
fn watched(project: &TestProject, run: impl FnOnce(), forbidden: &str) {
    let path = project.at(forbidden);
    let over = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut seen = false;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                seen |= path.symlink_metadata().is_ok();
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
            seen | path.symlink_metadata().is_ok()
        });
        run();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        watch.join().expect("watching does not panic")
    });
    assert!(!seen, "{forbidden} appeared");
}

/// Promise: denied-names
#[test]
fn path_changed_in_memory_during_the_check_makes_no_protected_name() {
    each_user(|user| {
        let project = project(user);
        let Some(program) = compile(&project, "flip", FLIP) else { return };
        let rounds = repetitions(1_000, 3_400).to_string();
        let line = [OsStr::new("--"), program.as_os_str(), rounds.as_ref()];
        watched(&project, || assert_eq!(project.run(line).ok(), "1"), ".mcp.json");
        // Without ringfence the forbidden name appears: the race is real.
        TestOutput::run(project.command(&program).arg(&rounds), b"").ok();
        assert!(project.has(".mcp.json"), "the probe cannot succeed");
    });
}

/// A directory and a symlink to another one are exchanged while names are made below.
const SWAP: &str = r#"
import threading, warnings
os.makedirs('safe', exist_ok=True)
os.symlink(TARGET, 'link')
over = False
def swap():
    while not over:
        try: rename2('safe', 'link', 2)
        except OSError: pass
def probe(name, rounds):
    came = {}
    for i in range(rounds):
        for act in [lambda: create('safe/' + name), lambda: os.mkdir('safe/' + name + '.d'), lambda: os.symlink('x', 'safe/' + name + '.l'),
                    lambda: (write('scratch'), os.rename('scratch', 'safe/' + name + '.r'))]:
            out = outcome(act)
            came[out] = came.get(out, 0) + 1
        for place in ['safe', 'link']:
            if not os.path.islink(place):
                for end in ['', '.l', '.r']:
                    try: os.unlink(place + '/' + name + end)
                    except OSError: pass
                try: os.rmdir(place + '/' + name + '.d')
                except OSError: pass
    return came
thread = threading.Thread(target=swap, daemon=True); thread.start()
try: came = probe(NAME, ROUNDS)
finally:
    over = True; thread.join()
print('ok' in came, len(came) > 1)
"#;

#[test]
fn parent_swapped_for_a_link_makes_no_protected_name() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q").ok();
        let rounds = repetitions(60, 200).to_string();
        let script = |target: &str, name: &str| {
            SWAP.replace("TARGET", &format!("{target:?}"))
                .replace("NAME", &format!("{name:?}"))
                .replace("ROUNDS", &rounds)
        };
        watched(
            &project,
            || assert_eq!(project.python(&script(".git", "config.worktree")).ok(), "True True"),
            ".git/config.worktree",
        );
        project.sh_bare("rm -rf safe link").ok();
        watched(
            &project,
            || assert_eq!(project.python(&script(".", ".mcp.json")).ok(), "True True"),
            ".mcp.json",
        );
        project.sh_bare("rm -rf safe link").ok();
        let home = project.home().to_string_lossy().into_owned();
        watched(
            &project,
            || assert_eq!(project.python(&script(&home, "planted")).ok(), "True True"),
            "../../planted",
        );
    });
}

/// An fd alternates between two directories while names are made relative to it.
const EXCHANGE: &str = r#"
import threading
os.mkdir('safe')
number, over = 50, False
one, other = os.open('safe', os.O_RDONLY), os.open('.git', os.O_RDONLY)
def exchange():
    while not over:
        os.dup2(other, number)
        os.dup2(one, number)
os.dup2(one, number)
thread = threading.Thread(target=exchange); thread.start()
came = set()
for turn in range(TURNS):
    came.add(outcome(lambda: os.close(os.open('config.worktree', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=number))))
    try: os.unlink('safe/config.worktree')
    except OSError: pass
over = True
thread.join()
print('ok' in came, len(came) > 1)
"#;

#[test]
fn fd_replaced_during_the_check_makes_no_protected_name() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q").ok();
        let script = EXCHANGE.replace("TURNS", &repetitions(3_000, 20_000).to_string());
        watched(
            &project,
            || assert_eq!(project.python(&script).ok(), "True True"),
            ".git/config.worktree",
        );
        // Without ringfence it appears: the race is real.
        project.sh_bare("rm -rf safe").ok();
        project.python_bare(&script).ok();
        assert!(project.has(".git/config.worktree"), "the probe cannot succeed");
    });
}

#[test]
fn dot_dot_paths_stay_confined_while_the_directory_moves() {
    each_user(|user| {
        let project = project(user);
        let code = "
import threading
os.makedirs('a/b/c/d', exist_ok=True)
fd = os.open('a/b/c/d', os.O_RDONLY)
over = False
def move():
    while not over:
        for old, new in [('a/b/c', 'c'), ('c', 'a/b/c')]:
            try: os.rename(old, new)
            except OSError: pass
thread = threading.Thread(target=move, daemon=True); thread.start()
found = set()
for i in range(ROUNDS):
    for ups in [2, 4, 5, 6, 7]:
        for target in ['notes.txt', 'other/main.rs', 'home/notes.txt', '.env']:
            path = '/'.join(['..'] * ups) + '/' + target
            try:
                with open(os.open(path, os.O_RDONLY, dir_fd=fd), 'rb') as file: found.add(file.read())
            except OSError: pass
over = True; thread.join()
print(found)
";
        let said =
            project.python(&code.replace("ROUNDS", &repetitions(500, 1_500).to_string())).ok();
        assert!(!said.contains(SECRET), "{said}");
    });
}

#[test]
fn secret_stays_denied_while_its_directory_moves() {
    each_user(|user| {
        let project = project(user);
        let code = "
import threading
over = False
def move():
    while not over:
        for old, new in [('sub', 'bus'), ('bus', 'sub')]:
            try: os.rename(old, new)
            except OSError: pass
thread = threading.Thread(target=move, daemon=True); thread.start()
found = set()
for i in range(ROUNDS):
    for path in ['sub/.env', 'bus/.env', 'bus/deeper/credentials.json']:
        try: found.add(read(path))
        except OSError: pass
over = True; thread.join()
print(found)
";
        let said =
            project.python(&code.replace("ROUNDS", &repetitions(700, 2_000).to_string())).ok();
        assert!(!said.contains(SECRET), "{said}");
    });
}
