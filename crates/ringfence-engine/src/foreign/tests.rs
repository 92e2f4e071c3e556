use ringfence_policy::{PolicyError, parse};

use super::*;
use crate::own_policy::new_own_policy;
use crate::testing::TestHome;

/// Writes a file below the home directory.
fn write(home: &TestHome, name: &str, text: &str) {
    let file = home.0.join(name);
    fs::create_dir_all(file.parent().unwrap().as_path()).unwrap();
    fs::write(file.as_path(), text).unwrap();
}

/// The layers that apply: file names below the home directory, with their authority.
fn layers(home: &TestHome, files: &PolicyFiles) -> Vec<String> {
    let extended = read_layers(files, &home.facts()).unwrap();
    let name = |layer: &PolicyLayer| {
        format!("{} {}", layer.file.relative_to(&home.0).unwrap().display(), layer.source)
    };
    extended.iter().map(name).collect()
}

const USER: &str = ".config/ringfence/policy.toml";
const SHARED: &str = "p/.ringfence/policy.toml";

#[test]
fn settings_rank_below_the_file_that_extends_them_and_with_its_authority() {
    let home = TestHome::new();
    for name in [
        ".claude/settings.json",
        "p/.claude/settings.json",
        "p/.claude/settings.local.json",
        ".synapse/sandbox.json",
    ] {
        write(&home, name, "{}");
    }
    write(&home, ".codex/config.toml", "");
    write(&home, "p/.uds/config.yaml", "");
    write(
        &home,
        USER,
        "version = 1\nextends = [\"claude-code\", \"codex\", \"uds\", \"synapse\"]\n",
    );
    write(&home, SHARED, "version = 1\nextends = [\"claude-code\"]\n");
    assert_eq!(
        layers(&home, &PolicyFiles::default()),
        [
            ".claude/settings.json user policy",
            ".codex/config.toml user policy",
            ".synapse/sandbox.json user policy",
            ".config/ringfence/policy.toml user policy",
            "p/.claude/settings.json project policy",
            "p/.claude/settings.local.json project policy",
            "p/.uds/config.yaml project policy",
            "p/.ringfence/policy.toml project policy",
        ]
    );
    // A repository's policy does not read the user's files.
    write(&home, USER, "version = 1\n");
    assert_eq!(
        layers(&home, &PolicyFiles::default()),
        [
            ".config/ringfence/policy.toml user policy",
            "p/.claude/settings.json project policy",
            "p/.claude/settings.local.json project policy",
            "p/.ringfence/policy.toml project policy",
        ]
    );
    fs::remove_file(home.0.join(SHARED).as_path()).unwrap();
    let start = home.0.join("p/package");
    write(&home, "p/package/.claude/settings.json", "{}");
    let settings = Some(AppliedSettings { tool: ForeignTool::ClaudeCode, start });
    // The user's relative paths are relative to each of the two directories.
    assert_eq!(
        layers(&home, &PolicyFiles { settings, ..PolicyFiles::default() }),
        [
            ".claude/settings.json user policy",
            ".claude/settings.json user policy",
            ".config/ringfence/policy.toml user policy",
            "p/.claude/settings.json project policy",
            "p/.claude/settings.local.json project policy",
            "p/package/.claude/settings.json project policy",
        ]
    );
}

