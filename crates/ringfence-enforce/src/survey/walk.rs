//! The walk through the opened trees: parallel once a tree proves large.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::sync::{Condvar, Mutex};
use std::thread;

use ringfence_policy::builtin::{Setting, pointer_at, setting_at};
use ringfence_policy::{AbsPath, Access, Effect, Grants, NameIndex, Rule, Source, Verdict};

use super::case_folding::CaseFolding;
use super::{HardLinks, is_searchable, is_socket, kind_of};
use crate::plan::{FileKind, Overmount};

/// What a walk found.
#[derive(Default)]
pub(crate) struct WalkFindings {
    pub(crate) caught: Vec<CaughtEntry>,
    /// Links with protected names.
    pub(crate) protected_links: Vec<AbsPath>,
    /// Links with denied names: with them would go the knowledge that what they lead to is
    /// denied.
    pub(crate) denied_links: Vec<AbsPath>,
    /// Settings that programs obey, where no rule speaks of them.
    pub(crate) settings: Vec<(AbsPath, &'static Setting)>,
    /// Everything named `.git`, and every directory that git takes for a repository or might
    /// after a file more.
    pub(crate) repositories: Vec<AbsPath>,
    /// Directories that were not looked into.
    pub(crate) unseen: Vec<AbsPath>,
    /// Directories in which nothing is left to see.
    pub(crate) full: Vec<AbsPath>,
    pub(crate) directories: usize,
}

/// An entry that must be covered.
pub(crate) struct CaughtEntry {
    pub(crate) path: AbsPath,
    pub(crate) cover: Overmount,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) links: u64,
    /// The symbolic link with a denied name that leads to it.
    pub(crate) through: Option<AbsPath>,
}

impl WalkFindings {
    /// Adds what another part of the walk found.
    pub(crate) fn merge(&mut self, part: WalkFindings) {
        self.caught.extend(part.caught);
        self.protected_links.extend(part.protected_links);
        self.denied_links.extend(part.denied_links);
        self.settings.extend(part.settings);
        self.repositories.extend(part.repositories);
        self.unseen.extend(part.unseen);
        self.full.extend(part.full);
        self.directories += part.directories;
    }

    /// Denies a directory as a whole.
    fn shut(&mut self, directory: &AbsPath) {
        let Ok(metadata) = fs::symlink_metadata(directory.as_path()) else { return };
        let cover = Overmount::Deny(FileKind::Directory);
        self.caught.push(CaughtEntry {
            path: directory.clone(),
            cover,
            device: metadata.dev(),
            inode: metadata.ino(),
            links: 1,
            through: None,
        });
    }
}

pub(crate) struct TreeWalk<'a> {
    grants: &'a Grants,
    index: &'a NameIndex,
    skipped: BTreeSet<OsString>,
    folding: CaseFolding,
    eyes: WalkPurpose,
    /// Directories with a denied name that git made while the command runs.
    own_directories: HashSet<AbsPath>,
}

/// Who looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkPurpose {
    /// The person, before the command is started: what cannot be looked into is shut.
    Person,
    /// Somebody with rights over whatever the command makes, while it runs.
    Lookout,
}

/// What became of an entry.
#[derive(PartialEq, Eq)]
pub(crate) enum EntryOutcome {
    Denied,
    Left,
}

/// Directories that wait, and how many threads are in the middle of one.
struct WalkQueue {
    waiting: Vec<AbsPath>,
    busy: usize,
}

impl<'a> TreeWalk<'a> {
    pub(crate) fn new(
        grants: &'a Grants,
        index: &'a NameIndex,
        folding: CaseFolding,
        eyes: WalkPurpose,
    ) -> Self {
        Self {
            grants,
            index,
            skipped: vendored(grants),
            folding,
            eyes,
            own_directories: HashSet::new(),
        }
    }

