//! The walk through the granted trees: parallel for large trees.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::sync::{Condvar, Mutex};
use std::thread;

use ringfence_plan::{CaseFolding, FileKind, HardLinks, Overmount};
use ringfence_policy::builtin::{Setting, pointer_at, setting_at};
use ringfence_policy::{AbsPath, Access, Effect, Grants, NameIndex, Rule, Source, Verdict};

use super::{is_searchable_dir, is_socket, kind_of};

/// Findings of a walk.
#[derive(Default)]
pub struct WalkFindings {
    /// Entries that a rule denies or protects.
    pub to_mask: Vec<EntryToMask>,
    /// Links with protected names.
    pub protected_links: Vec<AbsPath>,
    /// Links with denied names: without them, the denial of their targets would be forgotten.
    pub denied_links: Vec<AbsPath>,
    /// Settings that programs obey, without a rule.
    pub settings: Vec<(AbsPath, &'static Setting)>,
    /// Everything named `.git`, and every directory that is a repository for git or could become
    /// one with one more file.
    pub repositories: Vec<AbsPath>,
    /// Directories that were not walked.
    pub unseen: Vec<AbsPath>,
    /// Directories in which everything is denied.
    pub full: Vec<AbsPath>,
    /// The number of walked directories.
    pub directories: usize,
}

/// An entry to mask.
pub struct EntryToMask {
    /// Its path.
    pub path: AbsPath,
    /// Its mask.
    pub mask: Overmount,
    /// The device of its file system.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// Its number of hard links.
    pub links: u64,
    /// The symbolic link with a denied name that leads to it, if any.
    pub through: Option<AbsPath>,
}

impl WalkFindings {
    /// Merges the findings of another part of the walk.
    pub fn merge(&mut self, part: WalkFindings) {
        self.to_mask.extend(part.to_mask);
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
        let mask = Overmount::Deny(FileKind::Directory);
        self.to_mask.push(EntryToMask {
            path: directory.clone(),
            mask,
            device: metadata.dev(),
            inode: metadata.ino(),
            links: 1,
            through: None,
        });
    }
}

/// A walk through granted trees.
pub struct TreeWalk<'a> {
    grants: &'a Grants,
    index: &'a NameIndex,
    skipped: BTreeSet<OsString>,
    folding: CaseFolding,
    purpose: WalkPurpose,
    /// Directories with a denied name that git created while the command runs.
    own_directories: HashSet<AbsPath>,
}

/// Purpose of a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WalkPurpose {
    /// The survey before the command starts: a directory that cannot be read is denied.
    Survey,
    /// The watcher, which may read everything that the command creates.
    Watcher,
}

/// Result for an entry.
#[derive(PartialEq, Eq)]
pub enum EntryOutcome {
    /// It is denied.
    Denied,
    /// No rule masks it.
    Left,
}

/// Directories to walk, and the number of busy threads.
struct WalkQueue {
    waiting: Vec<AbsPath>,
    busy: usize,
}

impl<'a> TreeWalk<'a> {
    /// A walk under `grants`, whose name rules `index` holds.
    pub fn new(
        grants: &'a Grants,
        index: &'a NameIndex,
        folding: CaseFolding,
        purpose: WalkPurpose,
    ) -> Self {
        Self {
            grants,
            index,
            skipped: skipped_directory_names(grants),
            folding,
            purpose,
            own_directories: HashSet::new(),
        }
    }

