//! Settings of agents and editors that a command created outside of the protected directories. Most
//! are harmless, and templates and clones ship them; those that start programs without a question
//! are moved away.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::apply::{FileIdentity, NameKind};
use crate::open::open_at;
use ringfence_policy::AbsPath;
use ringfence_policy::builtin::{self, PlantedFile, SettingsContent};
use rustix::fs::{FileType, OFlags};

use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, kind};
use super::{FoundGitDir, GitSweep, NameOrigin, PathTrust, SweepDir, identity};

const REDIRECTS: &str = "redirects an agent or editor to settings elsewhere";

/// A file to look for below an entry of a directory.
struct SettingFile<'a> {
    /// Name of the entry, and the path from there.
    relative: PathBuf,
    planted: &'a PlantedFile,
}

impl GitSweep<'_> {
    /// Checks the new settings in a directory, and lists those that stay: a later or concurrent run
    /// may write to them.
    pub(super) fn sweep_settings(&mut self, found_dir: &SweepDir) {
        if self.baseline.is_vendored(&found_dir.path) {
            return;
        }
        for (name, _) in held_dir::entries(&found_dir.directory).unwrap_or_default() {
            let path = found_dir.path.join(&name);
            for setting_file in setting_file(&path, &name) {
                self.planted_file(found_dir, &setting_file);
            }
            if builtin::pointer_at(names(&path)).is_some() {
                self.pointer(found_dir, &name, &path);
            }
            if builtin::setting_at(names(&path)).is_some() {
                self.list_setting(found_dir, &name, path);
            }
        }
    }

    /// True if an entry may have been created or changed since the command began.
    fn has_changed(&self, directory: &HeldDir, name: &Path) -> bool {
        let entry = open_at(directory, name, OFlags::PATH | OFlags::NOFOLLOW);
        entry.map_or(true, |entry| self.baseline.begun.may_precede_change_of(entry))
    }

    /// True if the command could not change the file at a path, or was allowed to by name.
    fn is_of_user(&self, path: &AbsPath) -> bool {
        self.baseline.masked.contains(path) || self.roots.iter().any(|root| root == path)
    }

    /// Moves a file of a setting away, if it exists and starts programs. A link on the way could
    /// get any target later, so the link is moved instead.
    fn planted_file(&mut self, found_dir: &SweepDir, setting_file: &SettingFile<'_>) {
        let Ok(mut directory) = held_dir::open_held(&found_dir.directory, DirAccess::Look) else {
            return;
        };
        let mut path = found_dir.path.clone();
        // Files that were moved with a directory have old change times.
        let mut is_new = found_dir.origin == NameOrigin::Whole;
        let mut names = setting_file.relative.iter().map(Path::new).peekable();
        while let Some(name) = names.next() {
            path = path.join(name);
            if self.is_of_user(&path) {
                return;
            }
            is_new |= self.has_changed(&directory, name);
            match (names.peek(), kind(&directory, name)) {
                (None, Some(_))
                    if is_new && starts_programs(&directory, name, setting_file.planted) =>
                {
                    let reason = "an agent or editor started there would run the programs it names";
                    return self.quarantine_entry(&directory, name, &path, reason);
                }
                (Some(_), Some(FileType::Symlink)) if is_new => {
                    return self.quarantine_entry(&directory, name, &path, REDIRECTS);
                }
                (Some(_), Some(FileType::Directory)) => {}
                _ => return,
            }
            let Ok(inner) = held_dir::enter(&directory, name, DirAccess::Look, CrossMounts::Cross)
            else {
                return;
            };
            directory = inner;
        }
    }

    /// Moves a file away that points a program to settings elsewhere, unless the sweep checks the
    /// target: a workspace points to the repository that it belongs to.
    fn pointer(&mut self, found_dir: &SweepDir, name: &OsStr, path: &AbsPath) {
        let is_new = found_dir.origin == NameOrigin::Whole
            || self.has_changed(&found_dir.directory, Path::new(name));
        if !is_new
            || self.is_of_user(path)
            || matches!(kind(&found_dir.directory, name), None | Some(FileType::Directory))
        {
            return;
        }
        let target = held_dir::read(&found_dir.directory, name).ok().and_then(|text| {
            let text = Path::new(OsStr::from_bytes(text.trim_ascii())).to_owned();
            let has_name = !text.as_os_str().is_empty();
            has_name.then(|| resolve_by_name(&found_dir.path, &text)).flatten()
        });
        let is_checked = |target: &AbsPath| {
            let is_named = builtin::pointer_at(names(target)).is_some()
                && self.roots.root_of(target).is_some();
            // Opened without following links.
            is_named && !self.baseline.is_vendored(target) && self.roots.open(target).is_some()
        };
        if !target.as_ref().is_some_and(is_checked) {
            self.quarantine_entry(&found_dir.directory, name, path, REDIRECTS);
        }
    }

    /// Lists a setting that a command created. One of the user's may have been moved here with a
    /// directory.
    fn list_setting(&mut self, found_dir: &SweepDir, name: &OsStr, path: AbsPath) {
        if found_dir.trust == PathTrust::OnHost
            && !self.is_of_user(&path)
            && FileIdentity::from_entry(&found_dir.directory, name)
                .is_some_and(|birth| self.baseline.is_of_command(birth))
            && let Some(identity) = identity(&found_dir.directory)
        {
            self.swept.spotted.push(FoundGitDir {
                path,
                identity,
                what: NameKind::Setting,
                since: self.baseline.begun,
            });
        }
    }

    /// Moves the settings of Sapling out of a git directory, in which it keeps its own.
    pub(super) fn sweep_sapling(&mut self, git: &HeldDir, path: &AbsPath) {
        let at = path.join("sl");
        match kind(git, "sl") {
            None => return,
            Some(FileType::Directory) => {}
            Some(_) => {
                return self.quarantine_entry(
                    git,
                    "sl",
                    &at,
                    "redirects Sapling to another directory",
                );
            }
        }
        let Ok(sapling) = held_dir::enter(git, "sl", DirAccess::Look, CrossMounts::Cross) else {
            return self.quarantine_entry(git, "sl", &at, "cannot be read");
        };
        for name in ["config", "sharedpath"] {
            if kind(&sapling, name).is_some() {
                self.quarantine_entry(
                    &sapling,
                    name,
                    &at.join(name),
                    "Sapling would run the programs it names",
                );
            }
        }
    }
}

