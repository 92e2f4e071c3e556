//! A person is asked on the terminal, and what they say counts, and nothing else does.

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::Value;

use crate::project;

/// Starts the program.
const GO: &str = "open('go', 'w').close()";

/// Asks `times` about a path on a terminal while `script` plays the person; what was
/// answered, one word each.
#[track_caller]
fn asked(project: &TestProject, flags: &[&str], script: &str) -> TestOutput {
    let binary = project.binary().to_string_lossy().into_owned();
    // The answers go where no question is, and the terminal's settings are told at the end.
    let line = format!(
        "until [ -e go ]; do sleep .01; done; rm go; stty -a | md5sum > before; {binary} question \"$@\" > answers < /dev/null; stty -a | md5sum > after; echo done"
    );
    let words = ["/bin/sh", "-c", &line, "sh"];
    let script = if script.contains(GO) { script.to_owned() } else { format!("{GO}\n{script}") };
    project.on_terminal(
        &[&words, flags].concat(),
        &format!("{script}\nexpect('done'); wait(); print('good')"),
    )
}

#[track_caller]
fn check(project: &TestProject, flags: &[&str], script: &str, expect: &[&str]) {
    let ran = asked(project, flags, script);
    assert_eq!(ran.ok(), "good");
    let answers = project.read("answers").unwrap_or_default();
    assert_eq!(answers.lines().collect::<Vec<_>>(), expect, "{script}");
    assert_eq!(project.read("before"), project.read("after"), "the terminal is as it was");
}

/// Promise: P42
#[test]
fn a_letter_is_an_answer_and_everything_else_is_none() {
    each_user(|user| {
        let project = project(user);
        let ready = "expect('\\r\\n> ');";
        for (typed, expect) in [
            ("o\\r", "allow_once"),
            ("s\\n", "allow_session"),
            ("P\\r", "allow_permanent"),
            ("d\\r", "deny"),
            ("\\r", "deny"),
            ("\\x04", "deny"),
        ] {
            check(&project, &["/data/x"], &format!("{ready} type('{typed}')"), &[expect]);
        }
        // What was mistyped can be taken back, and what is no letter is asked again.
        check(&project, &["/data/x"], &format!("{ready} type('d\\x7fo\\r')"), &["allow_once"]);
        check(
            &project,
            &["/data/x"],
            &format!("{ready} type('yes\\r'); {ready} type('\\x1b[A\\r'); {ready} type('o\\r')"),
            &["allow_once"],
        );
    });
}

/// Promise: P43
#[test]
fn the_question_says_who_wants_what_and_shows_what_does_not_show() {
    each_user(|user| {
        let project = project(user);
        let script = "expect('ringfence asks'); expect('\"ringfence question\", process '); expect('to read'); \
                      expect('\"/data/\\\\u{202e}x\\\\u{1b}[2J\"'); expect('nothing opens it'); expect('Enter alone denies; 60 s'); \
                      expect('> '); type('o\\r'); expect('allowed this once')";
        check(&project, &["/data/\u{202e}x\u{1b}[2J"], script, &["allow_once"]);
    });
}

/// Promise: P42
#[test]
fn what_was_typed_before_the_question_is_no_answer() {
    each_user(|user| {
        let project = project(user);
        // Typed before the program is even started, with the line's end and without. The terminal
        // echoes what it holds for the program.
        let script = format!(
            "type('o\\ro\\ro'); expect('o\\r\\no\\r\\no'); {GO}; expect('\\r\\n> '); type('d\\r')"
        );
        check(&project, &["/data/x"], &script, &["deny"]);
    });
}

/// Promise: P42
#[test]
fn several_questions_are_asked_one_after_the_other() {
    each_user(|user| {
        let project = project(user);
        let script = "
for key in 'osd':
    expect('ringfence asks'); expect('\\r\\n> ')
    end = time.monotonic() + 0.3
    while time.monotonic() < end: pump(0.05)
    if b'ringfence asks' in seen: print('two at a time')
    type(key + '\\r')";
        check(
            &project,
            &["--times", "3", "--together", "/data/x"],
            script,
            &["allow_once", "allow_session", "deny"],
        );
    });
}

