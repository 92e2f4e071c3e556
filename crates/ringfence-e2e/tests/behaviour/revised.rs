//! A policy edited during a session applies to that session, or a message says what does not; a
//! mistake changes nothing.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_testkit::{SECRET, TestProject, becomes_true, each_user, fuse_for_all, needs};
use serde_json::Value;

use crate::project;
use crate::sessions::{TestSession, can_change_mounts};

impl TestSession {
    fn policy(&self) -> PathBuf {
        self.project.home().join(".config/ringfence/policy.toml")
    }

    fn say(&self, text: &str) {
        self.project.write_at(&self.policy(), format!("version = 1\n{text}\n"));
    }

    fn about(&self) -> Value {
        serde_json::from_str(&self.words(&["inspect", &self.id]).ok()).expect("one object")
    }

    /// Sets up and returns shell state: pid, directory, a variable, and a background job.
    fn leave(&self) -> String {
        self.exec("cd src; export LEFT=there; sleep 300 & job=$!").ok();
        self.left()
    }

    fn left(&self) -> String {
        self.exec("echo $$ $PWD $LEFT $(kill -0 $job && echo alive)").ok()
    }
}

/// Promise: live-policy
#[test]
fn opened_path_is_readable_and_the_shell_continues() {
    fuse_for_all();
    each_user(|user| {
        let session = TestSession::start(user);
        session.project.write_at(&session.project.home().join("data/deep/a.txt"), "the data");
        session.project.write_at(&session.project.home().join("data/.env"), SECRET);
        let before = session.leave();
        assert_ne!(session.exec("cat ~/data/deep/a.txt").status, 0);
        session.say("[filesystem]\nread = [\"~/data\", \"~/notes.txt\"]");
        let ran = session.exec("cat ~/data/deep/a.txt ~/notes.txt");
        assert_eq!(ran.ok(), format!("the data{SECRET}"));
        assert!(
            ran.stderr_text().contains("`read ~/data` (")
                && ran.stderr_text().contains("policy.toml:3 (user policy)) applies from now on"),
            "{}",
            ran.stderr_text()
        );
        // Built-in denials hold in it, and it is read-only.
        for line in [
            "cat ~/data/.env",
            "echo x >~/data/deep/a.txt",
            "echo x >~/data/new",
            "cat ~/.ssh/id_rsa",
        ] {
            assert_ne!(session.exec(line).status, 0, "{line}");
        }
        assert_eq!(session.left(), before);
        let report = session.json("cat ~/data/deep/a.txt");
        assert_eq!(
            (&report["stdout"], report.get("policy")),
            (&Value::from("the data"), None),
            "reported once"
        );
    });
}

/// Promise: policy-mistakes
#[test]
fn policy_mistake_is_reported_once_and_changes_nothing() {
    fuse_for_all();
    each_user(|user| {
        let session = TestSession::start(user);
        session.say("[filesystem]\nread = [\"~/notes.txt\"]");
        assert_eq!(session.exec("cat ~/notes.txt").ok(), SECRET);
        session.say("[filesystem]\nraed = []");
        let ran = session.exec("cat ~/notes.txt");
        assert_eq!(ran.ok(), SECRET);
        let expect = format!(
            "ringfence: warning: the policy is unchanged: {}:3:1: ",
            session.policy().display()
        );
        assert!(
            ran.stderr_text().starts_with(&expect) && ran.stderr_text().contains("read"),
            "{}",
            ran.stderr_text()
        );
        assert_eq!(session.about()["policy"]["problem"]["code"], "policy-unknown-key");
        let report = session.json("cat ~/notes.txt");
        assert_eq!(
            (&report["stdout"], report.get("policy")),
            (&Value::from(SECRET), None),
            "reported once"
        );
        // A removed file has no effect: neither its mistake nor its earlier rules.
        fs::remove_file(session.policy()).unwrap();
        let report = session.json("cat ~/notes.txt");
        assert_ne!(report["exitCode"], 0, "{report}");
        assert_eq!(session.about()["policy"]["problem"], Value::Null);
    });
}

