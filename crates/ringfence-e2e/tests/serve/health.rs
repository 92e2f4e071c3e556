//! Faults of the service itself are reported as such, not as a mistake of the caller or a crash.

use std::fs;
use std::time::Duration;

use ringfence_testkit::{TestProject, TestUser, becomes_true, fuse_for_all, needs, skip};
use serde_json::json;

use crate::stage::{ADMIN, SKILL, Service};

/// A service whose data is on a file system of `bytes` bytes.
fn on_small_disk(bytes: u64) -> Option<Service> {
    if !TestUser::runner_is_root() || !needs(&["unshare", "mount"]) {
        skip("only root mounts a small file system");
        return None;
    }
    fuse_for_all();
    let project = TestProject::new(TestUser::Root, env!("CARGO_BIN_EXE_ringfence-e2e"));
    let data = project.home().join("data");
    fs::create_dir(&data).unwrap();
    let script = format!("mount -t tmpfs -o size={bytes},mode=700 tmpfs \"$0\" && exec \"$@\"");
    let mut command = project.command("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(&data).arg(project.binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--profile", "sandbox", "--data"]).arg(&data);
    Some(Service::serve(project, command, &[("RINGFENCE_ADMIN_TOKEN", ADMIN)]))
}

#[test]
fn full_disk_is_reported_as_507() {
    let Some(service) = on_small_disk(8 << 20) else { return };
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    let made = service.post("/v1/sandboxes", &json!({ "userId": "alice" })).is(201);
    let at = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
    assert_eq!(service.get("/readyz").text(), "ready\n");
    let filled = service.execute("alice/helper/tool", "head -c 20000000 /dev/zero > fill").is(200);
    assert_ne!(filled["exitCode"], 0, "{filled}");
    assert!(
        becomes_true(Duration::from_secs(10), || service.get("/readyz").status == 503),
        "{}",
        service.get("/readyz").text()
    );
    service.get("/readyz").fails(503, "disk-full");
    let asynchronous = service
        .post("/v1/skills/alice/helper/tool/execute?async=true", &json!({ "command": "true" }));
    let put = service.send("PUT", &format!("{at}/files?path=x"), &[], &vec![b'x'; 1 << 20]);
    let edit = service.put(
        "/v1/skills/alice/helper/tool/edit",
        &json!({ "path": "new", "content": "x".repeat(1 << 20) }),
    );
    let token = service.post("/v1/tokens", &json!({ "userId": "alice", "scopes": ["execute"] }));
    for (what, reply) in [("put", put), ("edit", edit)] {
        reply.fails(507, "disk-full");
        assert!(!reply.text().contains("internal"), "{what}");
    }
    // Small files may still fit into the last page.
    for (what, reply, done) in [("async", asynchronous, 202), ("token", token, 201)] {
        assert!([done, 507].contains(&reply.status), "{what}: {}", reply.text());
    }
    // With free space again, it continues.
    service.delete("/v1/skills/alice/helper/tool").is(204);
    assert!(
        becomes_true(Duration::from_secs(20), || service.get("/readyz").status == 200),
        "{}",
        service.get("/readyz").text()
    );
}

#[test]
fn broken_policy_is_reported_as_503() {
    let service = Service::start(TestUser::all()[0]);
    for tenant in ["alice", "bob"] {
        service.upload(tenant, "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    }
    service.put("/v1/tenants/alice/policy", &json!({ "policy": "version = 1\n" })).is(200);
    service.project().write_at(
        &service.data().join("tenants/alice/ringfence/policy.toml"),
        "version = 1\nmode = \"no such mode\"\n",
    );
    service.execute("alice/helper/tool", "ls").fails(503, "policy");
    service.post("/v1/sandboxes", &json!({ "userId": "alice" })).fails(503, "policy");
    // A broken policy of one tenant does not stop the others.
    assert_eq!(service.execute("bob/helper/tool", "ls").is(200)["exitCode"], 0);
    assert!(becomes_true(Duration::from_secs(10), || service
        .get("/readyz")
        .text()
        .contains("unusable policy: 1")));
    assert_eq!(service.get("/readyz").status, 200);
    let text = service.get("/readyz").text();
    assert!(!text.contains("alice"), "unauthenticated clients see no names: {text}");
    // A broken policy of the service does.
    service.set_policy("version = 1\nmode = \"no such mode\"\n");
    service.execute("bob/helper/tool", "ls").fails(503, "policy");
    assert!(becomes_true(Duration::from_secs(10), || service.get("/readyz").status == 503));
    service.get("/readyz").fails(503, "policy");
}
