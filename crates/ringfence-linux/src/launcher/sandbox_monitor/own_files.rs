//! Contents of files with a denied name that the commands of a session made or wrote.

use std::collections::HashMap;

use crate::apply::FileIdentity;
use ringfence_policy::AbsPath;
use ringfence_survey::digest_unchanged;
use rustix::fs::CWD;

use super::SandboxMonitor;

impl SandboxMonitor {
    /// Notes a file with a denied name that a command made or wrote.
    pub(super) fn note_own_file(&mut self, path: AbsPath, birth: FileIdentity) {
        // The event may come a moment after the command has ended.
        if let Some(left) = &mut self.left_contents {
            left.extend(digest_unchanged(&HashMap::from([(path.clone(), birth)])));
        }
        self.own_files.insert(path, birth);
    }

    /// Records the contents that a command of a session leaves in its own files.
    pub(crate) fn record_contents(&mut self) {
        self.left_contents = Some(digest_unchanged(&self.own_files));
    }

    /// Disowns the files that the user changed since the last command ended: their contents are not
    /// remembered for later runs. Returns those that still exist.
    pub(crate) fn disown_changed(&mut self) -> Vec<AbsPath> {
        let Some(left) = self.left_contents.take() else { return Vec::new() };
        let now = digest_unchanged(&self.own_files);
        // Directories, and files that are too large, have no digest.
        let is_changed = |path: &AbsPath| now.get(path) != left.get(path);
        let is_there = |(path, birth): &(&AbsPath, &FileIdentity)| {
            is_changed(path) && FileIdentity::from_entry(CWD, path.as_path()) == Some(**birth)
        };
        let changed =
            self.own_files.iter().filter(is_there).map(|(path, _)| path.clone()).collect();
        self.own_files.retain(|path, _| !is_changed(path));
        changed
    }
}
