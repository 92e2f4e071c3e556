//! The host, as far as a proposal has to know it.

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
    fn thing(&self, path: &AbsPath) -> HostFileKind {
        match fs::metadata(path.as_path()) {
            Ok(found) if found.is_dir() => HostFileKind::Directory,
            Ok(found) if found.is_file() => HostFileKind::File,
            Ok(_) => HostFileKind::Other,
            Err(_) => HostFileKind::Nothing,
        }
    }

    fn real(&self, path: &AbsPath) -> AbsPath {
        let found = path.ancestors().find_map(|above| {
            let real = AbsPath::new(fs::canonicalize(above.as_path()).ok()?)?;
            Some(real.join(path.relative_to(&above)?))
        });
        found.unwrap_or_else(|| path.clone())
    }

    /// A repository of the home directory itself, as some keep their settings in, is no project.
    fn project_around(&self, path: &AbsPath) -> Option<AbsPath> {
        path.ancestors().find(|above| {
            *above != self.workspace && !self.home.is_within(above) && is_project(above.as_path())
        })
    }

    /// Breadth first, and so far as a person keeps projects: nobody wants to wait for more.
    fn project_below(&self, directory: &AbsPath) -> Option<AbsPath> {
        const DEEP: usize = 4;
        const MANY: usize = 20_000;
        let mut level = vec![directory.clone()];
        let mut seen = 0;
        for _ in 0..DEEP {
            let mut next = Vec::new();
            for directory in &level {
                for entry in fs::read_dir(directory.as_path()).into_iter().flatten().flatten() {
                    seen += 1;
                    if seen > MANY {
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