    /// Walks `roots` and everything below them.
    pub fn run(&self, roots: &[AbsPath]) -> WalkFindings {
        // Most projects are small: threads are started only for large ones.
        const SMALL: usize = 64;
        let mut found = WalkFindings::default();
        let mut waiting: Vec<AbsPath> = roots.to_vec();
        while found.directories < SMALL {
            let Some(directory) = waiting.pop() else { return found };
            self.walk_directory(&directory, &mut found, &mut waiting);
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
                self.walk_directory(&directory, &mut found, &mut below);
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

    /// Walks one directory; its subdirectories to walk are appended to `below`.
    pub fn walk_directory(
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
            // The other parts of a bare repository could be added silently.
            is_repository |= is_head(&name, self.folding) && !file_type.is_dir();
            denied += usize::from(
                self.examine_entry(directory, &name, file_type, found, below)
                    == EntryOutcome::Denied,
            );
        }
        if is_repository {
            found.repositories.push(directory.clone());
        }
        if denied > 1 && denied == entries_seen {
            found.full.push(directory.clone());
        }
    }

    /// Opens a directory; `None` if it is gone, or denied as a whole.
    fn open(&self, directory: &AbsPath, found: &mut WalkFindings) -> Option<fs::ReadDir> {
        // An unreadable directory may contain anything. So may one with a nearly too long path:
        // entries below it could not be masked.
        const LONG: usize = 3000;
        let is_long = directory.as_bytes().len() >= LONG;
        match (fs::read_dir(directory.as_path()), self.purpose) {
            // The command creates and removes such directories.
            (_, WalkPurpose::Watcher) if is_long => None,
            (Ok(entries), WalkPurpose::Watcher) => Some(entries),
            // Names could be listed, but not examined.
            (Ok(entries), WalkPurpose::Survey) if !is_long && is_searchable_dir(directory) => {
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

    /// True if an entry of this name matters even if it is no directory.
    pub fn is_relevant_name(&self, name: &OsStr) -> bool {
        self.index.may_match(name) || name == ".git" || name == "HEAD"
    }

    /// Examines one entry of a directory.
    pub fn examine_entry(
        &self,
        directory: &AbsPath,
        name: &OsStr,
        file_type: fs::FileType,
        found: &mut WalkFindings,
        below: &mut Vec<AbsPath>,
    ) -> EntryOutcome {
        // Before the command, git directories in any case are examined; while it runs, the notify
        // handler reports those that git would use.
        if name == ".git"
            || (self.purpose == WalkPurpose::Survey && name.eq_ignore_ascii_case(".git"))
        {
            let path = directory.join(name);
            if file_type.is_dir() {
                found.unseen.push(path.clone());
            }
            found.repositories.push(path);
            return EntryOutcome::Left;
        }
        let interesting = self.index.may_match(name) || self.is_opened_by_git(directory);
        if interesting || is_socket(file_type) {
            let path = directory.join(name);
            if let Some(mask) = self.mask_for(&path, file_type) {
                self.catch(&path, file_type, mask, found);
                if matches!(mask, Overmount::Deny(_)) {
                    return EntryOutcome::Denied;
                }
            } else if self.purpose == WalkPurpose::Survey
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

    /// True if a directory with a denied name is granted for its tracked files: any other name in
    /// it is denied.
    pub fn is_opened_by_git(&self, directory: &AbsPath) -> bool {
        let is_listed = || {
            !self.grants.tracked.directories.is_empty()
                && self.grants.tracked.directories.contains(directory)
        };
        is_listed()
            || (!self.own_directories.is_empty() && self.own_directories.contains(directory))
    }

    /// Grants a directory with a denied name that git created. Each entry in it is examined.
    pub fn open_own_directory(&mut self, directory: AbsPath) {
        self.own_directories.insert(directory);
    }

    fn mask_for(&self, path: &AbsPath, file_type: fs::FileType) -> Option<Overmount> {
        if self.grants.verdict(path, Access::Read) == Verdict::Denied {
            return Some(Overmount::Deny(kind_of(file_type)));
        }
        // A name granted for a file and denied for a directory: `secrets.d`. Granted paths below it
        // are mounted above the mask.
        let is_shut = || {
            self.grants.verdict(&path.join("x"), Access::Read) == Verdict::Denied
                && !self.is_opened_by_git(path)
        };
        if file_type.is_dir() && is_shut() {
            return Some(Overmount::Deny(FileKind::Directory));
        }
        // A socket that appears may be the command's own.
        if self.purpose == WalkPurpose::Survey
            && is_socket(file_type)
            && !self.grants.network.unix_sockets.contains(path)
        {
            return Some(Overmount::Deny(FileKind::File));
        }
        let writable =
            self.grants.opening_rule(path).is_some_and(|rule| rule.effect != Effect::Read);
        (writable && self.grants.verdict(path, Access::Write) == Verdict::ReadOnly)
            .then_some(Overmount::ReadOnly)
    }

    /// The setting at this path, if it is writable and no rule grants it by name.
    fn setting(&self, path: &AbsPath, file_type: fs::FileType) -> Option<&'static Setting> {
        let names = path.as_path().iter().map(OsStr::as_bytes);
        let pointer = || pointer_at(names.clone()).filter(|_| !file_type.is_dir());
        let (setting, _) = setting_at(names.clone()).or_else(pointer)?;
        let opener = self
            .grants
            .opening_rule(path)
            .filter(|rule| rule.effect == Effect::Write && rule.root != *path)?;
        // A rule for a directory within the setting's own path is the user's decision as well.
        let is_named = setting.text.contains('/')
            && opener.root.depth() + setting.names().count() > path.depth();
        (!is_named).then_some(setting)
    }

    /// True if a link with a denied name may deny this path: a link must not deny the system, a
    /// tool or the project itself.
    pub fn may_be_denied_by_link(&self, path: &AbsPath) -> bool {
        self.grants.opening_rule(path).is_some_and(Rule::patterns_apply)
            && !self.grants.workspace.is_within(path)
    }

    fn catch(
        &self,
        path: &AbsPath,
        file_type: fs::FileType,
        mask: Overmount,
        found: &mut WalkFindings,
    ) {
        // A mask cannot be mounted on a link: its target is masked.
        let through = file_type.is_symlink().then(|| path.clone());
        let path = if file_type.is_symlink() {
            if !matches!(mask, Overmount::Deny(_)) {
                found.protected_links.push(path.clone());
                return;
            }
            found.denied_links.push(path.clone());
            let Some(real) = fs::canonicalize(path.as_path()).ok().and_then(AbsPath::new) else {
                return;
            };
            if !self.may_be_denied_by_link(&real) {
                return;
            }
            real
        } else {
            path.clone()
        };
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return };
        let mask = match mask {
            Overmount::Deny(_) => Overmount::Deny(kind_of(metadata.file_type())),
            other => other,
        };
        if self.grants.verdict(&path, Access::Read) == Verdict::Absent {
            return;
        }
        let links = if metadata.is_file() { metadata.nlink() } else { 1 };
        found.to_mask.push(EntryToMask {
            path,
            mask,
            device: metadata.dev(),
            inode: metadata.ino(),
            links,
            through,
        });
    }
}

/// True if git would read the name as `HEAD`. On a case-sensitive file system, `head` is nothing
/// special.
fn is_head(name: &OsStr, folding: CaseFolding) -> bool {
    name == "HEAD" || (folding != CaseFolding::None && name.eq_ignore_ascii_case("HEAD"))
}

/// Names of directories in which no pattern applies, so that they need not be walked.
///
/// The built-in exceptions exempt vendored trees, but only from the built-in patterns.
pub fn skipped_directory_names(grants: &Grants) -> BTreeSet<OsString> {
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

/// Other hard links of the same files.
pub(crate) fn find_hard_links(
    roots: &[AbsPath],
    linked: &HardLinks,
    masks: &BTreeMap<AbsPath, Overmount>,
) -> Vec<(AbsPath, Overmount)> {
    let mut found = Vec::new();
    let mut waiting: Vec<AbsPath> = roots.to_vec();
    while let Some(directory) = waiting.pop() {
        let is_shut = masks.get(&directory).is_some_and(|mask| matches!(mask, Overmount::Deny(_)));
        if is_shut || !is_searchable_dir(&directory) {
            found.push((directory, Overmount::Deny(FileKind::Directory)));
            continue;
        }
        found.extend(
            find_hard_links_in(&directory, linked, &mut waiting)
                .into_iter()
                .filter(|(path, _)| !masks.contains_key(path)),
        );
    }
    found
}

/// Other hard links in one directory; its subdirectories are appended to `below`.
pub fn find_hard_links_in(
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
            && let Some(mask) = linked.get(&(metadata.ino(), metadata.dev()))
        {
            found.push((directory.join(entry.file_name()), *mask));
        }
    }
    found
}
