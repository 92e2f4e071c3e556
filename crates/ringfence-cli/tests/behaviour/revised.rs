//! A policy that is edited while a session runs holds for that session, or it is said what does
//! not; a mistake changes nothing.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_testkit::{SECRET, TestProject, each_user, fuse_for_all, needs, soon};
use serde_json::Value;

use crate::project;
use crate::sessions::{Session, can_change_mounts};

impl Session {
    fn policy(&self) -> PathBuf {
        self.project.home().join(".config/ringfence/policy.toml")
    }

    fn say(&self, text: &str) {
        self.project.write_at(&self.policy(), format!("version = 1\n{text}\n"));
    }

    fn about(&self) -> Value {
        serde_json::from_str(&self.words(&["inspect", &self.id]).ok()).expect("one object")
    }

    /// What the shell keeps: its number, where it is, a variable, and a job of an earlier line.
    fn leave(&self) -> String {
        self.exec("cd src; export LEFT=there; sleep 300 & job=$!").ok();
        self.left()
    }

    fn left(&self) -> String {
        self.exec("echo $$ $PWD $LEFT $(kill -0 $job && echo alive)").ok()
    }
}

/// Promise: P63
#[test]
fn what_is_opened_can_be_read_and_the_shell_lives_on() {
    fuse_for_all();
    each_user(|user| {
        let session = Session::start(user);
        session.project.write_at(&session.project.home().join("data/deep/a.txt"), "the data");
        session.project.write_at(&session.project.home().join("data/.env"), SECRET);
        let before = session.leave();
        assert_ne!(session.exec("cat ~/data/deep/a.txt").status, 0);
        session.say("[filesystem]\nread = [\"~/data\", \"~/notes.txt\"]");
        let ran = session.exec("cat ~/data/deep/a.txt ~/notes.txt");
        assert_eq!(ran.ok(), format!("the data{SECRET}"));
        assert!(
            ran.talk().contains("`read ~/data` (")
                && ran.talk().contains("policy.toml:3 (user policy)) holds from now on"),
            "{}",
            ran.talk()
        );
        // What is built in holds in it, and nothing of it can be written.
        for line in [
            "cat ~/data/.env",
            "echo x >~/data/deep/a.txt",
            "echo x >~/data/new",
            "cat ~/.ssh/id_rsa",
        ] {
            assert_ne!(session.exec(line).status, 0, "{line}");
        }
        assert_eq!(session.left(), before);
        let told = session.json("cat ~/data/deep/a.txt");
        assert_eq!(
            (&told["stdout"], told.get("policy")),
            (&Value::from("the data"), None),
            "told once"
        );
    });
}

/// Promise: P65
#[test]
fn a_mistake_is_told_once_and_changes_nothing() {
    fuse_for_all();
    each_user(|user| {
        let session = Session::start(user);
        session.say("[filesystem]\nread = [\"~/notes.txt\"]");
        assert_eq!(session.exec("cat ~/notes.txt").ok(), SECRET);
        session.say("[filesystem]\nraed = []");
        let ran = session.exec("cat ~/notes.txt");
        assert_eq!(ran.ok(), SECRET);
        let expect = format!(
            "ringfence: warning: the policy stays as it was: {}:3:1: ",
            session.policy().display()
        );
        assert!(ran.talk().starts_with(&expect) && ran.talk().contains("read"), "{}", ran.talk());
        assert_eq!(session.about()["policy"]["problem"]["code"], "policy-unknown-key");
        let told = session.json("cat ~/notes.txt");
        assert_eq!(
            (&told["stdout"], told.get("policy")),
            (&Value::from(SECRET), None),
            "told once"
        );
        // Gone, the file holds no more: neither the mistake nor what it said before.
        fs::remove_file(session.policy()).unwrap();
        let told = session.json("cat ~/notes.txt");
        assert_ne!(told["exitCode"], 0, "{told}");
        assert_eq!(session.about()["policy"]["problem"], Value::Null);
    });
}

