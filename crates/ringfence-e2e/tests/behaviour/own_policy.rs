//! The user's own policy for one project holds there and nowhere else.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_testkit::{SECRET, TestOutput, TestProject, each_user, needs};
use serde_json::{Value, json};

use crate::project;
use crate::sessions::TestSession;

/// Writes the user's own policy for the project.
fn say(project: &TestProject, rest: &str) {
    project.write_at(
        &project.own_policy(),
        format!("version = 1\nproject = \"{}\"\n{rest}\n", project.root().display()),
    );
}

fn ringfence(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(words), b"")
}

/// Promise: project-grant
#[test]
fn own_policy_opens_paths_only_in_its_project() {
    each_user(|user| {
        let project = project(user);
        say(
            &project,
            "[filesystem]\nread = [\"~/notes.txt\"]\n[environment]\nallow = [\"MY_TOKEN\"]\n[network]\nallow = [\"app.test:80\"]",
        );
        let run = |line: &str| {
            TestOutput::run(project.ringfence().env("MY_TOKEN", "t").args(["run", "-c", line]), b"")
        };
        assert_eq!(run("cat ~/notes.txt; echo $MY_TOKEN").ok(), format!("{SECRET}t"));
        project.write_at(&project.home().join("code/second/x"), "");
        project.run(["-C", "../second", "-c", "cat ~/notes.txt"]).expect_status(1);
        // Every report names the file and the line.
        let place = |line: u32| format!("{}:{line} (user policy)", project.own_policy().display());
        for (words, line) in [
            (&["explain", "read", "~/notes.txt"][..], 4),
            (&["explain", "env", "MY_TOKEN"], 6),
            (&["explain", "connect", "app.test:80"], 8),
            (&["policy", "show", "--origin"], 4),
            (&["policy", "show", "--origin"], 6),
            (&["policy", "show", "--origin"], 8),
        ] {
            let text = ringfence(&project, words).text();
            assert!(text.contains(&place(line)), "{words:?}: {text}");
        }
        let plan = ringfence(&project, &["plan"]).text();
        assert!(plan.contains("notes.txt"), "{plan}");
    });
}

#[test]
fn repository_narrows_the_own_policy_and_the_own_policy_overrides_the_users() {
    each_user(|user| {
        let project = project(user);
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\nmode = \"read-only\"\n",
        );
        project.sh("touch made").expect_status(1);
        say(&project, "mode = \"workspace-write\"\n[filesystem]\nread = [\"~/notes.txt\"]");
        project.sh("touch made && cat ~/notes.txt").ok();
        project.write(
            ".ringfence/policy.toml",
            "version = 1\nmode = \"read-only\"\n[filesystem]\ndeny = [\"README\"]\n",
        );
        project.sh("touch more").expect_status(1);
        project.sh("cat README").expect_status(1);
    });
}

/// Promise: project-grant
#[test]
fn file_of_another_project_is_an_error_with_a_hint() {
    each_user(|user| {
        let project = project(user);
        for text in ["version = 1\n", "version = 1\nproject = \"/elsewhere\"\n"] {
            project.write_at(&project.own_policy(), text);
            let ran = project.sh("true");
            ran.expect_status(125);
            let hint = format!("set `project = \"{}\"`", project.root().display());
            assert!(ran.stderr_text().contains(&hint), "{}", ran.stderr_text());
        }
        let checked = ringfence(&project, &["policy", "check", "--json"]);
        checked.expect_status(125);
        let said: Value = serde_json::from_slice(&checked.stdout).unwrap();
        assert_eq!(
            (said[0]["file"].as_str(), said[0]["error"]["code"].as_str()),
            (project.own_policy().to_str(), Some("policy-other-project"))
        );
    });
}

