//! What is opened for the rest of a session.

use std::fs;
use std::thread;
use std::time::Duration;

use ringfence_api::{AskAnswer, Operation};

use crate::Test;
use crate::stage::{Scripted, Stage};

pub(crate) const TESTS: &[Test] = &[
    ("session::what_was_opened_is_not_asked_about_again", what_was_opened_is_not_asked_about_again),
    ("session::a_shell_lives_on", a_shell_lives_on),
    (
        "session::a_cover_in_the_project_comes_off_for_good",
        a_cover_in_the_project_comes_off_for_good,
    ),
    ("session::what_was_opened_cannot_be_written", what_was_opened_cannot_be_written),
    ("session::a_directory_keeps_its_secrets_shut", a_directory_keeps_its_secrets_shut),
    ("session::a_hard_link_to_a_secret_stays_shut", a_hard_link_to_a_secret_stays_shut),
    (
        "session::what_appears_in_an_opened_directory_is_covered",
        what_appears_in_an_opened_directory_is_covered,
    ),
    (
        "session::what_is_opened_in_a_denied_directory_is_all_that_is",
        what_is_opened_in_a_denied_directory_is_all_that_is,
    ),
    (
        "session::what_holds_something_opened_is_opened_once_at_most",
        what_holds_something_opened_is_opened_once_at_most,
    ),
    (
        "session::what_is_opened_leaves_no_trace_on_the_host",
        what_is_opened_leaves_no_trace_on_the_host,
    ),
    ("session::what_is_opened_is_what_was_asked_about", what_is_opened_is_what_was_asked_about),
];

/// In one shell, before and after something that takes longer than it takes the lookout to
/// begin.
const TWICE: &str = "echo $$ > pid; cat FILE; cat FILE; stat -c %s FILE; sleep 0.2; cat FILE; [ $$ = $(cat pid) ] && echo same";

/// Promise: P54
fn what_was_opened_is_not_asked_about_again(stage: &Stage) {
    for answer in [AskAnswer::AllowSession, AskAnswer::AllowPermanent] {
        let asker = Scripted::always(stage, answer);
        let ran = stage.sh(&asker, &TWICE.replace("FILE", "~/.ssh/id_test"));
        assert_eq!(ran.out(), "the key\nthe key\n8\nthe key\nsame\n", "{}", ran.talk());
        assert_eq!(
            (asker.asked(), ran.refused().len()),
            (vec!["read ~/.ssh/id_test".to_owned()], 0)
        );
        assert_eq!(ran.granted(), [format!("{answer} read ~/.ssh/id_test 1")]);
    }
}

/// Promise: P54
fn a_shell_lives_on(stage: &Stage) {
    let asker = Scripted::new(stage, |ask| {
        if ask.denial.target.ends_with("other") { AskAnswer::Deny } else { AskAnswer::AllowSession }
    });
    let mut living = stage.shell(asker.clone());
    let pid = living.shell.pid();
    assert_eq!(living.say("cd /tmp; kept=1; cat ~/.ssh/id_test"), ("the key\n".into(), 0, 1));
    assert_eq!(
        living.say("cat ~/.ssh/id_test; echo $kept; pwd"),
        ("the key\n1\n/tmp\n".into(), 0, 0)
    );
    assert_eq!(living.say("cat ~/.ssh/other"), (String::new(), 1, 0));
    assert_eq!((living.shell.pid(), asker.asked().len()), (pid, 2));
    living.end();
}

/// Promise: P54
fn a_cover_in_the_project_comes_off_for_good(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::AllowSession);
    let ran = stage.sh(&asker, &TWICE.replace("FILE", ".env"));
    assert_eq!(ran.out(), "TOKEN=2\nTOKEN=2\n8\nTOKEN=2\nsame\n", "{}", ran.talk());
    assert_eq!((asker.asked().len(), ran.refused().len()), (1, 0));
    // Also after the lookout has begun.
    let ran = stage.sh(&asker, &format!("sleep 0.2; {}", TWICE.replace("FILE", ".env")));
    assert_eq!(ran.out(), "TOKEN=2\nTOKEN=2\n8\nTOKEN=2\nsame\n", "{}", ran.talk());
}

