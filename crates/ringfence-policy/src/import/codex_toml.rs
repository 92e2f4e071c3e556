//! Codex `config.toml`: `sandbox_mode` and `[sandbox_workspace_write]`.

use serde_json::Value;

use super::reader::{ImportReader, position};
use super::{ImportError, ImportedPolicy};
use crate::glob::Glob;
use crate::grants::{Mode, NetworkMode};
use crate::policy::PathEntry;

pub(super) fn import(text: &str) -> Result<ImportedPolicy, ImportError> {
    let value: Value = toml::from_str(text).map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let (line, column) = position(text, at);
        ImportError::Malformed {
            language: "TOML",
            line,
            column,
            message: error.message().to_owned(),
        }
    })?;
    let mut imported = ImportedPolicy::new();
    let top = ImportReader::top(text, &value)?;
    let mode = match top.string("sandbox_mode")? {
        Some("read-only") => Mode::ReadOnly,
        Some("workspace-write") => Mode::WorkspaceWrite,
        Some("danger-full-access") => Mode::FullAccess,
        Some(other) => {
            imported.not_carried(
                "sandbox_mode",
                format!("`{other}` is no mode; the import uses read-only"),
            );
            Mode::ReadOnly
        }
        None => {
            imported.changed("sandbox_mode", "not set: read-only, as in the other tool");
            Mode::ReadOnly
        }
    };
    imported.policy.mode = Some(mode);
    imported.setting_from("mode", "sandbox_mode", top.has("sandbox_mode"));
    workspace_write(
        &mut imported,
        top.table("sandbox_workspace_write", "sandbox_workspace_write")?,
        mode,
    )?;
    if mode != Mode::FullAccess {
        imported.changed("sandbox_mode", "the other tool reads the whole disk; ringfence reads the project, the system and the toolchains");
    }
    for key in ["approval_policy", "shell_environment_policy"] {
        if top.has(key) {
            imported.not_carried(key, "no counterpart in the policy");
        }
    }
    Ok(imported)
}

fn workspace_write(
    imported: &mut ImportedPolicy,
    section: ImportReader<'_>,
    mode: Mode,
) -> Result<(), ImportError> {
    let network = section.bool("network_access")?.unwrap_or(false);
    let roots = section.strings("writable_roots")?;
    let excludes = [("exclude_tmpdir_env_var"), ("exclude_slash_tmp")];
    for key in excludes {
        if section.bool(key)?.is_some() {
            imported.changed(
                section.full_key(key),
                "/tmp is private to the sandbox and writable, and TMPDIR points there",
            );
        }
    }
    imported.unknown(section.unknown(&[
        "network_access",
        "writable_roots",
        excludes[0],
        excludes[1],
    ]));
    imported.policy.network.mode = Some(NetworkMode::None);
    if mode != Mode::WorkspaceWrite {
        if network || !roots.is_empty() {
            imported.not_carried(
                "sandbox_workspace_write",
                "only applies in the mode workspace-write, as in the other tool",
            );
        }
        imported.setting_from("network.mode", "", false);
        return Ok(());
    }
    let is_written = section.has("network_access");
    imported.setting_from("network.mode", &section.full_key("network_access"), is_written);
    if network {
        imported.policy.network.mode = Some(NetworkMode::Full);
    }
    for root in roots {
        if Glob::is_glob(root) {
            imported.not_carried(
                section.full_key("writable_roots"),
                format!("`{root}` contains glob characters; name a parent directory"),
            );
        } else {
            let key = section.full_key("writable_roots");
            imported.entry_from("filesystem.write", root, &key, root);
            imported.policy.filesystem.write.push(PathEntry::from(root));
        }
    }
    Ok(())
}
