//! Imports of other tools' formats: documented examples, broken files, and the round trip.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_policy::import::{ImportFormat, ImportNoteKind, ImportedPolicy, detect, import};
use ringfence_policy::{
    AbsPath, Access, Facts, Flags, Grants, Policy, PolicyLayer, Source, Verdict, parse, render,
    resolve,
};

const SANDBOX_JSON: &str = r#"{
  "enabled": true,
  "provider": "local",
  "policy": {
    "filesystem": {
      "whitelist": [
        "/home/user/projects",
        "/var/data"
      ],
      "blacklist": [
        "~/.kube",
        "~/.docker"
      ]
    }
  },
  "providerOptions": {}
}"#;

const UDS_YAML: &str = r#"# .uds/config.yaml
sandbox:
  enabled: true

  filesystem:
    root: ./  # Restrict to project root
    blocked-patterns:
      - "**/.env*"
      - "**/*.pem"
      - "**/credentials*"
    allowed-patterns:
      - ".env.example"  # Allow template

  environment:
    filter-secrets: true
    allow:
      - NODE_ENV
      - DEBUG
      - CI
    block:
      - AWS_*
      - GITHUB_TOKEN

  network:
    allow-external: false
    allow-localhost: true
    allow-git: true

  tools:
    enforce-agent-permissions: true
"#;

const SETTINGS_JSON: &str = r#"{
  "sandbox": {
    "enabled": true, // main switch
    "autoAllowBashIfSandboxed": true,
    "allowUnsandboxedCommands": true,
    "failIfUnavailable": false,

    "network": {
      "allowedDomains": ["github.com"],
      "deniedDomains": [],
      "allowLocalBinding": true,
      "httpProxyPort": 8888
    },

    "filesystem": {
      "allowWrite": ["~/projects"],
      "denyWrite": ["~/.ssh"],
      "denyRead": [],
      "allowRead": []
    },

    "excludedCommands": ["docker", "npm:*"]
  }
}"#;

const CODEX_TOML: &str = r#"
# workspace-write
sandbox_mode = "workspace-write"

# network in workspace-write mode
[sandbox_workspace_write]
network_access = true
"#;

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

fn facts() -> Facts {
    Facts {
        platform: ringfence_policy::Platform::Linux,
        workspace: path("/home/me/p"),
        home: path("/home/me"),
        user: "me".to_owned(),
        variables: BTreeMap::new(),
        path_dirs: Vec::new(),
        installations: BTreeSet::new(),
        programs: BTreeSet::new(),
        git: None,
        remotes: Vec::new(),
        store: path("/home/me/.cache/ringfence/projects/1"),
        state: path("/home/me/.local/state/ringfence"),
    }
}

fn grants(layer: PolicyLayer) -> Grants {
    resolve(&[layer], &Flags::none(path("/home/me/p")), &facts()).unwrap()
}

/// Imports, renders and parses again; both results must have the same grants.
#[track_caller]
fn round_trip(text: &str, format: ImportFormat) -> (ImportedPolicy, Grants) {
    let imported = import(text, format).unwrap();
    let file = path("/home/me/.config/ringfence/policy.toml");
    let rendered = render(&imported.policy);
    let parsed =
        parse(&rendered, &file, Source::User).unwrap_or_else(|error| panic!("{error}\n{rendered}"));
    assert_eq!(parsed.policy, imported.policy, "{rendered}");
    // Warnings contain lines, which a policy that was not parsed from text does not have.
    let without_lines = |mut grants: Grants| {
        grants.warnings.clear();
        grants.rules.iter_mut().for_each(|rule| rule.origin.line = None);
        grants.patterns.iter_mut().for_each(|pattern| pattern.origin.line = None);
        grants.exceptions.iter_mut().for_each(|exception| exception.origin.line = None);
        let network = &mut grants.network;
        network
            .allow
            .iter_mut()
            .chain(&mut network.deny)
            .for_each(|listed| listed.origin.line = None);
        network.mode_origin = None;
        grants.tools.disallowed.iter_mut().for_each(|rule| rule.origin.line = None);
        grants
            .commands
            .excluded
            .iter_mut()
            .chain(&mut grants.commands.deny)
            .for_each(|origin| origin.line = None);
        network
            .localhost
            .entries
            .iter_mut()
            .chain(&mut network.bind.entries)
            .for_each(|entry| entry.origin.line = None);
        grants
    };
    let direct = grants(PolicyLayer::new(imported.policy.clone(), file, Source::User));
    assert!(without_lines(grants(parsed)) == without_lines(direct.clone()), "{rendered}");
    (imported, direct)
}

