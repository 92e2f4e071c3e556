//! Grants for the rest of a session.

use std::fs;
use std::thread;
use std::time::Duration;

use ringfence_api::{AskAnswer, Operation};

use crate::AskTest;
use crate::stage::{AskFixture, ScriptedAsker};

pub(crate) const TESTS: &[AskTest] = &[
    ("session::session_grant_is_not_asked_about_again", session_grant_is_not_asked_about_again),
    (
        "session::session_grant_holds_in_a_persistent_shell",
        session_grant_holds_in_a_persistent_shell,
    ),
    (
        "session::mask_in_the_project_is_removed_for_the_session",
        mask_in_the_project_is_removed_for_the_session,
    ),
    ("session::read_grant_does_not_allow_writes", read_grant_does_not_allow_writes),
    (
        "session::secrets_in_a_granted_directory_stay_denied",
        secrets_in_a_granted_directory_stay_denied,
    ),
    ("session::hard_link_to_a_secret_stays_denied", hard_link_to_a_secret_stays_denied),
    (
        "session::secret_that_appears_in_a_granted_directory_is_masked",
        secret_that_appears_in_a_granted_directory_is_masked,
    ),
    (
        "session::grant_in_a_denied_directory_opens_one_file",
        grant_in_a_denied_directory_opens_one_file,
    ),
    (
        "session::parent_of_an_open_tree_is_granted_only_once",
        parent_of_an_open_tree_is_granted_only_once,
    ),
    (
        "session::session_grants_leave_no_mounts_on_the_host",
        session_grants_leave_no_mounts_on_the_host,
    ),
    (
        "session::file_swapped_before_the_answer_is_not_granted",
        file_swapped_before_the_answer_is_not_granted,
    ),
];

/// In one shell, before and after a pause that is longer than the start of the watcher.
const READ_SCRIPT: &str = "echo $$ > pid; cat FILE; cat FILE; stat -c %s FILE; sleep 0.2; cat FILE; [ $$ = $(cat pid) ] && echo same";

/// Promise: session-grant
fn session_grant_is_not_asked_about_again(stage: &AskFixture) {
    for answer in [AskAnswer::AllowSession, AskAnswer::AllowPermanent] {
        let asker = ScriptedAsker::always(stage, answer);
        let ran = stage.sh(&asker, &READ_SCRIPT.replace("FILE", "~/.ssh/id_test"));
        assert_eq!(ran.out(), "the key\nthe key\n8\nthe key\nsame\n", "{}", ran.talk());
        assert_eq!(
            (asker.asked(), ran.refused().len()),
            (vec!["read ~/.ssh/id_test".to_owned()], 0)
        );
        assert_eq!(ran.granted(), [format!("{answer} read ~/.ssh/id_test 1")]);
    }
}

/// Promise: session-grant
fn session_grant_holds_in_a_persistent_shell(stage: &AskFixture) {
    let asker = ScriptedAsker::new(stage, |ask| {
        if ask.denial.target.ends_with("other") { AskAnswer::Deny } else { AskAnswer::AllowSession }
    });
    let mut living = stage.shell(asker.clone());
    let id = living.shell.id().to_owned();
    assert_eq!(living.say("cd /tmp; kept=1; cat ~/.ssh/id_test"), ("the key\n".into(), 0, 1));
    assert_eq!(
        living.say("cat ~/.ssh/id_test; echo $kept; pwd"),
        ("the key\n1\n/tmp\n".into(), 0, 0)
    );
    assert_eq!(living.say("cat ~/.ssh/other"), (String::new(), 1, 0));
    assert_eq!((living.shell.id(), asker.asked().len()), (id.as_str(), 2));
    living.end();
}

/// Promise: session-grant
fn mask_in_the_project_is_removed_for_the_session(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowSession);
    let ran = stage.sh(&asker, &READ_SCRIPT.replace("FILE", ".env"));
    assert_eq!(ran.out(), "TOKEN=2\nTOKEN=2\n8\nTOKEN=2\nsame\n", "{}", ran.talk());
    assert_eq!((asker.asked().len(), ran.refused().len()), (1, 0));
    // Also after the watcher has started.
    let ran = stage.sh(&asker, &format!("sleep 0.2; {}", READ_SCRIPT.replace("FILE", ".env")));
    assert_eq!(ran.out(), "TOKEN=2\nTOKEN=2\n8\nTOKEN=2\nsame\n", "{}", ran.talk());
}

