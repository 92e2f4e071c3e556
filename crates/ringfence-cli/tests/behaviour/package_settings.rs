//! Settings of package managers are shown without their secrets.

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user, fuse_for_all};
use serde_json::Value;

use crate::project;

const NPMRC: &str = "registry=https://npm.example.org/\n//npm.example.org/:_authToken=npm_s3cret\n@team:registry=https://me:s3cret@npm.example.org/\n";
const PIP_CONF: &str = "[global]\nindex-url = https://pypi.example.org/simple\nextra-index-url = https://me:s3cret@pypi.example.org/simple\n";

fn with_settings(user: TestUser) -> TestProject {
    let project = project(user);
    for (name, content) in [
        (".npmrc", NPMRC),
        (".config/pip/pip.conf", PIP_CONF),
        (".config/pip/other", "s3cret"),
        (".netrc", "s3cret"),
    ] {
        project.write_at(&project.home().join(name), content);
    }
    project
}

#[test]
fn registries_are_shown_and_tokens_are_not() {
    each_user(|user| {
        let project = with_settings(user);
        assert_eq!(
            project.sh("cat ~/.npmrc").ok(),
            "registry=https://npm.example.org/\n@team:registry=https://npm.example.org/",
            "{user}"
        );
        let pip = "[global]\nindex-url = https://pypi.example.org/simple\nextra-index-url = https://pypi.example.org/simple";
        assert_eq!(project.sh("cat ~/.config/pip/pip.conf").ok(), pip, "{user}");
        for line in [
            "cat ~/.config/pip/other",
            "cat ~/.netrc",
            "ls ~/.config/pip",
            "echo x >> ~/.npmrc",
            "rm ~/.npmrc",
            "mv ~/.npmrc x",
        ] {
            let ran = project.sh(line);
            assert!(
                ran.status != 0 && !ran.text().contains("s3cret"),
                "{user}: {line}: {}",
                ran.text()
            );
        }
        let everything =
            project.sh("grep -r s3cret ~ / --exclude-dir=proc --exclude-dir=usr 2>/dev/null");
        assert_eq!(everything.text(), "", "{user}");
        assert_eq!(
            std::fs::read_to_string(project.home().join(".npmrc")).unwrap(),
            NPMRC,
            "{user}"
        );
    });
}

#[test]
fn redacted_copy_is_not_a_denial_and_explain_names_it() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = with_settings(user);
        let ran = project.run(["--json", "-c", "cat ~/.npmrc ~/.config/pip/pip.conf; exit 3"]);
        let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        assert_eq!(
            (&said["blocked"], &said["denials"]),
            (&false.into(), &Value::Array(Vec::new())),
            "{user}: {said}"
        );
        let explained =
            TestOutput::run(project.ringfence().args(["explain", "read", "~/.npmrc"]), b"")
                .expect_status(1)
                .text();
        assert!(
            explained.contains("  rule    deny ~/.npmrc\n") && explained.contains("  copy    "),
            "{user}: {explained}"
        );
    });
}

#[test]
fn user_rule_shows_the_file_itself_instead_of_a_copy() {
    each_user(|user| {
        let project = with_settings(user);
        let denied = project.run(["--deny", "~/.npmrc", "-c", "cat ~/.npmrc"]);
        assert!(denied.status != 0 && denied.text().is_empty(), "{user}: {}", denied.text());
        assert_eq!(
            project.run(["--read", "~/.npmrc", "-c", "cat ~/.npmrc"]).ok(),
            NPMRC.trim_end(),
            "{user}"
        );
    });
}

#[test]
fn file_without_a_public_setting_stays_denied() {
    each_user(|user| {
        let project = project(user);
        project
            .write_at(&project.home().join(".npmrc"), "//npm.example.org/:_authToken=npm_s3cret\n");
        let ran = project.sh("cat ~/.npmrc");
        assert!(ran.status != 0 && ran.text().is_empty(), "{user}: {}", ran.text());
    });
}

#[test]
fn ringfence_test_does_not_take_a_redacted_copy_for_a_secret() {
    each_user(|user| {
        let project = with_settings(user);
        std::fs::remove_file(project.home().join(".config/pip/other")).unwrap();
        let ran = TestOutput::run(project.ringfence().arg("test"), b"");
        assert!(ran.status == 0 && !ran.text().contains("FAIL"), "{user}: {}", ran.text());
        assert!(ran.text().contains("your other secrets"), "{user}: {}", ran.text());
    });
}
