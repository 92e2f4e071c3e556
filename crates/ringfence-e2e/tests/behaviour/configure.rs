//! `ringfence configure` changes one setting and keeps the rest of a policy file.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::{TestOutput, TestProject, each_user};

use crate::project;

fn configure(project: &TestProject, words: &[&str]) -> TestOutput {
    // Settings of the repository's policy.
    TestOutput::run(project.ringfence().args(["configure", "--shared"]).args(words), b"")
}

/// Promise: configure
#[test]
fn setting_is_set_shown_and_removed() {
    each_user(|user| {
        let project = project(user);
        configure(&project, &["set", "mode", "read-only"]).ok();
        assert_eq!(
            project.read(".ringfence/policy.toml").as_deref(),
            Some("version = 1\nmode = \"read-only\"\n")
        );
        assert_ne!(project.sh("echo x > f").status, 0);
        assert_eq!(configure(&project, &["get", "mode"]).ok(), "read-only");
        configure(&project, &["get", "ask"]).expect_status(1);
        assert!(configure(&project, &["set", "mode", "read-only"]).ok().starts_with("unchanged"));
        configure(&project, &["set", "filesystem.deny", "[\"README\"]"]).ok();
        assert_eq!(
            configure(&project, &["list"]).ok(),
            "mode = read-only\nfilesystem.deny = [\"README\"]"
        );
        assert_eq!(
            configure(&project, &["list", "--json"]).ok(),
            r#"{"mode":"read-only","filesystem.deny":"[\"README\"]"}"#
        );
        configure(&project, &["unset", "mode"]).ok();
        project.sh("echo x > f && ! cat README").ok();
    });
}

/// Promise: configure
#[test]
fn comments_file_mode_and_links_are_kept() {
    each_user(|user| {
        let project = project(user);
        let (link, real) = (
            project.home().join(".config/ringfence/policy.toml"),
            project.home().join("dotfiles/policy.toml"),
        );
        let text = "# mine\nversion = 1 # one\n\n[sandbox] # s\n  enabled = false   # for now\n";
        project.write_at(&real, text);
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        project.make_directories(link.parent().unwrap());
        std::os::unix::fs::symlink(&real, &link).unwrap();
        TestOutput::run(
            project.ringfence().args(["configure", "--global", "set", "sandbox.enabled", "true"]),
            b"",
        )
        .ok();
        assert_eq!(fs::read_to_string(&real).unwrap(), text.replace("= false ", "= true "));
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o7777, 0o640);
        assert!(link.symlink_metadata().unwrap().is_symlink());
        let left: Vec<_> = fs::read_dir(real.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["policy.toml"]);
    });
}

/// Promise: configure
#[test]
fn invalid_setting_changes_nothing() {
    each_user(|user| {
        let project = project(user);
        configure(&project, &["set", "mode", "nonsense"]).expect_status(125);
        configure(&project, &["unset", "mode"]).ok();
        assert!(!project.has(".ringfence"));
        let text = "version = 1\n# mine\nmode = \"read-only\"\n";
        project.write(".ringfence/policy.toml", text);
        for (words, says) in [
            (&["set", "sandbox.enabeld", "true"][..], "did you mean `sandbox.enabled`?"),
            (&["set", "sandbox.enabled", "maybe"], "`maybe` is not a value for `sandbox.enabled`"),
            (&["set", "filesystem.read", "[\"$NOT_SET_AT_ALL/x\"]"], "NOT_SET_AT_ALL"),
            (&["set", "network.allow", "[\"http://x\"]"], "is no host"),
            (&["get", "mdoe"], "did you mean `mode`?"),
            (&["unset", "version"], "cannot be changed"),
        ] {
            let ran = configure(&project, words);
            assert!(ran.expect_status(125).stderr_text().contains(says), "{words:?}: {ran:?}");
        }
        project.write(".ringfence/policy.toml", "version = 1\nmdoe = 1\n");
        assert!(
            configure(&project, &["set", "mode", "read-only"])
                .expect_status(125)
                .stderr_text()
                .contains("policy.toml:2:1: unknown key `mdoe`")
        );
        project.write(".ringfence/policy.toml", text);
        assert_eq!(project.read(".ringfence/policy.toml").as_deref(), Some(text));
        assert_eq!(fs::read_dir(project.at(".ringfence")).unwrap().count(), 1);
    });
}
