//! Effects and limits of one answer.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use ringfence_api::{Ask, AskAnswer};
use ringfence_policy::{AbsPath, Effect, Origin, Rule, Source};

use crate::AskTest;
use crate::stage::{AskFixture, ScriptedAsker};

pub(crate) const TESTS: &[AskTest] = &[
    ("once::answer_opens_a_file_once", answer_opens_a_file_once),
    ("once::opened_file_reads_like_the_original", opened_file_reads_like_the_original),
    (
        "once::denied_question_stays_denied_with_its_rule",
        denied_question_stays_denied_with_its_rule,
    ),
    ("once::stat_is_denied_without_a_question", stat_is_denied_without_a_question),
    ("once::granted_listing_does_not_grant_the_files", granted_listing_does_not_grant_the_files),
    ("once::granted_program_is_executed", granted_program_is_executed),
    ("once::question_names_the_target_of_a_link", question_names_the_target_of_a_link),
    (
        "once::only_likely_paths_outside_the_policy_are_asked_about",
        only_likely_paths_outside_the_policy_are_asked_about,
    ),
    ("once::ordinary_programs_cause_no_question", ordinary_programs_cause_no_question),
    ("once::locked_denial_is_never_asked_about", locked_denial_is_never_asked_about),
    ("once::answer_that_was_not_offered_is_a_denial", answer_that_was_not_offered_is_a_denial),
    (
        "once::file_swapped_before_the_answer_is_not_opened",
        file_swapped_before_the_answer_is_not_opened,
    ),
];

/// Promise: ask-once
fn answer_opens_a_file_once(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let ran = stage.sh(&asker, "cat ~/.ssh/id_test; cat ~/.ssh/id_test .env");
    assert_eq!(ran.out(), "the key\nthe key\nTOKEN=2\n", "{}", ran.talk());
    assert_eq!(
        asker.asked(),
        ["read ~/.ssh/id_test", "read ~/.ssh/id_test", "read ~/code/app/.env"]
    );
    assert_eq!(ran.refused(), [""; 0]);
    assert_eq!(
        ran.granted(),
        ["allow_once read ~/.ssh/id_test 2", "allow_once read ~/code/app/.env 1"]
    );
}

/// Promise: ask-once
fn opened_file_reads_like_the_original(stage: &AskFixture) {
    let text: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    stage.write("home/.ssh/id_test", &text);
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let probe = "import mmap, os, sys
f = open(os.environ['HOME'] + '/.ssh/id_test', 'rb')
size = os.fstat(f.fileno()).st_size
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
f.seek(-7, 2)
print(size, len(m), m[-7:], f.read(), hash(m[:]) == hash(open(os.environ['HOME'] + '/.ssh/id_test', 'rb').read()))";
    let ran = stage.sh(&asker, &format!("cat ~/.ssh/id_test | cksum; python3 -c \"{probe}\""));
    let length = text.len();
    let file = fs::File::open(stage.at("home/.ssh/id_test").as_path()).expect("it is there");
    let bare = Command::new("cksum").stdin(file).output().expect("there is such a program");
    let sum = String::from_utf8_lossy(&bare.stdout);
    assert_eq!(
        ran.out(),
        format!("{sum}{length} {length} b'199999\\n' b'199999\\n' True\n"),
        "{}",
        ran.talk()
    );
}

/// Promise: ask-once
fn denied_question_stays_denied_with_its_rule(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::Deny);
    // Asked once: an immediate retry gets the same answer.
    let ran = stage.sh(&asker, "cat ~/.ssh/id_test; cat ~/.ssh/id_test; cat ~/notes.txt");
    assert!(
        ran.talk().contains("id_test: Permission denied")
            && ran.talk().contains("notes.txt: No such file"),
        "{}",
        ran.talk()
    );
    assert_eq!(asker.asked(), ["read ~/.ssh/id_test", "read ~/notes.txt"]);
    assert_eq!(ran.refused(), ["read ~/.ssh/id_test", "read ~/notes.txt"]);
    assert_eq!((ran.granted().len(), ran.outcome.denials[0].count), (0, 2));
    assert!(ran.outcome.denials[0].rule.contains(".ssh"), "{:?}", ran.outcome.denials);
}

/// By `stat`, by the shell, by `ls`, and by the shell again.
const LOOKED: [&str; 6] = [
    "read ~/.ssh/id_test",
    "read ~/notes.txt",
    "read ~/.ssh/id_test",
    "read ~/notes.txt",
    "read ~/papers",
    "read ~/papers",
];

/// Promise: ask-once
fn stat_is_denied_without_a_question(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let ran = stage.sh(&asker, "stat ~/.ssh/id_test ~/notes.txt; test -r ~/.ssh/id_test; test -e ~/notes.txt; ls -d ~/papers; cd ~/papers");
    assert_eq!((asker.asked().len(), ran.out().as_str()), (0, ""), "{:?}", asker.asked());
    assert_eq!(ran.refused(), LOOKED, "{}", ran.talk());
}

/// Promise: ask-once
fn granted_listing_does_not_grant_the_files(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    // `ls` stats a directory that is not open before it lists it, and finds nothing.
    let list =
        "python3 -c 'import os; print(sorted(os.listdir(os.environ[\"HOME\"] + \"/papers\")))'";
    let ran = stage.sh(&asker, &format!("ls -a ~/.ssh; {list}; cat ~/papers/plan.txt"));
    assert_eq!(
        ran.out(),
        ".\n..\nid_test\nother\n['.env', 'deep', 'plan.txt']\nthe plan\n",
        "{}",
        ran.talk()
    );
    assert_eq!(asker.asked(), ["read ~/.ssh", "read ~/papers", "read ~/papers/plan.txt"]);
}