/// Promise: P42
#[test]
fn no_answer_in_time_is_no() {
    each_user(|user| {
        let project = project(user);
        check(
            &project,
            &["--timeout", "300ms", "/data/x"],
            "expect('> '); type('o'); expect('no answer: denied')",
            &["deny"],
        );
    });
}

/// Promise: P42
#[test]
fn an_interrupt_ends_the_question_and_the_program_and_not_the_terminal() {
    each_user(|user| {
        let project = project(user);
        let script = "expect('\\r\\n> '); type('\\x03'); expect('denied')";
        check(&project, &["--times", "3", "/data/x"], script, &[]);
    });
}

/// Promise: P42
#[test]
fn after_ten_times_no_nothing_more_is_asked() {
    each_user(|user| {
        let project = project(user);
        let script = "
for i in range(10): expect('\\r\\n> '); type('\\r')
expect('10 times in a row no: everything further is denied without asking')";
        check(&project, &["--times", "13", "/data/x"], script, &["deny"; 13]);
        // One yes, and the count begins anew.
        let script = "
for i in range(9): expect('\\r\\n> '); type('\\r')
expect('\\r\\n> '); type('o\\r')
for i in range(9): expect('\\r\\n> '); type('\\r')
expect('\\r\\n> '); type('s\\r')";
        let expect = [&["deny"; 9][..], &["allow_once"], &["deny"; 9], &["allow_session"]].concat();
        check(&project, &["--times", "20", "/data/x"], script, &expect);
    });
}

/// Promise: P42
#[test]
fn more_than_thirty_in_a_minute_are_too_many() {
    each_user(|user| {
        let project = project(user);
        let script = "
for i in range(30): expect('\\r\\n> '); type('o\\r')
expect('more than 30 questions in a minute: everything further is denied without asking')";
        let expect = [&["allow_once"; 30][..], &["deny"; 2]].concat();
        check(&project, &["--times", "32", "/data/x"], script, &expect);
    });
}

/// Promise: P42
#[test]
fn without_a_terminal_it_is_no_and_said_once() {
    each_user(|user| {
        let project = project(user);
        // A session of its own has none, whatever its streams are.
        let binary = project.binary().to_owned();
        let ran = TestOutput::of(
            project
                .command("setsid")
                .args(["-w".as_ref(), binary.as_os_str()])
                .args(["question", "--times", "3", "/data/x"]),
            b"o\no\no\n",
        );
        assert_eq!(ran.ok(), "deny\ndeny\ndeny");
        assert_eq!(
            ran.talk(),
            "ringfence: warning: nobody is asked, and what is refused stays so: there is no terminal\n"
        );
    });
}

/// Promise: P42
#[test]
fn in_the_background_nobody_is_asked_and_nothing_stops() {
    each_user(|user| {
        let project = project(user);
        let binary = project.binary().to_string_lossy().into_owned();
        let line = format!("set -m; {binary} question /data/x > answers & wait; echo ended");
        let script =
            "expect('the terminal is somebody else'); expect('ended'); wait(); print('good')";
        assert_eq!(project.on_terminal(&["/bin/sh", "-c", &line], script).ok(), "good");
        assert_eq!(project.read("answers").as_deref(), Some("deny\n"));
    });
}

#[test]
fn what_could_be_allowed_is_told_where_nobody_is_asked() {
    each_user(|user| {
        let project = project(user);
        let told = |words: &[&str]| -> Value {
            serde_json::from_slice(&project.run([&["--json"], words].concat()).stdout).unwrap()
        };
        let env = project.at(".env").display().to_string();
        let result = told(&["-c", "cat .env"]);
        let permission = &result["permission"];
        // Without `/dev/fuse` it is guessed from standard error, and the same.
        assert_eq!(
            (permission["type"].as_str(), permission["resource"].as_str()),
            (Some("sandbox_access"), Some(env.as_str())),
            "{result}"
        );
        assert_eq!(
            permission["options"],
            serde_json::json!(["allow_once", "allow_session", "allow_permanent", "deny"])
        );
        assert!(
            permission["reason"].as_str().unwrap().contains("refused by **/.env (built in)"),
            "{permission}"
        );
        assert_eq!(told(&["-c", "exit 3"])["permission"], Value::Null);
    });
}
