//! Routing of calls.

use std::error::Error;
use std::sync::{Arc, Mutex};

use ringfence_policy::{Origin, Source, ToolRule};
use ringfence_tools::{RoutedCall, ToolError, ToolHandler, ToolRouter};
use serde_json::{Value, json};

use crate::stage::{ToolStage, code, denial};

/// Returns its name, and stores the calls it gets.
struct NamedHandler(&'static str, Mutex<Vec<String>>);

impl ToolHandler for NamedHandler {
    fn handle(&self, call: &RoutedCall) -> Result<Value, Box<dyn Error + Send + Sync>> {
        self.1.lock().unwrap().push(call.tool.clone());
        if call.input == json!("fail") {
            Err("as requested".into())
        } else {
            Ok(json!({ "by": self.0 }))
        }
    }
}

fn handler(who: &'static str) -> Arc<NamedHandler> {
    Arc::new(NamedHandler(who, Mutex::default()))
}

fn router(stage: &ToolStage, disallowed: &[&str]) -> (ToolRouter, Arc<NamedHandler>) {
    let rule =
        |name: &&str| ToolRule { name: (*name).into(), origin: Origin::new(Source::User, *name) };
    let tools = stage.open(stage.grants("").without_tools(disallowed.iter().map(rule))).unwrap();
    let session = handler("session");
    let mut router = ToolRouter::new(Arc::new(tools), session.clone());
    router.register("mcp", handler("mcp")).unwrap();
    router.register("mcp__github", handler("github")).unwrap();
    (router, session)
}

fn call(tool: &str, input: Value) -> RoutedCall {
    RoutedCall { tool: tool.into(), input }
}

tests! { "routing":

#[test]
fn five_tools_are_handled_by_any_of_their_names(stage) {
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
fn invalid_parameters_are_refused(stage) {
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

/// Promise: removed-tools
#[test]
fn prefixes_route_to_extensions_and_others_to_the_session(stage) {
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
    // A call for an extension is an error without one; a shell must not get it.
    assert_eq!(code(router.call(&call("skill__deploy", json!({})))), "no-extension");
    assert_eq!(code(router.call(&call("skill", json!({})))), "no-extension");
    assert_eq!(*session.1.lock().unwrap(), ["Bash", "shell", "mcpx", "WebFetch"]);
    assert!(matches!(router.call(&call("Bash", json!("fail"))), Err(ToolError::Handler { source, .. }) if source.to_string() == "as requested"));
}

#[test]
fn prefix_can_be_registered_only_once(stage) {
    let (mut router, _) = router(stage, &[]);
    for prefix in ["read", "Write", "Bash", "mcp", "MCP", "", "a b", "é"] {
        assert_eq!(code(router.register(prefix, handler("unused"))), "input", "{prefix}");
    }
    router.register("skill", handler("skill")).unwrap();
    assert_eq!(router.call(&call("skill:deploy", json!({}))).unwrap(), json!({ "by": "skill" }));
}

/// Promise: removed-tools
#[test]
fn removed_tools_are_not_routed(stage) {
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
