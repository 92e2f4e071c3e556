//! `ringfence allow` opens the named path permanently, and nothing else.

use ringfence_testkit::{TestOutput, TestProject, each_user};

use crate::project;

#[track_caller]
fn allow(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().arg("allow").args(words), b"")
}

fn policy(project: &TestProject) -> std::path::PathBuf {
    project.home().join(".config/ringfence/policy.toml")
}

/// Promise: permanent-grant
#[test]
fn allow_opens_exactly_the_named_path() {
    each_user(|user| {
        let project = project(user);
        project.write("sub/.env", "other");
        project.sh("cat ~/.ssh/id_rsa").expect_status(1);
        project.sh("cat .env").expect_status(1);
        let said = allow(&project, &["read", "~/.ssh/id_rsa"]).ok();
        let home = project.home().display().to_string();
        let own = project.own_policy().display().to_string();
        assert_eq!(said, format!("allowed from now on: {home}/.ssh/id_rsa, by {own}:6"));
        // Also by the command's older name.
        TestOutput::run(project.ringfence().args(["policy", "allow", "write", ".env"]), b"").ok();
        project.sh("cat ~/.ssh/id_rsa && echo new > .env && grep -q new .env").ok();
        assert_eq!(project.read(".env").as_deref(), Some("new\n"));
        project.sh("cat sub/.env").expect_status(1);
        project.sh("ls ~/.ssh").expect_status(2);
        project.sh("cat ~/.netrc").expect_status(1);
        // In another project of the same user it stays denied, unless it is opened for all.
        project.write_at(&project.home().join("code/second/x"), "");
        project.run(["-C", "../second", "-c", "cat ~/.ssh/id_rsa"]).expect_status(1);
        // `explain` names the line.
        let explained = TestOutput::run(
            project.ringfence().args(["explain", "read"]).arg(project.home().join(".ssh/id_rsa")),
            b"",
        )
        .ok();
        assert!(explained.contains(&format!("{own}:6 (user policy)")), "{explained}");
        assert!(allow(&project, &["read", "~/.ssh/id_rsa"]).ok().starts_with("already allowed: "));
        assert!(!policy(&project).exists());
        assert!(
            allow(&project, &["read", "~/.ssh/id_rsa", "--global"])
                .ok()
                .ends_with("/policy.toml:4")
        );
        project.run(["-C", "../second", "-c", "cat ~/.ssh/id_rsa"]).ok();
    });
}

/// Promise: policy-file-kept
#[test]
fn policy_file_keeps_the_users_text() {
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

/// Promise: policy-file-kept
#[test]
fn broken_policy_file_is_reported_and_left_unchanged() {
    each_user(|user| {
        let project = project(user);
        project.write_at(&policy(&project), "version = 1\n[filesystem]\n  raed = []\n");
        let ran = allow(&project, &["read", "~/.netrc", "--global"]);
        ran.expect_status(125);
        let place = format!("{}:3:3: unknown key `raed`", policy(&project).display());
        assert!(ran.stderr_text().contains(&place), "{}", ran.stderr_text());
        assert_eq!(
            std::fs::read_to_string(policy(&project)).unwrap(),
            "version = 1\n[filesystem]\n  raed = []\n"
        );
    });
}

/// Promise: permanent-grant
#[test]
fn project_policy_cannot_open_denied_paths() {
    each_user(|user| {
        let project = project(user);
        let home = project.home().display().to_string();
        project.write(
            ".ringfence/policy.toml",
            format!("version = 1\nask = \"terminal\"\n[filesystem]\nread = [\"{home}/.ssh/id_rsa\", \"{home}/code/app/.env\"]\n"),
        );
        for line in ["cat ~/.ssh/id_rsa", "cat .env"] {
            let ran = project.sh(line);
            ran.expect_status(1);
            assert!(
                ran.stderr_text()
                    .contains("`ask = terminal` is ignored: a project's file cannot widen it"),
                "{}",
                ran.stderr_text()
            );
        }
    });
}

/// Promise: permanent-grant
#[test]
fn paths_locked_by_the_managed_policy_stay_denied() {
    each_user(|user| {
        let project = project(user);
        let managed =
            "version = 1\n[filesystem]\ndeny = [{ path = \"~/.netrc\", locked = true }]\n";
        project.write_at(&project.home().join("managed/policy.toml"), managed);
        // The machine's `/etc` with one more file, mounted for this process only.
        let etc = project.home().join("etc").display().to_string();
        let mounts = format!(
            "mkdir -p {etc} && mount -t tmpfs none {etc} && cp -a /etc/. {etc}/ 2> /dev/null; mkdir -p {etc}/ringfence && \
             cp {}/managed/policy.toml {etc}/ringfence/ && mount --bind {etc} /etc",
            project.home().display()
        );
        let refused = TestOutput::run(
            project.ringfence_after(&mounts).args(["allow", "read", "~/.netrc"]),
            b"",
        );
        refused.expect_status(125);
        assert!(
            refused.stderr_text().contains(
                "would stay denied by ~/.netrc (/etc/ringfence/policy.toml:3 (managed policy))"
            ),
            "{}",
            refused.stderr_text()
        );
        assert!(!policy(&project).exists() && !project.own_policy().exists());
        let report = TestOutput::run(
            project.ringfence_after(&mounts).args(["run", "--json", "-c", "cat ~/.netrc"]),
            b"",
        );
        let result: serde_json::Value = serde_json::from_slice(&report.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", report.stderr_text()));
        assert_eq!(
            (&result["blocked"], &result["permission"]),
            (&true.into(), &serde_json::Value::Null),
            "{result}"
        );
    });
}

#[test]
fn allow_warns_about_an_absent_path() {
    each_user(|user| {
        let project = project(user);
        let ran = allow(&project, &["read", "~/absent"]);
        ran.ok();
        assert!(
            ran.stderr_text().contains("warning: allow read ")
                && ran.stderr_text().contains("no such file or directory"),
            "{user}: {}",
            ran.stderr_text()
        );
        for words in [["read", "~/.ssh/id_rsa"], ["host", "a.example.org"], ["write", "new.txt"]] {
            assert_eq!(allow(&project, &words).stderr_text(), "", "{user}: {words:?}");
        }
    });
}