/// Promise: P54
fn what_was_opened_cannot_be_written(stage: &Stage) {
    let asker = Scripted::new(stage, |ask| {
        if ask.denial.operation == Operation::Read {
            AskAnswer::AllowSession
        } else {
            AskAnswer::Deny
        }
    });
    let line = "cat .env ~/.ssh/id_test ~/papers/plan.txt; echo x >> .env; echo x >> ~/.ssh/id_test; echo x > ~/papers/plan.txt; rm .env; touch ~/papers/new";
    let ran = stage.sh(&asker, line);
    assert_eq!(ran.out(), "TOKEN=2\nthe key\nthe plan\n", "{}", ran.talk());
    for (name, content) in [
        ("code/app/.env", "TOKEN=2\n"),
        (".ssh/id_test", "the key\n"),
        ("papers/plan.txt", "the plan\n"),
    ] {
        assert_eq!(
            fs::read_to_string(stage.home.join(name).as_path()).expect("it is there"),
            content
        );
    }
}

/// Promise: P54
fn a_directory_keeps_its_secrets_shut(stage: &Stage) {
    let asker = Scripted::new(stage, |ask| {
        if ask.denial.target.ends_with("/papers") {
            AskAnswer::AllowSession
        } else {
            AskAnswer::Deny
        }
    });
    let list =
        "python3 -c 'import os; print(sorted(os.listdir(os.environ[\"HOME\"] + \"/papers\")))'";
    let line = format!(
        "{list}; cat ~/papers/plan.txt; cat ~/papers/.env ~/papers/deep/id.pem; sleep 0.2; cat ~/papers/deep/id.pem; {list}"
    );
    let ran = stage.sh(&asker, &line);
    let listed = "['.env', 'deep', 'plan.txt']\n";
    assert_eq!(ran.out(), format!("{listed}the plan\n{listed}"), "{}", ran.talk());
    // They are explicit, so they are asked about for themselves.
    assert_eq!(asker.asked(), ["read ~/papers", "read ~/papers/.env", "read ~/papers/deep/id.pem"]);
    assert_eq!(ran.refused(), ["read ~/papers/.env", "read ~/papers/deep/id.pem"]);
    // And that very path can be opened.
    let asker = Scripted::always(stage, AskAnswer::AllowSession);
    let ran = stage.sh(
        &asker,
        &format!("{list}; cat ~/papers/.env; cat ~/papers/.env; cat ~/papers/deep/id.pem"),
    );
    assert_eq!(
        (ran.out(), asker.asked().len()),
        (format!("{listed}TOKEN=1\nTOKEN=1\na pem\n"), 3),
        "{}",
        ran.talk()
    );
}

/// Promise: P54
fn a_hard_link_to_a_secret_stays_shut(stage: &Stage) {
    fs::hard_link(stage.at("home/papers/.env").as_path(), stage.at("home/papers/plain").as_path())
        .expect("the home is ours");
    let asker = Scripted::new(stage, |ask| {
        if ask.denial.target.ends_with("/papers") {
            AskAnswer::AllowSession
        } else {
            AskAnswer::Deny
        }
    });
    let list = "python3 -c 'import os; os.listdir(os.environ[\"HOME\"] + \"/papers\")'";
    let ran = stage.sh(&asker, &format!("{list}; cat ~/papers/plan.txt ~/papers/plain"));
    assert_eq!(
        (ran.out().as_str(), ran.refused()),
        ("the plan\n", vec!["read ~/papers/plain".to_owned()]),
        "{}",
        ran.talk()
    );
    // Nothing says that the person knows whose other name it is.
    assert_eq!(asker.asked(), ["read ~/papers"]);
}

