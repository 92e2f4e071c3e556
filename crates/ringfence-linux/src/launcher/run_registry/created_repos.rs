//! List of the repositories, and of the settings of other programs, that commands of a project
//! created.
//!
//! They belong to the commands, in later runs as well: a run may change them freely, so they are
//! swept after each. A repository leaves the list when a hook or a setting was changed outside, or
//! a commit or checkout was made there. The user has then taken it over, must not lose a hook or a
//! setting to a sweep, and runs git where a command could plant one meanwhile. For that, the list
//! holds the change times that the last sweep left. A worktree's directory has no hooks, so only
//! its pointers count.
//!
//! While another run goes on, the list is only appended to, so that each run knows the entries
//! after its own survey. Later entries replace earlier ones.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::apply::{CreatedName, FileIdentity, NameKind};
use crate::inode::InodeId;
use crate::open::open_at;
use ringfence_policy::{AbsPath, Effect, Grants};
use ringfence_survey::{RememberedFiles, remember_contents};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};

use super::{NO_LINK_FLAGS, RunMarker, RunRegistry, runs_dir};
use crate::launcher::git_sweep::{FoundGitDir, FsTimestamp};

const LIST: &str = ".made";
const NEXT: &str = ".made.next";
/// The name that the policy uses.
const CONTENTS: &str = ".contents";

/// Names in a git directory by which git finds settings and programs.
const OBEYED: [&str; 6] =
    ["config", "config.worktree", "commondir", "gitdir", "hooks", "info/attributes"];

/// Names that change when the user works in a repository, besides the ref that `HEAD` names. The
/// index is not among them: every `git status` may write it, and a shell prompt runs that in each
/// directory the user enters.
const CHANGED_BY_USE: [&str; 4] = ["HEAD", "logs/HEAD", "COMMIT_EDITMSG", "packed-refs"];

/// Contents of the list at the time of the survey.
#[derive(Debug, Clone, Default)]
pub(crate) struct CreatedRepos {
    /// Entries whose directories still exist.
    entries: Vec<CreatedRepo>,
    /// Git directories, worktrees' directories and `.git` files that still belong to the commands.
    made: HashSet<FileIdentity>,
    cursor: RepoListCursor,
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CreatedRepo {
    found: FoundGitDir,
    /// Absent in lists of earlier versions.
    record: Option<CreatedRepoRecord>,
}

/// A git directory as the last sweep left it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CreatedRepoRecord {
    birth: FileIdentity,
    /// Inode and change time of each obeyed name. No program can set a change time.
    stamp: String,
}

/// Read position in the list: the file, and the bytes read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RepoListCursor {
    inode: u64,
    length: u64,
}

impl CreatedRepos {
    /// Git directories, worktrees' directories and `.git` files that belong to the commands.
    pub(crate) fn made(&self) -> &HashSet<FileIdentity> {
        &self.made
    }

    /// Directories with a `HEAD` that an earlier command created, and the start of that command.
    pub(crate) fn heads(&self) -> HashMap<InodeId, FsTimestamp> {
        let heads = self.entries.iter().filter(|entry| entry.found.what == NameKind::Head);
        heads.map(|entry| (entry.found.identity, entry.found.since)).collect()
    }
}

impl RunRegistry {
    /// Reads the list. A list that a command could write is not trusted.
    pub(crate) fn read_list(&self, grants: &Grants) -> CreatedRepos {
        let _turn = self.lock_registry();
        let (mut entries, cursor) = self.entries(RepoListCursor::default());
        let is_trusted = !is_written_by(grants, &self.quarantine);
        let mut made = HashSet::new();
        entries.retain(|CreatedRepo { found, record }| {
            let Some(directory) = found.open() else { return false };
            let Some(now) = CreatedRepoRecord::of(&directory, found) else { return true };
            let is_same = record.as_ref() == Some(&now);
            if is_trusted && is_same && now.birth.birth_time().is_some() && now.stamp != LARGE {
                made.insert(now.birth);
            }
            // A repository that the user took over, or that has only the inode of the listed one,
            // is the user's.
            found.what == NameKind::Setting || record.is_none() || is_same || !is_trusted
        });
        CreatedRepos { entries, made, cursor }
    }

