//! Records as events of the Open Cybersecurity Schema Framework, version 1.8
//! (<https://schema.ocsf.io/1.8.0>).
//!
//! Commands are Process Activity (1007), files File System Activity (1001), hosts Network Activity
//! (4001). Fields without an OCSF attribute go into `unmapped` under their own name.

use serde_json::{Map, Value, json};

use crate::time::parse_rfc3339;

/// The schema version of the events.
pub const VERSION: &str = "1.8.0";

/// A class of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OcsfClass {
    File = 1001,
    Process = 1007,
    Network = 4001,
}

/// The event for a record; `host` is the host name.
pub fn event(record: &Map<String, Value>, host: &str) -> Value {
    let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
    let (operation, target, result) = (text("operation"), text("target"), text("result"));
    let (class, activity) = kind(operation, result);
    let class_uid = class as u32;
    let (action, disposition) = action(operation, result);
    let mut event = json!({
        "activity_id": activity,
        "category_uid": class_uid / 1000,
        "class_uid": class_uid,
        "type_uid": class_uid * 100 + activity,
        "severity_id": severity(operation, result),
        "time": parse_rfc3339(text("timestamp")).unwrap_or(0),
        "message": format!("{operation} {target}: {result}"),
        "status_id": if result == "allowed" { 1 } else { 2 },
        "action_id": action,
        "disposition_id": disposition,
        "metadata": metadata(record),
        "actor": actor(record),
        "device": { "hostname": host, "type_id": 0 },
    });
    if let Some(reason) = record.get("reason") {
        event["status_detail"] = reason.clone();
    }
    match class {
        OcsfClass::File => event["file"] = file(target),
        OcsfClass::Process => process(record, &mut event),
        OcsfClass::Network => network(record, &mut event),
    }
    event["unmapped"] = unmapped(record);
    event
}

/// The class, and its activity.
fn kind(operation: &str, result: &str) -> (OcsfClass, u32) {
    match operation {
        "execute" => (OcsfClass::Process, 1),
        "exit" => (OcsfClass::Process, 2),
        "call" | "command" => (OcsfClass::Process, 99),
        "connect" if result == "allowed" => (OcsfClass::Network, 1),
        "connect" if result == "failed" => (OcsfClass::Network, 4),
        "connect" => (OcsfClass::Network, 5),
        "create" => (OcsfClass::File, 1),
        "read" => (OcsfClass::File, 2),
        "write" | "repair" | "permit" | "policy" => (OcsfClass::File, 3),
        "rename" | "quarantine" => (OcsfClass::File, 5),
        _ => (OcsfClass::File, 99),
    }
}

/// `action_id` (1 allowed, 2 denied) and `disposition_id` (1 allowed, 2 blocked, 3 quarantined).
fn action(operation: &str, result: &str) -> (u32, u32) {
    match (operation, result) {
        ("quarantine", _) => (2, 3),
        // A command with denials has still ended.
        ("exit", "blocked") => (1, 1),
        (_, "blocked") => (2, 2),
        (_, "failed") => (0, 0),
        _ => (1, 1),
    }
}

/// From 1, informational, to 4, high.
fn severity(operation: &str, result: &str) -> u32 {
    match (operation, result) {
        ("repair" | "quarantine", _) => 4,
        ("exit", "blocked") => 1,
        (_, "blocked") => 3,
        (_, "failed") => 2,
        _ => 1,
    }
}

fn metadata(record: &Map<String, Value>) -> Value {
    let or_null = |key: &str| record.get(key).cloned().unwrap_or_default();
    json!({
        "version": VERSION,
        "product": { "name": "ringfence", "vendor_name": "ringfence", "version": env!("CARGO_PKG_VERSION") },
        "profiles": ["host", "security_control"],
        "log_name": "audit",
        "original_time": or_null("timestamp"),
        "correlation_uid": or_null("session"),
        "sequence": or_null("seq"),
        "uid": or_null("hash"),
    })
}

/// The agent, its run, and the process.
fn actor(record: &Map<String, Value>) -> Value {
    let mut actor = json!({ "session": { "uid": record.get("session") } });
    if let Some(agent) = record.get("agent").filter(|agent| agent.is_string()) {
        actor["app_name"] = agent.clone();
    }
    // The process of an inferred denial is unknown, and pid 0 is the kernel.
    if let Some(pid) = record.get("pid").filter(|pid| **pid != json!(0)) {
        let program = record.get("program").cloned().unwrap_or_else(|| "ringfence".into());
        actor["process"] = json!({ "pid": pid, "name": program });
    }
    if let Some(user) = record.get("user") {
        actor["user"] = json!({ "name": user });
    }
    actor
}

