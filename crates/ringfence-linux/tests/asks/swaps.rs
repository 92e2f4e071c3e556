//! Files that are changed between a question about a write and its answer.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringfence_api::AskAnswer;
use ringfence_policy::AbsPath;

use crate::AskTest;
use crate::stage::{AskFixture, ScriptedAsker};

pub(crate) const TESTS: &[AskTest] = &[
    (
        "swaps::path_buffer_overwritten_after_the_call_has_no_effect",
        path_buffer_overwritten_after_the_call_has_no_effect,
    ),
    (
        "swaps::directory_replaced_by_a_link_is_not_written_to",
        directory_replaced_by_a_link_is_not_written_to,
    ),
    (
        "swaps::link_created_by_the_command_is_not_followed",
        link_created_by_the_command_is_not_followed,
    ),
    ("swaps::constant_swaps_gain_no_access", constant_swaps_gain_no_access),
    ("swaps::each_allow_once_write_is_asked_about", each_allow_once_write_is_asked_about),
    ("swaps::replaced_file_is_not_written_to", replaced_file_is_not_written_to),
    (
        "swaps::file_created_before_the_answer_is_not_written_to",
        file_created_before_the_answer_is_not_written_to,
    ),
    ("swaps::granted_fd_gives_access_to_no_other_file", granted_fd_gives_access_to_no_other_file),
    ("swaps::killed_caller_leaves_no_file", killed_caller_leaves_no_file),
    (
        "swaps::answer_without_a_waiting_caller_opens_nothing",
        answer_without_a_waiting_caller_opens_nothing,
    ),
    (
        "swaps::caller_with_a_signal_handler_leaves_no_file",
        caller_with_a_signal_handler_leaves_no_file,
    ),
    ("swaps::other_writes_do_not_wait", other_writes_do_not_wait),
    (
        "swaps::file_is_created_once_for_all_waiting_callers",
        file_is_created_once_for_all_waiting_callers,
    ),
    ("swaps::open_questions_about_writes_are_bounded", open_questions_about_writes_are_bounded),
];

fn read(path: &AbsPath) -> Option<String> {
    fs::read_to_string(path.as_path()).ok()
}

fn is_there(path: &AbsPath) -> bool {
    fs::symlink_metadata(path.as_path()).is_ok()
}

/// Shell code that waits until the asker of [`allow_when_exists`] is called.
const UNTIL_ASKED: &str = "until [ -e asked ]; do sleep 0.02; done; rm asked";

/// Creates a file `asked` when called; allows once the named file exists.
fn allow_when_exists(stage: &AskFixture, name: &str) -> Arc<ScriptedAsker> {
    let (go, asked) = (stage.workspace.join(name), stage.workspace.join("asked"));
    ScriptedAsker::new(stage, move |_| {
        fs::write(asked.as_path(), "").expect("the project is ours");
        while !is_there(&go) {
            thread::sleep(Duration::from_millis(5));
        }
        AskAnswer::AllowOnce
    })
}

/// Promise: write-target
fn path_buffer_overwritten_after_the_call_has_no_effect(stage: &AskFixture) {
    let asker = allow_when_exists(stage, "go");
    let probe = "import ctypes, os, threading, time
home = os.environ['HOME'].encode()
libc = ctypes.CDLL(None, use_errno=True)
path = ctypes.create_string_buffer(home + b'/papers/aaa', 256)
done = []
def call(): done.append(libc.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
thread = threading.Thread(target=call)
thread.start()
while not os.path.exists('asked'): time.sleep(0.02)
path.value = home + b'/.ssh/aaa'
open('go', 'w')
thread.join()
print(done[0] >= 0, os.readlink('/proc/self/fd/%d' % done[0]).endswith('/papers/aaa'))";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\""));
    assert_eq!(
        (ran.out().as_str(), asker.asked()),
        ("True True\n", vec!["create ~/papers/aaa".to_owned()]),
        "{}",
        ran.talk()
    );
    assert!(is_there(&stage.at("home/papers/aaa")) && !is_there(&stage.at("home/.ssh/aaa")));
}