    /// All markers that commands created until now; moved ones by identity.
    pub(crate) fn created_markers(
        &self,
        listed: &CreatedRepos,
    ) -> (Vec<CreatedName>, HashSet<InodeId>) {
        let _turn = self.lock_registry();
        self.created_markers_locked(listed)
    }

    /// The same, for a caller that holds the lock.
    pub(super) fn created_markers_locked(
        &self,
        listed: &CreatedRepos,
    ) -> (Vec<CreatedName>, HashSet<InodeId>) {
        let (mut made, mut moved) = (Vec::new(), HashSet::new());
        let all = listed.entries.iter().cloned().chain(self.entries(listed.cursor).0);
        let mut known = HashSet::new();
        for found in newest(all.collect()).into_iter().map(|entry| entry.found) {
            // Several settings may be in one directory.
            if !known.insert((found.identity, found.what)) {
                continue;
            }
            match found.open() {
                Some(directory) => made.push(CreatedName {
                    directory: Some(directory),
                    path: found.directory(),
                    what: found.what,
                }),
                None => drop(moved.insert(found.identity)),
            }
        }
        (made, moved)
    }

    /// Adds to the list; removes entries that no longer exist, if no other run goes on.
    pub(crate) fn add_to_list(
        &self,
        found_dirs: Vec<FoundGitDir>,
        listed: &CreatedRepos,
        own: Option<&RunMarker>,
    ) {
        if found_dirs.is_empty() {
            return;
        }
        let Ok(_turn) = self.lock_registry() else { return };
        let entry_key = |entry: &CreatedRepo| {
            (
                entry.found.identity,
                entry.found.what,
                entry.record.as_ref().map(|record| record.birth),
            )
        };
        let (noted, _) = self.entries(RepoListCursor::default());
        let since: HashMap<_, FsTimestamp> =
            noted.iter().map(|entry| (entry_key(entry), entry.found.since)).collect();
        let known: HashSet<&CreatedRepo> = listed.entries.iter().collect();
        let mut entries: Vec<CreatedRepo> = found_dirs.into_iter().map(CreatedRepo::of).collect();
        for entry in &mut entries {
            let earlier = since.get(&entry_key(entry)).copied().unwrap_or(entry.found.since);
            entry.found.since = earlier.min(entry.found.since);
        }
        entries.retain(|entry| !known.contains(entry));
        if entries.is_empty() {
            return;
        }
        // An unwritable list is treated like a missing store.
        let _ = if self.has_other_runs(own) {
            self.append(LIST, entries.iter())
        } else {
            self.rewrite(entries)
        };
    }

    /// Remembers the contents of files with a denied name that a command created or wrote.
    pub(crate) fn remember(
        &self,
        files: &HashMap<AbsPath, FileIdentity>,
        left: Option<&RememberedFiles>,
    ) {
        let Ok(_turn) = self.lock_registry() else { return };
        if let Some(list) = runs_dir(&self.quarantine).map(|runs_dir| runs_dir.join(CONTENTS)) {
            // Without the list, such files are denied in the next run.
            let _ = remember_contents(&list, files, left);
        }
    }

