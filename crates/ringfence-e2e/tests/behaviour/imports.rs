//! Imported policies of other tools are valid, and open no built-in denial.

use ringfence_testkit::{SECRET, TestOutput, TestProject, each_user};

use crate::project;

/// Returns the policy that `policy import` prints for a file, and its notes.
fn imported(project: &TestProject, name: &str, text: &str) -> (String, String) {
    project.write(name, text);
    let ran =
        TestOutput::run(project.ringfence().args(["policy", "import"]).arg(project.at(name)), b"");
    (ran.ok() + "\n", ran.stderr_text())
}

#[test]
fn example_of_the_help_makes_a_policy_that_runs() {
    for settings in [
        r#"{"sandbox": {"enabled": true}}"#,
        r#"{"sandbox": {"enabled": true, "failIfUnavailable": false, "network": {"allowLocalBinding": true}}}"#,
        r#"{"sandbox": {"enabled": true, "network": {"allowedDomains": ["github.com"]}}, "permissions": {"deny": ["Read(./private/**)"]}}"#,
        r#"{"permissions": {"allow": ["Bash(npm test)", "Read(~/.ssh/**)"], "deny": ["Bash(rm -rf *)", "WebFetch(domain:evil.com)"]}}"#,
    ] {
        each_user(|user| {
            let project = project(user);
            let (toml, _) = imported(&project, ".claude/settings.json", settings);
            project.write("private/x", "x");
            for place in [
                project.at(".ringfence/policy.toml"),
                project.home().join(".config/ringfence/policy.toml"),
            ] {
                project.write_at(&place, &toml);
                assert_eq!(project.run(["-c", "echo ran"]).ok(), "ran", "{settings} as {user}");
                std::fs::remove_file(place).expect("it was written");
            }
        });
    }
}

/// Promise: import-denies
#[test]
fn imported_lists_open_no_built_in_deny() {
    let white = r#"{"policy": {"filesystem": {"whitelist": ["~/.ssh", "~/code/other"]}}}"#;
    let except = "sandbox:\n  filesystem:\n    allowed-patterns: ['**/.env', '*.pem']\n";
    each_user(|user| {
        let project = project(user);
        for (name, text, dropped) in
            [("sandbox.json", white, "~/.ssh"), ("config.yaml", except, "**/.env")]
        {
            let (toml, talk) = imported(&project, name, text);
            assert!(talk.contains(&format!("`{dropped}` is not opened")), "{talk}");
            project.write_at(&project.home().join(".config/ringfence/policy.toml"), toml);
            let ran = project.run(["-c", "cat ~/.ssh/id_rsa .env x.pem"]);
            assert!(
                ran.status != 0 && !ran.text().contains(SECRET),
                "{name} as {user}: {}",
                ran.text()
            );
        }
    });
}