/// Promise: live-policy
#[test]
fn denied_path_is_masked_and_the_shell_continues() {
    each_user(|user| {
        let session = TestSession::start(user);
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
            let report = session.json(&format!("cat ../{name}"));
            assert_eq!(
                (&report["stdout"], &report["exitCode"]),
                (&Value::from(""), &Value::from(1)),
                "{name}: {report}"
            );
            let rule = if name.contains("plain") { "plain" } else { "" };
            assert!(
                report["blockedReason"].as_str().is_none_or(|reason| reason.contains(rule)),
                "{report}"
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
        // Files that appear later are masked as well.
        session.project.write("sub/late.sqlite", SECRET);
        assert!(becomes_true(Duration::from_secs(5), || session
            .exec("cat ../sub/late.sqlite")
            .status
            != 0));
        assert_eq!(session.left(), before);
        assert_eq!(fs::read_to_string(session.project.at("notes.md")).unwrap(), SECRET);
        // Reverted, it is open again, if removing the mask is enough.
        session.say("");
        assert_eq!(
            session
                .exec("cat ../a.sqlite ../sub/late.sqlite ../plain/c.txt ../notes.md ../hard")
                .ok(),
            SECRET.repeat(5)
        );
        session.exec("echo more >>../notes.md").ok();
        assert!(
            session.exec("echo more >>../plain/c.txt").stderr_text().contains("Read-only"),
            "a directory comes back to be read"
        );
        assert_eq!(session.left(), before);
    });
}

/// Promise: live-policy
#[test]
fn removed_grant_shuts_the_path() {
    fuse_for_all();
    each_user(|user| {
        let session = TestSession::start_with(user, &[]);
        session.project.write_at(&session.project.home().join("data/a.txt"), "the data");
        session.say("[filesystem]\nread = [\"~/data\"]");
        let before = session.leave();
        assert_eq!(session.exec("cat ~/data/a.txt").ok(), "the data");
        session.say("");
        let ran = session.exec("cat ~/data/a.txt");
        assert_ne!(ran.status, 0);
        assert!(
            ran.stderr_text().contains("`read ~/data` (")
                && ran.stderr_text().contains("no longer applies"),
            "{}",
            ran.stderr_text()
        );
        session.say("[filesystem]\nread = [\"~/data\"]");
        assert_eq!(session.exec("cat ~/data/a.txt").ok(), "the data");
        assert_eq!(session.left(), before);
    });
}

/// Promise: live-policy
#[test]
fn running_commands_are_narrowed() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.project.write("a.sqlite", SECRET);
        session.exec("while sleep 0.05; do cat a.sqlite >/dev/null 2>&1 && echo open >state || echo shut >state; done & job=$!").ok();
        assert!(becomes_true(Duration::from_secs(5), || session.project.read("state").as_deref()
            == Some("open\n")));
        session.say("[filesystem]\ndeny = [\"*.sqlite\"]");
        assert!(becomes_true(Duration::from_secs(8), || session.project.read("state").as_deref()
            == Some("shut\n")));
    });
}

/// Promise: pending-narrowing
#[test]
fn process_in_a_denied_directory_makes_the_narrowing_pending() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.project.write("plain/c.txt", SECRET);
        session.exec("cd plain").ok();
        session.say("[filesystem]\ndeny = [\"plain\"]");
        let ran = session.exec("cat c.txt");
        assert_eq!((ran.status, ran.text().as_str()), (125, ""), "{}", ran.stderr_text());
        let stop = format!(
            "hint: run `ringfence session stop {}`, then `ringfence session start`",
            session.id
        );
        assert!(
            ran.stderr_text().contains("`deny plain` (")
                && ran.stderr_text().contains("(bash) has /")
                && ran.stderr_text().contains(&stop),
            "{}",
            ran.stderr_text()
        );
        // Reverted, everything works again.
        session.say("");
        assert_eq!(session.exec("cat c.txt; cat ../plain/c.txt").ok(), SECRET.repeat(2));
    });
}