    fn append<'a>(
        &self,
        name: &str,
        entries: impl Iterator<Item = &'a CreatedRepo>,
    ) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | NO_LINK_FLAGS;
        let mut file = fs::File::from(rustix::fs::openat(
            &self.directory,
            name,
            flags,
            Mode::RUSR | Mode::WUSR,
        )?);
        file.write_all(&entries.flat_map(to_line).collect::<Vec<u8>>())
    }

    fn rewrite(&self, added: Vec<CreatedRepo>) -> io::Result<()> {
        let (mut entries, _) = self.entries(RepoListCursor::default());
        entries.extend(added);
        let mut kept = newest(entries);
        kept.retain(|CreatedRepo { found, .. }| {
            let directory = found.open();
            // A removed setting is listed again when it is created again.
            directory.is_some_and(|directory| {
                found.what != NameKind::Setting
                    || CreatedRepoRecord::of(&directory, found).is_some()
            })
        });
        let _ = rustix::fs::unlinkat(&self.directory, NEXT, AtFlags::empty());
        self.append(NEXT, kept.iter())?;
        Ok(rustix::fs::renameat(&self.directory, NEXT, &self.directory, LIST)?)
    }

    /// The entries after `cursor`; all of them if the list was replaced.
    fn entries(&self, cursor: RepoListCursor) -> (Vec<CreatedRepo>, RepoListCursor) {
        let mut text = Vec::new();
        let read = |text: &mut Vec<u8>| -> io::Result<RepoListCursor> {
            let file = rustix::fs::openat(
                &self.directory,
                LIST,
                OFlags::RDONLY | OFlags::NONBLOCK | NO_LINK_FLAGS,
                Mode::empty(),
            )?;
            let mut file = fs::File::from(file);
            let inode = file.metadata()?.ino();
            if inode == cursor.inode {
                file.seek(SeekFrom::Start(cursor.length))?;
            }
            file.read_to_end(text)?;
            Ok(RepoListCursor { inode, length: file.stream_position()? })
        };
        let cursor = read(&mut text).unwrap_or_default();
        (newest(text.split(|byte| *byte == 0).filter_map(parse_line).collect()), cursor)
    }
}

/// True if a command could write to the store, and so to the list.
fn is_written_by(grants: &Grants, quarantine: &AbsPath) -> bool {
    let real = |path: &AbsPath| fs::canonicalize(path.as_path()).ok().and_then(AbsPath::new);
    let Some(store) = runs_dir(quarantine).as_ref().and_then(real) else { return true };
    let mut written = grants.rules.iter().filter(|rule| rule.effect == Effect::Write);
    written.any(|rule| real(&rule.root).is_some_and(|root| store.is_within(&root)))
}

/// The last entry of each directory: it may have been moved or swept since.
fn newest(entries: Vec<CreatedRepo>) -> Vec<CreatedRepo> {
    let key = |CreatedRepo { found, .. }: &CreatedRepo| {
        let name =
            found.path.name().filter(|_| found.what == NameKind::Setting).map(OsStr::to_owned);
        (found.identity, found.what, name)
    };
    let mut last = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        last.insert(key(entry), at);
    }
    let is_last = |(at, entry): &(usize, CreatedRepo)| last[&key(entry)] == *at;
    entries.into_iter().enumerate().filter(is_last).map(|(_, entry)| entry).collect()
}

impl CreatedRepo {
    fn of(found: FoundGitDir) -> Self {
        let record = found.open().and_then(|directory| CreatedRepoRecord::of(&directory, &found));
        Self { found, record }
    }
}

impl CreatedRepoRecord {
    fn of(directory: &OwnedFd, found: &FoundGitDir) -> Option<Self> {
        let what = found.what;
        let git = match what {
            NameKind::DotGit => open_at(directory, ".git", OFlags::PATH | OFlags::NOFOLLOW).ok()?,
            NameKind::Setting => return Self::of_setting(directory, found.path.name()?),
            NameKind::DeniedFile => return None,
            NameKind::Head | NameKind::Store | NameKind::Tree => {
                rustix::io::fcntl_dupfd_cloexec(directory, 3).ok()?
            }
        };
        let status = rustix::fs::fstat(&git).ok()?;
        let stamp = match what {
            _ if !FileType::from_raw_mode(status.st_mode).is_dir() => changed(&status),
            NameKind::Store => stamp(git.as_fd(), &[]),
            NameKind::DotGit
            | NameKind::Head
            | NameKind::Tree
            | NameKind::Setting
            | NameKind::DeniedFile => {
                let branch = branch(&git);
                stamp(
                    git.as_fd(),
                    &CHANGED_BY_USE.iter().copied().chain(branch.as_deref()).collect::<Vec<_>>(),
                )
            }
        };
        Some(Self { birth: FileIdentity::from_fd(&git)?, stamp })
    }