/// Promise: write-target
fn directory_replaced_by_a_link_is_not_written_to(stage: &AskFixture) {
    let (papers, away, ssh) =
        (stage.at("home/papers"), stage.at("home/away"), stage.at("home/.ssh"));
    let asker = ScriptedAsker::new(stage, move |_| {
        if is_there(&papers) && !is_there(&away) {
            fs::rename(papers.as_path(), away.as_path()).expect("it is there");
            symlink(ssh.as_path(), papers.as_path()).expect("the home is ours");
        }
        AskAnswer::AllowOnce
    });
    let ran = stage.sh(&asker, "echo x > ~/papers/new");
    assert_eq!(
        (ran.refused(), ran.granted().len()),
        (vec!["create ~/papers/new".to_owned()], 0),
        "{}",
        ran.talk()
    );
    assert!(!is_there(&stage.at("home/.ssh/new")) && !is_there(&stage.at("home/away/new")));
    // The same for an existing file.
    let ran = stage.sh(&asker, "echo x > ~/away/plan.txt");
    assert_eq!(ran.granted(), ["allow_once write ~/away/plan.txt 1"], "{}", ran.talk());
}

/// Promise: write-target
fn link_created_by_the_command_is_not_followed(stage: &AskFixture) {
    stage.write("home/code/app/conf/x", "");
    stage.write("home/code/app/other/x", "");
    let asker = allow_when_exists(stage, "go");
    let line = format!(
        "(echo x > conf/new.pem) & {UNTIL_ASKED}; mv conf away; ln -s other conf; touch go; wait; ls other away; rm conf go"
    );
    let ran = stage.sh(&asker, &line);
    assert_eq!(ran.out(), "away:\nx\n\nother:\nx\n", "{}", ran.talk());
    assert_eq!(asker.asked(), ["create ~/code/app/conf/new.pem"]);
    // A link that leads out of the project.
    let ssh = stage.at("home/.ssh");
    let line = format!(
        "mv away conf; (echo x > conf/new.pem) & {UNTIL_ASKED}; mv conf away; ln -s {ssh} conf; touch go; wait"
    );
    let ran = stage.sh(&asker, &line);
    assert_eq!(
        (ran.granted().len(), is_there(&stage.at("home/.ssh/new.pem"))),
        (0, false),
        "{}",
        ran.talk()
    );
}

/// Promise: write-target
fn replaced_file_is_not_written_to(stage: &AskFixture) {
    let (notes, key) = (stage.at("home/notes.txt"), stage.at("home/.ssh/id_test"));
    for how in ["link", "file", "hard link", "pipe"] {
        stage.write("home/notes.txt", "notes\n");
        let (notes, key) = (notes.clone(), key.clone());
        let asker = ScriptedAsker::new(stage, move |_| {
            fs::remove_file(notes.as_path()).expect("it is there");
            match how {
                "link" => symlink(key.as_path(), notes.as_path()),
                "hard link" => fs::hard_link(key.as_path(), notes.as_path()),
                "pipe" => {
                    std::process::Command::new("mkfifo").arg(notes.as_path()).status().map(drop)
                }
                _ => fs::write(notes.as_path(), "another\n"),
            }
            .expect("the home is ours");
            AskAnswer::AllowOnce
        });
        let ran = stage.sh(&asker, "echo x > ~/notes.txt");
        assert_eq!(
            (ran.refused(), asker.asked().len()),
            (vec!["write ~/notes.txt".to_owned()], 1),
            "{how}: {}",
            ran.talk()
        );
        assert_eq!(read(&stage.at("home/.ssh/id_test")).as_deref(), Some("the key\n"), "{how}");
        if how == "file" {
            assert_eq!(read(&stage.at("home/notes.txt")).as_deref(), Some("another\n"));
        }
        fs::remove_file(stage.at("home/notes.txt").as_path()).expect("it is there");
    }
}

/// Promise: write-target
fn file_created_before_the_answer_is_not_written_to(stage: &AskFixture) {
    let new = stage.at("home/papers/new");
    let asker = ScriptedAsker::new(stage, move |_| {
        fs::write(new.as_path(), "the user's\n").expect("the home is ours");
        AskAnswer::AllowOnce
    });
    let ran = stage.sh(&asker, "echo x > ~/papers/new");
    assert_eq!(
        (ran.refused(), ran.granted().len()),
        (vec!["create ~/papers/new".to_owned()], 0),
        "{}",
        ran.talk()
    );
    assert_eq!(read(&stage.at("home/papers/new")).as_deref(), Some("the user's\n"));
}

