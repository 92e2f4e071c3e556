//! What a person allows for good is open from then on, and nothing else is.

use ringfence_testkit::{TestOutput, TestProject, each_user};

use crate::project;

#[track_caller]
fn allow(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::of(project.ringfence().arg("allow").args(words), b"")
}

fn policy(project: &TestProject) -> std::path::PathBuf {
    project.home().join(".config/ringfence/policy.toml")
}

/// Promise: P44
#[test]
fn what_is_built_in_opens_for_the_very_path_and_stays_shut_beside_it() {
    each_user(|user| {
        let project = project(user);
        project.write("sub/.env", "other");
        project.sh("cat ~/.ssh/id_rsa").ends(1);
        project.sh("cat .env").ends(1);
        let said = allow(&project, &["read", "~/.ssh/id_rsa"]).ok();
        let home = project.home().display().to_string();
        let own = project.own_policy().display().to_string();
        assert_eq!(said, format!("open from now on: {home}/.ssh/id_rsa, by {own}:6"));
        // By its older name, too.
        TestOutput::of(project.ringfence().args(["policy", "allow", "write", ".env"]), b"").ok();
        project.sh("cat ~/.ssh/id_rsa && echo new > .env && grep -q new .env").ok();
        assert_eq!(project.read(".env").as_deref(), Some("new\n"));
        project.sh("cat sub/.env").ends(1);
        project.sh("ls ~/.ssh").ends(2);
        project.sh("cat ~/.netrc").ends(1);
        // In another project of the same user it stays shut, unless it is opened for all.
        project.write_at(&project.home().join("code/second/x"), "");
        project.run(["-C", "../second", "-c", "cat ~/.ssh/id_rsa"]).ends(1);
        // `explain` names the line.
        let explained = TestOutput::of(
            project.ringfence().args(["explain", "read"]).arg(project.home().join(".ssh/id_rsa")),
            b"",
        )
        .ok();
        assert!(explained.contains(&format!("{own}:6 (user policy)")), "{explained}");
        assert!(allow(&project, &["read", "~/.ssh/id_rsa"]).ok().starts_with("open already: "));
        assert!(!policy(&project).exists());
        assert!(
            allow(&project, &["read", "~/.ssh/id_rsa", "--global"])
                .ok()
                .ends_with("/policy.toml:4")
        );
        project.run(["-C", "../second", "-c", "cat ~/.ssh/id_rsa"]).ok();
    });
}

/// Promise: P45
#[test]
fn the_file_keeps_what_the_person_wrote() {
    each_user(|user| {
        let project = project(user);
        let before = "# mine\nversion = 1\n\n[filesystem] # files\nread = [\n  \"~/notes.txt\", # notes\n]\ndeny = [\"*.sqlite\"]   # data\n";
        project.write_at(&policy(&project), before);
        allow(&project, &["read", "~/.netrc", "--global"]).ok();
        let after = before.replace("# notes\n", "# notes\n  \"~/.netrc\",\n");
        assert_eq!(std::fs::read_to_string(policy(&project)).unwrap(), after);
        project.sh("cat ~/.netrc").ok();
    });
}

/// Promise: P45
#[test]
fn a_file_with_a_mistake_is_told_with_its_place_and_left() {
    each_user(|user| {
        let project = project(user);
        project.write_at(&policy(&project), "version = 1\n[filesystem]\n  raed = []\n");
        let ran = allow(&project, &["read", "~/.netrc", "--global"]);
        ran.ends(125);
        let place = format!("{}:3:3: unknown key `raed`", policy(&project).display());
        assert!(ran.talk().contains(&place), "{}", ran.talk());
        assert_eq!(
            std::fs::read_to_string(policy(&project)).unwrap(),
            "version = 1\n[filesystem]\n  raed = []\n"
        );
    });
}

/// Promise: P44
#[test]
fn a_policy_of_the_project_opens_nothing_by_the_same_words() {
    each_user(|user| {
        let project = project(user);
        let home = project.home().display().to_string();
        project.write(
            ".ringfence/policy.toml",
            format!("version = 1\nask = \"terminal\"\n[filesystem]\nread = [\"{home}/.ssh/id_rsa\", \"{home}/code/app/.env\"]\n"),
        );
        for line in ["cat ~/.ssh/id_rsa", "cat .env"] {
            let ran = project.sh(line);
            ran.ends(1);
            assert!(
                ran.talk()
                    .contains("`ask = terminal` is ignored: a project's file cannot widen this"),
                "{}",
                ran.talk()
            );
        }
    });
}

/// Promise: P44
#[test]
fn what_the_managed_policy_locks_stays_shut_and_is_not_offered() {
    each_user(|user| {
        let project = project(user);
        let managed =
            "version = 1\n[filesystem]\ndeny = [{ path = \"~/.netrc\", locked = true }]\n";
        project.write_at(&project.home().join("managed/policy.toml"), managed);
        // The machine's own settings with one more among them, for this program alone.
        let etc = project.home().join("etc").display().to_string();
        let mounts = format!(
            "mkdir -p {etc} && mount -t tmpfs none {etc} && cp -a /etc/. {etc}/ 2> /dev/null; mkdir -p {etc}/ringfence && \
             cp {}/managed/policy.toml {etc}/ringfence/ && mount --bind {etc} /etc",
            project.home().display()
        );
        let refused = TestOutput::of(
            project.ringfence_after(&mounts).args(["allow", "read", "~/.netrc"]),
            b"",
        );
        refused.ends(125);
        assert!(
            refused.talk().contains(
                "would stay shut: ~/.netrc (/etc/ringfence/policy.toml:3 (managed policy))"
            ),
            "{}",
            refused.talk()
        );
        assert!(!policy(&project).exists() && !project.own_policy().exists());
        let told = TestOutput::of(
            project.ringfence_after(&mounts).args(["run", "--json", "-c", "cat ~/.netrc"]),
            b"",
        );
        let result: serde_json::Value = serde_json::from_slice(&told.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", told.talk()));
        assert_eq!(
            (&result["blocked"], &result["permission"]),
            (&true.into(), &serde_json::Value::Null),
            "{result}"
        );
    });
}

#[test]
fn absent_path_to_read_is_warned_of() {
    each_user(|user| {
        let project = project(user);
        let ran = allow(&project, &["read", "~/absent"]);
        ran.ok();
        assert!(
            ran.talk().contains("warning: allow read ")
                && ran.talk().contains("no such file or directory"),
            "{user}: {}",
            ran.talk()
        );
        for words in [["read", "~/.ssh/id_rsa"], ["host", "a.example.org"], ["write", "new.txt"]] {
            assert_eq!(allow(&project, &words).talk(), "", "{user}: {words:?}");
        }
    });
}