#[test]
fn list_names_every_file_in_order_and_those_of_moved_projects() {
    each_user(|user| {
        let project = project(user);
        say(&project, "");
        let second = project.home().join("code/second");
        project.make_directories(&second);
        let gone = ringfence_testkit::own_policy(&project.home(), &second);
        project.write_at(&gone, format!("version = 1\nproject = \"{}\"\n", second.display()));
        let list = || -> Value {
            serde_json::from_str(&ringfence(&project, &["policy", "list", "--json"]).ok()).unwrap()
        };
        let files = list()["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| json!([file["layer"], file["present"]]))
            .collect::<Vec<_>>();
        assert_eq!(
            files,
            [
                json!(["managed", false]),
                json!(["yours", false]),
                json!(["yours, here", true]),
                json!(["repository", false])
            ]
        );
        assert_eq!(list()["unused"], json!([]));
        fs::rename(&second, project.home().join("code/moved")).unwrap();
        let unused = &list()["unused"][0];
        assert_eq!(
            (unused["file"].as_str(), unused["state"].as_str()),
            (gone.to_str(), Some("gone")),
            "{unused}"
        );
        for words in [&["policy", "list"][..], &["doctor"]] {
            let text = ringfence(&project, words).text();
            assert!(
                text.contains(gone.to_str().unwrap()) && text.contains("which does not exist"),
                "{words:?}: {text}"
            );
        }
        let shown = ringfence(&project, &["policy", "show"]).ok();
        assert!(
            shown.contains(&format!("yours, here    {}\n", project.own_policy().display()))
                && shown.contains("(absent)"),
            "{shown}"
        );
    });
}

/// A repository that a command makes must not hide the user's rules for the directory around it.
#[test]
fn nested_repository_keeps_the_rules_of_the_directory_around_it() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q . && git add README && git commit -qm one").ok();
        project.write("sub/private.txt", "private");
        project.write("sub/open.txt", "open");
        let deny = ["configure", "set", "filesystem.deny", "[\"sub/private.txt\", \"wt/x\"]"];
        ringfence(&project, &deny).ok();
        let read = |name: &str| project.run(["-C", "sub", "--", "cat", name]);
        assert_eq!(read("open.txt").ok(), "open", "{user}");
        read("private.txt").expect_status(1);
        for make in ["mkdir sub/.git", "touch sub/.git", "git init -q sub"] {
            project.sh(make).ok();
            assert!(project.has("sub/.git"), "{user}: {make}");
            read("private.txt").expect_status(1);
            assert_eq!(read("open.txt").ok(), "open", "{user}: {make}");
            project.sh_bare("rm -rf sub/.git").ok();
        }
        project.sh_bare("git worktree add -q wt && echo private > wt/x").ok();
        project.run(["-C", "wt", "--", "cat", "x"]).expect_status(1);
        project.run(["-C", "wt", "--", "cat", "README"]).ok();
        assert_eq!(project.sh_bare("cat sub/private.txt wt/x").ok(), "privateprivate");
    });
}

#[test]
fn policy_around_a_nested_project_grants_and_is_named() {
    each_user(|user| {
        let project = project(user);
        project.make_directories(&project.at("sub/.git/refs"));
        project.make_directories(&project.at("sub/kept"));
        let run = |line: &str| project.run(["-C", "sub", "-c", line]);
        run("touch made; cat ~/notes.txt").expect_status(1);
        assert!(project.has("sub/made") && !project.has("made"), "{user}");
        say(
            &project,
            "mode = \"full-access\"\n[filesystem]\nread = [\"~/notes.txt\"]\nprotect = [\"sub/kept\"]",
        );
        let ran = run("cat ~/notes.txt; touch kept/x");
        ran.expect_status(1);
        assert!(ran.text().contains(SECRET) && !project.has("sub/kept/x"), "{}", ran.text());
        assert!(ran.stderr_text().contains("`mode = full-access` is ignored"), "{}", ran.text());
        let at = |words: &[&str]| {
            let mut command = project.ringfence();
            command.current_dir(project.at("sub")).args(words);
            TestOutput::run(&mut command, b"")
        };
        let around = project.own_policy().display().to_string();
        for words in [
            &["policy", "list"][..],
            &["policy", "show", "--origin"],
            &["plan"],
            &["plan", "--json"],
            &["configure", "set", "limits.wall", "1m"],
            &["allow", "host", "app.test", "--dry-run"],
            &["init", "--dry-run"],
        ] {
            let output = at(words);
            let text = output.text() + &output.stderr_text();
            assert!(text.contains(&around), "{user}: {words:?}: {text}");
        }
        let own = ringfence_testkit::own_policy(&project.home(), &project.at("sub"));
        assert!(fs::read_to_string(own).unwrap().contains("1m"), "{user}");
        assert!(!fs::read_to_string(project.own_policy()).unwrap().contains("1m"), "{user}");
    });
}