/// Promise: pending-narrowing
#[test]
fn hidden_references_to_a_denied_directory_are_found() {
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
        for (program, how) in [(HIDES, "has /"), (HOLDS, "has /"), (PARKS, "has a socket")] {
            let session = TestSession::start(user);
            session.project.write("plain/deep/c.txt", SECRET);
            session.exec(&format!("python3 -c '{program}' & true")).ok();
            assert!(becomes_true(Duration::from_secs(10), || session.project.has("in")));
            session.say("[filesystem]\ndeny = [\"plain\"]");
            let ran = session.exec("true");
            assert!(
                ran.status == 125 && ran.stderr_text().contains(&format!("(python3) {how}")),
                "{}",
                ran.stderr_text()
            );
            session.exec("true").expect_status(125);
        }
    });
}

/// Promise: live-policy
#[test]
fn protect_rules_and_limits_apply_live() {
    each_user(|user| {
        let session = TestSession::start(user);
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
        session.exec("sleep 30").expect_status(124);
        session.say("");
        session.exec("sleep 1").ok();
        assert_eq!(session.left(), before);
    });
}

/// Promise: pending-narrowing
#[test]
fn change_from_write_to_read_is_pending() {
    each_user(|user| {
        let project = project(user);
        let (out, policy) =
            (project.home().join("out"), project.home().join(".config/ringfence/policy.toml"));
        project.make_directories(&out);
        project.write_at(&policy, "version = 1\n[filesystem]\nwrite = [\"~/out\"]\n");
        let session = TestSession::start_by(project, TestProject::ringfence, &[]);
        session.exec("echo x >~/out/a").ok();
        session.say("[filesystem]\nread = [\"~/out\"]");
        let ran = session.exec("echo x >~/out/b");
        assert!(
            ran.status == 125 && ran.stderr_text().contains("`write ~/out` ("),
            "{}",
            ran.stderr_text()
        );
        assert!(!out.join("b").exists());
        // Without any rule, the path is shut.
        session.say("");
        assert_ne!(session.exec("cat ~/out/a").status, 0);
        assert_ne!(session.exec("echo x >~/out/b").status, 125);
        assert!(!out.join("b").exists());
    });
}

/// Promise: pending-narrowing
#[test]
fn changes_that_need_a_new_session_are_reported() {
    each_user(|user| {
        let session = TestSession::start(user);
        let before = session.leave();
        // A widening is not applied, and the session continues.
        session.say("[network]\nmode = \"full\"\n[filesystem]\nwrite = [\"~/.ssh\"]");
        let ran = session.exec("cat /proc/net/dev | grep -v lo: | tail -n +3; echo x >~/.ssh/new");
        assert_ne!(ran.status, 0);
        assert_eq!(ran.text(), "");
        let talk = ran.stderr_text();
        assert!(
            talk.contains("`network.mode = full` takes effect with a new session")
                && talk.contains("`write ~/.ssh` ("),
            "{talk}"
        );
        assert!(talk.contains(&format!("hint: `ringfence session stop {}`", session.id)), "{talk}");
        assert_eq!(session.about()["policy"]["pending"][0]["rule"], "network.mode = full");
        assert_eq!(session.left(), before);
        // A narrowing that is not applied: no new command runs.
        session.say("mode = \"read-only\"");
        let ran = session.exec("true");
        assert_eq!(ran.status, 125);
        assert!(
            ran.stderr_text().contains("`mode = read-only` takes effect with a new session"),
            "{}",
            ran.stderr_text()
        );
        assert_eq!(session.words(&["exec", &session.id, "--", "true"]).status, 125);
        session.say("");
        assert_eq!(session.left(), before);
    });
}

/// Attempts to change the policy from inside.
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