/// Promise: P63
#[test]
fn what_is_denied_is_shut_and_the_shell_lives_on() {
    each_user(|user| {
        let session = Session::start(user);
        for name in ["a.sqlite", "sub/b.sqlite", "plain/c.txt", "notes.md"] {
            session.project.write(name, SECRET);
        }
        std::os::unix::fs::symlink("a.sqlite", session.project.at("link")).unwrap();
        fs::hard_link(session.project.at("a.sqlite"), session.project.at("hard")).unwrap();
        let before = session.leave();
        assert_eq!(
            session
                .exec("cd ..; cat a.sqlite sub/b.sqlite plain/c.txt notes.md link hard; cd src")
                .ok(),
            SECRET.repeat(6)
        );
        session.say("[filesystem]\ndeny = [\"*.sqlite\", \"~/code/app/plain\", \"notes.md\"]");
        for name in ["a.sqlite", "sub/b.sqlite", "plain/c.txt", "notes.md", "link", "hard"] {
            let told = session.json(&format!("cat ../{name}"));
            assert_eq!(
                (&told["stdout"], &told["exitCode"]),
                (&Value::from(""), &Value::from(1)),
                "{name}: {told}"
            );
            let rule = if name.contains("plain") { "plain" } else { "" };
            assert!(
                told["blockedReason"].as_str().is_none_or(|reason| reason.contains(rule)),
                "{told}"
            );
        }
        for line in [
            "ls ../plain",
            "echo x >../plain/new",
            "echo x >../new.sqlite",
            "mv ../sub ../bus",
            "mkdir ../x.sqlite",
            "rm ../notes.md",
        ] {
            assert_ne!(session.exec(line).status, 0, "{line}");
        }
        // What comes later is covered as well.
        session.project.write("sub/late.sqlite", SECRET);
        assert!(soon(Duration::from_secs(5), || session.exec("cat ../sub/late.sqlite").status != 0));
        assert_eq!(session.left(), before);
        assert_eq!(fs::read_to_string(session.project.at("notes.md")).unwrap(), SECRET);
        // Taken back, it is open again, where nothing more is needed than to take a cover off.
        session.say("");
        assert_eq!(
            session
                .exec("cat ../a.sqlite ../sub/late.sqlite ../plain/c.txt ../notes.md ../hard")
                .ok(),
            SECRET.repeat(5)
        );
        session.exec("echo more >>../notes.md").ok();
        assert!(
            session.exec("echo more >>../plain/c.txt").talk().contains("Read-only"),
            "a directory comes back to be read"
        );
        assert_eq!(session.left(), before);
    });
}

/// Promise: P63
#[test]
fn what_is_opened_no_longer_is_shut() {
    fuse_for_all();
    each_user(|user| {
        let session = Session::start_with(user, &[]);
        session.project.write_at(&session.project.home().join("data/a.txt"), "the data");
        session.say("[filesystem]\nread = [\"~/data\"]");
        let before = session.leave();
        assert_eq!(session.exec("cat ~/data/a.txt").ok(), "the data");
        session.say("");
        let ran = session.exec("cat ~/data/a.txt");
        assert_ne!(ran.status, 0);
        assert!(
            ran.talk().contains("`read ~/data` (") && ran.talk().contains("holds no longer"),
            "{}",
            ran.talk()
        );
        session.say("[filesystem]\nread = [\"~/data\"]");
        assert_eq!(session.exec("cat ~/data/a.txt").ok(), "the data");
        assert_eq!(session.left(), before);
    });
}

/// Promise: P63
#[test]
fn what_runs_is_narrowed_as_well() {
    each_user(|user| {
        let session = Session::start(user);
        session.project.write("a.sqlite", SECRET);
        session.exec("while sleep 0.05; do cat a.sqlite >/dev/null 2>&1 && echo open >state || echo shut >state; done & job=$!").ok();
        assert!(soon(Duration::from_secs(5), || session.project.read("state").as_deref()
            == Some("open\n")));
        session.say("[filesystem]\ndeny = [\"*.sqlite\"]");
        assert!(soon(Duration::from_secs(8), || session.project.read("state").as_deref()
            == Some("shut\n")));
    });
}