/// Checks the rendered policy, and one fragment of each expected note.
#[track_caller]
fn check(text: &str, format: ImportFormat, expect: &str, notes: &[&str]) -> Grants {
    let (imported, grants) = round_trip(text, format);
    assert_eq!(render(&imported.policy), expect);
    let found: Vec<String> =
        imported.notes.iter().map(|note| format!("{}: {}", note.key, note.text)).collect();
    assert_eq!(found.len(), notes.len(), "{found:#?}");
    for (note, found) in notes.iter().zip(&found) {
        assert!(found.contains(note), "{note} in {found}");
    }
    grants
}

#[track_caller]
fn check_verdict(grants: &Grants, target: &str, access: Access, expect: Verdict) {
    assert_eq!(grants.decide(&path(target), access).verdict, expect, "{target}");
}

#[track_caller]
fn check_error(text: &str, format: ImportFormat, code: &str, line: u32, column: u32) {
    let error = import(text, format).unwrap_err();
    assert_eq!((error.code(), error.line(), error.column()), (code, line, column), "{error}");
    assert!(!error.hint().is_empty());
}

const BLACK_NOTES: [&str; 2] = ["the default black list is built in", "/etc/passwd"];

#[test]
fn sandbox_json_example_is_imported() {
    let expect = "version = 1\n\n[sandbox]\nenabled = true\n\n[filesystem]\nwrite = [\n  \"/home/user/projects\",\n  \"/var/data\",\n]\n\
                  deny = [\n  \"~/.kube\",\n  \"~/.docker\",\n]\n\n[network]\nmode = \"none\"\n";
    let grants = check(SANDBOX_JSON, ImportFormat::SandboxJson, expect, &BLACK_NOTES);
    check_verdict(&grants, "/var/data/x", Access::Write, Verdict::Allowed);
    check_verdict(&grants, "/home/me/.docker/x", Access::Read, Verdict::Denied);
    check_verdict(&grants, "/home/me/.ssh/id", Access::Read, Verdict::Denied);
}

#[test]
fn sandbox_json_keeps_its_merge_rules() {
    let text = r#"{"policy": {"filesystem": {"whitelist": ["~/.kube/x", "/ok", "/a*"], "blacklist": ["~/.kube", "/etc/passwd"]},
        "network": {"allowNetwork": true}}, "provider": "daytona", "other": 1}"#;
    let expect = "version = 1\n\n[sandbox]\nenabled = true\n\n[filesystem]\nwrite = [\"/ok\"]\ndeny = [\"~/.kube\"]\n\n[network]\nmode = \"none\"\n";
    let notes = [
        BLACK_NOTES[0],
        BLACK_NOTES[1],
        "daytona",
        "allowNetwork: always false",
        "takes precedence",
        "is a glob",
        "other: this importer does not support it",
    ];
    check(text, ImportFormat::SandboxJson, expect, &notes);
}

#[test]
fn malformed_sandbox_json_gives_defaults() {
    for broken in [
        "",
        "{",
        "null",
        "[]",
        "{\"enabled\": \"yes\"}",
        "{\"policy\": {\"filesystem\": {\"whitelist\": \"x\"}}}",
        "{} // c",
    ] {
        let imported = import(broken, ImportFormat::SandboxJson).unwrap();
        let default = import("{}", ImportFormat::SandboxJson).unwrap();
        assert_eq!(imported.policy, default.policy, "{broken}");
        assert_eq!(imported.notes.last().unwrap().kind, ImportNoteKind::Warning, "{broken}");
        assert!(default.notes.iter().all(|note| note.kind != ImportNoteKind::Warning));
    }
}