/// Promise: P54
fn what_appears_in_an_opened_directory_is_covered(stage: &Stage) {
    let (appears, go) = (stage.at("home/papers/late.pem"), stage.workspace.join("go"));
    let asker = Scripted::new(stage, |ask| {
        if ask.denial.target.ends_with("/papers") {
            AskAnswer::AllowSession
        } else {
            AskAnswer::Deny
        }
    });
    let host = thread::spawn(move || {
        while !go.as_path().exists() {
            thread::sleep(Duration::from_millis(5));
        }
        fs::write(appears.as_path(), "late\n").expect("the home is ours");
    });
    let list = "python3 -c 'import os; os.listdir(os.environ[\"HOME\"] + \"/papers\")'";
    // By then somebody looks out who knows nothing of the directory yet.
    let wait = "until [ -e ~/papers/late.pem ]; do sleep 0.01; done; i=0; while [ $i -lt 100 ] && cat ~/papers/late.pem; do i=$((i+1)); sleep 0.05; done";
    let ran = stage.sh(&asker, &format!("sleep 0.3; {list}; touch go; {{ {wait}; }} > /dev/null 2>&1; ls ~/papers; cat ~/papers/late.pem"));
    host.join().expect("it only writes a file");
    assert_eq!(ran.out(), "deep\nlate.pem\nplan.txt\n", "{}", ran.talk());
    // Not always told: for want of a node, it is shut by a mask.
    assert!(ran.talk().contains("late.pem: Permission denied"), "{}", ran.talk());
}

/// Promise: P54
fn what_is_opened_in_a_denied_directory_is_all_that_is(stage: &Stage) {
    stage.write("home/code/app/.aws/credentials", "aws\n");
    stage.write("home/code/app/.aws/config", "config\n");
    let asker = Scripted::new(stage, |ask| {
        if ask.denial.target.ends_with("id_test") {
            AskAnswer::AllowSession
        } else {
            AskAnswer::Deny
        }
    });
    let ran =
        stage.sh(&asker, "cat ~/.ssh/id_test; cat ~/.ssh/id_test; cat ~/.ssh/other; ls ~/.ssh");
    assert_eq!(ran.out(), "the key\nthe key\n", "{}", ran.talk());
    assert_eq!(ran.refused(), ["read ~/.ssh/other", "read ~/.ssh"]);
}

/// Promise: P54
fn what_holds_something_opened_is_opened_once_at_most(stage: &Stage) {
    // The project's own directory lies in a denied one.
    let mut grants = stage.grants();
    let origin = ringfence_policy::Origin::new(ringfence_policy::Source::User, "~/code");
    let effect = ringfence_policy::Effect::Deny;
    grants.rules.push(ringfence_policy::Rule {
        root: stage.at("home/code"),
        effect,
        origin,
        locked: false,
    });
    let asker = Scripted::new(stage, |ask| {
        assert_eq!(ask.options, [AskAnswer::AllowOnce, AskAnswer::Deny]);
        AskAnswer::AllowOnce
    });
    let ran = stage.run(&grants, &asker, "ls ~/code; cat README");
    assert_eq!((ran.out().as_str(), asker.asked().len()), ("app\nhello\n", 1), "{}", ran.talk());
}

/// Promise: P54
fn what_is_opened_leaves_no_trace_on_the_host(stage: &Stage) {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("there is one");
    let before = mounts();
    let asker = Scripted::always(stage, AskAnswer::AllowSession);
    let ran = stage.sh(&asker, "cat ~/.ssh/id_test ~/papers/plan.txt .env");
    assert_eq!(
        (ran.out().as_str(), mounts()),
        ("the key\nthe plan\nTOKEN=2\n", before),
        "{}",
        ran.talk()
    );
}

/// Promise: P53
fn what_is_opened_is_what_was_asked_about(stage: &Stage) {
    let (file, key) = (stage.at("home/notes.txt"), stage.at("home/.ssh/id_test"));
    let asker = Scripted::new(stage, move |_| {
        let _ = fs::remove_file(file.as_path());
        let _ = std::os::unix::fs::symlink(key.as_path(), file.as_path());
        thread::sleep(Duration::from_millis(10));
        AskAnswer::AllowSession
    });
    let ran = stage.sh(&asker, "cat ~/notes.txt; cat ~/notes.txt; ls ~");
    // Afterwards, whoever follows the link is asked about what it leads to.
    assert_eq!(asker.asked(), ["read ~/notes.txt", "read ~/.ssh/id_test"]);
    assert_eq!(ran.out(), "the key\ncode\n", "{}", ran.talk());
    assert_eq!(
        (ran.refused(), ran.granted()),
        (vec!["read ~/notes.txt".into()], vec!["allow_session read ~/.ssh/id_test 1".into()])
    );
}