/// Promise: session-grant
fn read_grant_does_not_allow_writes(stage: &AskFixture) {
    let asker = ScriptedAsker::new(stage, |ask| {
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

/// Promise: session-grant
fn secrets_in_a_granted_directory_stay_denied(stage: &AskFixture) {
    let asker = ScriptedAsker::new(stage, |ask| {
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
    // They have explicit rules, so each has its own question.
    assert_eq!(asker.asked(), ["read ~/papers", "read ~/papers/.env", "read ~/papers/deep/id.pem"]);
    assert_eq!(ran.refused(), ["read ~/papers/.env", "read ~/papers/deep/id.pem"]);
    // That very path can be opened.
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowSession);
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

/// Promise: session-grant
fn hard_link_to_a_secret_stays_denied(stage: &AskFixture) {
    fs::hard_link(stage.at("home/papers/.env").as_path(), stage.at("home/papers/plain").as_path())
        .expect("the home is ours");
    let asker = ScriptedAsker::new(stage, |ask| {
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
    // The user may not know the other name of the file.
    assert_eq!(asker.asked(), ["read ~/papers"]);
}

/// Promise: session-grant
fn secret_that_appears_in_a_granted_directory_is_masked(stage: &AskFixture) {
    let (appears, go) = (stage.at("home/papers/late.pem"), stage.workspace.join("go"));
    let asker = ScriptedAsker::new(stage, |ask| {
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
    // By then a watcher runs that does not know the directory yet.
    let wait = "until [ -e ~/papers/late.pem ]; do sleep 0.01; done; i=0; while [ $i -lt 100 ] && cat ~/papers/late.pem; do i=$((i+1)); sleep 0.05; done";
    let ran = stage.sh(&asker, &format!("sleep 0.3; {list}; touch go; {{ {wait}; }} > /dev/null 2>&1; ls ~/papers; cat ~/papers/late.pem"));
    host.join().expect("it only writes a file");
    assert_eq!(ran.out(), "deep\nlate.pem\nplan.txt\n", "{}", ran.talk());
    // Not always reported: without a spare node, it is masked by an empty mount.
    assert!(ran.talk().contains("late.pem: Permission denied"), "{}", ran.talk());
}

/// Promise: session-grant
fn grant_in_a_denied_directory_opens_one_file(stage: &AskFixture) {
    stage.write("home/code/app/.aws/credentials", "aws\n");
    stage.write("home/code/app/.aws/config", "config\n");
    let asker = ScriptedAsker::new(stage, |ask| {
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

/// Promise: session-grant
fn parent_of_an_open_tree_is_granted_only_once(stage: &AskFixture) {
    // The project's own directory is in a denied one.
    let mut grants = stage.grants();
    let origin = ringfence_policy::Origin::new(ringfence_policy::Source::User, "~/code");
    let effect = ringfence_policy::Effect::Deny;
    grants.rules.push(ringfence_policy::Rule {
        root: stage.at("home/code"),
        effect,
        origin,
        locked: false,
    });
    let asker = ScriptedAsker::new(stage, |ask| {
        assert_eq!(ask.options, [AskAnswer::AllowOnce, AskAnswer::Deny]);
        AskAnswer::AllowOnce
    });
    let ran = stage.run(&grants, &asker, "ls ~/code; cat README");
    assert_eq!((ran.out().as_str(), asker.asked().len()), ("app\nhello\n", 1), "{}", ran.talk());
}

/// Promise: session-grant
fn session_grants_leave_no_mounts_on_the_host(stage: &AskFixture) {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("there is one");
    let before = mounts();
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowSession);
    let ran = stage.sh(&asker, "cat ~/.ssh/id_test ~/papers/plan.txt .env");
    assert_eq!(
        (ran.out().as_str(), mounts()),
        ("the key\nthe plan\nTOKEN=2\n", before),
        "{}",
        ran.talk()
    );
}

/// Promise: answer-means-question
fn file_swapped_before_the_answer_is_not_granted(stage: &AskFixture) {
    let (file, key) = (stage.at("home/notes.txt"), stage.at("home/.ssh/id_test"));
    let asker = ScriptedAsker::new(stage, move |_| {
        let _ = fs::remove_file(file.as_path());
        let _ = std::os::unix::fs::symlink(key.as_path(), file.as_path());
        thread::sleep(Duration::from_millis(10));
        AskAnswer::AllowSession
    });
    let ran = stage.sh(&asker, "cat ~/notes.txt; cat ~/notes.txt; ls ~");
    // Afterwards, an access through the link is asked about by its target.
    assert_eq!(asker.asked(), ["read ~/notes.txt", "read ~/.ssh/id_test"]);
    assert_eq!(ran.out(), "the key\ncode\n", "{}", ran.talk());
    assert_eq!(
        (ran.refused(), ran.granted()),
        (vec!["read ~/notes.txt".into()], vec!["allow_session read ~/.ssh/id_test 1".into()])
    );
}
