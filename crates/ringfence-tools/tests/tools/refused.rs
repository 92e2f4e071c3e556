//! What the policy refuses, refused here.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_api::{Denial, DenialEvidence, Operation};
use ringfence_policy::{Access, Effect, Origin, Rule, Source, Tool, ToolRule};
use ringfence_tools::{EditParams, FileTools, ListParams, ReadParams, SearchParams, WriteParams};

use crate::stage::{SECRET, code, denial, text};

/// None of the three does anything with it.
#[track_caller]
fn shut(tools: &FileTools, path: &str) {
    denial(tools.read(&ReadParams::new(path)));
    denial(tools.write(&WriteParams::new(path, "broken")));
    denial(tools.edit(&EditParams::new(path, SECRET, "broken")));
}

/// It can be read, and not written.
#[track_caller]
fn kept(tools: &FileTools, path: &str) {
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

/// Promise: P76
#[test]
fn a_refusal_names_its_rule(stage) {
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

/// Promise: P76
#[test]
fn what_is_outside_is_not_there(stage) {
    let tools = stage.tools();
    for path in ["../other/main.rs", "/etc/shadow", "/etc/passwd", "../../notes.txt", "../../.ssh/id_test", "/proc/self/environ", "/"] {
        shut(&tools, path);
    }
    // Whether it is there at all makes no difference.
    let (there, nowhere) = (denial(tools.read(&ReadParams::new("../../notes.txt"))), denial(tools.read(&ReadParams::new("../../nowhere.txt"))));
    assert_eq!((there.rule.as_str(), there.rule == nowhere.rule, there.explicit), (Denial::NOTHING_OPENS_IT, true, false));
    assert!(denial(tools.read(&ReadParams::new("../../.ssh/id_test"))).explicit);
    // And nobody gets around it by a path that leads out and in again.
    shut(&tools, "../other/../app/README");
    assert_eq!(fs::read_to_string(stage.home.join("notes.txt").as_path()).unwrap(), SECRET);
}

#[test]
fn processes_are_nobodys_files(stage) {
    // A sandbox has processes of its own there; these would be everybody's, and what they know.
    let tools = stage.tools_with("[filesystem]\nread = [\"/proc\"]");
    for path in ["/proc/self/environ", "/proc/1/cmdline", "/proc/self/mem", "/proc/version"] {
        assert_eq!(denial(tools.read(&ReadParams::new(path))).origin, "built in", "{path}");
    }
    symlink("/proc/self/environ", stage.at("environment")).unwrap();
    denial(tools.read(&ReadParams::new("environment")));
    denial(tools.list(&ListParams::new("/proc")));
    denial(tools.search(&SearchParams { path: "/proc/self".into(), ..SearchParams::literal("PATH") }));
}

/// Promise: P76
#[test]
fn links_lead_nowhere_else(stage) {
    let tools = stage.tools();
    symlink("../../notes.txt", stage.at("out")).unwrap();
    symlink("..", stage.at("above")).unwrap();
    symlink(".env", stage.at("to-env")).unwrap();
    symlink("/proc/self/cwd", stage.at("magic")).unwrap();
    for path in ["out", "above/other/main.rs", "to-env", "magic/README"] {
        shut(&tools, path);
    }
    // Making something by a link that leads out, too.
    symlink("../../made", stage.at("dangling")).unwrap();
    denial(tools.write(&WriteParams::new("dangling", "broken")));
    assert!(!stage.home.join("made").as_path().exists());
    assert_eq!(denial(tools.read(&ReadParams::new("out"))).target, stage.home.join("notes.txt").to_string());
}

/// Promise: P76
#[test]
fn what_a_denied_link_leads_to_is_denied(stage) {
    stage.put("settings", SECRET);
    symlink("settings", stage.at("prod.key")).unwrap();
    shut(&stage.tools(), "settings");
    shut(&stage.tools(), "prod.key");
}

/// Promise: P76
#[test]
fn another_name_of_a_denied_file_is_denied(stage) {
    let tools = stage.tools();
    fs::hard_link(stage.at(".env"), stage.at("innocent")).unwrap();
    shut(&tools, "innocent");
    assert_eq!(denial(tools.read(&ReadParams::new("innocent"))).rule, Denial::ANOTHER_NAME);
    // Also one that is made after the host was looked at, at once.
    fs::hard_link(stage.home.join(".ssh/id_test").as_path(), stage.at("src/plain")).unwrap();
    shut(&tools, "src/plain");
    fs::hard_link(stage.at("README"), stage.at("mine.pem")).unwrap();
    shut(&tools, "README");
    // Two names that are both open are fine.
    fs::hard_link(stage.at("src/main.rs"), stage.at("src/same.rs")).unwrap();
    assert_eq!(text(&tools, "src/same.rs"), "fn main() {}\n");
    tools.write(&WriteParams::new("src/same.rs", "x")).unwrap();
    assert_eq!(stage.says("src/main.rs"), "fn main() {}\n");
    assert_eq!(stage.says(".env"), SECRET);
}

/// Promise: P76
#[test]
fn protected_names_are_neither_made_nor_written(stage) {
    let tools = stage.tools();
    let names = [".git/hooks/pre-commit", ".git/config", ".git/info/attributes", ".mcp.json", ".vscode/tasks.json", ".claude/settings.json"];
    let deep = [".ringfence/policy.toml", "sub/.ringfence/policy.toml", "sub/.git/hooks/x", "sub/.git", ".gitmodules", ".bashrc"];
    for path in names.iter().chain(&deep) {
        kept(&tools, path);
    }
    kept(&tools, "sub/HEAD");
    kept(&tools, "sub/head");
    for name in [".mcp.json", ".vscode", ".claude", ".ringfence", "sub/.ringfence", "sub/.git", "sub/HEAD", ".git/hooks/pre-commit"] {
        assert!(!stage.has(name), "{name}");
    }
    assert_eq!(denial(tools.edit(&EditParams::new(".git/config", "[core]", "x"))).operation, Operation::Write);
    assert_eq!(stage.says(".git/config"), "[core]\n");
    // The rest of git's own is written.
    tools.write(&WriteParams::new(".git/COMMIT_EDITMSG", "x")).unwrap();
    assert_eq!(text(&tools, ".git/config"), "[core]\n");
}

#[test]
fn state_of_unfinished_operations_is_neither_made_nor_written(stage) {
    stage.put(".git/rebase-merge/git-rebase-todo", "pick x\n");
    stage.put("bare/HEAD", "x");
    let tools = stage.tools();
    for path in [".git/MERGE_RR", ".git/merge_autostash", ".git/rebase-merge/autostash", ".git/sequencer/opts", "bare/MERGE_RR", ".git/packed-refs", ".git/index", ".git/sharedindex.1", ".git/refs/replace/1"] {
        denial(tools.write(&WriteParams { create_parents: true, ..WriteParams::new(path, "x") }));
        assert!(!stage.has(path), "{path}");
    }
    denial(tools.edit(&EditParams::new(".git/rebase-merge/git-rebase-todo", "pick x", "exec x")));
    assert_eq!(stage.says(".git/rebase-merge/git-rebase-todo"), "pick x\n");
    tools.write(&WriteParams { create_parents: true, ..WriteParams::new("docs/sequencer/opts", "x") }).unwrap();
}

#[test]
fn state_of_unfinished_operations_is_kept_in_git_directories_of_any_name(stage) {
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
        assert_eq!(found.rule, Denial::GIT_WOULD_OBEY, "{path}");
        assert!(!stage.has(path), "{path}");
    }
    assert!(!stage.has(".bare/sequencer"));
    denial(tools.edit(&EditParams::new(".bare/worktrees/main/rebase-apply/next", "1", "2")));
    assert_eq!(stage.says(".bare/worktrees/main/rebase-apply/next"), "1\n");
}

#[test]
fn settings_that_start_programs_are_made_at_no_depth(stage) {
    stage.put("mine/.vscode/tasks.json", "{}");
    let tools = stage.tools();
    let names = [".mcp.json", ".Claude/settings.json", ".vscode/tasks.json", ".kiro/hooks/x", ".github/hooks/x", ".jj/repo", ".hg/hgrc"];
    for path in names.map(|name| format!("deep/er/{name}")) {
        let found = denial(tools.write(&WriteParams { create_parents: true, ..WriteParams::new(&path, "x") }));
        assert_eq!((found.operation, found.origin.as_str(), found.explicit), (Operation::Create, "built in", true), "{path}");
        assert!(found.rule.contains("would run what it names"), "{path}: {}", found.rule);
        denial(tools.judge(Tool::Write, path.as_ref(), Access::Write));
        assert!(!stage.has("deep"), "{path}");
    }
    fs::create_dir_all(stage.at("deep/.cursor")).unwrap();
    denial(tools.judge(Tool::Write, "deep/.mcp.json".as_ref(), Access::Write));
    denial(tools.write(&WriteParams::new("deep/.mcp.json", "x")));
    for path in [".vscode/extensions.json", ".claude/commands/x.md", ".github/workflows/ci.yml", "node_modules/m/.mcp.json"] {
        tools.write(&WriteParams { create_parents: true, ..WriteParams::new(format!("deep/{path}"), "x") }).unwrap();
    }
    // One that the user opens by name.
    let tools = stage.tools_with("[filesystem]\nwrite = [\"~/code/app/deep/.cursor\", \"~/code/app/mine/.vscode\"]");
    tools.write(&WriteParams::new("deep/.cursor/mcp.json", "x")).unwrap();
    tools.write(&WriteParams::new("mine/.vscode/tasks.json", "x")).unwrap();
}

#[test]
fn a_protected_name_that_is_a_link_leads_to_what_is_protected(stage) {
    let tools = stage.tools();
    tools.read(&ReadParams::new("README")).unwrap();
    stage.put("conf/tasks.json", "x");
    stage.put("servers", "x");
    symlink("conf", stage.at(".vscode")).unwrap();
    symlink("servers", stage.at(".mcp.json")).unwrap();
    // At once by that name, whenever the link was made.
    for path in [".vscode/tasks.json", ".vscode/new", ".mcp.json"] {
        kept(&tools, path);
    }
    assert_eq!(text(&tools, ".mcp.json"), "x");
    // By the other one as well, once somebody has looked.
    let tools = stage.tools();
    kept(&tools, "conf/tasks.json");
    kept(&tools, "servers");
}

/// Promise: P76
#[test]
fn what_git_is_told_to_run_is_neither_made_nor_written(stage) {
    stage.put(".git/config", "[core]\n\thooksPath = tools/hooks\n");
    stage.put("tools/hooks/pre-commit", "true\n");
    let tools = stage.tools();
    kept(&tools, "tools/hooks/pre-commit");
    kept(&tools, "tools/hooks/post-commit");
    tools.write(&WriteParams::new("tools/other", "x")).unwrap();
    // A repository by any other name.
    for name in ["bare/HEAD", "bare/config", "bare/objects/x", "bare/refs/x"] {
        stage.put(name, "x");
    }
    let tools = stage.tools();
    kept(&tools, "bare/config");
    kept(&tools, "bare/hooks/pre-commit");
}

/// Promise: P76
#[test]
fn denied_names_are_not_made(stage) {
    let tools = stage.tools();
    for path in ["new.pem", "sub/.env.local", "my-secret/x", "Credentials.json"] {
        denial(tools.write(&WriteParams { create_parents: true, ..WriteParams::new(path, "x") }));
        assert!(!stage.has(path), "{path}");
    }
    assert!(!stage.has("my-secret"));
    tools.write(&WriteParams::new(".env.example", "x")).unwrap();
    tools.write(&WriteParams::new("secrets.rs", "x")).unwrap();
}

/// Promise: P76
#[test]
fn a_pattern_holds_from_the_moment_a_file_appears(stage) {
    let policy = Arc::new(Mutex::new(Arc::new(stage.grants("[filesystem]\ndeny = [\"**/*.token\"]\nprotect = [\"gen/**\"]"))));
    let tools = stage.open_with({
        let policy = policy.clone();
        Box::new(move || Ok(policy.lock().unwrap().clone()))
    }).unwrap();
    assert_eq!(code(tools.read(&ReadParams::new("README.token"))), "denied");
    stage.put("a/new.token", SECRET);
    stage.put("gen/x", "x");
    shut(&tools, "a/new.token");
    assert_eq!(text(&tools, "gen/x"), "x");
    denial(tools.edit(&EditParams::new("gen/x", "x", "y")));
    // And a policy from the moment it is taken over.
    *policy.lock().unwrap() = Arc::new(stage.grants("[filesystem]\ndeny = [\"README\"]"));
    shut(&tools, "README");
    tools.edit(&EditParams::new("gen/x", "x", "y")).unwrap();
}

#[test]
fn what_is_opened_in_a_denied_directory_is_open(stage) {
    stage.put_at(&stage.home.join(".ssh/known_hosts"), "a host\n");
    let tools = stage.tools_with("[filesystem]\nread = [\"~/.ssh/known_hosts\"]");
    assert_eq!(text(&tools, stage.home.join(".ssh/known_hosts").as_path()), "a host\n");
    shut(&tools, "../../.ssh/id_test");
    denial(tools.write(&WriteParams::new("../../.ssh/known_hosts", "x")));
}

/// Promise: P76
#[test]
fn caches_of_the_sandbox_are_its_own(stage) {
    let private = |host_beneath| {
        let mut grants = stage.grants("");
        let (root, store) = (stage.home.join(".kept"), stage.home.join(".store"));
        let (effect, origin) = (Effect::Private { store, host_beneath }, Origin::new(Source::Preset("test".into()), "~/.kept"));
        grants.rules.push(Rule { root, effect, origin, locked: false });
        stage.open(grants).unwrap()
    };
    stage.put_at(&stage.home.join(".kept/tool/x"), "x");
    shut(&private(false), "../../.kept/tool/x");
    // What the host has beneath shows through, and is not written.
    let tools = private(true);
    assert_eq!(text(&tools, "../../.kept/tool/x"), "x");
    denial(tools.write(&WriteParams::new("../../.kept/tool/x", "y")));
    denial(tools.write(&WriteParams::new("../../.kept/new", "y")));
    let names = |tools: &FileTools| tools.list(&ListParams { depth: Some(9), ..ListParams::new("../..") }).unwrap().entries.len();
    assert_eq!(names(&private(true)), names(&private(false)) + 2);
}

#[test]
fn a_read_only_mode_writes_nothing(stage) {
    let tools = stage.tools_with("mode = \"read-only\"");
    assert_eq!(text(&tools, "README"), "hello\nworld\n");
    let refused = denial(tools.write(&WriteParams::new("README", "x")));
    assert_eq!((refused.operation, refused.explicit), (Operation::Write, false));
    denial(tools.write(&WriteParams::new("new", "x")));
}

/// Promise: P81
#[test]
fn tools_that_are_taken_away_do_nothing_and_what_they_do_nobody_does(stage) {
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
fn nothing_is_held_back_where_nothing_is_confined(stage) {
    let tools = stage.tools_with("mode = \"full-access\"");
    assert_eq!(text(&tools, "../../notes.txt"), SECRET);
    tools.write(&WriteParams::new("../../made", "x")).unwrap();
    assert_eq!(fs::read_to_string(stage.home.join("made").as_path()).unwrap(), "x");
}

#[test]
fn what_follows_from_other_places_is_noticed_after_a_while(stage) {
    let tools = stage.tools();
    stage.put("settings", SECRET);
    assert_eq!(text(&tools, "settings"), SECRET);
    symlink("settings", stage.at("prod.key")).unwrap();
    let is_shut = || tools.read(&ReadParams::new("settings")).is_err();
    assert!(ringfence_testkit::soon(Duration::from_secs(10), is_shut));
}

}
