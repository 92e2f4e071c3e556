//! Files of a session's commands that the user changes while no command runs.

use std::sync::PoisonError;

use ringfence_enforce::{FileKind, Overmount};
use ringfence_policy::{AbsPath, Access, Grants, Verdict};
use ringfence_provider::ProviderError;

use super::LivePolicy;

impl LivePolicy {
    /// Masks those of `files` that a built-in pattern denies: the user has changed them, and they
    /// may hold a secret by now.
    pub(crate) fn mask_changed(&self, mut files: Vec<AbsPath>) -> Result<(), ProviderError> {
        self.read(|grants| files.retain(|path| is_denied_untracked(grants, path)));
        if files.is_empty() {
            return Ok(());
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = self.inside().ok_or(ProviderError::Gone { what: "sandbox" })?;
        let covers = self
            .nodes(files.into_iter().map(|path| (path, Overmount::Deny(FileKind::File))).collect());
        let masked = self.as_own(|begun| inside.shut(covers, begun));
        let failed = |error| ProviderError::System {
            what: "mask a file that you changed",
            source: std::io::Error::other(error),
        };
        masked.map(drop).map_err(failed)
    }
}

/// Tells whether a path is denied, or open only for what git tracks there.
fn is_denied_untracked(grants: &Grants, path: &AbsPath) -> bool {
    let is_lifted =
        || grants.pattern_lifted_by_git(path).is_some() && !grants.tracked.is_source(path);
    grants.verdict(path, Access::Read) == Verdict::Denied || is_lifted()
}
