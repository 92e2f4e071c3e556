//! `.uds/config.yaml`: the section `sandbox:`.

use serde_json::Value;

use super::reader::{ImportReader, number};
use super::{ImportError, ImportedPolicy};
use crate::environment::name_matches;
use crate::grants::NetworkMode;
use crate::policy::{PathEntry, PortChoice};

pub(super) fn import(text: &str) -> Result<ImportedPolicy, ImportError> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| {
        let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        // The message of the parser already begins with the position.
        let message =
            first.split_once(&format!("column {column}: ")).map_or(first, |(_, message)| message);
        ImportError::Malformed {
            language: "YAML",
            line: number(line as usize),
            column: number(column as usize),
            message: message.to_owned(),
        }
    })?;
    let mut imported = ImportedPolicy::new();
    let sandbox = ImportReader::top(text, &value)?.table("sandbox", "sandbox")?;
    imported.policy.sandbox.enabled = sandbox.bool("enabled")?;
    filesystem(&mut imported, sandbox.table("filesystem", "sandbox.filesystem")?)?;
    environment(&mut imported, sandbox.table("environment", "sandbox.environment")?)?;
    network(&mut imported, sandbox.table("network", "sandbox.network")?)?;
    let tools = sandbox.table("tools", "sandbox.tools")?;
    match tools.bool("enforce-agent-permissions")? {
        Some(false) => imported.not_carried(
            tools.full_key("enforce-agent-permissions"),
            "disallowed tools are always enforced",
        ),
        Some(true) => imported.changed(
            tools.full_key("enforce-agent-permissions"),
            "always on; list an agent's disallowed tools in `tools.disallowed`",
        ),
        None => {}
    }
    imported.unknown(tools.unknown(&["enforce-agent-permissions"]));
    imported.unknown(sandbox.unknown(&[
        "enabled",
        "filesystem",
        "environment",
        "network",
        "tools",
    ]));
    Ok(imported)
}

fn filesystem(imported: &mut ImportedPolicy, files: ImportReader<'_>) -> Result<(), ImportError> {
    if let Some(root) = files.string("root")?.filter(|root| !matches!(*root, "." | "./")) {
        imported.not_carried(
            files.full_key("root"),
            format!("start in that directory: `ringfence run -C {root}`"),
        );
    }
    for pattern in files.strings("blocked-patterns")? {
        let (entry, key) = (name_or_path(pattern), files.full_key("blocked-patterns"));
        imported.entry_from("filesystem.deny", entry, &key, pattern);
        imported.policy.filesystem.deny.push(PathEntry::from(entry));
    }
    for pattern in files.strings("allowed-patterns")? {
        let (entry, key) = (name_or_path(pattern), files.full_key("allowed-patterns"));
        imported.entry_from("filesystem.except", entry, &key, pattern);
        imported.policy.filesystem.except.push(PathEntry::from(entry));
    }
    imported.unknown(files.unknown(&["root", "blocked-patterns", "allowed-patterns"]));
    Ok(())
}

/// In this format `.aws/` is a name at any depth; in ringfence it would be a path.
fn name_or_path(pattern: &str) -> &str {
    match pattern.strip_suffix('/') {
        Some(name) if !name.contains('/') && !name.starts_with(['~', '$']) && !name.is_empty() => {
            name
        }
        _ => pattern,
    }
}

fn environment(
    imported: &mut ImportedPolicy,
    variables: ImportReader<'_>,
) -> Result<(), ImportError> {
    let block = variables.strings("block")?;
    for name in variables.strings("allow")? {
        // In this format `block` is checked first; in ringfence a variable that the user names
        // passes.
        if block.iter().any(|glob| name_matches(glob, name)) {
            imported.not_carried(
                variables.full_key("allow"),
                format!("`{name}` is also in `block`, which takes precedence"),
            );
        } else {
            let key = variables.full_key("allow");
            imported.entry_from("environment.allow", name, &key, name);
            imported.policy.environment.allow.push(name.to_owned());
        }
    }
    for name in block {
        imported.entry_from("environment.deny", name, &variables.full_key("block"), name);
        imported.policy.environment.deny.push(name.to_owned());
    }
    if variables.bool("filter-secrets")? == Some(false) {
        imported.not_carried(
            variables.full_key("filter-secrets"),
            "secrets are always filtered; name a variable in `allow` to pass it",
        );
    }
    imported.changed(
        "sandbox.environment",
        "ringfence does not pass a variable that is in no list; the other tool does",
    );
    imported.unknown(variables.unknown(&["filter-secrets", "allow", "block"]));
    Ok(())
}

/// Default: nothing external, but localhost and git.
fn network(imported: &mut ImportedPolicy, network: ImportReader<'_>) -> Result<(), ImportError> {
    let external = network.bool("allow-external")?.unwrap_or(false);
    let localhost = network.bool("allow-localhost")?.unwrap_or(true);
    let git = network.bool("allow-git")?.unwrap_or(true);
    for (setting, key) in [
        ("network.mode", "allow-external"),
        ("network.localhost", "allow-localhost"),
        ("network.git", "allow-git"),
    ] {
        imported.setting_from(setting, &network.full_key(key), network.has(key));
    }
    imported.policy.network.localhost = Some(PortChoice::All(localhost));
    imported.policy.network.git = Some(git);
    imported.policy.network.mode = Some(match (external, localhost || git) {
        (true, _) => NetworkMode::Full,
        (false, true) => NetworkMode::AllowList,
        (false, false) => NetworkMode::None,
    });
    imported.unknown(network.unknown(&["allow-external", "allow-localhost", "allow-git"]));
    Ok(())
}