/// Promise: ask-once
fn granted_program_is_executed(stage: &AskFixture) {
    fs::copy("/bin/echo", stage.at("home/echo").as_path()).expect("there is one");
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let ran = stage.sh(&asker, "~/echo hello");
    assert_eq!(
        (ran.out().as_str(), asker.asked()),
        ("hello\n", vec!["execute ~/echo".to_owned()]),
        "{}",
        ran.talk()
    );
    let ran = stage.sh(&asker, "~/tool");
    assert_eq!(ran.out(), "ran\n", "{} {:?}", ran.talk(), asker.asked());
}

/// Promise: ask-once
fn question_names_the_target_of_a_link(stage: &AskFixture) {
    symlink("papers/plan.txt", stage.at("home/link").as_path()).expect("the home is ours");
    symlink(".ssh", stage.at("home/keys").as_path()).expect("the home is ours");
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let ran =
        stage.sh(&asker, "cat ~/link ~/keys/id_test; ln -s ~/.ssh/other l; cat l; readlink ~/link");
    assert_eq!(ran.out(), "the plan\nthe key\nanother key\n", "{}", ran.talk());
    assert_eq!(
        asker.asked(),
        ["read ~/papers/plan.txt", "read ~/.ssh/id_test", "read ~/.ssh/other"]
    );
}

/// Promise: locked-never-asked
fn only_likely_paths_outside_the_policy_are_asked_about(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let ran = stage.sh(&asker, "cat ~/.bashrc; cat /etc/fstab /etc/adduser.conf; cat ~/nowhere ~/papers/nowhere; cat ~/notes.txt");
    assert_eq!(
        (ran.out().as_str(), asker.asked()),
        ("notes\n", vec!["read ~/notes.txt".to_owned()]),
        "{}",
        ran.talk()
    );
}

/// Promise: locked-never-asked
fn ordinary_programs_cause_no_question(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::Deny);
    for line in [
        "git status; git log",
        "python3 -c 'import json, socket'",
        "bash -lc true",
        "bash -ic true",
        "ls -la / ~; df; id",
        "perl -e 1",
    ] {
        stage.sh(&asker, line);
    }
    assert_eq!(asker.asked(), [""; 0]);
}

/// Promise: locked-never-asked
fn locked_denial_is_never_asked_about(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let mut grants = stage.grants();
    let managed = |root: AbsPath| Rule {
        root,
        effect: Effect::Deny,
        origin: Origin::new(Source::Managed, "~/notes.txt"),
        locked: true,
    };
    grants.rules.push(managed(stage.at("home/notes.txt")));
    let ran = stage.run(&grants, &asker, "cat ~/notes.txt; cat ~/papers/plan.txt");
    assert!(ran.talk().contains("notes.txt: Permission denied"), "{}", ran.talk());
    assert_eq!(
        (ran.out().as_str(), asker.asked()),
        ("the plan\n", vec!["read ~/papers/plan.txt".to_owned()])
    );
    assert_eq!(ran.refused(), ["read ~/notes.txt"]);
}

/// Promise: ask-once
fn answer_that_was_not_offered_is_a_denial(stage: &AskFixture) {
    // The user's own rule on that very path outranks an answer for the session.
    let mut grants = stage.grants();
    let root = stage.at("home/notes.txt");
    grants.rules.push(Rule {
        root,
        effect: Effect::Deny,
        origin: Origin::new(Source::User, "~/notes.txt"),
        locked: false,
    });
    let is_offered = |ask: &Ask| ask.options.contains(&AskAnswer::AllowSession);
    let asker = ScriptedAsker::new(stage, move |ask| {
        if is_offered(ask) { AskAnswer::AllowOnce } else { AskAnswer::AllowSession }
    });
    let ran = stage.run(&grants, &asker, "cat ~/notes.txt");
    assert_eq!(
        (asker.asked().len(), ran.out().as_str(), ran.refused()),
        (1, "", vec!["read ~/notes.txt".to_owned()])
    );
}

/// Promise: answer-means-question
fn file_swapped_before_the_answer_is_not_opened(stage: &AskFixture) {
    let (file, directory) = (stage.at("home/notes.txt"), stage.at("home/papers"));
    let (key, ssh) = (stage.at("home/.ssh/id_test"), stage.at("home/.ssh"));
    stage.write("home/.ssh/plan.txt", "not the plan\n");
    let asker = ScriptedAsker::new(stage, move |ask| {
        if ask.denial.target.ends_with("notes.txt") {
            fs::remove_file(file.as_path()).expect("it is there");
            symlink(key.as_path(), file.as_path()).expect("the home is ours");
        } else {
            fs::rename(
                directory.as_path(),
                directory.parent().expect("not the root").join("away").as_path(),
            )
            .expect("it is there");
            symlink(ssh.as_path(), directory.as_path()).expect("the home is ours");
        }
        AskAnswer::AllowOnce
    });
    let ran = stage.sh(&asker, "cat ~/notes.txt; cat ~/papers/plan.txt");
    assert_eq!((ran.out().as_str(), asker.asked().len()), ("", 2), "{}", ran.talk());
    assert_eq!(ran.refused(), ["read ~/notes.txt", "read ~/papers/plan.txt"]);
    assert_eq!(ran.granted(), [""; 0]);
}
