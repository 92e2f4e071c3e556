//! Denials by the policy.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_api::{Denial, DenialEvidence, Operation};
use ringfence_policy::{Access, Effect, Origin, Rule, Source, Tool, ToolRule};
use ringfence_tools::{EditParams, FileTools, ListParams, ReadParams, SearchParams, WriteParams};

use crate::stage::{SECRET, code, denial, text};

/// Asserts that read, write and edit are denied.
#[track_caller]
fn assert_denied(tools: &FileTools, path: &str) {
    denial(tools.read(&ReadParams::new(path)));
    denial(tools.write(&WriteParams::new(path, "broken")));
    denial(tools.edit(&EditParams::new(path, SECRET, "broken")));
}

/// Asserts that it can be read, but not written.
#[track_caller]
fn assert_read_only(tools: &FileTools, path: &str) {
    assert_eq!(
        denial(
            tools.write(&WriteParams { create_parents: true, ..WriteParams::new(path, "broken") })
        )
        .evidence,
        DenialEvidence::Tool,
        "{path}"
    );
    tools
        .read(&ReadParams::new(path))
        .err()
        .into_iter()
        .for_each(|error| assert_eq!(error.code(), "not-found", "{path}"));
}

fn rule(name: &str) -> ToolRule {
    ToolRule { name: name.into(), origin: Origin::new(Source::Project, name) }
}