#[test]
fn uds_yaml_example_is_imported() {
    let expect = "version = 1\n\n[sandbox]\nenabled = true\n\n[filesystem]\ndeny = [\n  \"**/.env*\",\n  \"**/*.pem\",\n  \"**/credentials*\",\n]\n\
                  except = [\".env.example\"]\n\n[environment]\nallow = [\n  \"NODE_ENV\",\n  \"DEBUG\",\n  \"CI\",\n]\n\
                  deny = [\n  \"AWS_*\",\n  \"GITHUB_TOKEN\",\n]\n\n[network]\nmode = \"allow-list\"\nlocalhost = true\ngit = true\n";
    let grants = check(
        UDS_YAML,
        ImportFormat::UdsYaml,
        expect,
        &["does not pass", "enforce-agent-permissions: always on"],
    );
    check_verdict(&grants, "/home/me/p/.env.example", Access::Read, Verdict::Allowed);
    check_verdict(&grants, "/home/me/p/.environment", Access::Read, Verdict::Denied);
    assert!(!grants.environment.decide("GITHUB_TOKEN").passes());
    assert!(grants.environment.decide("DEBUG").passes());
}

#[test]
fn uds_yaml_keeps_its_order_and_its_defaults() {
    let text = "sandbox:\n  filesystem:\n    root: ./app\n    blocked-patterns: ['.aws/']\n  environment:\n    filter-secrets: false\n    \
                allow: [API_KEY, AWS_REGION]\n    block: [AWS_*]\n  network:\n    allow-external: true\n  new: 1\n";
    let expect = "version = 1\n\n[filesystem]\ndeny = [\".aws\"]\n\n[environment]\nallow = [\"API_KEY\"]\ndeny = [\"AWS_*\"]\n\n\
                  [network]\nmode = \"full\"\nlocalhost = true\ngit = true\n";
    let notes = ["-C ./app", "AWS_REGION", "always filtered", "does not pass", "sandbox.new"];
    let grants = check(text, ImportFormat::UdsYaml, expect, &notes);
    assert!(
        grants.environment.decide("API_KEY").passes()
            && !grants.environment.decide("AWS_REGION").passes()
    );
    let bare = import("other: 1\n", ImportFormat::UdsYaml).unwrap().policy;
    assert_eq!(bare.network, import("", ImportFormat::UdsYaml).unwrap().policy.network);
    assert_eq!(bare.network.git, Some(true));
}

#[test]
fn settings_json_example_is_imported() {
    let expect = "version = 1\n\n[sandbox]\nenabled = true\nfail-if-unavailable = false\nallow-unsandboxed-commands = true\nauto-allow-bash-if-sandboxed = true\n\n[filesystem]\nwrite = [\"~/projects\"]\nprotect = [\"~/.ssh\"]\n\n\
                  [network]\nmode = \"allow-list\"\nallow = [\"github.com\"]\n\n\
                  [commands]\nexcluded = [\n  \"docker\",\n  \"npm:*\",\n]\n";
    let notes =
        ["still refuses", "can always use its loopback", "httpProxyPort", "reads everything else"];
    let grants = check(SETTINGS_JSON, ImportFormat::SettingsJson, expect, &notes);
    check_verdict(&grants, "/home/me/projects/x", Access::Write, Verdict::Allowed);
    check_verdict(&grants, "/home/me/.ssh/id", Access::Read, Verdict::Denied);
}

