//! What one answer lets through, and what it does not.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use ringfence_api::{Ask, AskAnswer};
use ringfence_policy::{AbsPath, Effect, Origin, Rule, Source};

use crate::Test;
use crate::stage::{Scripted, Stage};

pub(crate) const TESTS: &[Test] = &[
    ("once::one_answer_opens_one_time", one_answer_opens_one_time),
    ("once::what_is_opened_reads_as_it_is", what_is_opened_reads_as_it_is),
    ("once::a_refusal_stays_one_and_says_why", a_refusal_stays_one_and_says_why),
    ("once::looking_is_not_asked_about", looking_is_not_asked_about),
    (
        "once::a_directory_is_listed_and_its_files_ask_for_themselves",
        a_directory_is_listed_and_its_files_ask_for_themselves,
    ),
    ("once::a_program_is_started", a_program_is_started),
    ("once::links_lead_to_what_is_asked_about", links_lead_to_what_is_asked_about),
    (
        "once::what_nothing_opens_is_asked_about_where_it_is_meant",
        what_nothing_opens_is_asked_about_where_it_is_meant,
    ),
    ("once::ordinary_programs_ask_nothing", ordinary_programs_ask_nothing),
    ("once::what_is_locked_is_never_asked_about", what_is_locked_is_never_asked_about),
    ("once::what_was_not_offered_is_a_refusal", what_was_not_offered_is_a_refusal),
    ("once::what_changes_meanwhile_is_not_opened", what_changes_meanwhile_is_not_opened),
];

/// Promise: P51
fn one_answer_opens_one_time(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
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

/// Promise: P51
fn what_is_opened_reads_as_it_is(stage: &Stage) {
    let text: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    stage.write("home/.ssh/id_test", &text);
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
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

/// Promise: P51
fn a_refusal_stays_one_and_says_why(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::Deny);
    // Asked once: whoever tries again at once is refused by the same answer.
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

/// Promise: P51
fn looking_is_not_asked_about(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
    let ran = stage.sh(&asker, "stat ~/.ssh/id_test ~/notes.txt; test -r ~/.ssh/id_test; test -e ~/notes.txt; ls -d ~/papers; cd ~/papers");
    assert_eq!((asker.asked().len(), ran.out().as_str()), (0, ""), "{:?}", asker.asked());
    assert_eq!(ran.refused(), LOOKED, "{}", ran.talk());
}

/// Promise: P51
fn a_directory_is_listed_and_its_files_ask_for_themselves(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
    // `ls` looks at what nothing opens before it lists it, and finds nothing.
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

/// Promise: P51
fn a_program_is_started(stage: &Stage) {
    fs::copy("/bin/echo", stage.at("home/echo").as_path()).expect("there is one");
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
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

/// Promise: P51
fn links_lead_to_what_is_asked_about(stage: &Stage) {
    symlink("papers/plan.txt", stage.at("home/link").as_path()).expect("the home is ours");
    symlink(".ssh", stage.at("home/keys").as_path()).expect("the home is ours");
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
    let ran =
        stage.sh(&asker, "cat ~/link ~/keys/id_test; ln -s ~/.ssh/other l; cat l; readlink ~/link");
    assert_eq!(ran.out(), "the plan\nthe key\nanother key\n", "{}", ran.talk());
    assert_eq!(
        asker.asked(),
        ["read ~/papers/plan.txt", "read ~/.ssh/id_test", "read ~/.ssh/other"]
    );
}

/// Promise: P52
fn what_nothing_opens_is_asked_about_where_it_is_meant(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
    let ran = stage.sh(&asker, "cat ~/.bashrc; cat /etc/fstab /etc/adduser.conf; cat ~/nowhere ~/papers/nowhere; cat ~/notes.txt");
    assert_eq!(
        (ran.out().as_str(), asker.asked()),
        ("notes\n", vec!["read ~/notes.txt".to_owned()]),
        "{}",
        ran.talk()
    );
}

/// Promise: P52
fn ordinary_programs_ask_nothing(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::Deny);
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

/// Promise: P52
fn what_is_locked_is_never_asked_about(stage: &Stage) {
    let asker = Scripted::always(stage, AskAnswer::AllowOnce);
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

/// Promise: P51
fn what_was_not_offered_is_a_refusal(stage: &Stage) {
    // A person's own rule on that very path stands above an answer for the session.
    let mut grants = stage.grants();
    let root = stage.at("home/notes.txt");
    grants.rules.push(Rule {
        root,
        effect: Effect::Deny,
        origin: Origin::new(Source::User, "~/notes.txt"),
        locked: false,
    });
    let is_offered = |ask: &Ask| ask.options.contains(&AskAnswer::AllowSession);
    let asker = Scripted::new(stage, move |ask| {
        if is_offered(ask) { AskAnswer::AllowOnce } else { AskAnswer::AllowSession }
    });
    let ran = stage.run(&grants, &asker, "cat ~/notes.txt");
    assert_eq!(
        (asker.asked().len(), ran.out().as_str(), ran.refused()),
        (1, "", vec!["read ~/notes.txt".to_owned()])
    );
}

/// Promise: P53
fn what_changes_meanwhile_is_not_opened(stage: &Stage) {
    let (file, directory) = (stage.at("home/notes.txt"), stage.at("home/papers"));
    let (key, ssh) = (stage.at("home/.ssh/id_test"), stage.at("home/.ssh"));
    stage.write("home/.ssh/plan.txt", "not the plan\n");
    let asker = Scripted::new(stage, move |ask| {
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
