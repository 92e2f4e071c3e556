//! Links, pipes and sockets in a git directory that a command made. Git makes none there, and
//! follows each: it would write its messages and logs, or remove its packs, wherever they lead.

use ringfence_policy::AbsPath;
use rustix::fs::FileType;

use super::GitSweep;
use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, WalkControl, identity};

impl GitSweep<'_> {
    /// Moves away whatever below a git directory is neither a file nor a directory.
    pub(super) fn links(&mut self, git: &HeldDir, path: &AbsPath) {
        let seen = held_dir::hold(git, DirAccess::Look).and_then(|top| {
            held_dir::walk(top, CrossMounts::Cross, |directory, way| {
                // Once, however many git directories there are around it.
                if !identity(directory).is_some_and(|identity| self.cleared.insert(identity)) {
                    return Ok(WalkControl::Past);
                }
                for (name, kind) in held_dir::entries(directory)? {
                    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
                        self.move_away(
                            directory,
                            &name,
                            &path.join(way).join(&name),
                            "leads git somewhere else",
                        );
                    }
                }
                Ok(WalkControl::Below)
            })
        });
        if seen.is_err() {
            self.not_looked_through(path);
        }
    }
}
