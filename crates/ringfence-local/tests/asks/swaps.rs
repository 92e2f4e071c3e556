//! Somebody changes things between a question about writing and its answer.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringfence_api::AskAnswer;
use ringfence_policy::AbsPath;

use crate::Test;
use crate::stage::{Scripted, Stage};

pub(crate) const TESTS: &[Test] = &[
    (
        "swaps::a_path_that_is_written_over_changes_nothing",
        a_path_that_is_written_over_changes_nothing,
    ),
    (
        "swaps::a_directory_that_becomes_a_link_is_not_written_to",
        a_directory_that_becomes_a_link_is_not_written_to,
    ),
    (
        "swaps::a_link_that_the_command_puts_there_is_not_followed",
        a_link_that_the_command_puts_there_is_not_followed,
    ),
    (
        "swaps::whoever_swaps_all_the_time_gets_nothing_more",
        whoever_swaps_all_the_time_gets_nothing_more,
    ),
    (
        "swaps::who_asks_again_at_once_is_asked_about_again",
        who_asks_again_at_once_is_asked_about_again,
    ),
    (
        "swaps::what_takes_the_place_of_a_file_is_not_written_to",
        what_takes_the_place_of_a_file_is_not_written_to,
    ),
    ("swaps::what_is_made_meanwhile_is_not_written_to", what_is_made_meanwhile_is_not_written_to),
    ("swaps::what_was_handed_over_leads_nowhere_else", what_was_handed_over_leads_nowhere_else),
    ("swaps::whoever_is_killed_leaves_nothing", whoever_is_killed_leaves_nothing),
    (
        "swaps::an_answer_that_nobody_waits_for_opens_nothing",
        an_answer_that_nobody_waits_for_opens_nothing,
    ),
    (
        "swaps::whoever_has_a_signal_to_handle_leaves_nothing",
        whoever_has_a_signal_to_handle_leaves_nothing,
    ),
    ("swaps::nobody_else_waits", nobody_else_waits),
    (
        "swaps::the_same_file_is_made_once_for_all_who_wait",
        the_same_file_is_made_once_for_all_who_wait,
    ),
    ("swaps::there_is_an_end_to_how_many_wait", there_is_an_end_to_how_many_wait),
];

fn read(path: &AbsPath) -> Option<String> {
    fs::read_to_string(path.as_path()).ok()
}

fn is_there(path: &AbsPath) -> bool {
    fs::symlink_metadata(path.as_path()).is_ok()
}

/// A line of shell that waits until [`when`] is asked.
const UNTIL_ASKED: &str = "until [ -e asked ]; do sleep 0.02; done; rm asked";

/// Makes a file `asked` when it is asked; says yes once the named file is there.
fn when(stage: &Stage, name: &str) -> Arc<Scripted> {
    let (go, asked) = (stage.workspace.join(name), stage.workspace.join("asked"));
    Scripted::new(stage, move |_| {
        fs::write(asked.as_path(), "").expect("the project is ours");
        while !is_there(&go) {
            thread::sleep(Duration::from_millis(5));
        }
        AskAnswer::AllowOnce
    })
}

