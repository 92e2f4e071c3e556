//! `sandbox.json`: lists append to the defaults, the default black list stays, the network is
//! always off, and a malformed file means the defaults.

use serde_json::Value;

use super::reader::{ImportReader, number};
use super::{ImportError, ImportNoteKind, ImportedPolicy};
use crate::grants::NetworkMode;
use crate::policy::PathEntry;

pub(super) fn import(text: &str) -> ImportedPolicy {
    match read(text) {
        Ok(imported) => imported,
        Err(error) => {
            let mut defaults = defaults();
            defaults.setting_from("network.mode", "", false);
            defaults.note(
                ImportNoteKind::Warning,
                "",
                format!("the file is malformed ({error}), so the defaults apply"),
            );
            defaults
        }
    }
}

fn defaults() -> ImportedPolicy {
    let mut imported = ImportedPolicy::new();
    imported.policy.sandbox.enabled = Some(true);
    imported.policy.network.mode = Some(NetworkMode::None);
    imported.changed(
        "policy.filesystem.blacklist",
        "the default black list is built in and cannot be removed",
    );
    imported.changed(
        "policy.filesystem.blacklist",
        "/etc/passwd is not denied: the sandbox has its own, with only its own user",
    );
    imported
}

fn read(text: &str) -> Result<ImportedPolicy, ImportError> {
    let value: Value = serde_json::from_str(text).map_err(|error| ImportError::Malformed {
        language: "JSON",
        line: number(error.line()),
        column: number(error.column()),
        message: error.to_string(),
    })?;
    let mut imported = defaults();
    if value.is_null() {
        return Err(ImportError::WrongType {
            key: String::new(),
            expected: "a table",
            line: 1,
            column: 1,
        });
    }
    let top = ImportReader::top(text, &value)?;
    let policy = top.table("policy", "policy")?;
    let files = policy.table("filesystem", "policy.filesystem")?;
    let network = policy.table("network", "policy.network")?;
    let black = files.strings("blacklist")?;
    let white = files.strings("whitelist")?;

    imported.policy.sandbox.enabled = Some(top.bool("enabled")?.unwrap_or(true));
    let is_written = network.has("allowNetwork");
    imported.setting_from("network.mode", &network.full_key("allowNetwork"), is_written);
    if let Some(provider) = top.string("provider")?.filter(|provider| *provider != "local") {
        imported.not_carried(
            "provider",
            format!("choose the provider `{provider}` when the sandbox is opened"),
        );
    }
    if !top.table("providerOptions", "providerOptions")?.unknown(&[]).is_empty() {
        imported
            .not_carried("providerOptions", "options belong to the provider, not to the policy");
    }
    if network.bool("allowNetwork")? == Some(true) {
        imported.changed(
            "policy.network.allowNetwork",
            "always false: this setting cannot be configured",
        );
    }
    for entry in black.iter().filter(|entry| **entry != "/etc/passwd") {
        imported.entry_from("filesystem.deny", entry, &files.full_key("blacklist"), entry);
        imported.policy.filesystem.deny.push(PathEntry::from(*entry));
    }
    for entry in white {
        add_white(&mut imported, entry, &black);
    }
    imported.unknown(top.unknown(&["enabled", "provider", "policy", "providerOptions"]));
    imported.unknown(policy.unknown(&["filesystem", "network"]));
    imported.unknown(files.unknown(&["whitelist", "blacklist"]));
    imported.unknown(network.unknown(&["allowNetwork"]));
    Ok(imported)
}

/// In `sandbox.json` the black list overrides the white list at any depth.
fn add_white(imported: &mut ImportedPolicy, entry: &str, black: &[&str]) {
    const KEY: &str = "policy.filesystem.whitelist";
    let below = |black: &&&str| {
        let black = black.trim_end_matches('/');
        entry.strip_prefix(black).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(black) = black.iter().find(below) {
        imported.not_carried(
            KEY,
            format!("`{entry}` lies in `{black}` of the black list, which takes precedence"),
        );
    } else if crate::glob::Glob::is_glob(entry.trim_end_matches("/**")) {
        imported.not_carried(KEY, format!("`{entry}` is a glob; name the directory"));
    } else {
        imported.entry_from("filesystem.write", entry, KEY, entry);
        imported.policy.filesystem.write.push(PathEntry::from(entry));
    }
}
