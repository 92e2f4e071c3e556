//! Settings of agents and editors that a command made outside of the directories in which they are
//! protected. Most are harmless, and templates and clones ship them; those that start programs
//! without a question are moved away.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ringfence_enforce::apply::{Birth, GitMarker};
use ringfence_policy::AbsPath;
use ringfence_policy::builtin::{self, Content, PlantedFile};
use rustix::fs::{FileType, Mode, OFlags};

use super::held_dir::{self, CrossMounts, DirAccess, HeldDir, kind};
use super::{Came, FoundGitDir, GitSweep, PathTrust, SweepDir, identity};

const ELSEWHERE: &str = "leads an agent or editor to settings elsewhere";

/// A file to look for below an entry of a directory.
struct Sought<'a> {
    /// Name of the entry, and the way from there.
    way: PathBuf,
    planted: &'a PlantedFile,
}

impl GitSweep<'_> {
    /// Looks through the settings in a directory that were not there before, and lists those that
    /// are left: a later run, and one that goes on, may write to them.
    pub(super) fn settings_in(&mut self, spot: &SweepDir) {
        if self.ground.is_vendored(&spot.path) {
            return;
        }
        for (name, _) in held_dir::entries(&spot.directory).unwrap_or_default() {
            let path = spot.path.join(&name);
            for sought in sought(&path, &name) {
                self.planted_file(spot, &sought);
            }
            if builtin::pointer_at(names(&path)).is_some() {
                self.pointer(spot, &name, &path);
            }
            if builtin::setting_at(names(&path)).is_some() {
                self.list_setting(spot, &name, path);
            }
        }
    }

    /// Whether an entry may have been made or changed since the command began.
    fn has_changed(&self, directory: &HeldDir, name: &Path) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = rustix::fs::openat(directory, name, flags, Mode::empty());
        entry.map_or(true, |entry| self.ground.begun.may_precede_change_of(entry))
    }

    /// Tells whether the command could not change what stands at a path, or was allowed to by name.
    fn is_of_user(&self, path: &AbsPath) -> bool {
        self.ground.covered.contains(path) || self.roots.iter().any(|root| root == path)
    }

    /// Moves a file of a setting away, if it is there and starts programs. A link on the way could
    /// be given anything later, and goes instead of the file.
    fn planted_file(&mut self, spot: &SweepDir, sought: &Sought<'_>) {
        let Ok(mut directory) = held_dir::hold(&spot.directory, DirAccess::Look) else { return };
        let mut path = spot.path.clone();
        // What came along with a directory need not have changed itself.
        let mut is_new = spot.came == Came::Whole;
        let mut names = sought.way.iter().map(Path::new).peekable();
        while let Some(name) = names.next() {
            path = path.join(name);
            if self.is_of_user(&path) {
                return;
            }
            is_new |= self.has_changed(&directory, name);
            match (names.peek(), kind(&directory, name)) {
                (None, Some(_)) if is_new && starts_programs(&directory, name, sought.planted) => {
                    let reason = "an agent or editor that is started there would run what it names";
                    return self.move_away(&directory, name, &path, reason);
                }
                (Some(_), Some(FileType::Symlink)) if is_new => {
                    return self.move_away(&directory, name, &path, ELSEWHERE);
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

    /// Moves a file away that a program follows to settings elsewhere, unless it leads to where
    /// such settings are looked for: a workspace points to the repository that it belongs to.
    fn pointer(&mut self, spot: &SweepDir, name: &OsStr, path: &AbsPath) {
        let is_new = spot.came == Came::Whole || self.has_changed(&spot.directory, Path::new(name));
        if !is_new
            || self.is_of_user(path)
            || matches!(kind(&spot.directory, name), None | Some(FileType::Directory))
        {
            return;
        }
        let target = held_dir::read(&spot.directory, name).ok().and_then(|text| {
            let text = Path::new(OsStr::from_bytes(text.trim_ascii())).to_owned();
            let has_name = !text.as_os_str().is_empty();
            has_name.then(|| resolved(&spot.path, &text)).flatten()
        });
        let is_looked_at = |target: &AbsPath| {
            let is_named =
                builtin::pointer_at(names(target)).is_some() && self.roots.around(target).is_some();
            // Opened without following a link on the way.
            is_named && !self.ground.is_vendored(target) && self.roots.open(target).is_some()
        };
        if !target.as_ref().is_some_and(is_looked_at) {
            self.move_away(&spot.directory, name, path, ELSEWHERE);
        }
    }

    /// Lists a setting that a command made. One of the user's may have come here with a directory.
    fn list_setting(&mut self, spot: &SweepDir, name: &OsStr, path: AbsPath) {
        if spot.standing == PathTrust::OnHost
            && !self.is_of_user(&path)
            && Birth::of(&spot.directory, name)
                .is_some_and(|birth| self.ground.is_of_command(birth))
            && let Some(identity) = identity(&spot.directory)
        {
            self.swept.spotted.push(FoundGitDir {
                path,
                identity,
                what: GitMarker::Setting,
                since: self.ground.begun,
            });
        }
    }

    /// Moves the settings of Sapling out of a git directory, in which it keeps its own.
    pub(super) fn sapling(&mut self, git: &HeldDir, path: &AbsPath) {
        let at = path.join("sl");
        match kind(git, "sl") {
            None => return,
            Some(FileType::Directory) => {}
            Some(_) => return self.move_away(git, "sl", &at, "leads Sapling somewhere else"),
        }
        let Ok(sapling) = held_dir::enter(git, "sl", DirAccess::Look, CrossMounts::Cross) else {
            return self.move_away(git, "sl", &at, "cannot be looked into");
        };
        for name in ["config", "sharedpath"] {
            if kind(&sapling, name).is_some() {
                self.move_away(&sapling, name, &at.join(name), "Sapling would run what it names");
            }
        }
    }
}

fn names(path: &AbsPath) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    path.as_path().iter().map(OsStr::as_bytes)
}

/// The files that start programs and may lie at or below `path`, an entry called `name`.
fn sought(path: &AbsPath, name: &OsStr) -> Vec<Sought<'static>> {
    let whole = builtin::setting_at(names(path));
    let found = whole.into_iter().chain(builtin::settings_below(names(path)));
    let files = |(setting, count): (&'static builtin::Setting, usize)| {
        let rest: PathBuf = setting.names().skip(count).collect();
        let below = move |planted: &PlantedFile| {
            [Path::new(name), &rest, Path::new(planted.file)]
                .iter()
                .flat_map(|way| way.iter())
                .collect()
        };
        setting
            .planted
            .iter()
            .map(|planted| Sought { way: below(planted), planted })
            .collect::<Vec<_>>()
    };
    found.flat_map(files).collect()
}

/// Where a path that is written in a file of `directory` leads, by its names alone.
fn resolved(directory: &AbsPath, written: &Path) -> Option<AbsPath> {
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

/// Whether a file, which is there, holds what makes it one that starts programs. One that cannot be
/// read may.
fn starts_programs(directory: &HeldDir, name: &Path, planted: &PlantedFile) -> bool {
    let is_file = kind(directory, name) == Some(FileType::RegularFile);
    let text = || held_dir::read(directory, name);
    match planted.content {
        Content::Word(words) if is_file => text().map_or(true, |text| holds_word(&text, words)),
        Content::SectionBeside(sections) if is_file => {
            text().map_or(true, |text| has_other_section(&text, sections))
        }
        Content::Any | Content::Word(_) | Content::SectionBeside(_) => true,
    }
}

/// Tells whether a JSON text holds one of the words, also written with escapes. Text in another
/// encoding may.
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

/// Tells whether a configuration has a section other than these, or a directive.
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

/// Whether a directory has a name of one of these settings. Paths are looked at later: a tree may
/// be thousands of directories deep.
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
