//! Upstreams of branches: the targets of `git push` and `git pull`.

use super::GitConfigEntry;
use super::change::{Change, has_remote, values};

/// Settings of the remote and branch that a branch is pulled from and pushed to.
pub(super) const UPSTREAM: &[&str] = &["branch.*.remote", "branch.*.pushremote", "branch.*.merge"];

impl Change<'_> {
    /// True if the values that a setting of [`UPSTREAM`] has now redirect no branch of the user.
    pub(super) fn keeps_upstream(&self, entry: &GitConfigEntry) -> bool {
        let name = entry.subsection.as_deref().unwrap_or_default();
        let (after, user) = (values(self.after, entry), values(self.user, entry));
        let is_gone = !self.after.iter().any(|other| other.is_in("branch", name));
        let is_of_user = self.user.iter().any(|other| {
            other.is_in("branch", name) && UPSTREAM.contains(&other.pattern().as_str())
        });
        if is_gone || (is_of_user && !user.is_empty() && after == user) {
            return true;
        }
        match entry.key.as_str() {
            // One value only: git pulls from all of them.
            "merge" => {
                (!is_of_user || after.len() == 1)
                    && after.iter().all(|value| value.is_some_and(super::change::is_ref))
            }
            "remote" if !user.is_empty() => false,
            "pushremote" if !user.is_empty() => false,
            "remote" if is_of_user => after.iter().all(|value| {
                value.is_some_and(|value| value == "." || has_remote(self.user, value))
            }),
            _ if !is_of_user && self.is_copy(name) => true,
            "remote" => after.iter().all(|value| {
                value.is_some_and(|value| value == "." || has_remote(self.after, value))
            }),
            _ => {
                let own = GitConfigEntry { key: "remote".into(), ..entry.clone() };
                let remotes = values(self.after, &own);
                after.iter().all(|value| value.is_some() && remotes.last() == Some(value))
            }
        }
    }

    /// True if a new branch has all settings of another, as `git branch -m` and `-c` write them.
    fn is_copy(&self, name: &str) -> bool {
        let settings_of =
            |entries: &[GitConfigEntry], name: &str| -> Vec<(String, Option<String>)> {
                entries
                    .iter()
                    .filter(|entry| entry.is_in("branch", name))
                    .map(|entry| (entry.key.clone(), entry.value.clone()))
                    .collect()
            };
        let own = settings_of(self.after, name);
        let others = self
            .before
            .iter()
            .filter(|entry| entry.section == "branch")
            .filter_map(|entry| entry.subsection.as_deref());
        settings_of(self.before, name).is_empty()
            && others.into_iter().any(|other| settings_of(self.before, other) == own)
    }

    /// True if a branch of the config, or a default, names this remote although it does not exist.
    pub(super) fn is_awaited(&self, remote: &str) -> bool {
        let names = |entry: &&GitConfigEntry| {
            let is_upstream = matches!(
                entry.pattern().as_str(),
                "branch.*.remote" | "branch.*.pushremote" | "remote.pushdefault"
            );
            is_upstream && entry.value.as_deref() == Some(remote)
        };
        self.before.iter().chain(self.user).any(|entry| names(&entry))
    }
}
