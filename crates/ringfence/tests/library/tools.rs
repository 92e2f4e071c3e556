//! File tools of a sandbox, and a router over both.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence::tools::{EditParams, ReadParams, RoutedCall, ToolError, ToolRouter, WriteParams};
use ringfence::{SandboxBackend, SandboxConfig, SandboxManager, block_on, router};
use ringfence_testkit::becomes_true;
use serde_json::{Value, json};

use crate::stage::{home, records};

fn sandbox(at: &Path, options: Value) -> Arc<dyn SandboxBackend> {
    let provider_options = options.as_object().expect("options are an object").clone();
    let config = SandboxConfig { provider_options, ..SandboxConfig::default() };
    block_on(SandboxManager::new(config).unwrap().get_sandbox(at)).unwrap()
}

fn call(router: &ToolRouter, tool: &str, input: Value) -> Result<Value, ToolError> {
    router.call(&RoutedCall { tool: tool.into(), input })
}

fn bash(router: &ToolRouter, command: &str) -> Value {
    call(router, "Bash", json!({ "command": command, "timeoutMs": 20_000 }))
        .unwrap_or_else(|error| panic!("{error}"))
}

tests! { "tools":
    /// Promise: tools-decide-alike
    #[test]
    fn tools_and_commands_see_the_same_files(at) {
        fs::write(at.join(".env"), "TOKEN=1").unwrap();
        let router = router(sandbox(at, json!({}))).unwrap();
        assert_eq!(bash(&router, "mkdir sub && cd sub && echo from the shell > made")["exitCode"], 0);
        // The shell persists between calls, and tools start in the sandbox's directory.
        assert_eq!(bash(&router, "pwd")["stdout"], format!("{}\n", at.join("sub").display()));
        assert_eq!(call(&router, "read", json!({ "path": "sub/made" })).unwrap()["text"], "from the shell\n");
        call(&router, "edit", json!({ "path": "sub/made", "old": "the shell", "new": "a tool" })).unwrap();
        assert_eq!(bash(&router, "cat made")["stdout"], "from a tool\n");
        for path in [".env", "../notes.txt", "~/.ssh/id_rsa"] {
            let path = path.replace('~', &home(at).to_string_lossy());
            let refused = call(&router, "read", json!({ "path": path })).unwrap_err();
            assert_eq!(refused.code(), "denied", "{path}");
            // The same path is denied to a command.
            assert_ne!(bash(&router, &format!("cat '{}'", at.join(&path).display()))["exitCode"], 0, "{path}");
        }
        for (tool, code) in [("mcp__x__y", "no-extension"), ("Bash", "handler")] {
            assert_eq!(call(&router, tool, json!({})).unwrap_err().code(), code);
        }
    }

    /// Promise: removed-tools
    #[test]
    fn agent_without_write_tools_cannot_write_by_any_means(at) {
        fs::write(at.join("file"), "old").unwrap();
        let options = json!({ "disallowedTools": ["Write", "Edit"], "agent": "reviewer" });
        let router = router(sandbox(at, options)).unwrap();
        for command in ["echo x > new", "echo x > file", "python3 -c \"open('new', 'w')\"", "rm file", "mv file other", "chmod 700 file"] {
            assert_ne!(bash(&router, command)["exitCode"], 0, "{command}");
        }
        let new = json!({ "path": "new", "content": "x" });
        let edit = json!({ "path": "file", "old": "old", "new": "x" });
        for (tool, input) in [("write", new.clone()), ("Write", new.clone()), ("write_file", new), ("edit", edit.clone()), ("MultiEdit", edit)] {
            assert_eq!(call(&router, tool, input).unwrap_err().code(), "denied", "{tool}");
        }
        assert_eq!(fs::read_to_string(at.join("file")).unwrap(), "old");
        assert!(!at.join("new").exists());
        assert_eq!(call(&router, "read", json!({ "path": "file" })).unwrap()["text"], "old");
        assert_eq!(bash(&router, "cat file && touch /tmp/own")["exitCode"], 0);
        let records = records(at);
        let blocked = |record: &&Value| record["result"] == "blocked" && record["agent"] == "reviewer";
        let tools: Vec<&Value> = records.iter().filter(blocked).map(|record| &record["tool"]).filter(|tool| tool.is_string()).collect();
        // Kernel denials name the rule; tool calls name the tool.
        let (called, held): (Vec<&Value>, Vec<&Value>) = tools.into_iter().partition(|tool| **tool != "Write");
        assert_eq!(called, ["write", "write", "write", "edit", "edit"]);
        assert_eq!(held.len(), 6);
        let by_shell = records.iter().filter(blocked).filter(|record| record["target"].as_str().is_some_and(|target| target.ends_with("/new")));
        assert!(by_shell.count() >= 2, "{records:?}");
    }

    /// Promise: tools-decide-alike
    #[test]
    fn tools_follow_the_policy_of_their_sandbox_and_end_with_it(at) {
        let sandbox = sandbox(at, json!({}));
        let tools = sandbox.tools().unwrap();
        fs::write(at.join("file"), "x").unwrap();
        assert_eq!(tools.read(&ReadParams::new("file")).unwrap().text.as_deref(), Some("x"));
        let policy = home(at).join(".config/ringfence/policy.toml");
        fs::create_dir_all(policy.parent().unwrap()).unwrap();
        fs::write(&policy, "version = 1\n[filesystem]\ndeny = [\"file\"]\n").unwrap();
        let shut = || tools.read(&ReadParams::new(at.join("file"))).is_err_and(|error| error.code() == "denied");
        assert!(becomes_true(Duration::from_secs(10), shut), "{:?}", tools.read(&ReadParams::new("file")));
        fs::write(&policy, "version = 1\n[filesystem]\nprotect = [\"file\"]\n").unwrap();
        assert!(becomes_true(Duration::from_secs(10), || tools.read(&ReadParams::new("file")).is_ok()));
        assert_eq!(tools.edit(&EditParams::new("file", "x", "y")).unwrap_err().code(), "denied");
        // An invalid policy is ignored: the old one applies.
        fs::write(&policy, "version = 1\n[filesystem]\nprotect = 3\n").unwrap();
        assert_eq!(tools.edit(&EditParams::new("file", "x", "y")).unwrap_err().code(), "denied");
        block_on(sandbox.dispose()).unwrap();
        assert!(sandbox.tools().is_err());
        assert!(becomes_true(Duration::from_secs(10), || tools.write(&WriteParams::new("file", "z")).is_err_and(|error| error.code() == "policy")));
    }
}