/// Promise: P64
#[test]
fn who_stands_in_what_is_denied_is_told_and_nothing_more_runs() {
    each_user(|user| {
        let session = Session::start(user);
        session.project.write("plain/c.txt", SECRET);
        session.exec("cd plain").ok();
        session.say("[filesystem]\ndeny = [\"plain\"]");
        let ran = session.exec("cat c.txt");
        assert_eq!((ran.status, ran.text().as_str()), (125, ""), "{}", ran.talk());
        let stop = format!(
            "hint: `ringfence session stop {}`, then `ringfence session start`",
            session.id
        );
        assert!(
            ran.talk().contains("`deny plain` (")
                && ran.talk().contains("(bash) stands in")
                && ran.talk().contains(&stop),
            "{}",
            ran.talk()
        );
        // Taken back, all is as it was.
        session.say("");
        assert_eq!(session.exec("cat c.txt; cat ../plain/c.txt").ok(), SECRET.repeat(2));
    });
}

/// Promise: P64
#[test]
fn nobody_hides_in_what_is_denied() {
    const HIDES: &str = "import ctypes, os, time; ctypes.CDLL(None).prctl(4, 0); os.chdir(\"plain\"); open(\"../in\", \"w\"); time.sleep(300)";
    const HOLDS: &str = "import os, time; d = os.open(\"plain/deep\", os.O_RDONLY); open(\"in\", \"w\"); time.sleep(300)";
    // The only fd of the directory is in a socket.
    const PARKS: &str = "import array, os, socket, time; d = os.open(\"plain/deep\", os.O_RDONLY); one, other = socket.socketpair(); \
         one.sendmsg([b\"x\"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array(\"i\", [d]))]); os.close(d); \
         open(\"in\", \"w\"); time.sleep(300)";
    if !needs(&["python3"]) {
        return;
    }
    each_user(|user| {
        for (program, how) in [(HIDES, "stands in"), (HOLDS, "stands in"), (PARKS, "has a socket")]
        {
            let session = Session::start(user);
            session.project.write("plain/deep/c.txt", SECRET);
            session.exec(&format!("python3 -c '{program}' & true")).ok();
            assert!(soon(Duration::from_secs(10), || session.project.has("in")));
            session.say("[filesystem]\ndeny = [\"plain\"]");
            let ran = session.exec("true");
            assert!(
                ran.status == 125 && ran.talk().contains(&format!("(python3) {how}")),
                "{}",
                ran.talk()
            );
            session.exec("true").ends(125);
        }
    });
}

/// Promise: P63
#[test]
fn what_is_protected_and_how_long_it_may_take() {
    each_user(|user| {
        let session = Session::start(user);
        session.project.write("Makefile", "all:\n");
        session.project.write("conf/a", "kept");
        let before = session.leave();
        session.exec("echo x >>../Makefile; echo x >>../conf/a").ok();
        session.say("[filesystem]\nprotect = [\"Makefile\", \"~/code/app/conf\"]\n[limits]\nwall = \"700ms\"");
        for line in [
            "echo y >>../Makefile",
            "echo y >>../conf/a",
            "echo y >../conf/new",
            "mv ../conf ../other",
            "rm ../Makefile",
        ] {
            assert_ne!(session.exec(line).status, 0, "{line}");
        }
        assert_eq!(session.project.read("conf/a").unwrap(), "keptx\n");
        session.exec("sleep 30").ends(124);
        session.say("");
        session.exec("sleep 1").ok();
        assert_eq!(session.left(), before);
    });
}