    /// Record of a setting with everything in it: the user may have written any of its files.
    fn of_setting(directory: &OwnedFd, name: &OsStr) -> Option<Self> {
        let birth = FileIdentity::from_entry(directory, name)?;
        let (mut hasher, mut left) = (DefaultHasher::new(), MAX_ENTRIES);
        let stamp = hash_tree(directory, name, &mut hasher, &mut left)
            .map_or(LARGE.to_owned(), |()| hasher.finish().to_string());
        Some(Self { birth, stamp })
    }
}

/// A setting with more entries counts as the user's.
const MAX_ENTRIES: usize = 1024;

/// Stamp of such a setting.
const LARGE: &str = "large";

/// Adds inode and change time of an entry and of all below it; `None` if there are too many.
fn hash_tree(
    directory: &OwnedFd,
    name: &OsStr,
    hasher: &mut DefaultHasher,
    left: &mut usize,
) -> Option<()> {
    *left = left.checked_sub(1)?;
    let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (name, changed(&status)).hash(hasher);
    if !FileType::from_raw_mode(status.st_mode).is_dir() {
        return Some(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | NO_LINK_FLAGS;
    let inner = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
    let entries = rustix::fs::Dir::read_from(&inner).ok()?;
    let names =
        entries.map(|entry| Some(OsStr::from_bytes(entry.ok()?.file_name().to_bytes()).to_owned()));
    let mut names = names.take(*left + 3).collect::<Option<Vec<_>>>()?;
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names.iter().try_for_each(|name| hash_tree(&inner, name, hasher, left))
}

fn stamp(git: impl AsFd, more: &[&str]) -> String {
    let mut stamp = String::new();
    for name in OBEYED.iter().chain(more) {
        let status = rustix::fs::statat(&git, *name, AtFlags::SYMLINK_NOFOLLOW);
        let _ = write!(stamp, "{};", status.map(|status| changed(&status)).unwrap_or_default());
    }
    stamp
}

/// The ref that a `HEAD` names: a commit changes it, also if git keeps no reflog.
fn branch(git: &OwnedFd) -> Option<String> {
    const MAX_LENGTH: usize = 4096;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | NO_LINK_FLAGS;
    let head = rustix::fs::openat2(git, "HEAD", flags, Mode::empty(), resolve).ok()?;
    let mut text = vec![0; MAX_LENGTH];
    let length = rustix::io::read(&head, text.as_mut_slice()).ok()?;
    let name = std::str::from_utf8(&text[..length]).ok()?.strip_prefix("ref:")?.trim().to_owned();
    (name.starts_with("refs/") && !name.split('/').any(|part| part == "..") && !name.contains('\0'))
        .then_some(name)
}

fn changed(status: &rustix::fs::Stat) -> String {
    format!("{}.{}.{}", status.st_ino, status.st_ctime, status.st_ctime_nsec)
}

fn to_line(entry: &CreatedRepo) -> Vec<u8> {
    let word = match entry.found.what {
        NameKind::DotGit => "git",
        NameKind::Head => "head",
        NameKind::Store => "store",
        NameKind::Setting => "setting",
        // For a tree, the repositories in it are listed; for files, their contents.
        NameKind::Tree | NameKind::DeniedFile => return Vec::new(),
    };
    let (device, inode) = entry.found.identity;
    let mut text = format!("{word} {device} {inode} ");
    if let Some(CreatedRepoRecord { birth, stamp }) = &entry.record {
        // No path begins like this.
        let _ = write!(text, "{birth} {stamp} {} ", entry.found.since);
    }
    [text.as_bytes(), entry.found.path.as_bytes(), b"\0"].concat()
}

fn parse_line(line: &[u8]) -> Option<CreatedRepo> {
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let what = match words.next()? {
        b"git" => NameKind::DotGit,
        b"head" => NameKind::Head,
        b"store" => NameKind::Store,
        b"setting" => NameKind::Setting,
        _ => return None,
    };
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let identity = (number()?, number()?);
    let rest = words.next()?;
    let (record, rest) = if rest.starts_with(b"/") {
        (None, rest)
    } else {
        let mut words = rest.splitn(3, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(words.next()?).ok();
        let (birth, stamp) = (text()?.parse().ok()?, text()?.to_owned());
        (Some(CreatedRepoRecord { birth, stamp }), words.next()?)
    };
    let from = rest.iter().position(|byte| *byte == b'/')?;
    let since = std::str::from_utf8(&rest[..from]).ok()?.trim_end();
    // Absent in lists of earlier versions.
    let since = if since.is_empty() { FsTimestamp::new(0, 0) } else { FsTimestamp::parse(since)? };
    Some(CreatedRepo {
        found: FoundGitDir {
            path: AbsPath::new(OsStr::from_bytes(&rest[from..]))?,
            identity,
            what,
            since,
        },
        record,
    })
}

#[cfg(test)]
mod tests {
    use crate::apply::{FileIdentity, NameKind};
    use ringfence_policy::AbsPath;

    use super::{
        CreatedRepo, CreatedRepoRecord, FoundGitDir, FsTimestamp, newest, parse_line, to_line,
    };

    fn entry(what: NameKind, path: &str, stamp: Option<&str>) -> CreatedRepo {
        let since = FsTimestamp::new(stamp.map_or(0, |_| 3), 0);
        let found =
            FoundGitDir { path: AbsPath::new(path).unwrap(), identity: (1, 2), what, since };
        let birth = FileIdentity::from_entry(rustix::fs::CWD, "/").unwrap();
        CreatedRepo {
            found,
            record: stamp.map(|stamp| CreatedRepoRecord { birth, stamp: stamp.into() }),
        }
    }

    #[test]
    fn lines_are_read_back() {
        for (what, stamp) in [
            (NameKind::DotGit, None),
            (NameKind::Head, Some(";;;;;;")),
            (NameKind::Store, Some("1.2.3;;4.5.6;;;;")),
            (NameKind::Setting, Some("12")),
        ] {
            let entry = entry(what, "/a b/c\n", stamp);
            let line = to_line(&entry);
            assert_eq!(parse_line(line.strip_suffix(b"\0").unwrap()), Some(entry));
        }
        let old = parse_line(b"git 1 2 1:2:3:4:5 stamp /x").unwrap();
        assert_eq!(
            (old.found.since, old.found.path.as_bytes()),
            (FsTimestamp::new(0, 0), b"/x".as_slice())
        );
        assert_eq!(parse_line(b"git 1 2 3 4 /x"), None);
        assert_eq!(parse_line(b"else 1 2 /x"), None);
    }

    #[test]
    fn later_entries_replace_earlier_ones() {
        let (old, new) =
            (entry(NameKind::DotGit, "/a", Some("1")), entry(NameKind::DotGit, "/b", Some("2")));
        let other = entry(NameKind::Head, "/a", None);
        assert_eq!(newest(vec![old, other.clone(), new.clone()]), [other, new]);
        let (one, two) = (
            entry(NameKind::Setting, "/a/.vscode", None),
            entry(NameKind::Setting, "/a/.claude", None),
        );
        assert_eq!(newest(vec![one.clone(), two.clone(), one.clone()]), [two, one]);
    }
}