fn names(path: &AbsPath) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    path.as_path().iter().map(OsStr::as_bytes)
}

/// Files that start programs and may be at or below `path`, an entry called `name`.
fn setting_file(path: &AbsPath, name: &OsStr) -> Vec<SettingFile<'static>> {
    let whole = builtin::setting_at(names(path));
    let found = whole.into_iter().chain(builtin::settings_below(names(path)));
    let files = |(setting, count): (&'static builtin::Setting, usize)| {
        let rest: PathBuf = setting.names().skip(count).collect();
        let below = move |planted: &PlantedFile| {
            [Path::new(name), &rest, Path::new(planted.file)]
                .iter()
                .flat_map(|relative| relative.iter())
                .collect()
        };
        setting
            .planted
            .iter()
            .map(|planted| SettingFile { relative: below(planted), planted })
            .collect::<Vec<_>>()
    };
    found.flat_map(files).collect()
}

/// Resolves a path written in a file of `directory`, by its names alone.
fn resolve_by_name(directory: &AbsPath, written: &Path) -> Option<AbsPath> {
    let mut path = directory.clone();
    for component in written.components() {
        path = match component {
            Component::RootDir => AbsPath::root(),
            Component::ParentDir => path.parent()?,
            Component::Normal(name) => path.join(name),
            Component::CurDir | Component::Prefix(_) => path,
        };
    }
    Some(path)
}

