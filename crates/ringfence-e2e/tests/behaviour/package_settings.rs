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

const MAVEN: &str = "<settings><servers><server><id>corp</id><password>s3cret</password></server></servers>
<mirrors><mirror><id>corp</id><mirrorOf>*</mirrorOf><url>https://me:s3cret@maven.example.org/all/</url></mirror></mirrors></settings>";

#[test]
fn maven_mirrors_are_shown_and_passwords_are_not() {
    each_user(|user| {
        let project = project(user);
        let settings = project.home().join(".m2/settings.xml");
        project.write_at(&settings, MAVEN);
        project.write_at(&project.home().join(".m2/settings-security.xml"), "s3cret");
        let copy = project.sh("cat ~/.m2/settings.xml").ok();
        let is_whole = copy.contains("<url>https://maven.example.org/all/</url>");
        assert!(is_whole && !copy.contains("s3cret"), "{user}: {copy}");
        let refused = project.sh("cat ~/.m2/settings-security.xml; echo x >> ~/.m2/settings.xml");
        assert!(refused.status != 0 && !refused.text().contains("s3cret"), "{user}");
        let bare = std::fs::read_to_string(settings.as_path()).unwrap();
        assert_eq!(bare, MAVEN, "{user}");
    });
}

#[test]
fn maven_settings_that_are_not_understood_are_left_out_and_reported() {
    each_user(|user| {
        let project = project(user);
        let external = "<!DOCTYPE settings [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><settings/>";
        project.write_at(&project.home().join(".m2/settings.xml"), external);
        let ran = project.sh("cat ~/.m2/settings.xml");
        assert!(ran.status != 0 && ran.text().is_empty(), "{user}: {}", ran.text());
        for command in ["plan", "doctor"] {
            let text = TestOutput::run(project.ringfence().arg(command), b"").text();
            assert!(text.contains(".m2/settings.xml"), "{user}: {command}: {text}");
            assert!(text.contains("not understood"), "{user}: {command}: {text}");
        }
        let planned = TestOutput::run(project.ringfence().args(["plan", "--json"]), b"").stdout;
        let planned: Value = serde_json::from_slice(&planned).expect("JSON");
        let withheld = planned["withheldSettings"][0]["path"].as_str().unwrap_or_default();
        assert!(withheld.ends_with(".m2/settings.xml"), "{user}: {withheld}");
    });
}

/// A project of a user with cargo on `PATH`, and cargo's configuration.
fn with_cargo(user: TestUser, config: &str) -> (TestProject, String) {
    let project = project(user);
    let home = project.home();
    project.write_at(&home.join("bin/cargo"), "#!/bin/sh\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.join("bin/cargo"), executable).expect("it is there");
    project.write_at(&home.join(".cargo/config.toml"), config);
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", home.join("bin").display());
    (project, path)
}

const CARGO: &str = "[registries.corp]\nindex = \"sparse+https://me:s3cret@crates.example.org/\"\ntoken = \"s3cret\"\n";

#[test]
fn cargo_registries_are_shown_and_tokens_are_not() {
    each_user(|user| {
        let (project, path) = with_cargo(user, CARGO);
        let run = |words: &[&str]| {
            let command = [&["run"], words].concat();
            TestOutput::run(project.ringfence().env("PATH", &path).args(command), b"")
        };
        let expect = "[registries.corp]\nindex = \"sparse+https://crates.example.org/\"".to_owned();
        assert_eq!(run(&["-c", "cat ~/.cargo/config.toml"]).ok(), expect, "{user}");
        for line in ["echo x >> ~/.cargo/config.toml", "rm ~/.cargo/config.toml"] {
            let ran = run(&["-c", line]);
            assert!(ran.status != 0, "{user}: {line}: {}", ran.text());
        }
        let found = run(&["-c", "grep -r s3cret ~ 2>/dev/null"]);
        assert_eq!(found.text(), "", "{user}");
        let denied = run(&["--deny", "~/.cargo/config.toml", "-c", "cat ~/.cargo/config.toml"]);
        assert!(denied.status != 0 && denied.text().is_empty(), "{user}: {}", denied.text());
        let own = run(&["--read", "~/.cargo/config.toml", "-c", "cat ~/.cargo/config.toml"]);
        assert_eq!(own.ok(), CARGO.trim_end(), "{user}");
        let bare = std::fs::read_to_string(project.home().join(".cargo/config.toml")).unwrap();
        assert_eq!(bare, CARGO, "{user}");
    });
}

#[test]
fn cargo_config_without_a_secret_is_shown_as_it_is() {
    each_user(|user| {
        let plain = "[net]\nretry = 3";
        let (project, path) = with_cargo(user, plain);
        let ran = TestOutput::run(
            project.ringfence().env("PATH", &path).args(["run", "-c", "cat ~/.cargo/config.toml"]),
            b"",
        );
        assert_eq!(ran.ok(), plain, "{user}");
    });
}

/// Secrets that no search for words in the lines of the file finds.
const HIDDEN_SECRETS: &[&str] = &[
    "# s3cret\n[net]\nretry = 3\n",
    "[http]\nproxy = \"me:s3cret@proxy:3128\"\n",
    "[env]\nA = \"\"\"\n# https://u:s3cret@h\n\"\"\"\n",
    "[env]\nMY_PAT = \"s3cret\"\n",
    "[registry]\n\"tok\\u0065n\" = \"s3cret\"\n",
    "[source.mirror]\nregistry = \"https://h.example/?t=s3cret\"\n",
];

#[test]
fn hidden_secret_in_cargo_config_is_not_shown() {
    each_user(|user| {
        let large = format!("[registry]\ntoken = \"s3cret\"\n{}", "#".repeat(1 << 20));
        for config in HIDDEN_SECRETS.iter().copied().chain([large.as_str()]) {
            let (project, path) = with_cargo(user, config);
            for backup in ["config.toml.bak", "config~", "config.toml.orig", ".config.toml.swp"] {
                project.write_at(&project.home().join(".cargo").join(backup), "s3cret");
            }
            let run = |words: &[&str]| {
                TestOutput::run(project.ringfence().env("PATH", &path).args(words), b"")
            };
            let found = run(&["run", "-c", "grep -r s3cret ~/.cargo 2>/dev/null"]);
            let start = &config[..config.len().min(80)];
            assert_eq!(found.text(), "", "{user}: {start}");
            let bare = project.sh_bare("grep -rl s3cret ~/.cargo | wc -l").ok();
            assert_eq!(bare.trim(), "5", "{user}: {start}");
            if config.len() > 1 << 20 {
                for words in [["plan"], ["doctor"]] {
                    let text = run(&words).text();
                    assert!(text.contains("larger than 1 MiB"), "{user}: {words:?}: {text}");
                }
            }
        }
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
