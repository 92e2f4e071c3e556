//! Removes a file, a link itself, or an empty directory.

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
    /// Removes a name. A link is not followed, and a directory must be empty. Needs write access.
    pub fn remove(&self, path: &Path) -> Result<AbsPath, ToolError> {
        self.begin_call(Tool::Write)?.run_attempts(|call| attempt(call, path))
    }
}

impl FileTools {
    /// Removes a name, and everything below it if it is a directory. Links are not followed. Each
    /// entry is decided as in [`FileTools::remove`]: the first denial ends it, and what was removed
    /// before stays removed.
    pub fn remove_all(&self, path: &Path) -> Result<AbsPath, ToolError> {
        // Gives up on a directory that another process keeps filling.
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
            // The entries of a directory follow it.
            for entry in listing.entries.iter().rev() {
                match self.remove(&path.join(&entry.path)) {
                    Ok(_) => removed += 1,
                    Err(ToolError::NotFound { .. }) => {}
                    // It holds more entries than listed, or invisible ones.
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

fn attempt(call: &mut ToolCall<'_>, path: &Path) -> Result<AbsPath, ToolError> {
    let wrong = || ToolError::Input { what: format!("{} cannot be removed", path.display()) };
    let name = path.file_name().ok_or_else(wrong)?;
    let (snapshot, above) =
        call.find_existing(path.parent().unwrap_or(Path::new("")), Operation::Write)?;
    let gone = || ToolError::NotFound { path: above.path.join(name) };
    let fd =
        above.target.as_ref().filter(|node| node.kind() == FileType::Directory).ok_or_else(gone)?;
    let directory = call.without_capabilities(&snapshot, || {
        fd.open(OFlags::RDONLY | OFlags::DIRECTORY, &above.path)
    })?;
    let place = OpenedPath::within(directory.as_fd(), &above.path, name)?.ok_or_else(gone)?;
    if place.path == call.tools.cwd {
        return Err(wrong());
    }
    let decision = call.judge(&snapshot, &place, Operation::Write)?;
    call.record(Operation::Write, decision)?;
    let is_directory = place.target.as_ref().is_some_and(|node| node.kind() == FileType::Directory);
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    call.without_capabilities(&snapshot, || {
        // A file that took its place since has the same type or stays; the directory is the checked
        // one.
        if !place.is_directory_unmoved()? {
            return Err(ToolError::Unsettled { path: place.path.clone() });
        }
        rustix::fs::unlinkat(&place.directory, &place.name, flags).during("remove", &place.path)
    })?;
    Ok(place.path)
}
