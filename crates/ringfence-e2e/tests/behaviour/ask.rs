//! The user is asked on the terminal, and only the user's answer counts.

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::Value;

use crate::project;

/// Starts the program.
const GO: &str = "open('go', 'w').close()";

/// Asks about paths on a terminal while `script` types for the user; returns one word for each
/// answer.
#[track_caller]
fn asked(project: &TestProject, flags: &[&str], script: &str) -> TestOutput {
    let binary = project.binary().to_string_lossy().into_owned();
    // The answers go to a file, and the terminal's settings are saved before and after.
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

/// Promise: only-typed-answers
#[test]
fn only_a_listed_letter_is_an_answer() {
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
        // Typed letters can be erased, and other input repeats the question.
        check(&project, &["/data/x"], &format!("{ready} type('d\\x7fo\\r')"), &["allow_once"]);
        check(
            &project,
            &["/data/x"],
            &format!("{ready} type('yes\\r'); {ready} type('\\x1b[A\\r'); {ready} type('o\\r')"),
            &["allow_once"],
        );
    });
}

/// Promise: question-text
#[test]
fn question_names_program_and_path_and_escapes_control_characters() {
    each_user(|user| {
        let project = project(user);
        let script = "expect('ringfence asks'); expect('\"ringfence question\", process '); expect('to read'); \
                      expect('\"/data/\\\\u{202e}x\\\\u{1b}[2J\"'); expect('nothing opens it'); expect('Enter alone denies; 60 s'); \
                      expect('> '); type('o\\r'); expect('allowed once')";
        check(&project, &["/data/\u{202e}x\u{1b}[2J"], script, &["allow_once"]);
    });
}

/// Promise: only-typed-answers
#[test]
fn input_typed_before_the_question_is_discarded() {
    each_user(|user| {
        let project = project(user);
        // Typed before the program starts, with a newline and without. The terminal echoes its
        // input buffer.
        let script = format!(
            "type('o\\ro\\ro'); expect('o\\r\\no\\r\\no'); {GO}; expect('\\r\\n> '); type('d\\r')"
        );
        check(&project, &["/data/x"], &script, &["deny"]);
    });
}

/// Promise: only-typed-answers
#[test]
fn concurrent_questions_are_asked_in_sequence() {
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

/// Promise: only-typed-answers
#[test]
fn timeout_means_deny() {
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

/// Promise: only-typed-answers
#[test]
fn interrupt_ends_the_question_and_restores_the_terminal() {
    each_user(|user| {
        let project = project(user);
        let script = "expect('\\r\\n> '); type('\\x03'); expect('denied')";
        check(&project, &["--times", "3", "/data/x"], script, &[]);
    });
}

/// Promise: only-typed-answers
#[test]
fn ten_denials_stop_further_questions() {
    each_user(|user| {
        let project = project(user);
        let script = "
for i in range(10): expect('\\r\\n> '); type('\\r')
expect('10 denials in a row: further accesses are denied without asking')";
        check(&project, &["--times", "13", "/data/x"], script, &["deny"; 13]);
        // One grant resets the count.
        let script = "
for i in range(9): expect('\\r\\n> '); type('\\r')
expect('\\r\\n> '); type('o\\r')
for i in range(9): expect('\\r\\n> '); type('\\r')
expect('\\r\\n> '); type('s\\r')";
        let expect = [&["deny"; 9][..], &["allow_once"], &["deny"; 9], &["allow_session"]].concat();
        check(&project, &["--times", "20", "/data/x"], script, &expect);
    });
}

/// Promise: only-typed-answers
#[test]
fn at_most_thirty_questions_a_minute() {
    each_user(|user| {
        let project = project(user);
        let script = "
for i in range(30): expect('\\r\\n> '); type('o\\r')
expect('more than 30 questions in a minute: further accesses are denied without asking')";
        let expect = [&["allow_once"; 30][..], &["deny"; 2]].concat();
        check(&project, &["--times", "32", "/data/x"], script, &expect);
    });
}

/// Promise: only-typed-answers
#[test]
fn no_terminal_means_deny_with_one_warning() {
    each_user(|user| {
        let project = project(user);
        // A process in a new session has no terminal, whatever its streams are.
        let binary = project.binary().to_owned();
        let ran = TestOutput::run(
            project
                .command("setsid")
                .args(["-w".as_ref(), binary.as_os_str()])
                .args(["question", "--times", "3", "/data/x"]),
            b"o\no\no\n",
        );
        assert_eq!(ran.ok(), "deny\ndeny\ndeny");
        assert_eq!(
            ran.stderr_text(),
            "ringfence: warning: cannot ask, so accesses are denied: there is no terminal\n"
        );
    });
}

/// Promise: only-typed-answers
#[test]
fn background_job_is_denied_without_a_question() {
    each_user(|user| {
        let project = project(user);
        let binary = project.binary().to_string_lossy().into_owned();
        let line = format!("set -m; {binary} question /data/x > answers & wait; echo ended");
        let script =
            "expect('ringfence is not in the foreground'); expect('ended'); wait(); print('good')";
        assert_eq!(project.on_terminal(&["/bin/sh", "-c", &line], script).ok(), "good");
        assert_eq!(project.read("answers").as_deref(), Some("deny\n"));
    });
}

#[test]
fn denial_without_a_question_names_the_allow_command() {
    each_user(|user| {
        let project = project(user);
        let report = |words: &[&str]| -> Value {
            serde_json::from_slice(&project.run([&["--json"], words].concat()).stdout).unwrap()
        };
        let env = project.at(".env").display().to_string();
        let result = report(&["-c", "cat .env"]);
        let permission = &result["permission"];
        // Without `/dev/fuse` the denial is guessed from standard error, with the same result.
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
        assert_eq!(report(&["-c", "exit 3"])["permission"], Value::Null);
    });
}
