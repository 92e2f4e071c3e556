//! Changes of protected git configs that a command makes.

use crate::apply::ConfigChange;
use ringfence_policy::AbsPath;

use super::SandboxMonitor;
use crate::launcher::git_config;

impl SandboxMonitor {
    /// Replaces a protected git config, if no setting changes that git would run or read.
    pub(super) fn replace_config(&mut self, change: ConfigChange) {
        let mask =
            |path: &AbsPath| self.policy.iter().for_each(|policy| policy.mask_read_only(path));
        match git_config::replace(&change, &mut self.configs, mask) {
            // The program may have died meanwhile.
            Ok(()) => drop(change.succeed()),
            Err(refusal) => {
                let mut denial = change.denial().clone();
                denial.rule += &refusal.to_string();
                self.note_denial(denial);
            }
        }
    }
}
