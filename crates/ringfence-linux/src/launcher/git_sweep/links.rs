//! Links, pipes and sockets in a git directory that a command created. Git creates none there, and
//! follows each: it would write messages and logs, or remove packs, wherever they lead.

use ringfence_policy::AbsPath;
use rustix::fs::FileType;

use super::GitSweep;
use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, WalkControl, identity};

impl GitSweep<'_> {
    /// Moves away entries below a git directory that are neither file nor directory.
    pub(super) fn sweep_links(&mut self, git: &HeldDir, path: &AbsPath) {
        let seen = held_dir::open_held(git, DirAccess::Look).and_then(|top| {
            held_dir::walk(top, CrossMounts::Cross, |directory, relative| {
                // Once, even if several git directories contain it.
                if !identity(directory).is_some_and(|identity| self.cleared.insert(identity)) {
                    return Ok(WalkControl::Past);
                }
                for (name, kind) in held_dir::entries(directory)? {
                    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
                        self.quarantine_entry(
                            directory,
                            &name,
                            &path.join(relative).join(&name),
                            "redirects git to another file",
                        );
                    }
                }
                Ok(WalkControl::Below)
            })
        });
        if seen.is_err() {
            self.report_unchecked(path);
        }
    }
}
