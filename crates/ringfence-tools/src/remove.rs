//! Removing a name: a file, a link itself, or a directory in which nothing is.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;

use ringfence_api::Operation;
use ringfence_policy::{AbsPath, Tool};
use rustix::fs::{AtFlags, FileType, OFlags};

use crate::error::{ToolError, ToolStep};
use crate::list::ListParams;
use crate::opened_path::OpenedPath;
use crate::{FileTools, ToolCall};

impl FileTools {
    /// Removes a name. A link is removed and not followed; a directory has to be empty. It is what
    /// whoever may write does, and is decided as that.
    pub fn remove(&self, path: &Path) -> Result<AbsPath, ToolError> {
        self.errand(Tool::Write)?.carry_out(|errand| attempt(errand, path))
    }
}

impl FileTools {
    /// Removes a name, and everything in it where it is a directory. A link is removed and not
    /// followed. Each entry is decided about as [`Tools::remove`] does: the first that is refused
    /// ends it, and what was removed before is gone.
    pub fn remove_all(&self, path: &Path) -> Result<AbsPath, ToolError> {
        // A directory that is filled meanwhile is not waited for.
        const ROUNDS: usize = 100;
        for _ in 0..ROUNDS {
            match self.remove(path) {
                Err(error) if is_not_empty(&error) => {}
                done => return done,
            }
            let listing = self.list(&ListParams {
                depth: Some(128),
                limit: Some(10_000),
                ..ListParams::new(path)
            })?;
            let mut removed = 0;
            // Entries of a directory follow it.
            for entry in listing.entries.iter().rev() {
                match self.remove(&path.join(&entry.path)) {
                    Ok(_) => removed += 1,
                    Err(ToolError::NotFound { .. }) => {}
                    // It holds more than was listed, or entries that are not shown.
                    Err(error) if is_not_empty(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            if removed == 0 {
                break;
            }
        }
        self.remove(path)
    }
}

fn is_not_empty(error: &ToolError) -> bool {
    matches!(error, ToolError::System { source, .. } if source.kind() == ErrorKind::DirectoryNotEmpty)
}

fn attempt(errand: &mut ToolCall<'_>, path: &Path) -> Result<AbsPath, ToolError> {
    let wrong = || ToolError::Input {
        what: format!("{} names nothing that could be removed", path.display()),
    };
    let name = path.file_name().ok_or_else(wrong)?;
    let (ground, above) = errand.found(path.parent().unwrap_or(Path::new("")), Operation::Write)?;
    let gone = || ToolError::NotFound { path: above.path.join(name) };
    let held =
        above.there.as_ref().filter(|node| node.kind() == FileType::Directory).ok_or_else(gone)?;
    let directory =
        errand.plainly(&ground, || held.open(OFlags::RDONLY | OFlags::DIRECTORY, &above.path))?;
    let place = OpenedPath::within(directory.as_fd(), &above.path, name)?.ok_or_else(gone)?;
    if place.path == errand.tools.cwd {
        return Err(wrong());
    }
    let decision = errand.judge(&ground, &place, Operation::Write)?;
    errand.record(Operation::Write, decision)?;
    let is_directory = place.there.as_ref().is_some_and(|node| node.kind() == FileType::Directory);
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    errand.plainly(&ground, || {
        // What took its place since is of the same kind or stays; the directory is the one that
        // was decided about.
        if !place.stands()? {
            return Err(ToolError::Unsettled { path: place.path.clone() });
        }
        rustix::fs::unlinkat(&place.directory, &place.name, flags).during("remove", &place.path)
    })?;
    Ok(place.path)
}