/// Promise: P64
#[test]
fn a_tree_that_is_to_be_readable_only_is_owed() {
    each_user(|user| {
        let project = project(user);
        let (out, policy) =
            (project.home().join("out"), project.home().join(".config/ringfence/policy.toml"));
        project.make_directories(&out);
        project.write_at(&policy, "version = 1\n[filesystem]\nwrite = [\"~/out\"]\n");
        let session = Session::start_by(project, TestProject::ringfence, &[]);
        session.exec("echo x >~/out/a").ok();
        session.say("[filesystem]\nread = [\"~/out\"]");
        let ran = session.exec("echo x >~/out/b");
        assert!(ran.status == 125 && ran.talk().contains("`write ~/out` ("), "{}", ran.talk());
        assert!(!out.join("b").exists());
        // Gone as a whole, it is shut.
        session.say("");
        assert_ne!(session.exec("cat ~/out/a").status, 0);
        assert_ne!(session.exec("echo x >~/out/b").status, 125);
        assert!(!out.join("b").exists());
    });
}

/// Promise: P64
#[test]
fn what_cannot_be_taken_over_says_so() {
    each_user(|user| {
        let session = Session::start(user);
        let before = session.leave();
        // What would be wider stays as it was, and all goes on.
        session.say("[network]\nmode = \"full\"\n[filesystem]\nwrite = [\"~/.ssh\"]");
        let ran = session.exec("cat /proc/net/dev | grep -v lo: | tail -n +3; echo x >~/.ssh/new");
        assert_ne!(ran.status, 0);
        assert_eq!(ran.text(), "");
        let talk = ran.talk();
        assert!(
            talk.contains("`network.mode = full` takes effect with a new session")
                && talk.contains("`write ~/.ssh` ("),
            "{talk}"
        );
        assert!(talk.contains(&format!("hint: `ringfence session stop {}`", session.id)), "{talk}");
        assert_eq!(session.about()["policy"]["pending"][0]["rule"], "network.mode = full");
        assert_eq!(session.left(), before);
        // What would be narrower and is not: nothing more runs.
        session.say("mode = \"read-only\"");
        let ran = session.exec("true");
        assert_eq!(ran.status, 125);
        assert!(
            ran.talk().contains("`mode = read-only` takes effect with a new session"),
            "{}",
            ran.talk()
        );
        assert_eq!(session.words(&["exec", &session.id, "--", "true"]).status, 125);
        session.say("");
        assert_eq!(session.left(), before);
    });
}

/// What a command may try to get at the policy with, from the project.
const FROM_INSIDE: &[&str] = &[
    "printf 'version = 1\\n' >.ringfence/policy.toml",
    "printf 'version = 1\\n' >.ringfence/more.toml",
    "echo >>.ringfence/policy.toml",
    "truncate -s 0 .ringfence/policy.toml",
    "rm -f .ringfence/policy.toml",
    "mv .ringfence away",
    "mv .ringfence/policy.toml p",
    "rm -rf .ringfence",
    "mkdir x && mv x .ringfence",
    "ln -sf /tmp/mine .ringfence/policy.toml",
    "ln policy.new .ringfence/policy.toml",
    "cp README .ringfence/policy.toml",
    "python3 -c 'import os; os.rename(\"README\", \".ringfence/policy.toml\")'",
    "mount --bind /tmp .ringfence",
    "mkdir -p ~/.config/ringfence && echo >~/.config/ringfence/policy.toml",
    "mkdir -p ~/.config/ringfence/projects && printf 'version = 1\\nproject = \"%s\"\\n[filesystem]\\nread = [\"~/notes.txt\"]\\n' \"$PWD\" \
     >~/.config/ringfence/projects/\"$(printf %s \"${PWD#/}\" | tr / +)\".toml",
    "mv ~/.config ~/away",
    "echo >/etc/ringfence/policy.toml",
    "printf 'version = 1\\n[filesystem]\\nread = [\"~/notes.txt\"]\\n' >shared.toml",
];

