//! Files of a session's commands that the user changes between commands.

use crate::launcher::system_step::SystemStep;
use crate::locks::lock;
use ringfence_plan::{FileKind, Overmount};
use ringfence_policy::{AbsPath, Access, Grants, Verdict};
use ringfence_provider::ProviderError;

use super::LivePolicy;

impl LivePolicy {
    /// Masks those of `files` that a built-in pattern denies: the user has changed them, and they
    /// may hold a secret now.
    pub(crate) fn mask_changed(&self, mut files: Vec<AbsPath>) -> Result<(), ProviderError> {
        self.read(|grants| files.retain(|path| is_denied_untracked(grants, path)));
        if files.is_empty() {
            return Ok(());
        }
        let _turn = lock(&self.turn);
        let fds = self.fds().ok_or(ProviderError::Gone { what: "sandbox" })?;
        let masks = self.mask_nodes(
            files.into_iter().map(|path| (path, Overmount::Deny(FileKind::File))).collect(),
        );
        let masked = self.with_own_pid(|begun| fds.mask_paths(masks, begun));
        masked.map(drop).map_err(std::io::Error::other).during("mask a file that you changed")
    }
}

/// True if a path is denied, or open only for contents that git tracks there.
fn is_denied_untracked(grants: &Grants, path: &AbsPath) -> bool {
    let is_lifted =
        || grants.pattern_overridden_by_git(path).is_some() && !grants.tracked.is_source(path);
    grants.verdict(path, Access::Read) == Verdict::Denied || is_lifted()
}
