//! Denied project files that git tracks: a mask hides the file, not its copy in git's store.

use std::fs;
use std::io::Read;

use ringfence_engine::{PolicyFiles, ResolvedPolicy, gather_host_environment, resolve_in};
use ringfence_plan::{Tracked, parse_entries};
use ringfence_policy::{AbsPath, Access, Flags, Verdict};

/// The maximum number of index bytes read. The Linux kernel's index has 9 MB.
const LONGEST: u64 = 1 << 26;

/// Returns tracked files of the project around `cwd` that commands cannot read; `None` without a
/// repository or a valid policy.
pub(super) fn tracked_secrets(cwd: &AbsPath) -> Option<Vec<String>> {
    let ResolvedPolicy { grants, surroundings, .. } = resolve_in(
        gather_host_environment(cwd).ok()?,
        &Flags::none(cwd.clone()),
        &PolicyFiles::default(),
    )
    .ok()?;
    let workspace = &grants.workspace;
    let git = surroundings
        .facts
        .git
        .as_ref()
        .map_or_else(|| workspace.join(".git"), |layout| layout.git_dir.clone());
    let index = git.join("index");
    if !grants.is_confined() || !fs::symlink_metadata(index.as_path()).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    fs::File::open(index.as_path()).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    let is_denied = |entry: &&Tracked| {
        grants.verdict(&workspace.join(&entry.path), Access::Read) == Verdict::Denied
    };
    Some(
        parse_entries(&bytes)
            .iter()
            .filter(is_denied)
            .map(|entry| entry.path.to_string_lossy().into_owned())
            .collect(),
    )
}