/// Promise: P65
#[test]
fn an_edit_from_inside_opens_nothing() {
    each_user(|user| {
        let session = Session::start(user);
        let project = ".ringfence/policy.toml";
        session.project.write("a.sqlite", SECRET);
        session.project.write(project, "version = 1\n[filesystem]\ndeny = [\"*.sqlite\"]\n");
        session.project.write("shared.toml", "version = 1\n");
        session.say(&format!("extends = [\"{}\"]", session.project.at("shared.toml").display()));
        assert_ne!(session.exec("cat a.sqlite").status, 0);
        for line in FROM_INSIDE {
            session.exec(line);
            for secret in ["a.sqlite", "~/notes.txt"] {
                let ran = session.exec(&format!("cat {secret}"));
                assert!(
                    ran.status != 0 && ran.text().is_empty(),
                    "{line}, then {secret}: {}",
                    ran.talk()
                );
            }
        }
        // The last of them could be done, and is not believed.
        assert!(session.project.read("shared.toml").unwrap().contains("notes.txt"));
        assert_eq!(session.about()["policy"]["problem"]["code"], "policy-writable");
        assert!(session.project.read(project).unwrap().contains("sqlite"));
    });
}

/// Promise: P65
#[test]
fn an_edit_from_inside_makes_no_policy_where_there_is_none() {
    each_user(|user| {
        let session = Session::start(user);
        for line in FROM_INSIDE {
            session.exec(line);
            assert!(!session.project.has(".ringfence"), "{line}");
        }
        assert_eq!(session.about()["policy"]["files"], serde_json::json!([]));
    });
}

/// Promise: P63
#[test]
fn a_flood_of_edits_does_no_harm() {
    each_user(|user| {
        let session = Session::start(user);
        session.project.write("a.sqlite", SECRET);
        let before = session.leave();
        let policy = session.policy();
        session.say("");
        let texts = [
            "version = 1\n[filesystem]\ndeny = [\"*.sqlite\"]\n",
            "version = 1\n",
            "version = 1\n[filesys",
            "version = 2\n",
            "",
        ];
        let written = std::thread::spawn(move || {
            for text in texts.iter().cycle().take(1500) {
                fs::write(&policy, text).unwrap();
            }
        });
        while !written.is_finished() {
            let ran = session.exec("cat ../a.sqlite");
            assert!(ran.text() == SECRET || (ran.status == 1 && ran.text().is_empty()), "{ran:?}");
        }
        written.join().unwrap();
        session.say("[filesystem]\ndeny = [\"*.sqlite\"]");
        assert_ne!(session.exec("cat ../a.sqlite").status, 0);
        session.say("");
        assert_eq!(session.exec("cat ../a.sqlite").ok(), SECRET);
        assert_eq!(session.left(), before);
    });
}

/// Promise: P65
#[test]
fn every_change_is_in_the_audit_log() {
    each_user(|user| {
        let session = Session::start(user);
        session.say("[filesystem]\ndeny = [\"README\"]");
        assert_ne!(session.exec("cat README").status, 0);
        session.say("[filesystem");
        session.exec("true").ok();
        let log = ringfence_testkit::TestOutput::of(
            session.project.ringfence().args(["log", "--json"]),
            b"",
        )
        .ok();
        let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let records: Vec<Value> =
            records.filter(|record| record["operation"] == "policy").collect();
        let [taken, mistake] = records.as_slice() else { panic!("{log}") };
        assert_eq!(
            (&taken["result"], &mistake["result"]),
            (&Value::from("allowed"), &Value::from("failed"))
        );
        assert_eq!(taken["policyFiles"][0], session.policy().to_str().unwrap());
        assert_eq!(
            (&taken["changes"][0]["rule"], &taken["changes"][0]["turn"]),
            (&Value::from("deny README"), &Value::from("added"))
        );
        assert_ne!(taken["digestBefore"], taken["policyDigest"]);
        assert!(mistake["reason"].as_str().unwrap().contains("policy.toml:2:"), "{mistake}");
        let shown =
            ringfence_testkit::TestOutput::of(session.project.ringfence().arg("log"), b"").ok();
        assert!(
            shown.contains("`deny README` (") && shown.contains("holds from now on"),
            "{shown}"
        );
        ringfence_testkit::TestOutput::of(
            session.project.ringfence().args(["log", "--verify"]),
            b"",
        )
        .ok();
    });
}