    pub(crate) fn run(&self, roots: &[AbsPath]) -> WalkFindings {
        // Most projects are small: threads are started for those that are not.
        const SMALL: usize = 64;
        let mut found = WalkFindings::default();
        let mut waiting: Vec<AbsPath> = roots.to_vec();
        while found.directories < SMALL {
            let Some(directory) = waiting.pop() else { return found };
            self.directory(&directory, &mut found, &mut waiting);
        }
        let queue = Mutex::new(WalkQueue { waiting, busy: 0 });
        let changed = Condvar::new();
        let threads = thread::available_parallelism().map_or(1, |n| n.get().min(8));
        let parts = thread::scope(|scope| {
            let workers: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| self.work(&queue, &changed))).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("a walker does not panic"))
                .collect::<Vec<_>>()
        });
        parts.into_iter().for_each(|part| found.merge(part));
        found
    }

    fn work(&self, queue: &Mutex<WalkQueue>, changed: &Condvar) -> WalkFindings {
        let mut found = WalkFindings::default();
        let mut below = Vec::new();
        let mut state = queue.lock().expect("no walker panics with the queue");
        loop {
            if let Some(directory) = state.waiting.pop() {
                state.busy += 1;
                drop(state);
                self.directory(&directory, &mut found, &mut below);
                state = queue.lock().expect("no walker panics with the queue");
                state.busy -= 1;
                state.waiting.append(&mut below);
                changed.notify_all();
            } else if state.busy == 0 {
                return found;
            } else {
                state = changed.wait(state).expect("no walker panics with the queue");
            }
        }
    }

    /// Looks through one directory; those in it that are to be looked through as well go to
    /// `below`.
    pub(crate) fn directory(
        &self,
        directory: &AbsPath,
        found: &mut WalkFindings,
        below: &mut Vec<AbsPath>,
    ) {
        found.directories += 1;
        let Some(entries) = self.open(directory, found) else { return };
        let (mut entries_seen, mut denied) = (0usize, 0usize);
        let mut is_repository = false;
        for entry in entries {
            let Ok(entry) = entry else { return found.shut(directory) };
            entries_seen += 1;
            let (name, file_type) = match (entry.file_name(), entry.file_type()) {
                (name, Ok(file_type)) => (name, file_type),
                (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => continue,
                _ => return found.shut(directory),
            };
            // What else makes a bare repository could be added to it without a word.
            is_repository |= is_head(&name, self.folding) && !file_type.is_dir();
            denied += usize::from(
                self.entry(directory, &name, file_type, found, below) == EntryOutcome::Denied,
            );
        }
        if is_repository {
            found.repositories.push(directory.clone());
        }
        if denied > 1 && denied == entries_seen {
            found.full.push(directory.clone());
        }
    }

    /// What a directory holds; `None` if it is gone, or shut as a whole.
    fn open(&self, directory: &AbsPath, found: &mut WalkFindings) -> Option<fs::ReadDir> {
        // What cannot be looked into may hold anything. A path that is nearly too long is as
        // good as one: what is below it could not be covered.
        const LONG: usize = 3000;
        let is_long = directory.as_bytes().len() >= LONG;
        match (fs::read_dir(directory.as_path()), self.eyes) {
            // The command makes such directories and takes them away again.
            (_, WalkPurpose::Lookout) if is_long => None,
            (Ok(entries), WalkPurpose::Lookout) => Some(entries),
            // Its names could be listed, and what they stand for not be asked.
            (Ok(entries), WalkPurpose::Person) if !is_long && is_searchable(directory) => {
                Some(entries)
            }
            (Err(error), _)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                None
            }
            _ => {
                found.shut(directory);
                None
            }
        }
    }

    /// Whether anything could be said about an entry of this name that is no directory.
    pub(crate) fn could_matter(&self, name: &OsStr) -> bool {
        self.index.interesting(name) || name == ".git" || name == "HEAD"
    }

    /// Looks at one entry of a directory.
    pub(crate) fn entry(
        &self,
        directory: &AbsPath,
        name: &OsStr,
        file_type: fs::FileType,
        found: &mut WalkFindings,
        below: &mut Vec<AbsPath>,
    ) -> EntryOutcome {
        // Git's own, in whatever case, are looked at before the command; while it runs, the
        // usher tells of those that git would take for its own.
        if name == ".git" || (self.eyes == WalkPurpose::Person && name.eq_ignore_ascii_case(".git"))
        {
            let path = directory.join(name);
            if file_type.is_dir() {
                found.unseen.push(path.clone());
            }
            found.repositories.push(path);
            return EntryOutcome::Left;
        }
        let interesting = self.index.interesting(name) || self.is_opened_by_git(directory);
        if interesting || is_socket(file_type) {
            let path = directory.join(name);
            if let Some(cover) = self.cover(&path, file_type) {
                self.catch(&path, file_type, cover, found);
                if matches!(cover, Overmount::Deny(_)) {
                    return EntryOutcome::Denied;
                }
            } else if self.eyes == WalkPurpose::Person
                && let Some(setting) = self.setting(&path, file_type)
            {
                found.settings.push((path, setting));
            }
        }
        if file_type.is_dir() {
            let seen = if self.skipped.contains(name) { &mut found.unseen } else { below };
            seen.push(directory.join(name));
        }
        EntryOutcome::Left
    }

    /// Tells whether a directory has a denied name and is open for the tracked files in it: any
    /// other name in it is denied.
    pub(crate) fn is_opened_by_git(&self, directory: &AbsPath) -> bool {
        let is_listed = || {
            !self.grants.tracked.directories.is_empty()
                && self.grants.tracked.directories.contains(directory)
        };
        is_listed()
            || (!self.own_directories.is_empty() && self.own_directories.contains(directory))
    }

    /// Opens a directory with a denied name that git made. Each entry in it is looked at.
    pub(crate) fn open_own_directory(&mut self, directory: AbsPath) {
        self.own_directories.insert(directory);
    }

    fn cover(&self, path: &AbsPath, file_type: fs::FileType) -> Option<Overmount> {
        if self.grants.verdict(path, Access::Read) == Verdict::Denied {
            return Some(Overmount::Deny(kind_of(file_type)));
        }
        // A name that is left open of a file, and denied of a directory: `secrets.d`. What a
        // rule opens below it is mounted above the cover.
        let is_shut = || {
            self.grants.verdict(&path.join("x"), Access::Read) == Verdict::Denied
                && !self.is_opened_by_git(path)
        };
        if file_type.is_dir() && is_shut() {
            return Some(Overmount::Deny(FileKind::Directory));
        }
        // One that appears may be the command's own.
        if self.eyes == WalkPurpose::Person
            && is_socket(file_type)
            && !self.grants.network.unix_sockets.contains(path)
        {
            return Some(Overmount::Deny(FileKind::File));
        }
        let writable = self.grants.opener(path).is_some_and(|rule| rule.effect != Effect::Read);
        (writable && self.grants.verdict(path, Access::Write) == Verdict::ReadOnly)
            .then_some(Overmount::ReadOnly)
    }

    /// The setting that stands here, if it could be written and no rule opens it by name.
    fn setting(&self, path: &AbsPath, file_type: fs::FileType) -> Option<&'static Setting> {
        let names = path.as_path().iter().map(OsStr::as_bytes);
        let pointer = || pointer_at(names.clone()).filter(|_| !file_type.is_dir());
        let (setting, _) = setting_at(names.clone()).or_else(pointer)?;
        let opener = self
            .grants
            .opener(path)
            .filter(|rule| rule.effect == Effect::Write && rule.root != *path)?;
        // A rule on a directory within the setting's own path is a person's word, too.
        let is_named = setting.text.contains('/')
            && opener.root.depth() + setting.names().count() > path.depth();
        (!is_named).then_some(setting)
    }

    /// Whether a link with a denied name may shut this: whoever made the link must not shut
    /// the system, a tool or the project itself.
    pub(crate) fn is_work(&self, path: &AbsPath) -> bool {
        self.grants.opener(path).is_some_and(Rule::patterns_hold)
            && !self.grants.workspace.is_within(path)
    }

    fn catch(
        &self,
        path: &AbsPath,
        file_type: fs::FileType,
        cover: Overmount,
        found: &mut WalkFindings,
    ) {
        // Nothing can be mounted on a link itself: what it leads to is what must be covered.
        let through = file_type.is_symlink().then(|| path.clone());
        let path = if file_type.is_symlink() {
            if !matches!(cover, Overmount::Deny(_)) {
                found.protected_links.push(path.clone());
                return;
            }
            found.denied_links.push(path.clone());
            let Some(real) = fs::canonicalize(path.as_path()).ok().and_then(AbsPath::new) else {
                return;
            };
            if !self.is_work(&real) {
                return;
            }
            real
        } else {
            path.clone()
        };
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return };
        let cover = match cover {
            Overmount::Deny(_) => Overmount::Deny(kind_of(metadata.file_type())),
            other => other,
        };
        if self.grants.verdict(&path, Access::Read) == Verdict::Absent {
            return;
        }
        let links = if metadata.is_file() { metadata.nlink() } else { 1 };
        found.caught.push(CaughtEntry {
            path,
            cover,
            device: metadata.dev(),
            inode: metadata.ino(),
            links,
            through,
        });
    }
}