#[test]
fn permission_rules_become_files_and_domains() {
    let text = r#"{ /* c */ "permissions": {
        "allow": ["Edit(//srv/out/**)", "Edit(docs)", "Read(~/notes)", "Read(*.pem)", "WebFetch(domain:x.org)", "Bash(ls:*)", "Edit(/locked/a)"],
        "deny": ["Read(.env)", "Read(/private/**)", "Read(./a/b)", "Edit(/locked)", "WebFetch(domain:evil.com)", "Write", "Bash(rm:*)"],
        "ask": ["Bash"], "additionalDirectories": ["../lib"], "defaultMode": "plan",
    }, "sandbox": {"enabled": true, "enabledPlatforms": ["macos", "linux", "plan9"], "new": 1} }"#;
    let expect = "version = 1\n\n[sandbox]\nenabled = true\nenabled-platforms = [\n  \"macos\",\n  \"linux\",\n]\n\n[filesystem]\nread = [\"~/notes\"]\n\
                  write = [\n  \"/srv/out/**\",\n  \"./docs\",\n  \"./../lib\",\n]\n\
                  deny = [\n  \".env\",\n  \"./private/**\",\n  \"./a/b\",\n]\nprotect = [\"./locked\"]\n\n\
                  [network]\nmode = \"allow-list\"\nallow = [\"x.org\"]\ndeny = [\"evil.com\"]\n\n[commands]\ndeny = [\"rm:*\"]\n\n[tools]\ndisallowed = [\"Write\"]\n";
    let notes = [
        "enabledPlatforms",
        "everything else",
        "Bash(ls:*)",
        "always takes precedence",
        "permissions.ask",
        "defaultMode",
        "sandbox.new",
        "`*.pem` is not opened",
    ];
    let grants = check(text, ImportFormat::SettingsJson, expect, &notes);
    // Without `Write`, no path is writable, even if a rule opens it.
    check_verdict(&grants, "/srv/out/x", Access::Write, Verdict::ReadOnly);
    check_verdict(&grants, "/home/me/p/private/x", Access::Read, Verdict::Denied);
    check_verdict(&grants, "/home/me/p/k.pem", Access::Read, Verdict::Denied);
    check_verdict(&grants, "/home/me/p/x", Access::Write, Verdict::ReadOnly);
}

#[test]
fn srt_settings() {
    let text = r#"{"network": {"allowedDomains": ["*.x.org", "*"], "deniedDomains": ["http://y"], "allowUnixSockets": ["/run/a.sock"],
        "allowAllUnixSockets": true},
        "filesystem": {"denyRead": ["secrets", "~/x"], "allowRead": ["~/x/open"], "allowWrite": [".", "/tmp/a*"], "denyWrite": ["vendor"]},
        "allowPty": true}"#;
    let expect = "version = 1\n\n[filesystem]\nread = [\"~/x/open\"]\nwrite = [\".\"]\ndeny = [\n  \"./secrets\",\n  \"~/x\",\n]\n\
                  protect = [\"./vendor\"]\n\n[network]\nmode = \"full\"\nallow = [\"*.x.org\"]\nunix-sockets = [\"/run/a.sock\"]\n";
    let notes = ["`*` is", "http://y", "by path", "is a glob", "everything else", "allowPty"];
    let grants = check(text, ImportFormat::SrtJson, expect, &notes);
    check_verdict(&grants, "/home/me/x/open/a", Access::Read, Verdict::Allowed);
    check_verdict(&grants, "/home/me/x/a", Access::Read, Verdict::Denied);
    check_verdict(&grants, "/home/me/p/vendor/a", Access::Write, Verdict::ReadOnly);
}

#[test]
fn codex_toml_example_is_imported() {
    let expect = "version = 1\nmode = \"workspace-write\"\n\n[network]\nmode = \"full\"\n";
    let grants = check(CODEX_TOML, ImportFormat::CodexToml, expect, &["whole disk"]);
    check_verdict(&grants, "/home/me/p/x", Access::Write, Verdict::Allowed);
}

#[test]
fn codex_modes_and_roots() {
    let text = "model = \"x\"\nsandbox_mode = \"workspace-write\"\napproval_policy = \"never\"\n[sandbox_workspace_write]\n\
                writable_roots = [\"/data\", \"/a*\"]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = false\n";
    let expect = "version = 1\nmode = \"workspace-write\"\n\n[filesystem]\nwrite = [\"/data\"]\n\n[network]\nmode = \"none\"\n";
    check(
        text,
        ImportFormat::CodexToml,
        expect,
        &["exclude_tmpdir", "exclude_slash", "/a*", "whole disk", "approval_policy"],
    );
    let read_only = "version = 1\nmode = \"read-only\"\n\n[network]\nmode = \"none\"\n";
    check("", ImportFormat::CodexToml, read_only, &["not set", "whole disk"]);
    check("sandbox_mode = \"wild\"", ImportFormat::CodexToml, read_only, &["`wild`", "whole disk"]);
    let ignored = "sandbox_mode = \"read-only\"\n[sandbox_workspace_write]\nnetwork_access = true";
    check(ignored, ImportFormat::CodexToml, read_only, &["the mode workspace-write", "whole disk"]);
    let full = "version = 1\nmode = \"full-access\"\n\n[network]\nmode = \"none\"\n";
    check("sandbox_mode = \"danger-full-access\"", ImportFormat::CodexToml, full, &[]);
}

