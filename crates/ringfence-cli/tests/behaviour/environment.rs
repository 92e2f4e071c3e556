//! Secrets of the environment stay outside.

use ringfence_testkit::{Ran, SECRET, each_user};

use crate::project;

const SECRETS: &[&str] = &[
    "GH_TOKEN",
    "NPM_TOKEN",
    "OPENAI_API_KEY",
    "MY_KEY",
    "APP_SECRET",
    "SECRET_SAUCE",
    "DB_PASSWORD",
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "GITHUB_ACTOR",
    "GITHUB_WORKSPACE",
    "KUBERNETES_SERVICE_HOST",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "DATABASE_URL",
    "my_token",
];

#[test]
fn secrets_do_not_pass() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        for name in SECRETS {
            command.env(name, SECRET);
        }
        command.env("UNHEARD_OF", SECRET).env("SSH_AUTH_SOCK", SECRET).env("LD_PRELOAD", "");
        let said = Ran::of(command.args(["run", "--", "env"]), b"").ok();
        assert!(!said.contains(SECRET), "{said}");
        assert!(said.contains("PATH=") && said.contains("HOME=") && said.contains("LANG="), "{said}");
        // Nor can they be read from the processes around.
        let mut command = project.ringfence();
        command.env("MY_TOKEN", SECRET);
        let said = Ran::of(command.args(["run", "-c", "cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/*/cmdline; true"]), b"");
        assert!(!said.text().contains(SECRET), "{}", said.text());
    });
}

#[test]
fn a_person_passes_or_sets_a_variable_by_name() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        command.env("NPM_TOKEN", "wanted").env("AWS_REGION", "unwanted");
        let words = [
            "run",
            "--env",
            "NPM_TOKEN",
            "--env",
            "NEW=a=b c",
            "--env",
            "ABSENT",
            "-c",
            "echo $NPM_TOKEN,$NEW,$AWS_REGION,${ABSENT-unset}",
        ];
        assert_eq!(Ran::of(command.args(words), b"").ok(), "wanted,a=b c,,unset");
    });
}

#[test]
fn full_access_passes_everything_and_says_so() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        command.env("NPM_TOKEN", "kept");
        let ran = Ran::of(command.args(["run", "--mode", "full-access", "-c", "echo $NPM_TOKEN; cat .env"]), b"");
        assert_eq!(ran.ok(), format!("kept\n{SECRET}"));
        assert!(ran.talk().contains("nothing is confined"), "{}", ran.talk());
    });
}

#[test]
fn no_descriptor_but_the_standard_streams_is_open() {
    each_user(|user| {
        let project = project(user);
        assert_eq!(project.sh("ls /proc/self/fd | tr '\\n' ' '").ok(), "0 1 2 3 ");
        let line = format!("exec 5</etc/passwd 9<. ; exec {} run -c 'ls /proc/self/fd | tr \"\\n\" \" \"'", project.binary().display());
        assert_eq!(project.sh_bare(&line).ok(), "0 1 2 3 ");
    });
}

/// A shell looks there as soon as it starts, which nobody has asked for.
#[test]
fn where_the_person_was_before_is_told_if_it_is_there() {
    each_user(|user| {
        let project = project(user);
        project.write("sub/file", "");
        let seen = |before: &std::path::Path| {
            let mut command = project.ringfence();
            command.env("OLDPWD", before).args(["run", "--json", "--", "bash", "-c", "echo ${OLDPWD-nowhere}; exit 3"]);
            let outcome: serde_json::Value = serde_json::from_slice(&Ran::of(&mut command, b"").stdout).expect("an object");
            assert_eq!((&outcome["blocked"], &outcome["denials"]), (&false.into(), &serde_json::json!([])), "{outcome}");
            outcome["stdout"].as_str().expect("a text").trim().to_owned()
        };
        assert_eq!(seen(&project.home()), "nowhere");
        assert_eq!(seen("/nowhere".as_ref()), "nowhere");
        assert_eq!(seen(&project.at("sub")), project.at("sub").display().to_string());
    });
}