/// Promise: P61
fn a_path_that_is_written_over_changes_nothing(stage: &Stage) {
    let asker = when(stage, "go");
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

/// Promise: P61
fn a_directory_that_becomes_a_link_is_not_written_to(stage: &Stage) {
    let (papers, away, ssh) =
        (stage.at("home/papers"), stage.at("home/away"), stage.at("home/.ssh"));
    let asker = Scripted::new(stage, move |_| {
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
    // The same of a file that is there.
    let ran = stage.sh(&asker, "echo x > ~/away/plan.txt");
    assert_eq!(ran.granted(), ["allow_once write ~/away/plan.txt 1"], "{}", ran.talk());
}

/// Promise: P61
fn a_link_that_the_command_puts_there_is_not_followed(stage: &Stage) {
    stage.write("home/code/app/conf/x", "");
    stage.write("home/code/app/other/x", "");
    let asker = when(stage, "go");
    let line = format!(
        "(echo x > conf/new.pem) & {UNTIL_ASKED}; mv conf away; ln -s other conf; touch go; wait; ls other away; rm conf go"
    );
    let ran = stage.sh(&asker, &line);
    assert_eq!(ran.out(), "away:\nx\n\nother:\nx\n", "{}", ran.talk());
    assert_eq!(asker.asked(), ["create ~/code/app/conf/new.pem"]);
    // By a link that leads out of the project.
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

/// Promise: P61
fn what_takes_the_place_of_a_file_is_not_written_to(stage: &Stage) {
    let (notes, key) = (stage.at("home/notes.txt"), stage.at("home/.ssh/id_test"));
    for how in ["link", "file", "hard link", "pipe"] {
        stage.write("home/notes.txt", "notes\n");
        let (notes, key) = (notes.clone(), key.clone());
        let asker = Scripted::new(stage, move |_| {
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

/// Promise: P61
fn what_is_made_meanwhile_is_not_written_to(stage: &Stage) {
    let new = stage.at("home/papers/new");
    let asker = Scripted::new(stage, move |_| {
        fs::write(new.as_path(), "the person's\n").expect("the home is ours");
        AskAnswer::AllowOnce
    });
    let ran = stage.sh(&asker, "echo x > ~/papers/new");
    assert_eq!(
        (ran.refused(), ran.granted().len()),
        (vec!["create ~/papers/new".to_owned()], 0),
        "{}",
        ran.talk()
    );
    assert_eq!(read(&stage.at("home/papers/new")).as_deref(), Some("the person's\n"));
}

/// Promise: P61
fn what_was_handed_over_leads_nowhere_else(stage: &Stage) {
    let asker = Scripted::new(stage, |ask| {
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

/// Promise: P61
fn whoever_is_killed_leaves_nothing(stage: &Stage) {
    for how in ["KILL", "TERM"] {
        let asker = when(stage, "go");
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

/// Promise: P61
fn an_answer_that_nobody_waits_for_opens_nothing(stage: &Stage) {
    let (go, asked) = (stage.workspace.join("go"), stage.workspace.join("asked"));
    let is_first = AtomicBool::new(true);
    let asker = Scripted::new(stage, move |_| {
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

/// Promise: P61
fn whoever_has_a_signal_to_handle_leaves_nothing(stage: &Stage) {
    let asker = when(stage, "go");
    let probe = "import os, signal, sys
def handle(*_): raise KeyError
signal.signal(signal.SIGUSR1, handle)
try: open(os.environ['HOME'] + '/papers/new', 'w')
except KeyError: print('called away')";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\" & {UNTIL_ASKED}; kill -USR1 $!; wait $!; touch go; sleep 1; rm go"));
    assert_eq!((ran.out().as_str(), asker.asked().len()), ("called away\n", 1), "{}", ran.talk());
    assert_eq!(
        (ran.refused().len(), ran.granted().len(), is_there(&stage.at("home/papers/new"))),
        (0, 0, false)
    );
    // Whoever goes on afterwards calls again, waits for the same answer, and is let through.
    let asker = when(stage, "go");
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

/// Promise: P61
fn nobody_else_waits(stage: &Stage) {
    let go = stage.workspace.join("go");
    let asker = Scripted::new(stage, move |ask| {
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

/// Promise: P61
fn the_same_file_is_made_once_for_all_who_wait(stage: &Stage) {
    let asker = when(stage, "go");
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

/// Promise: P61
fn there_is_an_end_to_how_many_wait(stage: &Stage) {
    let go = stage.workspace.join("go");
    let asker = Scripted::new(stage, move |_| {
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

/// Promise: P61
fn whoever_swaps_all_the_time_gets_nothing_more(stage: &Stage) {
    stage.write("home/code/app/real/x", "");
    stage.write("home/code/app/decoy/x", "");
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
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
    // What was made is what was asked about, and where a question named the keys, that was its
    // answer.
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

/// Promise: P61
fn who_asks_again_at_once_is_asked_about_again(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
    let probe = "import os
for _ in range(100): os.close(os.open(os.environ['HOME'] + '/notes.txt', os.O_WRONLY))";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\""));
    assert_eq!((ran.talk().as_str(), asker.asked().len(), ran.refused().len()), ("", 100, 0));
}
