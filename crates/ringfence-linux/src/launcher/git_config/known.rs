//! The user's settings of each config, kept apart from those that commands wrote.
//!
//! A command can change a config step by step, over several runs. Each step is checked against the
//! user's settings, not only against the file that the step before left.

use std::collections::HashMap;
use std::io;

use ringfence_plan::{Plan, Step};
use ringfence_policy::AbsPath;

use super::{GitConfigEntry, parse, to_text};
use crate::launcher::run_registry::RunRegistry;

/// Most configs of a project that are remembered.
const MAX_CONFIGS: usize = 1000;

/// Most settings of the user that are remembered per config.
const MAX_SETTINGS: usize = 20_000;

/// Settings of one config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KnownConfig {
    /// Settings that the user made, also those that a command removed.
    pub(super) user: Vec<GitConfigEntry>,
    /// All settings when a command wrote it last.
    last: Vec<GitConfigEntry>,
}

impl KnownConfig {
    fn first_seen(present: &[GitConfigEntry]) -> Self {
        Self { user: present.to_vec(), last: present.to_vec() }
    }

    /// Adopts the user's changes since a command last wrote it.
    fn update(&mut self, present: &[GitConfigEntry]) {
        let removed: Vec<&GitConfigEntry> =
            self.last.iter().filter(|entry| !present.contains(entry)).collect();
        self.user.retain(|entry| !removed.contains(&entry));
        self.user.extend(present.iter().filter(|entry| !self.last.contains(entry)).cloned());
        self.last = present.to_vec();
    }

    /// Records the settings that a command is about to write. A renamed branch of the user stays
    /// the user's.
    fn note(&mut self, after: &[GitConfigEntry]) {
        let branches = |entries: &[GitConfigEntry], of: &[GitConfigEntry]| -> Vec<GitConfigEntry> {
            let is_there = |entry: &GitConfigEntry| {
                of.iter()
                    .any(|other| other.section == "branch" && other.subsection == entry.subsection)
            };
            entries
                .iter()
                .filter(|entry| entry.section == "branch" && !is_there(entry))
                .cloned()
                .collect()
        };
        let gone = branches(&self.last, after);
        if gone.iter().any(|entry| self.user.contains(entry)) {
            let renamed = branches(after, &self.last)
                .into_iter()
                .filter(|entry| !self.user.contains(entry))
                .collect::<Vec<_>>();
            self.user.extend(renamed);
        }
        self.last = after.to_vec();
    }
}

/// Known settings of all configs that commands of the project changed.
#[derive(Debug, Default)]
pub(crate) struct KnownConfigs {
    configs: HashMap<AbsPath, KnownConfig>,
    /// Path of the project's store. Without one, a run knows nothing of earlier runs.
    quarantine: Option<AbsPath>,
    /// Each `.gitmodules` that was there at the start.
    pub(super) modules: Vec<AbsPath>,
}

impl KnownConfigs {
    /// `quarantine`: path of the project's store, if there is one.
    pub(crate) fn at_start(plan: &Plan, quarantine: Option<AbsPath>) -> Self {
        let modules = plan.steps.iter().filter_map(|step| match step {
            Step::Mask { path, .. } if path.name().is_some_and(|name| name == ".gitmodules") => {
                Some(path.clone())
            }
            _ => None,
        });
        Self { configs: HashMap::new(), quarantine, modules: modules.collect() }
    }

    /// Settings of the config at `path`, which has the settings `present` now.
    pub(super) fn look_up(&mut self, path: &AbsPath, present: &[GitConfigEntry]) -> KnownConfig {
        self.load();
        let known =
            self.configs.entry(path.clone()).or_insert_with(|| KnownConfig::first_seen(present));
        known.update(present);
        known.clone()
    }

    /// The user's settings of a config that is not about to change, if a command changed it before.
    pub(super) fn user_settings(
        &mut self,
        path: &AbsPath,
        present: &[GitConfigEntry],
    ) -> Option<Vec<GitConfigEntry>> {
        let known = self.configs.get_mut(path)?;
        known.update(present);
        Some(known.user.clone())
    }

    /// Records the settings that a command is about to write to `path`.
    pub(super) fn note(&mut self, path: &AbsPath, after: &[GitConfigEntry]) -> io::Result<()> {
        if let Some(known) = self.configs.get_mut(path) {
            known.note(after);
            if known.user.len() > MAX_SETTINGS {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.runs().map_or(Ok(()), |runs| runs.write_configs(&self.to_bytes()))
    }

    /// The project's store, opened anew.
    pub(super) fn runs(&self) -> Option<RunRegistry> {
        self.quarantine.as_ref().and_then(RunRegistry::open)
    }

    /// Reads the records of this run and others.
    fn load(&mut self) {
        let text = self.runs().and_then(|runs| runs.read_configs()).unwrap_or_default();
        let fields: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
        for fields in fields.chunks_exact(3) {
            let path = std::str::from_utf8(fields[0]).ok().and_then(AbsPath::new);
            if let (Some(path), Some(user), Some(last)) = (path, parse(fields[1]), parse(fields[2]))
            {
                self.configs.insert(path, KnownConfig { user, last });
            }
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let is_there =
            |path: &AbsPath| path.parent().is_some_and(|directory| directory.as_path().is_dir());
        let kept = self.configs.iter().filter(|(path, _)| is_there(path)).take(MAX_CONFIGS);
        let fields = kept.filter_map(|(path, known)| {
            Some([path.as_path().to_str()?.to_owned(), to_text(&known.user), to_text(&known.last)])
        });
        fields.flat_map(|fields| fields.join("\0").into_bytes().into_iter().chain([0])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GitConfigEntry, parse, to_text};
    use super::KnownConfig;

    fn read(text: &str) -> Vec<GitConfigEntry> {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn settings_are_read_back() {
        for text in [
            "",
            "[a]\nb\nc = \n",
            "[a \"x \\\"y\\\\\"]\nk = \" a;b#\\n\\t\\\\ \\\"\\b \"\n[a]\nk = x\n",
        ] {
            assert_eq!(read(&to_text(&read(text))), read(text), "{text}");
        }
    }

    #[test]
    fn settings_of_commands_never_become_those_of_the_user() {
        let main = "[branch \"main\"]\nremote = origin\n";
        let mut known = KnownConfig::first_seen(&read(main));
        known.note(&read("[remote \"x\"]\nurl = x\n"));
        known.update(&read("[remote \"x\"]\nurl = x\n[user]\nname = mine\n"));
        assert_eq!(known.user, read(&format!("{main}[user]\nname = mine\n")));
        // The user takes a setting back.
        known.note(&read(&format!("{main}[user]\nname = mine\n")));
        known.update(&read("[user]\nname = mine\n"));
        assert_eq!(known.user, read("[user]\nname = mine\n"));
    }

    #[test]
    fn renamed_branch_stays_the_users() {
        let (main, trunk) =
            ("[branch \"main\"]\nremote = origin\n", "[branch \"trunk\"]\nremote = origin\n");
        let mut known = KnownConfig::first_seen(&read(main));
        known.note(&read(trunk));
        assert_eq!(known.user, read(&format!("{main}{trunk}")));
    }
}
