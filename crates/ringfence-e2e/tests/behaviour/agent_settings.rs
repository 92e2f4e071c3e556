//! Settings of agents and editors: protected where the programs look for them, also below the root
//! of the project, and quarantined where a command made one that starts programs.

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::json;

use crate::project;

const NAMES: &[&str] = &[
    ".claude",
    ".mcp.json",
    ".vscode",
    ".cursor",
    ".bashrc",
    ".Mcp.JSON",
    ".devcontainer.json",
    ".helix",
];

/// A repository with a package in it, and one below a package.
fn monorepo(project: &TestProject) {
    project.write("packages/app/src/main.js", "");
    project.write("packages/other/src/main.js", "");
    project.sh_bare("git init -q . && mkdir nested && git init -q nested && git add packages && git commit -qm one").ok();
}

/// A line that tries to make each name in each directory, as a file and as a directory, and prints
/// those it made.
fn making(project: &TestProject, directories: &[&str]) -> String {
    let (root, directories, names) =
        (project.root().display().to_string(), directories.join(" "), NAMES.join(" "));
    format!(
        "cd {root}; for d in {directories}; do for n in {names}; do \
         mkdir $d/$n 2>/dev/null && echo made $d/$n && rmdir $d/$n; (echo > $d/$n) 2>/dev/null && echo made $d/$n && rm $d/$n; \
         done; done; true"
    )
}

#[track_caller]
fn cannot_be_made(project: &TestProject, directories: &[&str], flags: &[&str]) {
    let line = making(project, directories);
    let made = project.run(flags.iter().copied().chain(["-c", &line])).ok();
    assert_eq!(made, "", "as {}", project.user);
    let bare = project.sh_bare(&line).ok();
    assert_eq!(
        bare.lines().count(),
        directories.len() * NAMES.len() * 2,
        "the attempts cannot succeed:\n{bare}"
    );
}

/// Promise: settings-names
#[test]
fn settings_in_the_start_directory_cannot_be_made() {
    each_user(|user| {
        let project = project(user);
        monorepo(&project);
        cannot_be_made(&project, &["packages/app", "packages", "."], &["-C", "packages/app"]);
        // Another package is not a start directory.
        project.tries("os.mkdir('packages/other/.vscode')").with(&["-C", "."]).inside(&["ok"]);
    });
}

/// Promise: settings-names
#[test]
fn start_directory_cannot_be_replaced_by_one_with_settings() {
    each_user(|user| {
        let project = project(user);
        monorepo(&project);
        let line = "mkdir -p made/.claude && echo '{}' > made/.claude/settings.json; cd ..; mv app gone; mv app/made app; mv gone/made app; true";
        project.run(["-C", "packages/app", "-c", line]).ok();
        assert!(project.has("packages/app/src/main.js") && !project.has("packages/app/.claude"));
    });
}

/// Promise: settings-names
#[test]
fn settings_at_the_top_of_a_nested_repository_or_worktree_cannot_be_made() {
    each_user(|user| {
        let project = project(user);
        monorepo(&project);
        project.sh_bare("git worktree add -q trees/one").ok();
        cannot_be_made(&project, &["nested", "trees/one"], &[]);
        for directory in ["nested", "trees/one"] {
            project
                .tries(&format!("os.mkdir('{directory}/.hg') or create('{directory}/.hg/hgrc')"))
                .inside(&["EACCES"]);
            project.sh(&format!(
                "mkdir m; echo > m/.mcp.json; mv m/.mcp.json {directory}/; ln -s /etc {directory}/.claude; mv {directory} elsewhere"
            ));
            assert!(
                !project.has(format!("{directory}/.mcp.json"))
                    && project.has(format!("{directory}/.git"))
            );
            project.tries(&format!("create('{directory}/plain.json')")).inside(&["ok"]);
        }
    });
}