/// Promise: policy-mistakes
#[test]
fn policy_edit_from_inside_opens_nothing() {
    each_user(|user| {
        let session = TestSession::start(user);
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
                    ran.stderr_text()
                );
            }
        }
        // The last edit succeeds, and is not trusted.
        assert!(session.project.read("shared.toml").unwrap().contains("notes.txt"));
        assert_eq!(session.about()["policy"]["problem"]["code"], "policy-writable");
        assert!(session.project.read(project).unwrap().contains("sqlite"));
    });
}

/// Promise: policy-mistakes
#[test]
fn policy_cannot_be_created_from_inside() {
    each_user(|user| {
        let session = TestSession::start(user);
        for line in FROM_INSIDE {
            session.exec(line);
            assert!(!session.project.has(".ringfence"), "{line}");
        }
        assert_eq!(session.about()["policy"]["files"], serde_json::json!([]));
    });
}

/// Promise: live-policy
#[test]
fn flood_of_policy_edits_is_harmless() {
    each_user(|user| {
        let session = TestSession::start(user);
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

/// Promise: policy-mistakes
#[test]
fn every_policy_change_is_audited() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.say("[filesystem]\ndeny = [\"README\"]");
        assert_ne!(session.exec("cat README").status, 0);
        session.say("[filesystem");
        session.exec("true").ok();
        let log = ringfence_testkit::TestOutput::run(
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
            ringfence_testkit::TestOutput::run(session.project.ringfence().arg("log"), b"").ok();
        assert!(
            shown.contains("`deny README` (") && shown.contains("applies from now on"),
            "{shown}"
        );
        ringfence_testkit::TestOutput::run(
            session.project.ringfence().args(["log", "--verify"]),
            b"",
        )
        .ok();
    });
}

/// Promise: policy-mistakes
#[test]
fn paths_locked_by_the_managed_policy_are_shut_live() {
    if !can_change_mounts() {
        return;
    }
    fuse_for_all();
    each_user(|user| {
        let project = project(user);
        let managed = project.home().join("managed/policy.toml");
        project.write_at(&managed, "version = 1\n");
        // The machine's `/etc` with one more file, mounted for this session only.
        let etc = project.home().join("etc").display().to_string();
        let mounts = format!(
            "mkdir -p {etc} && mount -t tmpfs none {etc} && cp -a /etc/. {etc}/ 2> /dev/null; mkdir -p {etc}/ringfence && \
             ln -s {} {etc}/ringfence/policy.toml && mount --bind {etc} /etc",
            managed.display()
        );
        let session = TestSession::start_by(
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
            let report = session.json(&format!("cat {name}"));
            assert_eq!(
                (&report["stdout"], &report["permission"]),
                (&Value::from(""), &Value::Null),
                "{name}: {report}"
            );
            assert_eq!(report["exitCode"], 1, "{report}");
        }
        // No policy file of the user lifts it.
        session
            .say("[filesystem]\nread = [\"~/notes.txt\", \"~/.netrc\"]\nexcept = [\"*.sqlite\"]");
        for name in ["~/.netrc", "~/notes.txt", "a.sqlite"] {
            assert_ne!(session.exec(&format!("cat {name}")).status, 0, "{name}");
        }
    });
}

/// Promise: live-policy
#[test]
fn without_fuse_denials_apply_and_grants_are_pending() {
    if !can_change_mounts() {
        return;
    }
    each_user(|user| {
        let session =
            TestSession::start_by(project(user), TestProject::ringfence_without_fuse, &[]);
        session.project.write("a.sqlite", SECRET);
        session.project.write("plain/c.txt", SECRET);
        let before = session.leave();
        session.say("[filesystem]\ndeny = [\"*.sqlite\", \"plain\"]\nread = [\"~/notes.txt\"]");
        let result = session.json("cat ../a.sqlite ../plain/c.txt ~/notes.txt");
        assert_eq!(
            (&result["stdout"], &result["exitCode"]),
            (&Value::from(""), &Value::from(1)),
            "{result}"
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
