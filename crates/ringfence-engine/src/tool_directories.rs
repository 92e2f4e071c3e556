//! Environment variables that make tools keep their files in the private cache.
//!
//! By default pnpm puts its store into a project on another mount than the home directory, and the
//! other tools write below `~/.config` and `~/.local/share`, which are not writable. Not all of
//! `~/.config` is private: copies and denied files in it would need mounts of their own at each
//! start, and programs would take a command's settings for the user's.

use std::ffi::OsString;

use ringfence_policy::{AbsPath, Access, Grants, Verdict};

use crate::files::read_policy_file;

/// A variable that moves the files of a tool.
struct ToolVariable {
    name: &'static str,
    /// The directory or file below the home directory that it names.
    path: &'static str,
    /// The path that the tool uses without it. A rule that opens it leaves the tool there.
    default: Option<&'static str>,
}

const fn v(name: &'static str, path: &'static str, default: &'static str) -> ToolVariable {
    ToolVariable { name, path, default: Some(default) }
}

/// The variables. pnpm reads `pnpm_config_…` from version 11 on.
const TOOL_VARIABLES: &[ToolVariable] = &[
    ToolVariable { name: "pnpm_config_store_dir", path: PNPM_STORE, default: None },
    v("MPLCONFIGDIR", ".cache/matplotlib", ".config/matplotlib"),
    v("CHROME_CONFIG_HOME", ".cache/chrome-config", ".config/chromium"),
    v("JUPYTER_RUNTIME_DIR", ".cache/jupyter/runtime", ".local/share/jupyter/runtime"),
    v("GOENV", ".cache/go/env", ".config/go/env"),
    v("HELM_CONFIG_HOME", ".cache/helm-config", ".config/helm"),
    v("HELM_DATA_HOME", ".cache/helm-data", ".local/share/helm"),
    v("COMPOSER_HOME", ".cache/composer-home", ".config/composer"),
    v("POETRY_CONFIG_DIR", ".cache/poetry-config", ".config/pypoetry"),
    v("YOLO_CONFIG_DIR", ".cache/ultralytics", ".config/Ultralytics"),
];

/// The environment variable of pnpm up to version 10. npm reads it too, and prints a warning.
const OLD_PNPM: ToolVariable =
    ToolVariable { name: "npm_config_store_dir", path: PNPM_STORE, default: None };

const PNPM_STORE: &str = ".cache/pnpm-store";

/// Adds the environment variables, unless they are set, the cache is not writable, or a rule opens
/// the directory that the tool uses by itself.
pub(crate) fn add_settings(variables: &mut Vec<(OsString, OsString)>, grants: &Grants) {
    let old_pnpm = uses_pnpm(&grants.workspace).then_some(&OLD_PNPM);
    let is_open = |below: &str, access: Access| {
        grants.verdict(&grants.home.join(below), access) == Verdict::Allowed
    };
    for tool in TOOL_VARIABLES.iter().chain(old_pnpm) {
        let is_set = variables.iter().any(|(known, _)| known.eq_ignore_ascii_case(tool.name));
        let is_usual = tool.default.is_some_and(|default| is_open(default, Access::Read));
        if !is_set && !is_usual && is_open(tool.path, Access::Write) {
            let path = grants.home.join(tool.path);
            variables.push((tool.name.into(), path.as_path().into()));
        }
    }
}

/// True for an environment variable that depends on the project's files. A session does not restart
/// because a command creates such a file.
pub(crate) fn depends_on_project(name: &OsString) -> bool {
    name == OLD_PNPM.name
}

/// True for a project with pnpm files, or with pnpm as `packageManager` in `package.json`.
fn uses_pnpm(workspace: &AbsPath) -> bool {
    let has = |name: &str| workspace.join(name).as_path().is_file();
    if has("pnpm-lock.yaml") || has("pnpm-workspace.yaml") {
        return true;
    }
    let package = read_policy_file(&workspace.join("package.json")).ok();
    let package: Option<serde_json::Value> =
        package.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    package.is_some_and(|package| {
        package["packageManager"].as_str().is_some_and(|manager| manager.starts_with("pnpm@"))
    })
}