#[test]
fn dry_run_writes_nothing_and_names_the_place() {
    each_user(|user| {
        let project = project(user);
        for (words, what) in [
            (["allow", "read", "~/notes.txt"], "notes.txt"),
            (["allow", "host", "*.example.org"], "*.example.org"),
            (["allow", "env", "GITHUB_TOKEN"], "GITHUB_TOKEN"),
        ] {
            let said = ringfence(&project, &[&words[..], &["--dry-run"]].concat()).ok();
            let expect = format!("{what}, by {}:6", project.own_policy().display());
            assert!(said.starts_with("would be allowed: ") && said.ends_with(&expect), "{said}");
            assert!(!project.home().join(".config/ringfence").exists());
            assert!(ringfence(&project, &words).ok().starts_with("allowed from now on: "));
            fs::remove_dir_all(project.home().join(".config/ringfence")).unwrap();
        }
        for wrong in
            [["allow", "env", "A=b"], ["allow", "env", "*"], ["allow", "host", "https://x"]]
        {
            ringfence(&project, &wrong).expect_status(125);
        }
    });
}

#[test]
fn configure_writes_the_projects_own_policy_by_default() {
    each_user(|user| {
        let project = project(user);
        ringfence(&project, &["configure", "set", "network.allow", "[\"app.test\"]"]).ok();
        let text = fs::read_to_string(project.own_policy()).unwrap();
        assert!(
            text.contains(&format!("project = \"{}\"\n", project.root().display()))
                && text.contains("allow = [\"app.test\"]"),
            "{text}"
        );
        assert!(
            ringfence(&project, &["explain", "connect", "app.test:443"]).text().contains("allowed")
        );
        assert!(!project.has(".ringfence"));
        assert!(
            ringfence(&project, &["configure", "set", "project", "/x"])
                .expect_status(125)
                .stderr_text()
                .contains("is set when the file is created")
        );
        ringfence(&project, &["configure", "unset", "network.allow"]).ok();
        ringfence(&project, &["explain", "connect", "app.test:443"]).expect_status(1);
    });
}

#[test]
fn session_follows_the_own_policy() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.exec("cat ~/notes.txt").expect_status(1);
        ringfence(&session.project, &["allow", "read", "~/notes.txt"]).ok();
        assert_eq!(session.exec("cat ~/notes.txt").ok(), SECRET);
        fs::remove_file(session.project.own_policy()).unwrap();
        session.exec("cat ~/notes.txt").expect_status(1);
    });
}

#[test]
fn hook_uses_the_own_policy() {
    each_user(|user| {
        let project = project(user);
        let call = json!({ "cwd": project.root(), "hook_event_name": "PreToolUse", "tool_name": "Read",
            "tool_input": { "file_path": project.home().join("notes.txt") } });
        let ask = || {
            TestOutput::run(
                project.ringfence().args(["hook", "claude-code"]),
                call.to_string().as_bytes(),
            )
            .ok()
        };
        assert!(ask().contains("\"deny\""), "{}", ask());
        ringfence(&project, &["allow", "read", "~/notes.txt"]).ok();
        assert!(!ask().contains("\"deny\""), "{}", ask());
    });
}

/// Promise: project-grant
#[test]
fn target_of_a_linked_policy_stays_unwritable_inside() {
    each_user(|user| {
        let project = project(user);
        let own = format!("version = 1\nproject = \"{}\"\n", project.root().display());
        project.write("dots/own.toml", &own);
        project.make_directories(project.own_policy().parent().unwrap());
        symlink(project.at("dots/own.toml"), project.own_policy()).unwrap();
        for line in [
            "echo 'mode = \"full-access\"' >> dots/own.toml",
            "mv dots/own.toml x",
            "rm dots/own.toml",
            "mv dots d && mkdir dots",
        ] {
            project.sh(line);
            assert_eq!(project.read("dots/own.toml").as_deref(), Some(own.as_str()), "{line}");
        }
        project.sh("cat dots/own.toml").ok();
    });
}

#[test]
fn settings_behind_a_linked_config_directory_stay_unwritable_inside() {
    each_user(|user| {
        let project = project(user);
        project.write("cfg/ringfence/policy.toml", "version = 1\n");
        project.write("cfg/git/config", "");
        let link = project.home().join("linked");
        std::os::unix::fs::symlink(project.at("cfg"), &link).expect("a link can be made");
        for name in ["cfg/ringfence/policy.toml", "cfg/git/config", "cfg/ringfence/projects/x.toml"]
        {
            let line = format!("mkdir -p $(dirname {name}) && echo '# planted' >> {name}");
            let ran = TestOutput::run(
                project.ringfence().env("XDG_CONFIG_HOME", &link).args(["run", "-c", &line]),
                b"",
            );
            assert!(ran.status != 0, "{user}: {name}");
            assert!(
                !project.read(name).is_some_and(|text| text.contains("planted")),
                "{user}: {name}"
            );
        }
    });
}
