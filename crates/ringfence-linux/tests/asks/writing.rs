//! Questions about writes and creates.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use ringfence_api::AskAnswer;
use ringfence_policy::{AbsPath, Effect, Origin, Rule, Source};

use crate::AskTest;
use crate::stage::{AskFixture, Ran, ScriptedAsker};

pub(crate) const TESTS: &[AskTest] = &[
    ("writing::answer_creates_one_file", answer_creates_one_file),
    (
        "writing::existing_file_is_opened_with_the_requested_flags",
        existing_file_is_opened_with_the_requested_flags,
    ),
    ("writing::created_file_has_the_requested_mode", created_file_has_the_requested_mode),
    ("writing::denied_write_fails_as_without_an_asker", denied_write_fails_as_without_an_asker),
    ("writing::protected_files_are_asked_about", protected_files_are_asked_about),
    (
        "writing::locked_and_ringfence_files_are_never_asked_about",
        locked_and_ringfence_files_are_never_asked_about,
    ),
    (
        "writing::changes_beyond_one_name_are_denied_without_a_question",
        changes_beyond_one_name_are_denied_without_a_question,
    ),
    (
        "writing::session_write_grant_is_not_asked_about_again",
        session_write_grant_is_not_asked_about_again,
    ),
    ("writing::session_write_grant_covers_one_file", session_write_grant_covers_one_file),
    (
        "writing::session_write_grant_follows_a_replaced_file",
        session_write_grant_follows_a_replaced_file,
    ),
    (
        "writing::session_write_grant_holds_in_a_persistent_shell",
        session_write_grant_holds_in_a_persistent_shell,
    ),
    ("writing::directory_is_granted_only_once", directory_is_granted_only_once),
    (
        "writing::write_question_names_the_target_of_a_link",
        write_question_names_the_target_of_a_link,
    ),
];

fn read(stage: &AskFixture, name: &str) -> Option<String> {
    fs::read_to_string(stage.at(name).as_path()).ok()
}

/// Promise: ask-write
fn answer_creates_one_file(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let ran = stage.sh(
        &asker,
        "echo one > ~/papers/new; echo two >> ~/papers/new; touch ~/top; mkdir ~/papers/dir; touch ~/papers/dir/in; echo x > .env.local",
    );
    assert_eq!((ran.talk().as_str(), ran.refused().len()), ("", 0), "{:?}", ran.refused());
    assert_eq!(read(stage, "home/papers/new").as_deref(), Some("one\ntwo\n"));
    assert_eq!(read(stage, "home/top").as_deref(), Some(""));
    assert_eq!(read(stage, "home/papers/dir/in").as_deref(), Some(""));
    assert_eq!(read(stage, "home/code/app/.env.local").as_deref(), Some("x\n"));
    let expect = [
        "create ~/papers/new",
        "write ~/papers/new",
        "create ~/top",
        "create ~/papers/dir",
        "create ~/papers/dir/in",
        "create ~/code/app/.env.local",
    ];
    assert_eq!(asker.asked(), expect);
    assert_eq!(ran.granted(), expect.map(|one| format!("allow_once {one} 1")));
}

/// Promise: ask-write
fn existing_file_is_opened_with_the_requested_flags(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let probe = "import os
path = os.environ['HOME'] + '/notes.txt'
fd = os.open(path, os.O_RDWR)
print(os.read(fd, 9), os.lseek(fd, 0, 0), os.write(fd, b'N'), os.get_inheritable(fd))
fd = os.open(path, os.O_WRONLY | os.O_APPEND)
os.lseek(fd, 0, 0); os.write(fd, b'more')
try: os.read(fd, 1)
except OSError as error: print(error.strerror)";
    let ran = stage.sh(&asker, &format!("python3 -c \"{probe}\"; echo x > ~/.ssh/id_test"));
    assert_eq!(ran.out(), "b'notes\\n' 0 1 False\nBad file descriptor\n", "{}", ran.talk());
    assert_eq!(read(stage, "home/notes.txt").as_deref(), Some("Notes\nmore"));
    assert_eq!(read(stage, "home/.ssh/id_test").as_deref(), Some("x\n"));
    assert_eq!(asker.asked(), ["write ~/notes.txt", "write ~/notes.txt", "write ~/.ssh/id_test"]);
}