/// Promise: write-target
fn granted_fd_gives_access_to_no_other_file(stage: &AskFixture) {
    let asker = ScriptedAsker::new(stage, |ask| {
        if ask.denial.target.ends_with("notes.txt") {
            AskAnswer::AllowOnce
        } else {
            AskAnswer::Deny
        }
    });
    let probe = "import os
fd = os.open(os.environ['HOME'] + '/notes.txt', os.O_RDWR)
def tries(what, *arguments, **named):
    try: what(*arguments, **named); print('went through')
    except OSError as error: print(type(error).__name__)
tries(os.open, '..', os.O_RDONLY, dir_fd=fd)
tries(os.link, '/proc/self/fd/%d' % fd, 'stolen', follow_symlinks=True)
tries(os.rename, '/proc/self/fd/%d' % fd, 'stolen')
tries(os.open, '/proc/self/fd/%d/../.ssh/id_test' % fd, os.O_RDONLY)
print(os.read(fd, 6))";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\"; ls"));
    assert_eq!(
        ran.out(),
        "NotADirectoryError\nOSError\nOSError\nNotADirectoryError\nb'notes\\n'\nREADME\n",
        "{}",
        ran.talk()
    );
}

/// Promise: write-target
fn killed_caller_leaves_no_file(stage: &AskFixture) {
    for how in ["KILL", "TERM"] {
        let asker = allow_when_exists(stage, "go");
        let line = format!(
            "touch ~/papers/new & {UNTIL_ASKED}; kill -{how} $!; wait $!; echo $?; touch go; sleep 1; rm go; cat README"
        );
        let ran = stage.sh(&asker, &line);
        let status = if how == "KILL" { 137 } else { 143 };
        assert_eq!(
            (ran.out(), asker.asked().len()),
            (format!("{status}\nhello\n"), 1),
            "{}",
            ran.talk()
        );
        assert_eq!(
            (ran.refused().len(), ran.granted().len(), is_there(&stage.at("home/papers/new"))),
            (0, 0, false)
        );
    }
}

/// Promise: write-target
fn answer_without_a_waiting_caller_opens_nothing(stage: &AskFixture) {
    let (go, asked) = (stage.workspace.join("go"), stage.workspace.join("asked"));
    let is_first = AtomicBool::new(true);
    let asker = ScriptedAsker::new(stage, move |_| {
        if !is_first.swap(false, Ordering::SeqCst) {
            return AskAnswer::Deny;
        }
        fs::write(asked.as_path(), "").expect("the project is ours");
        while !is_there(&go) {
            thread::sleep(Duration::from_millis(5));
        }
        AskAnswer::AllowSession
    });
    let line = format!(
        "touch .vscode & {UNTIL_ASKED}; kill -KILL $!; wait $! 2>/dev/null; touch go; sleep 1; rm go; \
         mkdir .vscode 2>/dev/null; echo evil > .vscode/tasks.json; cat README"
    );
    let ran = stage.sh(&asker, &line);
    assert_eq!(ran.out(), "hello\n", "{}", ran.talk());
    assert!(!is_there(&stage.workspace.join(".vscode/tasks.json")));
}

/// Promise: write-target
fn caller_with_a_signal_handler_leaves_no_file(stage: &AskFixture) {
    let asker = allow_when_exists(stage, "go");
    let probe = "import os, signal, sys
def handle(*_): raise KeyError
signal.signal(signal.SIGUSR1, handle)
try: open(os.environ['HOME'] + '/papers/new', 'w')
except KeyError: print('interrupted')";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\" & {UNTIL_ASKED}; kill -USR1 $!; wait $!; touch go; sleep 1; rm go"));
    assert_eq!((ran.out().as_str(), asker.asked().len()), ("interrupted\n", 1), "{}", ran.talk());
    assert_eq!(
        (ran.refused().len(), ran.granted().len(), is_there(&stage.at("home/papers/new"))),
        (0, 0, false)
    );
    // A program that goes on calls again, waits for the same answer, and succeeds.
    let asker = allow_when_exists(stage, "go");
    let probe = probe.replace("raise KeyError", "print('handled')");
    let ran = stage.sh(
        &asker,
        &format!(
            "python3 -uc \"{probe}\" & {UNTIL_ASKED}; kill -USR1 $!; sleep 0.2; touch go; wait $!"
        ),
    );
    assert_eq!((ran.out().as_str(), asker.asked().len()), ("handled\n", 1), "{}", ran.talk());
    assert_eq!((ran.granted().len(), is_there(&stage.at("home/papers/new"))), (1, true));
}