/// Promise: settings-names
#[test]
fn existing_settings_cannot_be_changed_at_any_depth() {
    each_user(|user| {
        let project = project(user);
        project.write("a/b/c/.claude/settings.json", "{}");
        project.write("a/b/.vscode/tasks.json", "{}");
        project.write("a/.mcp.json", "{}");
        project.write("linked/real.json", "{}");
        std::os::unix::fs::symlink("real.json", project.at("linked/.mcp.json"))
            .expect("a link can be made");
        project.write("node_modules/x/.vscode/tasks.json", "{}");
        for path in [
            "a/b/c/.claude/settings.json",
            "a/b/.vscode/tasks.json",
            "a/.mcp.json",
            "linked/.mcp.json",
            "linked/real.json",
        ] {
            project.tries(&format!("write('{path}')")).inside(&["EACCES", "EROFS"]);
            project.tries(&format!("read('{path}')")).inside(&["ok"]);
        }
        project.tries("os.unlink('a/.mcp.json')").inside(&["EACCES", "EROFS", "EBUSY"]);
        project.tries("os.rename('a/b/c/.claude', 'a/b/c/old')").inside(&["EACCES", "EBUSY"]);
        // Moved with its directory, it stays unchanged, and none can be put in its place.
        project.sh("mv a/b/c gone; mkdir -p a/b/c/.claude; echo x > a/b/c/.claude/settings.json; echo x > gone/.claude/settings.json");
        assert_eq!(
            project
                .read("gone/.claude/settings.json")
                .or_else(|| project.read("a/b/c/.claude/settings.json"))
                .as_deref(),
            Some("{}")
        );
        assert!(!(project.has("gone") && project.has("a/b/c/.claude")));
        project.tries("write('node_modules/x/.vscode/tasks.json')").inside(&["ok"]);
    });
}

/// Promise: settings-names
#[test]
fn settings_opened_by_name_can_be_written_and_stay() {
    each_user(|user| {
        let project = project(user);
        monorepo(&project);
        project.write("packages/app/.vscode/tasks.json", "{}");
        project.make_directories(&project.at("packages/other/.claude"));
        project
            .run([
                "--write",
                "packages/app/.vscode",
                "-c",
                "echo folderOpen > packages/app/.vscode/tasks.json",
            ])
            .ok();
        project
            .run([
                "--write",
                "packages/other/.claude",
                "-c",
                "echo '{}' > packages/other/.claude/settings.json",
            ])
            .ok();
        assert_eq!(
            project.read("packages/app/.vscode/tasks.json").as_deref(),
            Some("folderOpen\n")
        );
        assert!(project.has("packages/other/.claude/settings.json"));
    });
}

/// Promise: settings-names
#[test]
fn settings_that_start_programs_are_moved_away_wherever_they_are_made() {
    each_user(|user| {
        let project = project(user);
        let line = "mkdir -p x/.claude x/.vscode y z/.hg v/node_modules/m/.claude && echo '{}' > x/.claude/settings.json && \
                    echo '{\"runOn\": \"folderOpen\"}' > x/.vscode/tasks.json && echo '{}' > y/.mcp.json && mv y moved && \
                    echo '[hooks]' > z/.hg/hgrc && echo '{}' > v/node_modules/m/.claude/settings.json && \
                    mkdir -p clone/.codex && echo x > clone/.codex/config.toml && ln -s ../x/src x/.cursor";
        let ran = project.run(["-c", line]);
        ran.ok();
        for gone in [
            "x/.claude/settings.json",
            "x/.vscode/tasks.json",
            "moved/.mcp.json",
            "z/.hg/hgrc",
            "clone/.codex/config.toml",
            "x/.cursor",
        ] {
            assert!(
                project.at(gone).symlink_metadata().is_err(),
                "{gone} is still there as {user}"
            );
            assert!(
                ran.stderr_text().contains(gone),
                "{gone} is not reported as {user}:\n{}",
                ran.stderr_text()
            );
        }
        // Agents are not started in vendored packages.
        assert!(project.has("v/node_modules/m/.claude/settings.json"));
    });
}

/// Promise: settings-names
#[test]
fn settings_moved_out_of_a_vendored_tree_are_quarantined() {
    each_user(|user| {
        let project = project(user);
        project.run(["-c", "mkdir -p node_modules/m/deep/.claude && echo '{}' > node_modules/m/deep/.claude/settings.json"]).ok();
        let ran = project.run(["-c", "mv node_modules/m out"]);
        ran.ok();
        assert!(
            project.has("out/deep") && !project.has("out/deep/.claude/settings.json"),
            "it is still there as {user}"
        );
        assert!(
            ran.stderr_text().contains("out/deep/.claude/settings.json"),
            "not reported as {user}:\n{}",
            ran.stderr_text()
        );
    });
}

