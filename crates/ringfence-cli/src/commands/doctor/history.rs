//! Denied files of the project that git tracks: a mask hides the file, not what git keeps of it.

use std::fs;
use std::io::Read;

use ringfence_enforce::{Tracked, tracked};
use ringfence_engine::{PolicyFiles, ResolvedPolicy, gather, resolve_in};
use ringfence_policy::{AbsPath, Access, Flags, Verdict};

/// More of an index is not read. That of the Linux kernel has 9 MB.
const LONGEST: u64 = 1 << 26;

/// Tracked files of the project around `cwd` that no command may read; `None` where there is no
/// repository, or no policy to judge by.
pub(super) fn tracked_secrets(cwd: &AbsPath) -> Option<Vec<String>> {
    let ResolvedPolicy { grants, surroundings, .. } =
        resolve_in(gather(cwd).ok()?, &Flags::none(cwd.clone()), &PolicyFiles::default()).ok()?;
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
        tracked(&bytes)
            .iter()
            .filter(is_denied)
            .map(|entry| entry.path.to_string_lossy().into_owned())
            .collect(),
    )
}