/// Promise: ask-write
fn created_file_has_the_requested_mode(stage: &AskFixture) {
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let probe = "import os
home = os.environ['HOME']
os.mkdir(home + '/d', 0o1777)
os.umask(0o077)
os.open(home + '/f', os.O_CREAT | os.O_WRONLY, 0o6755)";
    let ran =
        stage.sh(&asker, &format!("umask 027; touch ~/a; mkdir ~/b; umask 0; touch ~/c; python3 -c \"{probe}\"; umask 077; mkdir ~/e"));
    assert_eq!(ran.talk(), "");
    let mode = |name: &str| {
        fs::metadata(stage.at("home").join(name).as_path())
            .map(|found| format!("{:o}", found.permissions().mode() & 0o7777))
    };
    let modes: Vec<_> =
        ["a", "b", "c", "d", "e", "f"].map(|name| mode(name).expect("it was made")).into();
    assert_eq!(modes, ["640", "750", "666", "1777", "700", "700"]);
}

/// Promise: ask-write
fn denied_write_fails_as_without_an_asker(stage: &AskFixture) {
    let line = "echo x > ~/papers/new; mkdir ~/dir; echo x > ~/notes.txt; echo x > .env; touch .env.new; touch ~/nowhere/x; echo x >> ~/.ssh/id_test";
    let silent = stage.sh(&ScriptedAsker::always(stage, AskAnswer::Deny), line);
    let bare = stage.unasked(line);
    assert_eq!(silent.talk(), bare.talk());
    let targets = |ran: &Ran| {
        ran.refused()
            .iter()
            .map(|shown| shown.split(' ').nth(1).unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!((targets(&silent), silent.granted().len()), (targets(&bare), 0));
    assert_eq!(read(stage, "home/notes.txt").as_deref(), Some("notes\n"));
}

/// A repository with hooks and settings, created before a command runs.
fn repository(stage: &AskFixture) {
    for (name, content) in [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", "[core]\n"),
        (".git/hooks/old", "#!/bin/sh\n"),
        (".vscode/settings.json", "{}\n"),
    ] {
        stage.write(&format!("home/code/app/{name}"), content);
    }
    for name in ["objects", "refs"] {
        fs::create_dir_all(stage.workspace.join(".git").join(name).as_path())
            .expect("the project is ours");
    }
}

/// Promise: ask-write
fn protected_files_are_asked_about(stage: &AskFixture) {
    repository(stage);
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let line = "echo a >> .git/config; echo b > .git/hooks/old; echo c > .git/hooks/new; echo d > .vscode/settings.json; echo e > .vscode/tasks.json; mkdir .claude; echo f 3< .git/config > /proc/self/fd/3";
    let ran = stage.sh(&asker, line);
    assert_eq!((ran.talk().as_str(), ran.refused().len()), ("", 0), "{:?}", ran.refused());
    let content = |name: &str| read(stage, &format!("home/code/app/{name}"));
    assert_eq!(content(".git/config").as_deref(), Some("f\n"));
    assert_eq!(
        [".git/hooks/old", ".git/hooks/new", ".vscode/settings.json", ".vscode/tasks.json"]
            .map(|name| content(name).unwrap_or_default()),
        ["b\n", "c\n", "d\n", "e\n"]
    );
    let asked = [
        "write .git/config",
        "write .git/hooks/old",
        "create .git/hooks/new",
        "write .vscode/settings.json",
        "create .vscode/tasks.json",
        "create .claude",
        "write .git/config",
    ];
    assert_eq!(asker.asked(), asked.map(|one| one.replace(' ', " ~/code/app/")));
    // An allow-once answer says nothing about the next access.
    let ran = stage.sh(
        &ScriptedAsker::always(stage, AskAnswer::Deny),
        "echo g > .git/config; touch .git/hooks/more",
    );
    assert_eq!(
        ran.refused(),
        ["write ~/code/app/.git/config", "create ~/code/app/.git/hooks/more"]
    );
    assert_eq!(content(".git/config").as_deref(), Some("f\n"));
}

/// Promise: ask-write
fn locked_and_ringfence_files_are_never_asked_about(stage: &AskFixture) {
    stage.write("home/code/app/.ringfence/policy.toml", "version = 1\n");
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let mut grants = stage.grants();
    let managed = |root: AbsPath, effect: Effect| Rule {
        root,
        effect,
        origin: Origin::new(Source::Managed, "locked"),
        locked: true,
    };
    grants.rules.push(managed(stage.at("home/notes.txt"), Effect::Deny));
    grants.rules.push(managed(stage.at("home/code/app/kept"), Effect::Protect));
    stage.write("home/code/app/kept/file", "kept\n");
    let line = "echo x > ~/notes.txt; echo x > kept/file; touch kept/new; echo x > .ringfence/policy.toml; touch .ringfence/more; touch ~/.hidden; mkdir .RINGFENCE; echo x > ~/papers/plan.txt";
    let ran = stage.run(&grants, &asker, line);
    assert_eq!(asker.asked(), ["write ~/papers/plan.txt"], "{}", ran.talk());
    assert_eq!(
        (
            read(stage, "home/notes.txt").as_deref(),
            read(stage, "home/code/app/kept/file").as_deref()
        ),
        (Some("notes\n"), Some("kept\n"))
    );
    assert_eq!(
        read(stage, "home/code/app/.ringfence/policy.toml").as_deref(),
        Some("version = 1\n")
    );
    let shown: Vec<_> =
        ran.refused().into_iter().map(|shown| shown.replace("~/code/app/", "")).collect();
    assert_eq!(
        &shown[1..5],
        [
            "write kept/file",
            "create kept/new",
            "write .ringfence/policy.toml",
            "create .ringfence/more"
        ]
    );
}

/// Promise: ask-write
fn changes_beyond_one_name_are_denied_without_a_question(stage: &AskFixture) {
    repository(stage);
    fs::hard_link(stage.at("home/.ssh/id_test").as_path(), stage.at("home/alias").as_path())
        .expect("the home is ours");
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let line = "mv README ~/papers/; mv ~/notes.txt .; rm ~/notes.txt .vscode/settings.json; ln README ~/l; ln -s README ~/s; mkfifo ~/p; chmod 600 .git/config; python3 -c \"import os; os.truncate(os.environ['HOME'] + '/notes.txt', 0)\"; rmdir ~/papers/deep; mkdir ~/papers/.git; touch ~/papers/HEAD; echo x > ~/alias; mkdir ~/papers; touch ~/nowhere/x; : > ~/papers";
    let ran = stage.sh(&asker, line);
    assert_eq!((asker.asked(), ran.granted().len()), (Vec::<String>::new(), 0), "{}", ran.talk());
    assert_eq!(read(stage, "home/.ssh/id_test").as_deref(), Some("the key\n"));
    for gone in ["l", "s", "p", "papers/README", "papers/.git", "papers/HEAD"] {
        assert!(fs::symlink_metadata(stage.home.join(gone).as_path()).is_err(), "{gone}");
    }
}

/// Promise: ask-write
fn write_question_names_the_target_of_a_link(stage: &AskFixture) {
    symlink("papers/plan.txt", stage.at("home/link").as_path()).expect("the home is ours");
    symlink(".ssh", stage.at("home/keys").as_path()).expect("the home is ours");
    symlink("nothing", stage.at("home/dangling").as_path()).expect("the home is ours");
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowOnce);
    let ran = stage.sh(&asker, "echo x > ~/link; echo y > ~/keys/new; touch ~/dangling; echo z > ~/papers/../notes.txt; mkdir ~/link");
    assert_eq!(
        asker.asked(),
        ["write ~/papers/plan.txt", "create ~/.ssh/new", "write ~/notes.txt"],
        "{}",
        ran.talk()
    );
    assert!(ran.outcome.granted[1].denial.rule.contains(".ssh"), "{:?}", ran.outcome.granted);
    let found = ["papers/plan.txt", ".ssh/new", "notes.txt"]
        .map(|name| read(stage, &format!("home/{name}")).unwrap_or_default());
    assert_eq!(found, ["x\n", "y\n", "z\n"]);
    assert!(fs::symlink_metadata(stage.at("home/nothing").as_path()).is_err());
}

/// Three writes in one shell, the last one after the watcher has started.
const WRITE_SCRIPT: &str = "echo $$ > pid; echo a >> FILE; echo b >> FILE; sleep 0.2; echo c >> FILE; cat FILE; [ $$ = $(cat pid) ] && echo same";

/// Promise: write-grant
fn session_write_grant_is_not_asked_about_again(stage: &AskFixture) {
    repository(stage);
    for answer in [AskAnswer::AllowSession, AskAnswer::AllowPermanent] {
        for (name, operation) in [
            ("~/notes.txt", "write"),
            ("~/papers/new", "create"),
            ("~/top", "create"),
            ("~/.ssh/id_test", "write"),
            ("~/.ssh/new", "create"),
            ("~/code/app/.env", "write"),
            ("~/code/app/.env.new", "create"),
            ("~/code/app/.git/config", "write"),
            ("~/code/app/.git/hooks/new", "create"),
            ("~/code/app/.vscode/settings.json", "write"),
        ] {
            let path = stage.home.join(&name[2..]);
            let before = fs::read_to_string(path.as_path()).unwrap_or_default();
            let asker = ScriptedAsker::always(stage, answer);
            let ran = stage.sh(&asker, &WRITE_SCRIPT.replace("FILE", name));
            assert_eq!(
                ran.out(),
                format!("{before}a\nb\nc\nsame\n"),
                "{name}: {} {:?}",
                ran.talk(),
                asker.asked()
            );
            assert_eq!(
                (asker.asked(), ran.refused()),
                (vec![format!("{operation} {name}")], Vec::new()),
                "{name}"
            );
            assert_eq!(ran.granted(), [format!("{answer} {operation} {name} 1")]);
            assert_eq!(
                fs::read_to_string(path.as_path()).unwrap_or_default(),
                format!("{before}a\nb\nc\n"),
                "{name}"
            );
            if operation == "create" {
                fs::remove_file(path.as_path()).expect("it was made");
            }
        }
    }
}

/// Promise: write-grant
fn session_write_grant_covers_one_file(stage: &AskFixture) {
    repository(stage);
    let is_first = |target: &str| {
        target.ends_with("/papers/new")
            || target.ends_with(".git/config")
            || target.ends_with("/.ssh/id_test")
    };
    let asker = ScriptedAsker::new(stage, move |ask| {
        if is_first(&ask.denial.target) { AskAnswer::AllowSession } else { AskAnswer::Deny }
    });
    let line = "set -C; echo a > ~/papers/new; set +C; echo b >> .git/config; echo c >> ~/.ssh/id_test; cat ~/papers/new;
        echo x > ~/papers/plan.txt; touch ~/papers/more .git/hooks/x; cat ~/.ssh/other; rm ~/papers/new .git/config; mv README .git/config; ls ~/papers; chmod +x ~/papers/new";
    let ran = stage.sh(&asker, line);
    assert_eq!(ran.out(), "a\nnew\n", "{}", ran.talk());
    assert_eq!(read(stage, "home/papers/new").as_deref(), Some("a\n"));
    assert_eq!(read(stage, "home/papers/plan.txt").as_deref(), Some("the plan\n"));
    assert_eq!(read(stage, "home/code/app/.git/config").as_deref(), Some("[core]\nb\n"));
    let denied: Vec<_> = asker.asked().into_iter().skip(3).collect();
    assert_eq!(
        denied,
        [
            "write ~/papers/plan.txt",
            "create ~/papers/more",
            "create ~/code/app/.git/hooks/x",
            "read ~/.ssh/other"
        ]
    );
    // The next sandbox does not have the grant.
    let ran = stage.sh(
        &ScriptedAsker::always(stage, AskAnswer::Deny),
        "echo x > ~/papers/new; echo x > .git/config",
    );
    assert_eq!(ran.refused(), ["write ~/papers/new", "write ~/code/app/.git/config"]);
}

/// Promise: write-grant
fn session_write_grant_holds_in_a_persistent_shell(stage: &AskFixture) {
    let asker = ScriptedAsker::new(stage, |ask| {
        if ask.denial.target.ends_with("other") { AskAnswer::Deny } else { AskAnswer::AllowSession }
    });
    let mut living = stage.shell(asker.clone());
    let id = living.shell.id().to_owned();
    assert_eq!(living.say("cd /tmp; kept=1; echo a > ~/papers/new"), (String::new(), 0, 1));
    assert_eq!(
        living.say("echo b >> ~/papers/new; cat ~/papers/new; echo $kept; pwd"),
        ("a\nb\n1\n/tmp\n".into(), 0, 0)
    );
    // The shell itself holds it open.
    assert_eq!(living.say("exec 7>> ~/notes.txt; echo c >&7"), (String::new(), 0, 1));
    assert_eq!(living.say("echo d >&7; echo x > ~/.ssh/other"), (String::new(), 1, 0));
    assert_eq!((living.shell.id(), asker.asked().len()), (id.as_str(), 3));
    living.end();
    assert_eq!(
        (read(stage, "home/notes.txt").as_deref(), read(stage, "home/papers/new").as_deref()),
        (Some("notes\nc\nd\n"), Some("a\nb\n"))
    );
}

/// Promise: write-grant
fn directory_is_granted_only_once(stage: &AskFixture) {
    let asker = ScriptedAsker::new(stage, |ask| {
        if ask.options.contains(&AskAnswer::AllowSession) {
            AskAnswer::Deny
        } else {
            AskAnswer::AllowOnce
        }
    });
    let ran =
        stage.sh(&asker, "mkdir ~/papers/dir; mkdir ~/papers/dir/more; touch ~/papers/dir/file");
    assert_eq!(
        ran.granted(),
        ["allow_once create ~/papers/dir 1", "allow_once create ~/papers/dir/more 1"],
        "{}",
        ran.talk()
    );
    assert_eq!(ran.refused(), ["create ~/papers/dir/file"]);
}

/// Promise: write-grant
fn session_write_grant_follows_a_replaced_file(stage: &AskFixture) {
    let (notes, draft, go) =
        (stage.at("home/notes.txt"), stage.at("home/draft"), stage.workspace.join("go"));
    // As an editor saves.
    let editor = std::thread::spawn(move || {
        while fs::symlink_metadata(go.as_path()).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        fs::write(draft.as_path(), "saved\n")
            .and_then(|()| fs::rename(draft.as_path(), notes.as_path()))
            .expect("the home is ours");
        fs::remove_file(go.as_path()).expect("it is there");
    });
    let asker = ScriptedAsker::always(stage, AskAnswer::AllowSession);
    let ran = stage
        .sh(&asker, "echo a >> ~/notes.txt; touch go; while [ -e go ]; do sleep 0.05; done; echo b >> ~/notes.txt; echo c >> ~/notes.txt");
    editor.join().expect("it saves");
    assert_eq!((ran.talk().as_str(), asker.asked().len(), ran.refused().len()), ("", 1, 0));
    assert_eq!(read(stage, "home/notes.txt").as_deref(), Some("saved\nb\nc\n"));
    assert_eq!(ran.granted(), ["allow_session write ~/notes.txt 3"]);
}
