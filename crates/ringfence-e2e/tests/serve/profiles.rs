//! Policies that the first start writes.

use ringfence_testkit::{TestProject, TestUser, each_user, fuse_for_all};
use serde_json::json;

use crate::stage::{SKILL, Service};

/// Everyday command lines, each with its output.
const EVERYDAY: &[(&str, &str)] = &[
    ("true", ""),
    ("pwd > /dev/null && cd /tmp && pwd", "/tmp\n"),
    ("printf 'a\\nb\\n' | head -n 1", "a\n"),
    ("echo \"Loading...\"", "Loading...\n"),
    ("false; echo $?", "1\n"),
    ("echo $((1+2))", "3\n"),
    ("for i in 1 2; do echo \"$i\"; done", "1\n2\n"),
    ("x=1; [ \"$x\" = 1 ] && echo same", "same\n"),
    ("python3 -c 'exec(\"print(1)\")'", "1\n"),
    ("mkdir -p a/b && cd a/b && ls ../.. | wc -l | tr -d ' '", "2\n"),
    ("cat <<< word | sort | uniq", "word\n"),
];

#[test]
fn everyday_commands_run_under_the_profile_of_new_services() {
    each_user(|user| {
        fuse_for_all();
        let project = TestProject::new(user, env!("CARGO_BIN_EXE_ringfence-e2e"));
        let service = Service::start_in(project, &["--profile", "sandbox"]);
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        service
            .upload("bob", "helper", &[("tool/SKILL.md", SKILL), ("tool/secret", "of bob")])
            .is(200);
        for (line, output) in EVERYDAY {
            let result = service.execute("alice/helper/tool", line).is(200);
            assert_eq!(
                (result["stdout"].as_str(), result["blocked"].as_bool()),
                (Some(*output), Some(false)),
                "{line}: {result}"
            );
        }
        // The sandbox still confines them.
        let other = service.data().join("skills/bob/helper/tool/secret");
        for line in [
            format!("cat {}", other.display()),
            format!("echo x > {}", other.display()),
            "cat /etc/shadow".into(),
        ] {
            let result = service.execute("alice/helper/tool", &line).is(200);
            assert_ne!(result["exitCode"], 0, "{line}: {result}");
            assert_eq!(result["stdout"], "", "{line}");
        }
    });
}

#[test]
fn default_profile_is_sandbox_and_never_changes_silently() {
    fuse_for_all();
    let project = TestProject::new(TestUser::all()[0], env!("CARGO_BIN_EXE_ringfence-e2e"));
    let data = project.home().join("data");
    let mut command = project.ringfence();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
    let service =
        Service::serve(project, command, &[("RINGFENCE_ADMIN_TOKEN", crate::stage::ADMIN)]);
    let policy = std::fs::read_to_string(data.join("policy.toml")).unwrap();
    assert!(policy.contains("profile `sandbox`") && !policy.contains("[commands]"), "{policy}");
    let (project, _) = service.end();
    let mut other = project.ringfence();
    other
        .args(["serve", "--listen", "127.0.0.1:0", "--profile", "filesecbox", "--data"])
        .arg(&data);
    let ran = other.output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(125), "{said}");
    assert!(said.contains("another profile") && said.contains("hint:"), "{said}");
    // A file that the operator changed is not overwritten.
    project.write_at(&data.join("policy.toml"), format!("{policy}\n# ours\n"));
    let service = Service::start_in(project, &["--profile", "filesecbox"]);
    service.put("/v1/tenants/alice/quotas", &json!({ "executions": 1 })).is(200);
}
