use super::*;
use crate::decide::{Access, Verdict};
use crate::facts::{Facts, Flags};
use crate::grants::NetworkMode;
use crate::parse::parse;
use crate::policy::PortChoice;
use crate::resolve::resolve;
use crate::testing::path;

fn layer(tool: ForeignTool, text: &str) -> Result<PolicyLayer, PolicyError> {
    let (file, directory) = (path("/p/settings"), path("/p"));
    LiveSettings { tool, file: &file, source: Source::User, directory: &directory }
        .layer(text.as_bytes())
}

/// Checks the lines of keys of the layer.
#[track_caller]
fn check_lines(tool: ForeignTool, text: &str, expect: &[(&str, u32)]) {
    let layer = layer(tool, text).unwrap();
    for (key, line) in expect {
        assert_eq!(layer.position(key).line, Some(*line), "{key} in {:?}", layer.places);
    }
}

const CLAUDE: &str = r#"{
  "permissions": {
    "allow": ["Bash(deny: x)", "Read(~/data/**)",
      "WebFetch(domain:example.org)"],
    "deny": [
      "Read(./private/**)",
      "Edit(/docs/**)",
      "Bash(npm publish *)",
      "WebFetch(domain:evil.example)",
      "WebSearch"
    ]
  },
  "sandbox": {
    "enabled": false,
    "excludedCommands": ["docker:*"],
    "filesystem": { "denyRead": ["private \"x\""] }
  }
}"#;

#[test]
fn every_entry_has_its_line() {
    check_lines(
        ForeignTool::ClaudeCode,
        CLAUDE,
        &[
            ("filesystem.read.0", 3),
            ("network.allow.0", 4),
            ("filesystem.deny.0", 16),
            ("filesystem.deny.1", 6),
            ("filesystem.protect.0", 7),
            ("commands.deny.0", 8),
            ("network.deny.0", 9),
            ("tools.disallowed.0", 10),
        ],
    );
    let yaml = "sandbox:\n  filesystem:\n    blocked-patterns:\n      - '**/*.b'\n      - \"a\"\n      - plain\n    allowed-patterns: [plain]\n  network:\n    allow-external: false\n";
    check_lines(
        ForeignTool::Uds,
        yaml,
        &[
            ("filesystem.deny.0", 4),
            ("filesystem.deny.1", 5),
            ("filesystem.deny.2", 6),
            ("network.mode", 9),
        ],
    );
    let json = "{\"policy\": {\"filesystem\": {\n\"whitelist\": [\"/srv/a\"],\n\"blacklist\": [\"/srv/b\"]}}}";
    check_lines(ForeignTool::Synapse, json, &[("filesystem.write.0", 2), ("filesystem.deny.0", 3)]);
    let toml = "# sandbox_mode\nsandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true\nwritable_roots = [\"/srv/a\",\n'/srv/b']\n";
    check_lines(
        ForeignTool::Codex,
        toml,
        &[("mode", 2), ("network.mode", 4), ("filesystem.write.0", 5), ("filesystem.write.1", 6)],
    );
}

#[test]
fn settings_turn_no_sandbox_off() {
    let found = layer(ForeignTool::ClaudeCode, CLAUDE).unwrap();
    assert_eq!(found.policy.sandbox, SandboxSection::default());
    assert!(found.policy.commands.excluded.is_empty() && found.warnings.is_empty());
    for (tool, text) in [
        (ForeignTool::Codex, "sandbox_mode = \"danger-full-access\""),
        (ForeignTool::Synapse, "{\"enabled\": false}"),
        (ForeignTool::Uds, "sandbox:\n  enabled: false\n"),
    ] {
        let found = layer(tool, text).unwrap();
        assert_eq!((found.policy.sandbox.enabled, found.policy.mode), (None, None), "{text}");
        assert!(found.warnings[0].contains("turns the sandbox off and is ignored"), "{text}");
    }
}

