//! Audit records of tool calls.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence_audit::verify;
use ringfence_tools::{EditParams, ListParams, ReadParams, WriteParams};
use serde_json::Value;

use crate::stage::{ToolStage, code};

/// The records in the log.
fn records(stage: &ToolStage) -> Vec<Value> {
    let directory = stage.grants("").audit.directory;
    let mut files: Vec<_> =
        fs::read_dir(directory.as_path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "jsonl"));
    files.sort();
    let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn words(stage: &ToolStage) -> Vec<String> {
    let text = |record: &Value, key: &str| record[key].as_str().unwrap_or("-").to_owned();
    let short = |target: String| target.replace(&format!("{}/", stage.workspace), "");
    let word = |record: &Value| {
        format!(
            "{} {} {} by {}",
            text(record, "operation"),
            short(text(record, "target")),
            text(record, "result"),
            text(record, "tool")
        )
    };
    records(stage).iter().map(word).collect()
}

tests! { "recorded":

/// Promise: tool-records
#[test]
fn every_call_is_recorded(stage) {
    let tools = stage.tools();
    tools.read(&ReadParams::new("README")).unwrap();
    tools.write(&WriteParams { create_parents: true, ..WriteParams::new("a/new", "x") }).unwrap();
    tools.write(&WriteParams::new("a/new", "y")).unwrap();
    tools.edit(&EditParams::new("a/new", "y", "z")).unwrap();
    tools.list(&ListParams::new("src")).unwrap();
    tools.read(&ReadParams::new(".env")).unwrap_err();
    tools.write(&WriteParams::new("../outside", "x")).unwrap_err();
    tools.read(&ReadParams::new("nowhere")).unwrap_err();
    let expect = [
        "read README allowed by read",
        "create a allowed by write",
        "create a/new allowed by write",
        "write a/new allowed by write",
        "write a/new allowed by edit",
        "read src allowed by list",
        "read .env blocked by read",
    ];
    let words = words(stage);
    assert_eq!(words[..expect.len()], expect);
    assert_eq!(words[expect.len()..].len(), 1, "{words:?}");
    assert!(words[expect.len()].ends_with("outside blocked by write"), "{words:?}");
}

/// Promise: tool-records
#[test]
fn record_has_agent_rule_and_reason(stage) {
    let tools = stage.tools();
    tools.read(&ReadParams::new(".env")).unwrap_err();
    let record = &records(stage)[0];
    for (key, expect) in [
        ("agent", "code-architect"),
        ("session", "a session"),
        ("policy", "**/.env"),
        ("reason", "**/.env (built in)"),
        ("origin", "built in"),
        ("evidence", "tool"),
        ("tool", "read"),
    ] {
        assert_eq!(record[key], expect, "{record}");
    }
    assert_eq!(record["pid"], std::process::id());
    let directory = stage.grants("").audit.directory;
    assert!(verify(directory.as_path(), &[]).is_ok_and(|report| report.findings.is_empty()));
}

/// Promise: tool-records
#[test]
fn failed_call_is_recorded_as_failed(stage) {
    let tools = stage.tools();
    fs::set_permissions(stage.at("README"), PermissionsExt::from_mode(0o444)).unwrap();
    assert_eq!(code(tools.write(&WriteParams::new("README", "x"))), "system");
    assert_eq!(code(tools.edit(&EditParams::new("src/main.rs", "absent", "x"))), "no-match");
    let expect = ["write README allowed by write", "write README failed by write", "write src/main.rs allowed by edit", "write src/main.rs failed by edit"];
    assert_eq!(words(stage), expect);
}

/// Promise: tool-records
#[test]
fn unrecordable_call_is_not_made(stage) {
    let grants = stage.grants("");
    let state = grants.audit.directory.clone();
    stage.put_at(&state, "in the way");
    assert!(stage.open(grants.clone()).is_err_and(|error| error.code().starts_with("audit")), "{:?}", stage.open(grants).err().map(|error| error.code()));
    // Also if the log is removed afterwards.
    fs::remove_file(state.as_path()).unwrap();
    let tools = stage.tools();
    fs::remove_dir_all(state.as_path()).unwrap();
    stage.put_at(&state, "in the way");
    assert!(tools.write(&WriteParams::new("new", "x")).is_err());
    assert!(!stage.has("new"));
    assert!(tools.read(&ReadParams::new("README")).is_err());
}

}