tests! { "refused":

/// Promise: tools-decide-alike
#[test]
fn denial_names_its_rule(stage) {
    let tools = stage.tools();
    let found = denial(tools.read(&ReadParams::new(".env")));
    let expect = Denial {
        operation: Operation::Read,
        target: stage.at(".env").to_string_lossy().into_owned(),
        rule: "**/.env".into(),
        origin: "built in".into(),
        explicit: true,
        pid: std::process::id(),
        program: found.program.clone(),
        time_ms: found.time_ms,
        evidence: DenialEvidence::Tool,
        count: 1,
        optional: false,
    };
    assert_eq!(found, expect);
    assert!(found.program.starts_with("tools") || found.program == "ringfence", "{}", found.program);
}

/// Promise: tools-decide-alike
#[test]
fn paths_outside_are_denied(stage) {
    let tools = stage.tools();
    for path in ["../other/main.rs", "/etc/shadow", "/etc/passwd", "../../notes.txt", "../../.ssh/id_test", "/proc/self/environ", "/"] {
        assert_denied(&tools, path);
    }
    // Existence makes no difference.
    let (there, nowhere) = (denial(tools.read(&ReadParams::new("../../notes.txt"))), denial(tools.read(&ReadParams::new("../../nowhere.txt"))));
    assert_eq!((there.rule.as_str(), there.rule == nowhere.rule, there.explicit), (Denial::NO_RULE_ALLOWS, true, false));
    assert!(denial(tools.read(&ReadParams::new("../../.ssh/id_test"))).explicit);
    // A path that leaves the project and returns is denied too.
    assert_denied(&tools, "../other/../app/README");
    assert_eq!(fs::read_to_string(stage.home.join("notes.txt").as_path()).unwrap(), SECRET);
}

#[test]
fn proc_is_denied(stage) {
    // A sandbox sees its own processes in `/proc`; here these would be the host's, with their
    // secrets.
    let tools = stage.tools_with("[filesystem]\nread = [\"/proc\"]");
    for path in ["/proc/self/environ", "/proc/1/cmdline", "/proc/self/mem", "/proc/version"] {
        assert_eq!(denial(tools.read(&ReadParams::new(path))).origin, "built in", "{path}");
    }
    symlink("/proc/self/environ", stage.at("environment")).unwrap();
    denial(tools.read(&ReadParams::new("environment")));
    denial(tools.list(&ListParams::new("/proc")));
    denial(tools.search(&SearchParams { path: "/proc/self".into(), ..SearchParams::literal("PATH") }));
}

/// Promise: tools-decide-alike
#[test]
fn links_do_not_escape(stage) {
    let tools = stage.tools();
    symlink("../../notes.txt", stage.at("out")).unwrap();
    symlink("..", stage.at("above")).unwrap();
    symlink(".env", stage.at("to-env")).unwrap();
    symlink("/proc/self/cwd", stage.at("magic")).unwrap();
    for path in ["out", "above/other/main.rs", "to-env", "magic/README"] {
        assert_denied(&tools, path);
    }
    // A new file through a link that leads out is denied too.
    symlink("../../made", stage.at("dangling")).unwrap();
    denial(tools.write(&WriteParams::new("dangling", "broken")));
    assert!(!stage.home.join("made").as_path().exists());
    assert_eq!(denial(tools.read(&ReadParams::new("out"))).target, stage.home.join("notes.txt").to_string());
}

/// Promise: tools-decide-alike
#[test]
fn target_of_a_denied_link_is_denied(stage) {
    stage.put("settings", SECRET);
    symlink("settings", stage.at("prod.key")).unwrap();
    assert_denied(&stage.tools(), "settings");
    assert_denied(&stage.tools(), "prod.key");
}

/// Promise: tools-decide-alike
#[test]
fn hard_link_of_a_denied_file_is_denied(stage) {
    let tools = stage.tools();
    fs::hard_link(stage.at(".env"), stage.at("innocent")).unwrap();
    assert_denied(&tools, "innocent");
    assert_eq!(denial(tools.read(&ReadParams::new("innocent"))).rule, Denial::ALIAS_OF_DENIED);
    // Also a link created after the survey, at once.
    fs::hard_link(stage.home.join(".ssh/id_test").as_path(), stage.at("src/plain")).unwrap();
    assert_denied(&tools, "src/plain");
    fs::hard_link(stage.at("README"), stage.at("mine.pem")).unwrap();
    assert_denied(&tools, "README");
    // Two allowed names are fine.
    fs::hard_link(stage.at("src/main.rs"), stage.at("src/same.rs")).unwrap();
    assert_eq!(text(&tools, "src/same.rs"), "fn main() {}\n");
    tools.write(&WriteParams::new("src/same.rs", "x")).unwrap();
    assert_eq!(stage.content("src/main.rs"), "fn main() {}\n");
    assert_eq!(stage.content(".env"), SECRET);
}

/// Promise: tools-decide-alike
#[test]
fn protected_names_cannot_be_created_or_written(stage) {
    let tools = stage.tools();
    let names = [".git/hooks/pre-commit", ".git/config", ".git/info/attributes", ".mcp.json", ".vscode/tasks.json", ".claude/settings.json"];
    let deep = [".ringfence/policy.toml", "sub/.ringfence/policy.toml", "sub/.git/hooks/x", "sub/.git", ".gitmodules", ".bashrc"];
    for path in names.iter().chain(&deep) {
        assert_read_only(&tools, path);
    }
    assert_read_only(&tools, "sub/HEAD");
    assert_read_only(&tools, "sub/head");
    for name in [".mcp.json", ".vscode", ".claude", ".ringfence", "sub/.ringfence", "sub/.git", "sub/HEAD", ".git/hooks/pre-commit"] {
        assert!(!stage.has(name), "{name}");
    }
    assert_eq!(denial(tools.edit(&EditParams::new(".git/config", "[core]", "x"))).operation, Operation::Write);
    assert_eq!(stage.content(".git/config"), "[core]\n");
    // Other files of git are writable.
    tools.write(&WriteParams::new(".git/COMMIT_EDITMSG", "x")).unwrap();
    assert_eq!(text(&tools, ".git/config"), "[core]\n");
}

#[test]
fn git_state_cannot_be_created_or_written(stage) {
    stage.put(".git/rebase-merge/git-rebase-todo", "pick x\n");
    stage.put("bare/HEAD", "x");
    let tools = stage.tools();
    for path in [".git/MERGE_RR", ".git/merge_autostash", ".git/rebase-merge/autostash", ".git/sequencer/opts", "bare/MERGE_RR", ".git/packed-refs", ".git/index", ".git/sharedindex.1", ".git/refs/replace/1"] {
        denial(tools.write(&WriteParams { create_parents: true, ..WriteParams::new(path, "x") }));
        assert!(!stage.has(path), "{path}");
    }
    denial(tools.edit(&EditParams::new(".git/rebase-merge/git-rebase-todo", "pick x", "exec x")));
    assert_eq!(stage.content(".git/rebase-merge/git-rebase-todo"), "pick x\n");
    tools.write(&WriteParams { create_parents: true, ..WriteParams::new("docs/sequencer/opts", "x") }).unwrap();
}

#[test]
fn git_state_is_protected_in_git_directories_of_any_name(stage) {
    stage.put(".bare/HEAD", "x");
    stage.put(".bare/objects/x", "x");
    stage.put(".bare/worktrees/main/HEAD", "x");
    stage.put(".bare/worktrees/main/commondir", "../..\n");
    stage.put(".bare/worktrees/main/rebase-apply/next", "1\n");
    let tools = stage.tools();
    for path in [
        ".bare/worktrees/main/rebase-merge/git-rebase-todo",
        ".bare/sequencer/todo",
        ".bare/BISECT_LOG",
        ".bare/worktrees/main/rebase-apply/x/y",
    ] {
        let found = denial(tools.write(&WriteParams { create_parents: true, ..WriteParams::new(path, "exec x") }));
        assert_eq!(found.rule, Denial::GIT_RESERVED_NAME, "{path}");
        assert!(!stage.has(path), "{path}");
    }
    assert!(!stage.has(".bare/sequencer"));
    denial(tools.edit(&EditParams::new(".bare/worktrees/main/rebase-apply/next", "1", "2")));
    assert_eq!(stage.content(".bare/worktrees/main/rebase-apply/next"), "1\n");
}

#[test]
fn settings_that_start_programs_cannot_be_created_at_any_depth(stage) {
    stage.put("mine/.vscode/tasks.json", "{}");
    let tools = stage.tools();
    let names = [".mcp.json", ".Claude/settings.json", ".vscode/tasks.json", ".kiro/hooks/x", ".github/hooks/x", ".jj/repo", ".hg/hgrc"];
    for path in names.map(|name| format!("deep/er/{name}")) {
        let found = denial(tools.write(&WriteParams { create_parents: true, ..WriteParams::new(&path, "x") }));
        assert_eq!((found.operation, found.origin.as_str(), found.explicit), (Operation::Create, "built in", true), "{path}");
        assert!(found.rule.contains("would run the programs it names"), "{path}: {}", found.rule);
        denial(tools.check_call(Tool::Write, path.as_ref(), Access::Write));
        assert!(!stage.has("deep"), "{path}");
    }
    fs::create_dir_all(stage.at("deep/.cursor")).unwrap();
    denial(tools.check_call(Tool::Write, "deep/.mcp.json".as_ref(), Access::Write));
    denial(tools.write(&WriteParams::new("deep/.mcp.json", "x")));
    for path in [".vscode/extensions.json", ".claude/commands/x.md", ".github/workflows/ci.yml", "node_modules/m/.mcp.json"] {
        tools.write(&WriteParams { create_parents: true, ..WriteParams::new(format!("deep/{path}"), "x") }).unwrap();
    }
    // Settings that the user allows by name.
    let tools = stage.tools_with("[filesystem]\nwrite = [\"~/code/app/deep/.cursor\", \"~/code/app/mine/.vscode\"]");
    tools.write(&WriteParams::new("deep/.cursor/mcp.json", "x")).unwrap();
    tools.write(&WriteParams::new("mine/.vscode/tasks.json", "x")).unwrap();
}

#[test]
fn target_of_a_protected_link_is_protected(stage) {
    let tools = stage.tools();
    tools.read(&ReadParams::new("README")).unwrap();
    stage.put("conf/tasks.json", "x");
    stage.put("servers", "x");
    symlink("conf", stage.at(".vscode")).unwrap();
    symlink("servers", stage.at(".mcp.json")).unwrap();
    // By that name at once, whenever the link was created.
    for path in [".vscode/tasks.json", ".vscode/new", ".mcp.json"] {
        assert_read_only(&tools, path);
    }
    assert_eq!(text(&tools, ".mcp.json"), "x");
    // By the other name after a new survey.
    let tools = stage.tools();
    assert_read_only(&tools, "conf/tasks.json");
    assert_read_only(&tools, "servers");
}

/// Promise: tools-decide-alike
#[test]
fn programs_named_in_git_config_cannot_be_created_or_written(stage) {
    stage.put(".git/config", "[core]\n\thooksPath = tools/hooks\n");
    stage.put("tools/hooks/pre-commit", "true\n");
    let tools = stage.tools();
    assert_read_only(&tools, "tools/hooks/pre-commit");
    assert_read_only(&tools, "tools/hooks/post-commit");
    tools.write(&WriteParams::new("tools/other", "x")).unwrap();
    // A repository under another name.
    for name in ["bare/HEAD", "bare/config", "bare/objects/x", "bare/refs/x"] {
        stage.put(name, "x");
    }
    let tools = stage.tools();
    assert_read_only(&tools, "bare/config");
    assert_read_only(&tools, "bare/hooks/pre-commit");
}

/// Promise: tools-decide-alike
#[test]
fn denied_names_cannot_be_created(stage) {
    let tools = stage.tools();
    for path in ["new.pem", "sub/.env.local", "my-secret/x", "Credentials.json"] {
        denial(tools.write(&WriteParams { create_parents: true, ..WriteParams::new(path, "x") }));
        assert!(!stage.has(path), "{path}");
    }
    assert!(!stage.has("my-secret"));
    tools.write(&WriteParams::new(".env.example", "x")).unwrap();
    tools.write(&WriteParams::new("secrets.rs", "x")).unwrap();
}

/// Promise: tools-decide-alike
#[test]
fn pattern_applies_as_soon_as_a_file_exists(stage) {
    let policy = Arc::new(Mutex::new(Arc::new(stage.grants("[filesystem]\ndeny = [\"**/*.token\"]\nprotect = [\"gen/**\"]"))));
    let tools = stage.open_with({
        let policy = policy.clone();
        Box::new(move || Ok(policy.lock().unwrap().clone()))
    }).unwrap();
    assert_eq!(code(tools.read(&ReadParams::new("README.token"))), "denied");
    stage.put("a/new.token", SECRET);
    stage.put("gen/x", "x");
    assert_denied(&tools, "a/new.token");
    assert_eq!(text(&tools, "gen/x"), "x");
    denial(tools.edit(&EditParams::new("gen/x", "x", "y")));
    // A changed policy applies at once.
    *policy.lock().unwrap() = Arc::new(stage.grants("[filesystem]\ndeny = [\"README\"]"));
    assert_denied(&tools, "README");
    tools.edit(&EditParams::new("gen/x", "x", "y")).unwrap();
}

#[test]
fn path_allowed_in_a_denied_directory_is_readable(stage) {
    stage.put_at(&stage.home.join(".ssh/known_hosts"), "a host\n");
    let tools = stage.tools_with("[filesystem]\nread = [\"~/.ssh/known_hosts\"]");
    assert_eq!(text(&tools, stage.home.join(".ssh/known_hosts").as_path()), "a host\n");
    assert_denied(&tools, "../../.ssh/id_test");
    denial(tools.write(&WriteParams::new("../../.ssh/known_hosts", "x")));
}

/// Promise: tools-decide-alike
#[test]
fn private_caches_are_hidden_or_read_only(stage) {
    let private = |host_beneath| {
        let mut grants = stage.grants("");
        let (root, store) = (stage.home.join(".kept"), stage.home.join(".store"));
        let (effect, origin) = (Effect::Private { store, host_beneath }, Origin::new(Source::Preset("test".into()), "~/.kept"));
        grants.rules.push(Rule { root, effect, origin, locked: false });
        stage.open(grants).unwrap()
    };
    stage.put_at(&stage.home.join(".kept/tool/x"), "x");
    assert_denied(&private(false), "../../.kept/tool/x");
    // The host's files are visible, but not writable.
    let tools = private(true);
    assert_eq!(text(&tools, "../../.kept/tool/x"), "x");
    denial(tools.write(&WriteParams::new("../../.kept/tool/x", "y")));
    denial(tools.write(&WriteParams::new("../../.kept/new", "y")));
    let names = |tools: &FileTools| tools.list(&ListParams { depth: Some(9), ..ListParams::new("../..") }).unwrap().entries.len();
    assert_eq!(names(&private(true)), names(&private(false)) + 2);
}

#[test]
fn read_only_mode_denies_writes(stage) {
    let tools = stage.tools_with("mode = \"read-only\"");
    assert_eq!(text(&tools, "README"), "hello\nworld\n");
    let refused = denial(tools.write(&WriteParams::new("README", "x")));
    assert_eq!((refused.operation, refused.explicit), (Operation::Write, false));
    denial(tools.write(&WriteParams::new("new", "x")));
}

/// Promise: removed-tools
#[test]
fn removed_tools_are_denied(stage) {
    let tools = stage.open(stage.grants("").without_tools([rule("Write"), rule("Edit")])).unwrap();
    for refused in [denial(tools.write(&WriteParams::new("new", "x"))), denial(tools.edit(&EditParams::new("README", "hello", "x")))] {
        assert_eq!((refused.operation, refused.origin.as_str(), refused.explicit), (Operation::Call, "project policy", true));
    }
    assert_eq!(text(&tools, "README"), "hello\nworld\n");
    let tools = stage.open(stage.grants("").without_tools([rule("Bash"), rule("Read"), rule("*s*")])).unwrap();
    denial(tools.read(&ReadParams::new("README")));
    denial(tools.list(&ListParams::new(".")));
    denial(tools.search(&SearchParams::literal("x")));
    tools.write(&WriteParams::new("new", "x")).unwrap();
}

#[test]
fn full_access_mode_allows_everything(stage) {
    let tools = stage.tools_with("mode = \"full-access\"");
    assert_eq!(text(&tools, "../../notes.txt"), SECRET);
    tools.write(&WriteParams::new("../../made", "x")).unwrap();
    assert_eq!(fs::read_to_string(stage.home.join("made").as_path()).unwrap(), "x");
}

#[test]
fn indirect_denial_is_noticed_after_the_survey_expires(stage) {
    let tools = stage.tools();
    stage.put("settings", SECRET);
    assert_eq!(text(&tools, "settings"), SECRET);
    symlink("settings", stage.at("prod.key")).unwrap();
    let is_denied = || tools.read(&ReadParams::new("settings")).is_err();
    assert!(ringfence_testkit::becomes_true(Duration::from_secs(10), is_denied));
}

}
