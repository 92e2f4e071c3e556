//! Changes of protected git configs that a command asks for.

use ringfence_enforce::apply::ConfigChange;
use ringfence_policy::AbsPath;

use super::SandboxMonitor;
use crate::git_config;

impl SandboxMonitor {
    /// Replaces a protected git config, if nothing in it changes that git would run or read.
    pub(super) fn replace_config(&mut self, change: ConfigChange) {
        let cover =
            |path: &AbsPath| self.ground.iter().for_each(|ground| ground.protect_again(path));
        match git_config::replace(&change, &mut self.configs, cover) {
            // A program that died meanwhile needs no answer.
            Ok(()) => drop(change.done()),
            Err(refusal) => {
                let mut denial = change.denial().clone();
                denial.rule += &refusal.to_string();
                self.note_denial(denial);
            }
        }
    }
}