#[test]
fn malformed_import_error_has_position() {
    check_error("{\n  \"sandbox\": {", ImportFormat::SettingsJson, "import-malformed", 2, 15);
    check_error(
        "{\n  \"sandbox\": {\"enabled\": 1}}",
        ImportFormat::SettingsJson,
        "import-wrong-type",
        2,
        16,
    );
    check_error("[1]", ImportFormat::SrtJson, "import-wrong-type", 1, 1);
    check_error(
        "{\"filesystem\": {\"denyRead\": [1]}}",
        ImportFormat::SrtJson,
        "import-wrong-type",
        1,
        18,
    );
    check_error("a = 1\nsandbox_mode = ", ImportFormat::CodexToml, "import-malformed", 2, 16);
    check_error("sandbox_mode = 3", ImportFormat::CodexToml, "import-wrong-type", 1, 1);
    check_error("sandbox:\n  enabled: [", ImportFormat::UdsYaml, "import-malformed", 2, 12);
    check_error("sandbox:\n  enabled: maybe", ImportFormat::UdsYaml, "import-wrong-type", 2, 3);
}

#[track_caller]
fn check_detect(name: &str, text: &str, expect: Option<ImportFormat>) {
    assert_eq!(detect(name, text), expect, "{name}");
}

#[test]
fn formats_are_recognised() {
    check_detect("/x/sandbox.json", "{", Some(ImportFormat::SandboxJson));
    check_detect("other.json", SANDBOX_JSON, Some(ImportFormat::SandboxJson));
    check_detect(".uds/config.yaml", UDS_YAML, Some(ImportFormat::UdsYaml));
    check_detect("config.yaml", "a: 1", None);
    check_detect(".claude/settings.json", SETTINGS_JSON, Some(ImportFormat::SettingsJson));
    check_detect("settings.local.json", "{\"permissions\": {}}", Some(ImportFormat::SettingsJson));
    check_detect(".srt-settings.json", "{\"filesystem\": {}}", Some(ImportFormat::SrtJson));
    check_detect("config.toml", CODEX_TOML, Some(ImportFormat::CodexToml));
    check_detect("Cargo.toml", "[package]", None);
    check_detect("README", "", None);
    check_detect("package.json", "{}", None);
}

#[test]
fn an_empty_policy_is_the_same_as_none() {
    let layer = PolicyLayer::new(Policy::default(), path("/f"), Source::User);
    let none = resolve(&[], &Flags::none(path("/home/me/p")), &facts()).unwrap();
    assert_eq!(grants(layer), none);
}

#[test]
fn host_lists_are_imported_unchanged() {
    let text = r#"{"network": {"allowedDomains": ["Github.com", "*.npmjs.org", "a.org:8443", "10.0.0.0/8", "b\u00fccher.de", "localhost:3000", "127.0.0.1:3001", "a b"],
        "deniedDomains": ["evil.com", "x.npmjs.org", "localhost"]}, "filesystem": {}}"#;
    let expect = "version = 1\n\n[network]\nmode = \"allow-list\"\nallow = [\n  \"Github.com\",\n  \"*.npmjs.org\",\n  \"a.org:8443\",\n  \"10.0.0.0/8\",\n]\n\
                  deny = [\n  \"evil.com\",\n  \"x.npmjs.org\",\n  \"localhost\",\n]\nlocalhost = [\n  3000,\n  3001,\n]\n";
    let notes = [
        "`b\u{fc}cher.de` is no host: it is not ASCII",
        "`localhost:3000` is the host's loopback",
        "`127.0.0.1:3001` is the host's loopback",
        "`a b` is no host",
        "denyRead",
    ];
    let grants = check(text, ImportFormat::SrtJson, expect, &notes);
    let name = |text: &str| ringfence_policy::HostName::new(text).unwrap();
    assert!(grants.network.decide_name(&name("github.com"), 443).is_open());
    assert!(grants.network.decide_name(&name("registry.npmjs.org"), 443).is_open());
    for shut in ["x.npmjs.org", "npmjs.org", "evil.com"] {
        assert!(!grants.network.decide_name(&name(shut), 443).is_open(), "{shut}");
    }
    let all = r#"{"network": {"allowedDomains": ["*"], "deniedDomains": ["*"]}, "filesystem": {}}"#;
    let notes = ["`*` is `mode = \"full\"`", "`*` is `mode = \"none\"`", "denyRead"];
    check(all, ImportFormat::SrtJson, "version = 1\n\n[network]\nmode = \"none\"\n", &notes);
}

