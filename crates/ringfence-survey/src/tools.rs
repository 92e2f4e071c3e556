//! Credentials in the directories of tools.
//!
//! Patterns do not apply there, and the survey does not walk them: they contain hundreds of
//! thousands of public files. Credentials are directly below such a directory, or in a few known
//! files.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;

use ringfence_plan::{HardLinks, Overmount};
use ringfence_policy::{
    AbsPath, Effect, Origin, Rule, Source, Verdict, holds_secret, is_backup_name, is_cargo_config,
};

use super::build::{SurveyBuilder, note_linked};
use super::{kind_of, read_small_bytes};

impl SurveyBuilder<'_> {
    /// Denies probable secrets directly below the directory of a tool, and known files that contain
    /// a secret.
    pub(crate) fn deny_tool_secrets(&mut self, linked: &mut HardLinks) {
        let grants = self.grants;
        let is_tool = |rule: &&Rule| {
            let is_shown =
                matches!(rule.effect, Effect::Read | Effect::Private { host_beneath: true, .. });
            is_shown && matches!(rule.origin.source, Source::Preset(_)) && !rule.patterns_apply()
        };
        for rule in grants.rules.iter().filter(is_tool) {
            let Some(real) = self.found.found.get(&rule.root).map(|found| found.real.clone())
            else {
                continue;
            };
            for entry in fs::read_dir(real.as_path()).into_iter().flatten().flatten() {
                let path = rule.root.join(entry.file_name());
                if let Some(pattern) = grants.denied_name_in(&rule.root, &path) {
                    self.deny_found(
                        &path,
                        &real.join(entry.file_name()),
                        pattern.origin.clone(),
                        linked,
                    );
                }
            }
        }
        let mut listed = DirectoryNames::default();
        for suspect in grants.suspects.iter().flat_map(expand_wildcards) {
            let (Some(directory), Some(name)) = (suspect.parent(), suspect.name()) else {
                continue;
            };
            let names = listed.get(directory);
            let itself = names.may_have(name).then(|| suspect.clone());
            let within = itself.iter().flat_map(|directory| fs::read_dir(directory.as_path()));
            let within: Vec<AbsPath> =
                within.flatten().flatten().map(|entry| suspect.join(entry.file_name())).collect();
            let found = within.into_iter().chain(itself).filter(is_secret_file);
            for path in found.chain(secret_backups(&suspect, names.known())) {
                let reason = Some("it may contain credentials".to_owned());
                let origin = Origin { reason, ..Origin::new(Source::BuiltIn, path.to_string()) };
                let real = fs::canonicalize(path.as_path())
                    .ok()
                    .and_then(AbsPath::new)
                    .unwrap_or_else(|| path.clone());
                self.deny_found(&path, &real, origin, linked);
            }
        }
    }

    /// Denies `path`, resolved to `real`, unless the user granted it by name.
    fn deny_found(
        &mut self,
        path: &AbsPath,
        real: &AbsPath,
        origin: Origin,
        linked: &mut HardLinks,
    ) {
        let is_named = self
            .grants
            .opening_rule(path)
            .is_some_and(|rule| rule.root == *path && rule.origin.source.is_user_choice());
        let is_open = self.grants.verdict(path, ringfence_policy::Access::Read) == Verdict::Allowed;
        let Some(metadata) =
            fs::symlink_metadata(real.as_path()).ok().filter(|_| is_open && !is_named)
        else {
            return;
        };
        let kind = kind_of(metadata.file_type());
        note_linked(real, linked);
        self.found.masks.insert(real.clone(), Overmount::Deny(kind));
        let mut deny = |root: &AbsPath| {
            self.found.rules.push(Rule {
                root: root.clone(),
                effect: Effect::Deny,
                origin: origin.clone(),
                locked: false,
            })
        };
        deny(path);
        if real != path {
            deny(real);
        }
    }
}

/// The names in directories, each read once: most suspects share a directory, and most are absent.
#[derive(Default)]
struct DirectoryNames(BTreeMap<AbsPath, ListedNames>);

/// The names in one directory.
enum ListedNames {
    /// The directory does not exist.
    Absent,
    Found(Vec<OsString>),
    /// Files in it may be readable by name.
    Unlistable,
}

impl DirectoryNames {
    fn get(&mut self, directory: AbsPath) -> &ListedNames {
        self.0.entry(directory).or_insert_with_key(|directory| {
            let entries = fs::read_dir(directory.as_path());
            let names = entries.and_then(|entries| {
                entries.map(|entry| entry.map(|entry| entry.file_name())).collect()
            });
            match names {
                Ok(names) => ListedNames::Found(names),
                Err(error) if error.kind() == io::ErrorKind::NotFound => ListedNames::Absent,
                Err(_) => ListedNames::Unlistable,
            }
        })
    }
}

impl ListedNames {
    /// False if no file of this name exists. A directory may ignore case.
    fn may_have(&self, name: &OsStr) -> bool {
        match self {
            Self::Absent => false,
            Self::Found(names) => names.iter().any(|found| found.eq_ignore_ascii_case(name)),
            Self::Unlistable => true,
        }
    }

    fn known(&self) -> &[OsString] {
        match self {
            Self::Found(names) => names,
            Self::Absent | Self::Unlistable => &[],
        }
    }
}

/// Paths that match a suspect: a component `*` is any name.
fn expand_wildcards(suspect: &AbsPath) -> Vec<AbsPath> {
    suspect.as_path().iter().skip(1).fold(vec![AbsPath::root()], |found, name| {
        if name != "*" {
            return found.into_iter().map(|path| path.join(name)).collect();
        }
        let below = |path: &AbsPath| {
            fs::read_dir(path.as_path())
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name())
        };
        found
            .iter()
            .flat_map(|path| below(path).map(|name| path.join(name)).collect::<Vec<_>>())
            .collect()
    })
}

/// True if a regular file may contain a secret. One of 1 MiB or more counts: it is not read.
fn is_secret_file(file: &AbsPath) -> bool {
    let is_file = fs::metadata(file.as_path()).is_ok_and(|found| found.is_file());
    let Some(name) = file.name().filter(|_| is_file) else { return false };
    holds_secret(name, read_small_bytes(file).as_deref())
}

/// Editors' copies of a file that may contain a secret.
///
/// A copy of Cargo's configuration always counts: no copy without secrets is made of it.
fn secret_backups(suspect: &AbsPath, names: &[OsString]) -> Vec<AbsPath> {
    let (Some(original), Some(directory)) = (suspect.name(), suspect.parent()) else {
        return Vec::new();
    };
    let is_secret = |path: &AbsPath| {
        let is_file = fs::metadata(path.as_path()).is_ok_and(|found| found.is_file());
        is_file
            && (is_cargo_config(original)
                || holds_secret(original, read_small_bytes(path).as_deref()))
    };
    let is_backup = |path: &AbsPath| {
        path.name().is_some_and(|name| !is_cargo_config(name) && is_backup_name(name, original))
    };
    let paths = names.iter().map(|name| directory.join(name));
    paths.filter(|path| is_backup(path) && is_secret(path)).collect()
}