/// True if an existing file has content that starts programs, or cannot be read.
fn starts_programs(directory: &HeldDir, name: &Path, planted: &PlantedFile) -> bool {
    let is_file = kind(directory, name) == Some(FileType::RegularFile);
    let text = || held_dir::read(directory, name);
    match planted.content {
        SettingsContent::Word(words) if is_file => {
            text().map_or(true, |text| holds_word(&text, words))
        }
        SettingsContent::SectionBeside(sections) if is_file => {
            text().map_or(true, |text| has_other_section(&text, sections))
        }
        SettingsContent::Any | SettingsContent::Word(_) | SettingsContent::SectionBeside(_) => true,
    }
}

/// True if a JSON text holds one of the words, also with escapes, or is in another encoding.
fn holds_word(text: &[u8], words: &[&str]) -> bool {
    let Some(text) = std::str::from_utf8(text).ok().filter(|text| !text.contains('\0')) else {
        return true;
    };
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\u") {
        plain.push_str(&rest[..at]);
        let code = rest.get(at + 2..at + 6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        plain.extend(code.and_then(char::from_u32));
        rest = &rest[at + if code.is_some() { 6 } else { 2 }..];
    }
    plain.push_str(rest);
    let plain = plain.to_ascii_lowercase();
    words.iter().any(|word| plain.contains(&word.to_ascii_lowercase()))
}

/// True if a config has a section other than these, or a directive.
fn has_other_section(text: &[u8], sections: &[&str]) -> bool {
    let Some(text) = std::str::from_utf8(text).ok().filter(|text| !text.contains('\0')) else {
        return true;
    };
    let is_other = |line: &str| {
        let line = line.trim_start_matches('\u{feff}').trim();
        let section = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        let is_known = section.is_some_and(|section| sections.contains(&section));
        line.starts_with('%') || (line.starts_with('[') && !is_known)
    };
    text.split(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']).any(is_other)
}

/// True if a directory has a name of one of these settings. Full paths are checked later: a tree
/// may be thousands of directories deep.
pub(super) fn may_have_settings(directory: &HeldDir) -> bool {
    let planted = || {
        builtin::SETTINGS
            .iter()
            .chain(builtin::POINTERS)
            .filter(|setting| !setting.planted.is_empty())
    };
    let is_name = |name: &OsStr| {
        planted().flat_map(|setting| setting.names()).any(|known| name.eq_ignore_ascii_case(known))
    };
    held_dir::entries(directory).unwrap_or_default().iter().any(|(name, _)| is_name(name))
}

#[cfg(test)]
mod tests {
    use super::{has_other_section, holds_word};

    #[test]
    fn words_are_found_in_any_spelling() {
        for text in [
            r#""folderOpen""#,
            r#""FOLDEROPEN""#,
            r#""folder\u004fpen""#,
            r#""\u0066\u006F\u006cderOpen""#,
            "\0",
            "\u{e9}\u{0}",
        ] {
            assert!(holds_word(text.as_bytes(), &["folderOpen"]), "{text}");
        }
        assert!(holds_word(b"\xff\xfe", &["folderOpen"]));
        for text in
            ["", r#""folder""#, r#""\u""#, r#""\u00""#, r#""\u00e9""#, r#""folder\u0020Open""#]
        {
            assert!(!holds_word(text.as_bytes(), &["folderOpen"]), "{text}");
        }
    }

    #[test]
    fn only_known_sections_are_harmless() {
        for text in ["", "[paths]\ndefault = x\n", "# [hooks]\n[paths]\r\na=b", "; x\n"] {
            assert!(!has_other_section(text.as_bytes(), &["paths"]), "{text}");
        }
        for text in [
            "[hooks]",
            "[paths]\n[pager]\n",
            "%include x",
            "[paths]\r[ui]",
            "\u{feff}[ui]",
            "[paths] \n [ui]",
            "[ui",
            "\0",
        ] {
            assert!(has_other_section(text.as_bytes(), &["paths"]), "{text}");
        }
    }
}