/// Promise: settings-names
#[test]
fn settings_from_templates_and_clones_stay() {
    each_user(|user| {
        let project = project(user);
        let line = "mkdir -p app/.vscode app/.idea app/.devcontainer app/.claude/commands fixtures/home z/.hg && \
                    echo '{\"recommendations\": []}' > app/.vscode/extensions.json && echo '{\"tasks\": []}' > app/.vscode/tasks.json && \
                    echo x > app/.idea/x.xml && echo '{}' > app/.devcontainer/devcontainer.json && echo hi > app/.claude/commands/x.md && \
                    echo x > fixtures/home/.bashrc && printf '[paths]\\ndefault = ..\\n' > z/.hg/hgrc && touch app/.gitmodules";
        let ran = project.run(["-c", line]);
        ran.ok();
        let made = [
            "app/.vscode/extensions.json",
            "app/.vscode/tasks.json",
            "app/.idea/x.xml",
            "app/.devcontainer/devcontainer.json",
        ];
        for kept in made.iter().chain(&[
            "app/.claude/commands/x.md",
            "fixtures/home/.bashrc",
            "z/.hg/hgrc",
            "app/.gitmodules",
        ]) {
            assert!(project.has(kept), "{kept} was moved away as {user}");
        }
        assert!(!ran.stderr_text().contains("quarantine"), "{}", ran.stderr_text());
    });
}

/// One call of Claude Code's hook from a package of a repository.
fn hook(
    project: &TestProject,
    start: &str,
    cwd: &str,
    tool: &str,
    arguments: serde_json::Value,
) -> serde_json::Value {
    let input = json!({
        "session_id": "s", "cwd": project.at(cwd), "permission_mode": "default", "hook_event_name": "PreToolUse",
        "tool_name": tool, "tool_input": arguments, "tool_use_id": "toolu_01",
    });
    hook_with(project, start, &input)
}

fn hook_with(project: &TestProject, start: &str, input: &serde_json::Value) -> serde_json::Value {
    let ran = TestOutput::run(
        project
            .ringfence()
            .env("CLAUDE_PROJECT_DIR", project.at(start))
            .args(["hook", "claude-code"]),
        input.to_string().as_bytes(),
    );
    ran.ok();
    let answer: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
    answer["hookSpecificOutput"].clone()
}

/// Promise: settings-names
#[test]
fn agent_started_in_a_package_cannot_change_its_own_settings() {
    each_user(|user| {
        let project = project(user);
        monorepo(&project);
        project.make_directories(&project.at("packages/app/src"));
        for (cwd, target) in [
            ("packages/app", ".claude"),
            ("packages/app/src", "../.claude"),
            ("packages/other", "../app/.claude"),
        ] {
            let line =
                format!("mkdir {target}; echo '{{}}' > {target}/settings.json; ls -d {target}");
            let said = hook(&project, "packages/app", cwd, "Bash", json!({ "command": line }));
            let rewritten = said["updatedInput"]["command"].as_str().expect("a command").to_owned();
            let ran = TestOutput::run(
                project.command("bash").current_dir(project.at(cwd)).args(["-c", &rewritten]),
                b"",
            );
            assert!(
                ran.status != 0 && !project.has("packages/app/.claude"),
                "{cwd} as {user}: {}",
                ran.text()
            );
        }
        let settings = project.at("packages/app/.claude/settings.json");
        let said = hook(
            &project,
            "packages/app",
            "packages/other",
            "Write",
            json!({ "file_path": settings, "content": "{}" }),
        );
        assert_eq!(said["permissionDecision"], "deny", "{said}");
        let nested = project.at("nested/.claude/settings.json");
        let said = hook(
            &project,
            "packages/app",
            "packages/app",
            "Write",
            json!({ "file_path": nested, "content": "{}" }),
        );
        assert_eq!(said["permissionDecision"], "deny", "{said}");
    });
}

/// Runs a line as Claude Code would, in the project.
fn confined(project: &TestProject, line: &str) -> TestOutput {
    let said = hook(project, ".", ".", "Bash", json!({ "command": line }));
    let rewritten = said["updatedInput"]["command"].as_str().expect("a command").to_owned();
    TestOutput::run(
        project.command("bash").current_dir(project.root()).args(["-c", &rewritten]),
        b"",
    )
}