#[test]
fn policy_for_a_directory_around_the_project_extends_the_files_there() {
    let home = TestHome::new();
    let nested = Facts { workspace: home.0.join("p/nested"), ..home.facts() };
    fs::create_dir_all(nested.workspace.as_path()).unwrap();
    let own = format!("{}extends = [\"uds\", \"synapse\"]\n", new_own_policy(&home.facts()));
    home.write_own(&own);
    write(&home, "p/.uds/config.yaml", "sandbox:\n  filesystem:\n    blocked-patterns: [./x]\n");
    write(&home, ".synapse/sandbox.json", "{}");
    let layers = read_layers(&PolicyFiles::default(), &nested).unwrap();
    let names: Vec<_> = layers.iter().map(|layer| layer.file.name().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!((&names[0], &names[2]), (&"sandbox.json".into(), &"config.yaml".into()));
    assert!(layers[0].is_of_enclosing());
    let anchors: Vec<_> =
        layers.iter().map(|layer| layer.base_directory(&nested.workspace)).collect();
    assert_eq!(anchors, [home.0.join("p"), home.0.join("p"), home.0.join("p")]);
}

/// The administrator's file gives the user's settings no authority of the administrator.
#[test]
fn settings_never_have_the_authority_of_the_managed_policy() {
    let home = TestHome::new();
    write(&home, ".claude/settings.json", "{}");
    write(&home, ".synapse/sandbox.json", "{}");
    let text = "version = 1\nextends = [\"claude-code\", \"synapse\"]\n";
    let managed = parse(text, &home.0.join("managed.toml"), Source::Managed).unwrap();
    let extended = add_settings(vec![managed], &PolicyFiles::default(), &home.facts()).unwrap();
    let sources: Vec<&Source> = extended.layers.iter().map(|layer| &layer.source).collect();
    assert_eq!(sources, [&Source::User, &Source::User, &Source::Managed]);
}

#[test]
fn missing_settings_are_a_warning_that_names_them() {
    let home = TestHome::new();
    write(&home, USER, "version = 1\nextends = [\"uds\"]\n");
    write(&home, SHARED, "version = 1\nextends = [\"synapse\"]\n");
    let extended = add_settings(read(&home), &PolicyFiles::default(), &home.facts()).unwrap();
    let warnings: Vec<&String> = extended.layers.iter().flat_map(|layer| &layer.warnings).collect();
    let expect = format!(
        "policy.toml:2:12: `uds` in `extends` has no effect: no file {}",
        home.0.join("p/.uds/config.yaml")
    );
    assert!(warnings[0].ends_with(&expect), "{warnings:?}");
    assert!(warnings[1].contains("extends only files of the project"), "{warnings:?}");
    assert_eq!(extended.absent, [home.0.join("p/.uds/config.yaml")]);
    let service = PolicyFiles { service: Some(home.0.join(USER)), ..PolicyFiles::default() };
    let extended = add_settings(read(&home), &service, &home.facts()).unwrap();
    assert!(extended.layers[0].warnings[0].contains("the service reads no settings"));
}

/// The policy files without the settings that they extend.
fn read(home: &TestHome) -> Vec<PolicyLayer> {
    let file = |name: &str, source: Source| {
        crate::files::read_file_layers(&home.0.join(name), &source).unwrap()
    };
    [file(USER, Source::User), file(SHARED, Source::Project)].concat()
}

#[test]
fn malformed_and_linked_settings_are_errors() {
    let home = TestHome::new();
    write(&home, USER, "version = 1\nextends = [\"claude-code\"]\n");
    write(&home, "p/.claude/settings.json", "{\n  \"permissions\": 1 }");
    let error = read_layers(&PolicyFiles::default(), &home.facts()).unwrap_err();
    assert_eq!(error.code(), "import-wrong-type");
    let EngineError::Policy(PolicyError::Foreign { at, .. }) = &error else { panic!("{error}") };
    assert_eq!(at.line, Some(2), "{error}");
    write(&home, "outside.json", "{}");
    let link = home.0.join("p/.claude/settings.json");
    fs::remove_file(link.as_path()).unwrap();
    std::os::unix::fs::symlink("../../outside.json", link.as_path()).unwrap();
    let error = read_layers(&PolicyFiles::default(), &home.facts()).unwrap_err();
    assert_eq!(error.code(), "policy-unreadable");
    write(&home, "main/.claude/settings.json", "{}");
    fs::remove_file(link.as_path()).unwrap();
    std::os::unix::fs::symlink("../../main/.claude/settings.json", link.as_path()).unwrap();
    assert_eq!(read_layers(&PolicyFiles::default(), &home.facts()).unwrap().len(), 2);
}

#[test]
fn only_settings_with_rules_are_found() {
    let home = TestHome::new();
    write(&home, ".claude/settings.json", "{\"hooks\": {}}");
    write(&home, ".codex/config.toml", "model = \"x\"\n");
    assert_eq!(found_settings(&home.facts()), []);
    write(&home, ".claude/settings.json", "{\"permissions\": {\"deny\": [\"Read(./x)\"]}}");
    write(&home, "p/.uds/config.yaml", "sandbox: [\n");
    write(&home, USER, "version = 1\nextends = [\"claude-code\"]\n");
    let found: Vec<_> = found_settings(&home.facts())
        .into_iter()
        .map(|found| (found.tool, found.files.len(), found.is_extended))
        .collect();
    assert_eq!(found, [(ForeignTool::ClaudeCode, 1, true), (ForeignTool::Uds, 1, false)]);
}