/// Whether git would take the name for `HEAD`. Elsewhere than on a file system that does not
/// tell case apart, a file `head` is nothing special.
fn is_head(name: &OsStr, folding: CaseFolding) -> bool {
    name == "HEAD" || (folding != CaseFolding::None && name.eq_ignore_ascii_case("HEAD"))
}

/// Names of directories in which no pattern holds, so that nobody need look into them.
///
/// The built-in exceptions say so of vendored trees, but only for the built-in patterns.
pub fn vendored(grants: &Grants) -> BTreeSet<OsString> {
    if grants.patterns.iter().any(|pattern| pattern.origin.source != Source::BuiltIn) {
        return BTreeSet::new();
    }
    grants
        .exceptions
        .iter()
        .filter(|exception| exception.origin.source == Source::BuiltIn)
        .filter_map(|exception| exception.glob.text().strip_prefix("**/")?.strip_suffix("/**"))
        .filter(|name| !name.contains(['/', '*', '?', '[', '{']))
        .map(OsString::from)
        .collect()
}

/// Other names of the same files: a hard link is the file itself.
pub(super) fn aliases(
    roots: &[AbsPath],
    linked: &HardLinks,
    covers: &BTreeMap<AbsPath, Overmount>,
) -> Vec<(AbsPath, Overmount)> {
    let mut found = Vec::new();
    let mut waiting: Vec<AbsPath> = roots.to_vec();
    while let Some(directory) = waiting.pop() {
        let is_shut =
            covers.get(&directory).is_some_and(|cover| matches!(cover, Overmount::Deny(_)));
        if is_shut || !is_searchable(&directory) {
            found.push((directory, Overmount::Deny(FileKind::Directory)));
            continue;
        }
        found.extend(
            aliases_in(&directory, linked, &mut waiting)
                .into_iter()
                .filter(|(path, _)| !covers.contains_key(path)),
        );
    }
    found
}

/// Other names of the same files in one directory; directories in it go to `below`.
pub(crate) fn aliases_in(
    directory: &AbsPath,
    linked: &HardLinks,
    below: &mut Vec<AbsPath>,
) -> Vec<(AbsPath, Overmount)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory.as_path()).into_iter().flatten().flatten() {
        let Ok(file_type) = entry.file_type() else { continue };
        if file_type.is_dir() {
            below.push(directory.join(entry.file_name()));
        } else if linked.range((entry.ino(), 0)..=(entry.ino(), u64::MAX)).next().is_some()
            && let Ok(metadata) = entry.metadata()
            && let Some(cover) = linked.get(&(metadata.ino(), metadata.dev()))
        {
            found.push((directory.join(entry.file_name()), *cover));
        }
    }
    found
}