/// Promise: settings-names, claude-rules
#[test]
fn file_rules_of_claude_code_hold_for_commands() {
    each_user(|user| {
        let project = project(user);
        project.write("private/notes", "hidden\n");
        project.write("docs/page", "page\n");
        project.write_at(&project.home().join("code/notes/mine"), "mine\n");
        project.write_at(&project.home().join("code/theirs/x"), "theirs\n");
        let of_project = json!({
            "permissions": { "deny": ["Read(./private/**)", "Edit(/docs/**)", "Read(*.draft)"], "allow": ["Read(~/code/theirs/**)"] },
            "sandbox": { "filesystem": { "allowRead": ["~/code/theirs", "~/.ssh"], "denyWrite": ["src"] } },
        });
        let user_settings =
            json!({ "permissions": { "allow": ["Read(~/code/notes/**)", "Read(~/.ssh/**)"] } });
        project.write("x.draft", "draft\n");
        assert_eq!(
            confined(&project, "cat private/notes x.draft; echo x > docs/page; cat docs/page")
                .text(),
            "hidden\ndraft\nx"
        );
        project.write("docs/page", "page\n");
        project.write(".claude/settings.json", of_project.to_string());
        project.write_at(&project.home().join(".claude/settings.json"), user_settings.to_string());
        for (line, expect) in [
            ("cat private/notes; cat x.draft; true", ""),
            ("echo x > docs/page; echo x > src/new; cat docs/page", "page"),
            ("cd src && cat ../private/notes; true", ""),
            ("cat ~/code/notes/mine", "mine"),
            ("cat ~/code/theirs/x ~/.ssh/id_rsa; true", ""),
            ("echo y > other && cat other", "y"),
        ] {
            assert_eq!(confined(&project, line).text().trim(), expect, "{line} as {user}");
        }
        assert!(!project.has("src/new"));
    });
}

/// Promise: claude-narrows
#[test]
fn plan_mode_writes_nothing_whatever_the_settings_open() {
    each_user(|user| {
        let project = project(user);
        let settings = json!({ "sandbox": { "filesystem": { "allowWrite": [".", "~/other"] } } });
        project.write_at(&project.home().join(".claude/settings.json"), settings.to_string());
        project.write_at(&project.home().join("other/file"), "old\n");
        for (mode, expect) in [("default", "new"), ("plan", "")] {
            let input = json!({
                "session_id": "s", "cwd": project.at("."), "permission_mode": mode, "hook_event_name": "PreToolUse",
                "tool_name": "Bash", "tool_input": { "command": format!("echo new > {mode}; cat {mode}; echo {mode} > ~/other/file") },
                "tool_use_id": "toolu_01",
            });
            let said = hook_with(&project, ".", &input);
            let rewritten = said["updatedInput"]["command"].as_str().expect("a command").to_owned();
            let ran = TestOutput::run(
                project.command("bash").current_dir(project.root()).args(["-c", &rewritten]),
                b"",
            );
            assert_eq!(ran.text().trim(), expect, "{mode} as {user}");
        }
        assert!(!project.has("plan"), "as {user}");
        assert_eq!(
            std::fs::read_to_string(project.home().join("other/file")).expect("it is there"),
            "default\n",
            "as {user}"
        );
    });
}

/// Promise: claude-narrows
#[test]
fn hosts_denied_by_claude_code_stay_shut() {
    each_user(|user| {
        let project = project(user);
        let rewritten = |settings: &serde_json::Value| {
            project.write_at(&project.home().join(".claude/settings.json"), settings.to_string());
            let said = hook(&project, ".", ".", "Bash", json!({ "command": "true" }));
            said["updatedInput"]["command"].as_str().expect("a command").to_owned()
        };
        let network = json!({ "allowedDomains": ["*.corp.example"], "deniedDomains": ["secrets.corp.example"] });
        let line = rewritten(&json!({ "sandbox": { "network": network } }));
        for flag in ["--allow-host=*.corp.example", "--deny-host=secrets.corp.example"] {
            assert!(line.contains(flag), "{user}: {line}");
        }
        let network = json!({ "allowedDomains": ["corp.example"], "deniedDomains": ["*"] });
        let line = rewritten(&json!({ "sandbox": { "network": network } }));
        assert!(line.contains("--net=none") && !line.contains("--allow-host"), "{user}: {line}");
        TestOutput::run(
            project.command("bash").current_dir(project.root()).args(["-c", &line]),
            b"",
        )
        .ok();
    });
}

/// Promise: claude-narrows
#[test]
fn settings_that_open_a_missing_path_break_no_command() {
    each_user(|user| {
        let project = project(user);
        let settings = json!({ "sandbox": { "filesystem": { "allowWrite": ["~/.not-there-yet", "/srv/not-there-yet"] } } });
        project.write_at(&project.home().join(".claude/settings.json"), settings.to_string());
        assert_eq!(confined(&project, "echo fine").text().trim(), "fine", "as {user}");
    });
}