#[test]
fn defaults_of_other_tools_are_no_rules() {
    for (tool, text) in [
        (ForeignTool::ClaudeCode, "{\"hooks\": {}}"),
        (ForeignTool::ClaudeCode, ""),
        (ForeignTool::Codex, "model = \"x\"\n[sandbox_workspace_write]\nnetwork_access = false"),
        (ForeignTool::Synapse, "{\"provider\": \"local\"}"),
        (ForeignTool::Uds, "other: 1\n"),
    ] {
        assert_eq!(layer(tool, text).unwrap().policy, Policy::default(), "{text}");
    }
    let uds = "sandbox:\n  network:\n    allow-external: true\n    allow-localhost: true\n";
    let network = layer(ForeignTool::Uds, uds).unwrap().policy.network;
    assert_eq!(
        (network.mode, network.localhost, network.git),
        (Some(NetworkMode::Full), Some(PortChoice::All(true)), None)
    );
    let denied = "{\"sandbox\": {\"network\": {\"deniedDomains\": [\"*\"]}}}";
    let network = layer(ForeignTool::ClaudeCode, denied).unwrap().policy.network;
    assert_eq!(network.mode, Some(NetworkMode::None));
}

#[test]
fn only_malformed_sandbox_json_is_a_warning() {
    let found = layer(ForeignTool::Synapse, "{\n\"enabled\": x").unwrap();
    assert_eq!(found.policy, Policy::default());
    assert!(
        found.warnings[0].starts_with("/p/settings: the file is malformed (2:"),
        "{:?}",
        found.warnings
    );
    for (tool, text, line) in [
        (ForeignTool::ClaudeCode, "{\n  \"permissions\": [\n", 2),
        (ForeignTool::ClaudeCode, "{\n  \"permissions\": {\n \"deny\": \"x\"}}", 3),
        (ForeignTool::Codex, "a = 1\nsandbox_mode = \n", 2),
        (ForeignTool::Uds, "sandbox:\n  filesystem: [\n", 2),
    ] {
        let error = layer(tool, text).unwrap_err();
        assert!(error.line().is_some_and(|found| found >= line), "{error}");
        assert!(error.code().starts_with("import-"), "{error}");
        assert!(error.to_string().starts_with("/p/settings:"), "{error}");
    }
}

#[test]
fn grant_of_a_denied_path_is_dropped_with_a_warning() {
    let text =
        "{\"permissions\": {\"allow\": [\"Read(~/.ssh/**)\", \"Read(//**)\", \"Read(~/x)\"]}}";
    let found = layer(ForeignTool::ClaudeCode, text).unwrap();
    assert_eq!(found.policy.filesystem.read, [PathEntry::from("~/x")]);
    assert!(
        found.warnings.len() == 2 && found.warnings[0].contains("`~/.ssh/**` is not opened"),
        "{:?}",
        found.warnings
    );
}

#[test]
fn locks_and_ceilings_of_the_managed_policy_hold() {
    let managed = "version = 1\nmode = \"read-only\"\n[filesystem]\ndeny = [{ path = \"~/data\", locked = true }]\n[network]\nlocked = true\n";
    let managed = parse(managed, &path("/etc/p.toml"), Source::Managed).unwrap();
    let claude = "{\"permissions\": {\"allow\": [\"Read(~/data/**)\", \"Read(~/x)\", \"WebFetch(domain:a.org)\"]}}";
    let codex = "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nwritable_roots = [\"/srv/a\"]\n";
    let layers = [
        managed,
        layer(ForeignTool::ClaudeCode, claude).unwrap(),
        layer(ForeignTool::Codex, codex).unwrap(),
    ];
    let facts = Facts::minimal(path("/p"), path("/home/me"), path("/store"));
    let grants = resolve(&layers, &Flags::none(path("/p")), &facts).unwrap();
    let verdict = |text: &str, access| grants.verdict(&path(text), access);
    assert_eq!(verdict("/home/me/data/a", Access::Read), Verdict::Denied);
    assert_eq!(verdict("/home/me/x", Access::Read), Verdict::Allowed);
    assert_eq!(verdict("/srv/a/x", Access::Write), Verdict::ReadOnly);
    assert_eq!(verdict("/p/x", Access::Write), Verdict::ReadOnly);
    assert!(grants.network.allow.is_empty());
}
