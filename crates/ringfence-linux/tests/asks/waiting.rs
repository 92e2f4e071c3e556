//! Callers that wait for an answer, and others.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringfence_api::{Ask, AskAnswer, Asker};

use crate::AskTest;
use crate::stage::{AskFixture, ScriptedAsker};

pub(crate) const TESTS: &[AskTest] = &[
    ("waiting::other_reads_do_not_wait", other_reads_do_not_wait),
    ("waiting::same_question_is_asked_once", same_question_is_asked_once),
    ("waiting::killed_caller_stops_waiting", killed_caller_stops_waiting),
    ("waiting::stopped_caller_goes_on_waiting", stopped_caller_goes_on_waiting),
    ("waiting::panicking_asker_denies", panicking_asker_denies),
    ("waiting::silent_asker_does_not_delay_the_end", silent_asker_does_not_delay_the_end),
    ("waiting::flood_of_questions_is_bounded", flood_of_questions_is_bounded),
];

/// Never answers.
struct Silent;

impl fmt::Debug for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Silent")
    }
}

impl Asker for Silent {
    fn ask(&self, _: &Ask) -> AskAnswer {
        loop {
            thread::park();
        }
    }
}

/// Promise: bounded-questions
fn other_reads_do_not_wait(stage: &AskFixture) {
    let go = stage.workspace.join("go");
    let asker = ScriptedAsker::new(stage, move |ask| {
        // The answer comes when all others are done.
        while ask.denial.target.ends_with("id_test") && !go.as_path().exists() {
            thread::sleep(Duration::from_millis(5));
        }
        AskAnswer::AllowOnce
    });
    let ran = stage.sh(
        &asker,
        "cat ~/.ssh/id_test & cat ~/.ssh/other; stat ~/notes.txt; cat ~/.ssh/other README; for i in 1 2 3; do ls ~/.ssh/other; done; touch go; wait",
    );
    assert_eq!(ran.out(), "another key\nanother key\nhello\nthe key\n", "{}", ran.talk());
}

/// Promise: bounded-questions
fn same_question_is_asked_once(stage: &AskFixture) {
    let go = stage.workspace.join("go");
    let asker = ScriptedAsker::new(stage, move |_| {
        while !go.as_path().exists() {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(100));
        AskAnswer::AllowOnce
    });
    let ran = stage
        .sh(&asker, "for i in 1 2 3 4 5; do cat ~/.ssh/id_test & done; sleep 2; touch go; wait");
    assert_eq!((ran.out(), asker.asked().len()), ("the key\n".repeat(5), 1), "{}", ran.talk());
    assert_eq!(ran.granted(), ["allow_once read ~/.ssh/id_test 5"]);
}

/// Promise: bounded-questions
fn killed_caller_stops_waiting(stage: &AskFixture) {
    for how in ["KILL", "TERM"] {
        let line =
            format!("cat ~/.ssh/id_test & sleep 0.2; kill -{how} $!; wait $!; echo $?; cat README");
        let ran = stage.sh(&Arc::new(Silent), &line);
        let status = if how == "KILL" { 137 } else { 143 };
        assert_eq!(ran.out(), format!("{status}\nhello\n"), "{}", ran.talk());
        // It was neither denied nor granted.
        assert_eq!((ran.refused().len(), ran.granted().len()), (0, 0));
    }
}

/// Promise: bounded-questions
fn stopped_caller_goes_on_waiting(stage: &AskFixture) {
    let go = stage.workspace.join("go");
    let asker = ScriptedAsker::new(stage, move |_| {
        while !go.as_path().exists() {
            thread::sleep(Duration::from_millis(5));
        }
        AskAnswer::AllowOnce
    });
    let line = "cat ~/.ssh/id_test & sleep 0.2; kill -STOP $!; sleep 0.1; kill -CONT $!; touch go; wait $!; echo $?;
        rm go; cat ~/.ssh/id_test & sleep 0.2; kill -STOP $!; sleep 0.1; kill -KILL $!; wait $!; echo $?; touch go";
    let ran = stage.sh(&asker, line);
    assert_eq!(ran.out(), "the key\n0\n137\n", "{}", ran.talk());
}

/// Promise: bounded-questions
fn panicking_asker_denies(stage: &AskFixture) {
    let asker = ScriptedAsker::new(stage, |_| panic!("intended panic"));
    let ran = stage.sh(&asker, "cat ~/.ssh/id_test; cat README");
    assert_eq!(
        (ran.out().as_str(), ran.refused()),
        ("hello\n", vec!["read ~/.ssh/id_test".to_owned()]),
        "{}",
        ran.talk()
    );
}

/// Promise: bounded-questions
fn silent_asker_does_not_delay_the_end(stage: &AskFixture) {
    let ran =
        stage.sh(&Arc::new(Silent), "cat ~/.ssh/id_test & cat ~/notes.txt & sleep 0.2; echo done");
    assert_eq!(ran.out(), "done\n", "{}", ran.talk());
}

/// Promise: bounded-questions
fn flood_of_questions_is_bounded(stage: &AskFixture) {
    for number in 0..10_000 {
        stage.write(&format!("home/papers/many/{number}"), "x");
    }
    let (go, asked) = (stage.workspace.join("go"), stage.workspace.join("asked"));
    fs::create_dir(asked.as_path()).expect("the project is ours");
    let asker = ScriptedAsker::new(stage, move |ask| {
        if ask.denial.target.ends_with("many") {
            return AskAnswer::AllowOnce;
        }
        let number = ask.denial.target.rsplit('/').next().unwrap_or_default();
        fs::write(asked.join(number).as_path(), "").expect("the project is ours");
        while !go.as_path().exists() {
            thread::sleep(Duration::from_millis(20));
        }
        AskAnswer::Deny
    });
    let probe = "import os, threading, time
many = os.open(os.environ['HOME'] + '/papers/many', os.O_RDONLY)
def look(numbers):
    for number in numbers:
        try: os.open(str(number), os.O_RDONLY, dir_fd=many)
        except OSError: pass
def all(stripes):
    threads = [threading.Thread(target=look, args=(stripe,)) for stripe in stripes]
    for thread in threads: thread.start()
    return threads
waiting = all([[number] for number in range(16)])
while len(os.listdir('asked')) < 16: time.sleep(0.01)
for thread in all([range(16 + first, 10000, 32) for first in range(32)]): thread.join()
open('go', 'w')
for thread in waiting: thread.join()
print('done')";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\""));
    assert_eq!(ran.out(), "done\n", "{}", ran.talk());
    assert_eq!(asker.asked().len(), 1 + 16);
    let reported: u64 = ran.outcome.denials.iter().map(|denial| denial.count).sum();
    assert_eq!(reported + ran.outcome.denials_dropped, 10_000);
}