/// Promise: P65
#[test]
fn what_the_managed_policy_locks_is_shut_whatever_was_opened() {
    if !can_change_mounts() {
        return;
    }
    fuse_for_all();
    each_user(|user| {
        let project = project(user);
        let managed = project.home().join("managed/policy.toml");
        project.write_at(&managed, "version = 1\n");
        // The machine's own settings with one more among them, for this session alone.
        let etc = project.home().join("etc").display().to_string();
        let mounts = format!(
            "mkdir -p {etc} && mount -t tmpfs none {etc} && cp -a /etc/. {etc}/ 2> /dev/null; mkdir -p {etc}/ringfence && \
             ln -s {} {etc}/ringfence/policy.toml && mount --bind {etc} /etc",
            managed.display()
        );
        let session = Session::start_by(
            project,
            |project| project.ringfence_after(&mounts),
            &["--read", "~/.netrc"],
        );
        session.project.write("a.sqlite", SECRET);
        session.say("[filesystem]\nread = [\"~/notes.txt\"]");
        assert_eq!(session.exec("cat ~/.netrc ~/notes.txt a.sqlite").ok(), SECRET.repeat(3));
        let deny = ["~/.netrc", "~/notes.txt", "*.sqlite"]
            .map(|what| format!("{{ path = \"{what}\", locked = true }}"))
            .join(", ");
        session.project.write_at(&managed, format!("version = 1\n[filesystem]\ndeny = [{deny}]\n"));
        for name in ["~/.netrc", "~/notes.txt", "a.sqlite"] {
            let told = session.json(&format!("cat {name}"));
            assert_eq!(
                (&told["stdout"], &told["permission"]),
                (&Value::from(""), &Value::Null),
                "{name}: {told}"
            );
            assert_eq!(told["exitCode"], 1, "{told}");
        }
        // No file of the person lifts it.
        session
            .say("[filesystem]\nread = [\"~/notes.txt\", \"~/.netrc\"]\nexcept = [\"*.sqlite\"]");
        for name in ["~/.netrc", "~/notes.txt", "a.sqlite"] {
            assert_ne!(session.exec(&format!("cat {name}")).status, 0, "{name}");
        }
    });
}

/// Promise: P63
#[test]
fn without_fuse_what_is_denied_is_shut_and_what_cannot_be_opened_says_so() {
    if !can_change_mounts() {
        return;
    }
    each_user(|user| {
        let session = Session::start_by(project(user), TestProject::ringfence_without_fuse, &[]);
        session.project.write("a.sqlite", SECRET);
        session.project.write("plain/c.txt", SECRET);
        let before = session.leave();
        session.say("[filesystem]\ndeny = [\"*.sqlite\", \"plain\"]\nread = [\"~/notes.txt\"]");
        let told = session.json("cat ../a.sqlite ../plain/c.txt ~/notes.txt");
        assert_eq!(
            (&told["stdout"], &told["exitCode"]),
            (&Value::from(""), &Value::from(1)),
            "{told}"
        );
        let pending = session.about()["policy"]["pending"].clone();
        assert_eq!(
            (pending.as_array().map(Vec::len), &pending[0]["rule"]),
            (Some(1), &Value::from("read ~/notes.txt")),
            "{pending}"
        );
        session.say("[filesystem]\nexcept = [\".env\"]");
        assert_eq!(session.exec("cat ../a.sqlite ../plain/c.txt ../.env").ok(), SECRET.repeat(3));
        assert_eq!(session.left(), before);
    });
}