fn file(path: &str) -> Value {
    let (folder, name) = match path.rsplit_once('/') {
        Some((folder, name)) if !name.is_empty() => (Some(folder), name),
        _ => (None, path),
    };
    let mut file = json!({ "name": name, "path": path, "type_id": 0 });
    if let Some(folder) = folder {
        file["parent_folder"] = if folder.is_empty() { "/" } else { folder }.into();
    }
    file
}

/// The command itself. Its pid is known only inside the sandbox, so the run identifies it.
fn process(record: &Map<String, Value>, event: &mut Value) {
    let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
    // A denied syscall is attributed to the program that made it.
    let target = if text("operation") == "call" { text("program") } else { text("target") };
    let program = record
        .get("command")
        .and_then(|words| words[0].as_str())
        .unwrap_or_else(|| target.split(' ').next().unwrap_or(target));
    let name = program.rsplit('/').next().unwrap_or(program);
    event["process"] = json!({ "name": name, "cmd_line": target, "uid": record.get("session") });
    if let Some(status) = record.get("exitCode") {
        event["exit_code"] = status.clone();
    }
    if let Some(duration) = record.get("durationMs") {
        event["duration"] = duration.clone();
    }
}

/// The destination, and the traffic if it was counted.
fn network(record: &Map<String, Value>, event: &mut Value) {
    let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
    event["dst_endpoint"] = endpoint(text("target"));
    if let Some(ip) = endpoint(text("address")).get("ip") {
        event["dst_endpoint"]["ip"] = ip.clone();
    }
    let count = |key: &str| record.get(key).and_then(Value::as_u64);
    if let (Some(sent), Some(received)) = (count("sent"), count("received")) {
        event["traffic"] =
            json!({ "bytes_out": sent, "bytes_in": received, "bytes": sent + received });
    }
}

