//! The host's files, for [`ringfence_policy::propose`].

use std::fs;
use std::path::Path;

use ringfence_policy::AbsPath;
use ringfence_policy::propose::{HostFileKind, HostView};

pub(super) struct HostFiles {
    workspace: AbsPath,
    home: AbsPath,
}

impl HostFiles {
    pub(super) fn new(workspace: &AbsPath, home: &AbsPath) -> Self {
        Self { workspace: workspace.clone(), home: home.clone() }
    }
}

impl HostView for HostFiles {
    fn file_kind(&self, path: &AbsPath) -> HostFileKind {
        match fs::metadata(path.as_path()) {
            Ok(found) if found.is_dir() => HostFileKind::Directory,
            Ok(found) if found.is_file() => HostFileKind::File,
            Ok(_) => HostFileKind::Other,
            Err(_) => HostFileKind::Nothing,
        }
    }

    fn resolve_links(&self, path: &AbsPath) -> AbsPath {
        let found = path.ancestors().find_map(|above| {
            let real = AbsPath::new(fs::canonicalize(above.as_path()).ok()?)?;
            Some(real.join(path.relative_to(&above)?))
        });
        found.unwrap_or_else(|| path.clone())
    }

    /// A repository of the home directory itself, as some users keep for settings, is not a
    /// project.
    fn project_around(&self, path: &AbsPath) -> Option<AbsPath> {
        path.ancestors().find(|above| {
            *above != self.workspace && !self.home.is_within(above) && is_project(above.as_path())
        })
    }

    /// Breadth first, with limits on depth and number of entries to bound the time.
    fn project_below(&self, directory: &AbsPath) -> Option<AbsPath> {
        const MAX_DEPTH: usize = 4;
        const MAX_ENTRIES: usize = 20_000;
        let mut level = vec![directory.clone()];
        let mut seen = 0;
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for directory in &level {
                for entry in fs::read_dir(directory.as_path()).into_iter().flatten().flatten() {
                    seen += 1;
                    if seen > MAX_ENTRIES {
                        return None;
                    }
                    if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                        continue;
                    }
                    let below = directory.join(entry.file_name());
                    if is_project(below.as_path()) {
                        return Some(below);
                    }
                    next.push(below);
                }
            }
            level = next;
        }
        None
    }
}

fn is_project(directory: &Path) -> bool {
    [".git", ".hg", ".svn", ".jj", ".ringfence"]
        .iter()
        .any(|name| directory.join(name).symlink_metadata().is_ok())
}