/// Promise: write-target
fn other_writes_do_not_wait(stage: &AskFixture) {
    let go = stage.workspace.join("go");
    let asker = ScriptedAsker::new(stage, move |ask| {
        while ask.denial.target.ends_with("/slow") && !is_there(&go) {
            thread::sleep(Duration::from_millis(5));
        }
        AskAnswer::AllowOnce
    });
    let line = "echo a > ~/slow & for i in 1 2 3; do echo $i > in$i; mkdir d$i; done; echo b > ~/quick; cat ~/notes.txt; touch go; wait; cat in1 in2 in3";
    let ran = stage.sh(&asker, line);
    assert_eq!(ran.out(), "notes\n1\n2\n3\n", "{}", ran.talk());
    assert_eq!(
        (read(&stage.at("home/slow")).as_deref(), read(&stage.at("home/quick")).as_deref()),
        (Some("a\n"), Some("b\n"))
    );
}

/// Promise: write-target
fn file_is_created_once_for_all_waiting_callers(stage: &AskFixture) {
    let asker = allow_when_exists(stage, "go");
    let ran = stage.sh(
        &asker,
        "for i in 1 2 3 4 5; do echo x >> ~/papers/new & done; sleep 2; touch go; wait",
    );
    assert_eq!(
        (ran.granted(), asker.asked().len()),
        (vec!["allow_once create ~/papers/new 5".to_owned()], 1),
        "{}",
        ran.talk()
    );
    assert_eq!(read(&stage.at("home/papers/new")).as_deref(), Some("x\nx\nx\nx\nx\n"));
}

/// Promise: write-target
fn open_questions_about_writes_are_bounded(stage: &AskFixture) {
    let go = stage.workspace.join("go");
    let asker = ScriptedAsker::new(stage, move |_| {
        while !is_there(&go) {
            thread::sleep(Duration::from_millis(20));
        }
        AskAnswer::Deny
    });
    let probe = "import os, threading
home = os.environ['HOME']
ended = threading.Semaphore(0)
def make(number):
    try: os.open(home + '/papers/%d' % number, os.O_CREAT | os.O_WRONLY)
    except OSError: ended.release()
threads = [threading.Thread(target=make, args=(number,)) for number in range(200)]
for thread in threads: thread.start()
for _ in range(200 - 16): ended.acquire()
open('go', 'w')
for thread in threads: thread.join()
print('done')";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\""));
    assert_eq!((ran.out().as_str(), asker.asked().len()), ("done\n", 16), "{}", ran.talk());
    assert_eq!(
        (ran.outcome.denials.iter().map(|denial| denial.count).sum::<u64>(), ran.granted().len()),
        (200, 0)
    );
}

/// Promise: write-target
fn constant_swaps_gain_no_access(stage: &AskFixture) {
    stage.write("home/code/app/real/x", "");
    stage.write("home/code/app/decoy/x", "");
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let probe = "import ctypes, os, threading
home = os.environ['HOME']
libc = ctypes.CDLL(None)
os.symlink(home + '/.ssh', 'out')
over = False
def swap():
    while not over:
        for other in (b'out', b'decoy'): libc.renameat2(-100, b'real', -100, other, 2)
def write():
    while not over: path.value = b'real/%d.pem'; path.value = home.encode() + b'/.ssh/stolen'; path.value = b'real/a.pem'
path = ctypes.create_string_buffer(256)
threads = [threading.Thread(target=swap), threading.Thread(target=write)]
for thread in threads: thread.start()
for number in range(300):
    fd = libc.open(path if number % 2 else b'real/%d.pem' % number, os.O_CREAT | os.O_WRONLY, 0o600)
    if fd >= 0: os.close(fd)
over = True
for thread in threads: thread.join()";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\""));
    assert_eq!(ran.talk(), "");
    // Each new file is one that a question named, also in `.ssh`.
    let asked = asker.asked();
    for name in fs::read_dir(stage.at("home/.ssh").as_path())
        .expect("it is there")
        .flatten()
        .map(|entry| entry.file_name())
    {
        let name = name.to_string_lossy().into_owned();
        let is_old = ["id_test", "other"].contains(&name.as_str());
        assert!(is_old || asked.contains(&format!("create ~/.ssh/{name}")), "{name} {asked:?}");
    }
    assert!(!asked.is_empty());
}

/// Promise: write-target
fn each_allow_once_write_is_asked_about(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let probe = "import os
for _ in range(100): os.close(os.open(os.environ['HOME'] + '/notes.txt', os.O_WRONLY))";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\""));
    assert_eq!((ran.talk().as_str(), asker.asked().len(), ran.refused().len()), ("", 100, 0));
}