/// An import opens no path that a built-in rule denies, and reports each attempt.
///
/// Promise: import-denies
#[test]
fn import_opens_no_built_in_deny() {
    let sandbox = r#"{"policy": {"filesystem": {"whitelist": ["~/.ssh", "/home/me/.aws/config", "/etc/shadow", "/ok", "/ok/.env"]}}}"#;
    let settings = r#"{"sandbox": {"filesystem": {"allowRead": ["~/.ssh/id_rsa", "**/.env", "$HOME/.netrc"], "allowWrite": [".git/hooks", ".claude"]}},
        "permissions": {"allow": ["Read(.env)", "Read(**/*.key)", "Edit(//home/me/.gnupg/**)"], "additionalDirectories": ["~/.kube"]}}"#;
    let uds = "sandbox:\n  filesystem:\n    blocked-patterns: ['docs/x*']\n    allowed-patterns: ['**/.env', '*.pem', '.ssh/', 'docs/**', '.env.example']\n";
    let codex = "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nwritable_roots = [\"/home/me/.ssh\", \"/data\"]\n";
    for (text, format, dropped) in [
        (sandbox, ImportFormat::SandboxJson, 4),
        (settings, ImportFormat::SettingsJson, 9),
        (uds, ImportFormat::UdsYaml, 4),
        (codex, ImportFormat::CodexToml, 1),
    ] {
        let (imported, grants) = round_trip(text, format);
        let notes: Vec<_> =
            imported.notes.iter().filter(|note| note.text.contains("is not opened: ")).collect();
        assert_eq!(notes.len(), dropped, "{notes:#?}");
        for shut in [
            ".ssh/id_rsa",
            ".aws/config",
            ".netrc",
            ".gnupg/x",
            ".kube/x",
            "p/.env",
            "p/a/.env",
            "p/x.pem",
            "p/docs/.env",
            "p/x.key",
        ] {
            check_verdict(&grants, &format!("/home/me/{shut}"), Access::Read, Verdict::Denied);
        }
        check_verdict(&grants, "/home/me/p/.claude/x", Access::Write, Verdict::ReadOnly);
        check_verdict(&grants, "/home/me/p/.env.example", Access::Read, Verdict::Allowed);
    }
}

#[test]
fn sandbox_that_may_be_unavailable_still_refuses_what_it_cannot_enforce() {
    let (imported, grants) = round_trip(
        r#"{"sandbox": {"enabled": true, "failIfUnavailable": false}}"#,
        ImportFormat::SettingsJson,
    );
    assert_eq!(imported.policy.on_gap, None);
    assert_eq!(grants.on_gap, ringfence_policy::OnGap::Refuse);
    assert!(!grants.sandbox.fail_if_unavailable);
}

#[test]
fn settings_without_hosts_disable_network() {
    for text in [
        r#"{"sandbox": {"enabled": true}}"#,
        r#"{"sandbox": {"enabled": true, "network": {"allowLocalBinding": true, "deniedDomains": ["x.org"]}}}"#,
    ] {
        let (imported, grants) = round_trip(text, ImportFormat::SettingsJson);
        assert_eq!(
            imported.policy.network.mode,
            Some(ringfence_policy::NetworkMode::None),
            "{text}"
        );
        assert!(grants.network.bind.entries.is_empty(), "{text}");
    }
}