/// Parses `host:port`, `[address]:port` or a host without port.
fn endpoint(target: &str) -> Value {
    let with_port =
        target.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let (host, port) = match with_port {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (target, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let key = if host.parse::<std::net::IpAddr>().is_ok() { "ip" } else { "hostname" };
    let mut endpoint = json!({ key: host });
    if let Some(port) = port {
        endpoint["port"] = port.into();
    }
    endpoint
}

fn unmapped(record: &Map<String, Value>) -> Value {
    const MAPPED: [&str; 17] = [
        "timestamp",
        "agent",
        "session",
        "operation",
        "target",
        "result",
        "reason",
        "address",
        "sent",
        "received",
        "pid",
        "program",
        "user",
        "exitCode",
        "durationMs",
        "seq",
        "hash",
    ];
    Value::Object(
        record
            .iter()
            .filter(|(key, _)| !MAPPED.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths that the schema requires in every event of a class; one of the alternatives
    /// between bars.
    const REQUIRED: &[(OcsfClass, &[&str])] = &[
        (
            OcsfClass::File,
            &["actor", "device.type_id", "device.hostname", "file.name", "file.type_id"],
        ),
        (
            OcsfClass::Process,
            &[
                "actor",
                "device.type_id",
                "device.hostname",
                "process.pid|process.uid",
                "process.name",
            ],
        ),
        (OcsfClass::Network, &["dst_endpoint.ip|dst_endpoint.hostname"]),
    ];
    const REQUIRED_OF_ALL: &[&str] = &[
        "activity_id",
        "category_uid",
        "class_uid",
        "severity_id",
        "time",
        "type_uid",
        "metadata.version",
        "metadata.product.name",
        "metadata.product.vendor_name",
        "action_id",
        "disposition_id",
        "actor.process|actor.user|actor.session|actor.app_name",
    ];

    fn at<'a>(event: &'a Value, path: &str) -> Option<&'a Value> {
        path.split('.')
            .try_fold(event, |value, key| value.get(key))
            .filter(|value| !value.is_null())
    }

    #[track_caller]
    fn check(
        operation: &str,
        target: &str,
        result: &str,
        class: OcsfClass,
        activity: u32,
    ) -> Value {
        let record = json!({
            "timestamp": "2026-01-28T10:30:05.000Z", "agent": "a", "session": "s", "operation": operation, "target": target,
            "result": result, "policy": "p", "reason": "r", "pid": 5, "seq": 3, "hash": "h", "previous": "q",
        });
        let event = event(record.as_object().unwrap(), "box");
        let (_, own) = REQUIRED.iter().find(|(known, _)| *known == class).unwrap();
        for path in REQUIRED_OF_ALL.iter().chain(*own) {
            assert!(
                path.split('|').any(|path| at(&event, path).is_some()),
                "{operation}: {path} is missing in {event}"
            );
        }
        assert_eq!(event["class_uid"], class as u32, "{operation}");
        assert_eq!(event["activity_id"], activity, "{operation}");
        assert_eq!(event["type_uid"], class as u32 * 100 + activity);
        assert_eq!(event["category_uid"], class as u32 / 1000);
        assert_eq!(event["time"], 1_769_596_205_000_u64);
        assert_eq!(event["unmapped"], json!({ "policy": "p", "previous": "q" }));
        event
    }

    #[test]
    fn every_operation_maps_to_a_valid_event() {
        check("execute", "npm test", "allowed", OcsfClass::Process, 1);
        check("execute", "npm test", "blocked", OcsfClass::Process, 1);
        check("exit", "npm test", "failed", OcsfClass::Process, 2);
        check("call", "mount", "blocked", OcsfClass::Process, 99);
        check("read", "/p/.env", "blocked", OcsfClass::File, 2);
        check("write", "/p/x", "blocked", OcsfClass::File, 3);
        check("create", "/p/.mcp.json", "blocked", OcsfClass::File, 1);
        check("rename", "/p/x", "blocked", OcsfClass::File, 5);
        check("quarantine", "/p/.git/hooks/x", "blocked", OcsfClass::File, 5);
        check("repair", "00000001.jsonl", "failed", OcsfClass::File, 3);
        check("ask", "/p/.env", "allowed", OcsfClass::File, 99);
        check("permit", "/p/.env", "allowed", OcsfClass::File, 3);
        check("connect", "evil.example:443", "blocked", OcsfClass::Network, 5);
        check("connect", "evil.example:443", "allowed", OcsfClass::Network, 1);
        check("connect", "evil.example:443", "failed", OcsfClass::Network, 4);
        check("something-new", "x", "blocked", OcsfClass::File, 99);
    }

    #[test]
    fn inferred_denial_has_no_actor_process() {
        let mut record = json!({ "session": "s", "operation": "read", "target": "/p/.env", "result": "blocked", "pid": 0, "program": "" });
        assert_eq!(event(record.as_object().unwrap(), "box")["actor"].get("process"), None);
        record["pid"] = 7.into();
        assert_eq!(event(record.as_object().unwrap(), "box")["actor"]["process"]["pid"], 7);
    }

    #[test]
    fn connection_event_has_destination_and_traffic() {
        let mut record = json!({ "operation": "connect", "target": "a.org:443", "result": "allowed", "address": "[2001:db8::1]:443" });
        record["sent"] = 3.into();
        record["received"] = 5.into();
        let event = event(record.as_object().unwrap(), "box");
        assert_eq!(
            event["dst_endpoint"],
            json!({ "hostname": "a.org", "ip": "2001:db8::1", "port": 443 })
        );
        assert_eq!(
            (&event["traffic"], &event["unmapped"]),
            (&json!({ "bytes_out": 3, "bytes_in": 5, "bytes": 8 }), &json!({}))
        );
    }

    #[test]
    fn targets_are_split_into_attributes() {
        let event = check("read", "/p/.env", "blocked", OcsfClass::File, 2);
        assert_eq!(
            event["file"],
            json!({ "name": ".env", "path": "/p/.env", "type_id": 0, "parent_folder": "/p" })
        );
        assert_eq!((&event["action_id"], &event["disposition_id"]), (&json!(2), &json!(2)));
        let host = |target| {
            check("connect", target, "blocked", OcsfClass::Network, 5)["dst_endpoint"].clone()
        };
        assert_eq!(host("evil.example:443"), json!({ "hostname": "evil.example", "port": 443 }));
        assert_eq!(host("[2001:db8::1]:80"), json!({ "ip": "2001:db8::1", "port": 80 }));
        assert_eq!(host("2001:db8::1"), json!({ "ip": "2001:db8::1" }));
        assert_eq!(host("10.0.0.1:22"), json!({ "ip": "10.0.0.1", "port": 22 }));
        assert_eq!(
            check("execute", "/bin/sh -c x", "allowed", OcsfClass::Process, 1)["process"]["name"],
            "sh"
        );
    }
}
