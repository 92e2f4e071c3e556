//! Who serves which call.

use std::error::Error;
use std::sync::{Arc, Mutex};

use ringfence_policy::{Origin, Source, ToolRule};
use ringfence_tools::{RoutedCall, ToolError, ToolHandler, ToolRouter};
use serde_json::{Value, json};

use crate::stage::{Stage, code, denial};

/// Says who it is, and remembers what it was asked.
struct Says(&'static str, Mutex<Vec<String>>);

impl ToolHandler for Says {
    fn handle(&self, call: &RoutedCall) -> Result<Value, Box<dyn Error + Send + Sync>> {
        self.1.lock().unwrap().push(call.tool.clone());
        if call.input == json!("fail") {
            Err("as it was told".into())
        } else {
            Ok(json!({ "by": self.0 }))
        }
    }
}

fn says(who: &'static str) -> Arc<Says> {
    Arc::new(Says(who, Mutex::default()))
}

fn router(stage: &Stage, disallowed: &[&str]) -> (ToolRouter, Arc<Says>) {
    let rule =
        |name: &&str| ToolRule { name: (*name).into(), origin: Origin::new(Source::User, *name) };
    let tools = stage.open(stage.grants("").without_tools(disallowed.iter().map(rule))).unwrap();
    let session = says("session");
    let mut router = ToolRouter::new(Arc::new(tools), session.clone());
    router.register("mcp", says("mcp")).unwrap();
    router.register("mcp__github", says("github")).unwrap();
    (router, session)
}

fn call(tool: &str, input: Value) -> RoutedCall {
    RoutedCall { tool: tool.into(), input }
}

tests! { "routing":

#[test]
fn the_five_are_served_by_any_of_their_names(stage) {
    let (router, session) = router(stage, &[]);
    for (tool, input, key, expect) in [
        ("read", json!({ "path": "README" }), "text", json!("hello\nworld\n")),
        ("Read", json!({ "file_path": "README", "limit": 1 }), "text", json!("hello\n")),
        ("write_file", json!({ "path": "new", "content": "x" }), "created", json!(true)),
        ("Edit", json!({ "file_path": "new", "old_string": "x", "new_string": "y" }), "replacements", json!(1)),
        ("LS", json!({ "path": "src" }), "truncated", json!(false)),
        ("Glob", json!({ "pattern": "*.rs" }), "truncated", json!(false)),
        ("Grep", json!({ "pattern": "hello" }), "files", json!(3)),
    ] {
        let done = router.call(&call(tool, input)).unwrap_or_else(|error| panic!("{tool}: {error}"));
        assert_eq!(done[key], expect, "{tool}: {done}");
    }
    assert!(session.1.lock().unwrap().is_empty());
}

#[test]
fn what_makes_no_sense_is_not_guessed(stage) {
    let (router, _) = router(stage, &[]);
    for (tool, input) in [
        ("read", json!({})),
        ("write", json!({ "path": "x" })),
        ("write", json!({ "path": "x", "content": "y", "mode": 511 })),
        ("edit", json!({ "path": "README", "old": "hello" })),
        ("search", json!(null)),
        ("list", json!({ "depth": -1 })),
    ] {
        assert_eq!(code(router.call(&call(tool, input))), "input", "{tool}");
    }
    assert!(!stage.has("x"));
}

/// Promise: P81
#[test]
fn prefixes_lead_to_extensions_and_the_rest_to_the_session(stage) {
    let (router, session) = router(stage, &[]);
    for (tool, expect) in [
        ("mcp__files__read", "mcp"),
        ("mcp__github__merge", "github"),
        ("MCP__github", "github"),
        ("mcp__githubs", "mcp"),
        ("mcp:x", "mcp"),
        ("Bash", "session"),
        ("shell", "session"),
        ("mcpx", "session"),
        ("WebFetch", "session"),
    ] {
        assert_eq!(router.call(&call(tool, json!({}))).unwrap(), json!({ "by": expect }), "{tool}");
    }
    // What is an extension's is nobody's where there is none; a shell must not get it.
    assert_eq!(code(router.call(&call("skill__deploy", json!({})))), "no-extension");
    assert_eq!(code(router.call(&call("skill", json!({})))), "no-extension");
    assert_eq!(*session.1.lock().unwrap(), ["Bash", "shell", "mcpx", "WebFetch"]);
    assert!(matches!(router.call(&call("Bash", json!("fail"))), Err(ToolError::Handler { source, .. }) if source.to_string() == "as it was told"));
}

#[test]
fn a_prefix_is_somebodys_own(stage) {
    let (mut router, _) = router(stage, &[]);
    for prefix in ["read", "Write", "Bash", "mcp", "MCP", "", "a b", "é"] {
        assert_eq!(code(router.register(prefix, says("nobody"))), "input", "{prefix}");
    }
    router.register("skill", says("skill")).unwrap();
    assert_eq!(router.call(&call("skill:deploy", json!({}))).unwrap(), json!({ "by": "skill" }));
}

/// Promise: P81
#[test]
fn what_is_taken_away_goes_nowhere(stage) {
    let (router, session) = router(stage, &["Write", "Edit", "Bash", "mcp__github__*"]);
    for (tool, input) in [
        ("write", json!({ "path": "new", "content": "x" })),
        ("write_file", json!({ "path": "new", "content": "x" })),
        ("MultiEdit", json!({ "path": "README", "old": "hello", "new": "x" })),
        ("shell", json!({ "command": "true" })),
        ("exec", json!({})),
        ("any_name", json!({ "command": "true" })),
        ("mcp__github__merge", json!({})),
    ] {
        let refused = denial(router.call(&call(tool, input)));
        assert_eq!((refused.operation.word(), refused.origin.as_str()), ("call", "user policy"), "{tool}");
    }
    assert!(session.1.lock().unwrap().is_empty());
    assert!(!stage.has("new"));
    assert_eq!(router.call(&call("mcp__files__read", json!({}))).unwrap(), json!({ "by": "mcp" }));
    assert_eq!(router.call(&call("read", json!({ "path": "README" }))).unwrap()["size"], 12);
}

}
