//! Environment variables that make tools keep their files in the private cache.
//!
//! By default pnpm puts its store into a project on another mount than the home directory, and
//! matplotlib and Chromium write below `~/.config`.

use std::ffi::OsString;

use ringfence_policy::{AbsPath, Access, Grants, Verdict};

use crate::files::read_policy_file;

/// Environment variables, and the directories below the home directory that they name. pnpm reads
/// `pnpm_config_…` from version 11 on.
const TOOL_DIRECTORIES: &[(&str, &str)] = &[
    ("pnpm_config_store_dir", PNPM_STORE),
    ("MPLCONFIGDIR", ".cache/matplotlib"),
    ("CHROME_CONFIG_HOME", ".cache/chrome-config"),
    ("JUPYTER_RUNTIME_DIR", ".cache/jupyter/runtime"),
];

/// The environment variable of pnpm up to version 10. npm reads it too, and prints a warning.
const OLD_PNPM: (&str, &str) = ("npm_config_store_dir", PNPM_STORE);

const PNPM_STORE: &str = ".cache/pnpm-store";

/// Adds the environment variables, unless they are set or the cache is not writable.
pub(crate) fn add_settings(variables: &mut Vec<(OsString, OsString)>, grants: &Grants) {
    let old_pnpm = uses_pnpm(&grants.workspace).then_some(&OLD_PNPM);
    for (name, directory) in TOOL_DIRECTORIES.iter().chain(old_pnpm) {
        let path = grants.home.join(directory);
        let is_set = variables.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !is_set && grants.verdict(&path, Access::Write) == Verdict::Allowed {
            variables.push(((*name).into(), path.as_path().into()));
        }
    }
}

/// True for an environment variable that depends on the project's files. A session does not restart
/// because a command creates such a file.
pub(crate) fn depends_on_project(name: &OsString) -> bool {
    name == OLD_PNPM.0
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
