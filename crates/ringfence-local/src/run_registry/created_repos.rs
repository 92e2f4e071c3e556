//! The list of the repositories, and of the settings of other programs, that commands of a project
//! made.
//!
//! They are the commands' own, in later runs as well: such a run may change them as it likes,
//! and so they are looked through after each. A repository stops being one of them when a hook
//! or a setting was changed outside, or something was committed or checked out there. The user
//! has then taken it over, must not lose a hook or a setting to a sweep, and runs git where a
//! command could plant one meanwhile. For that, the list holds the change times that the last
//! sweep left. A worktree's directory has no hooks, so that only its pointers count.
//!
//! The list is only ever appended to while another run goes on, so that each run knows what came
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

use ringfence_enforce::apply::{Birth, GitMarker, GitMarkerCreated};
use ringfence_enforce::{RememberedFiles, remember};
use ringfence_policy::{AbsPath, Effect, Grants};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};

use super::{PLAIN, RunMarker, RunRegistry, place};
use crate::git_sweep::{FoundGitDir, FsTimestamp, InodeId};

const LIST: &str = ".made";
const NEXT: &str = ".made.next";
/// As the policy names it.
const CONTENTS: &str = ".contents";

/// Names in a git directory by which git chooses settings and programs.
const OBEYED: [&str; 6] =
    ["config", "config.worktree", "commondir", "gitdir", "hooks", "info/attributes"];

/// Names that change when the user works in a repository, beside the ref that `HEAD` names. The
/// index is not one of them: every `git status` may write it, and a prompt asks for that in each
/// directory the user enters.
const USED: [&str; 4] = ["HEAD", "logs/HEAD", "COMMIT_EDITMSG", "packed-refs"];

/// What the list said when the host was looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct CreatedRepos {
    /// What was where it said.
    entries: Vec<Entry>,
    /// Git directories, worktrees' directories and `.git` files that are still the commands' own.
    made: HashSet<Birth>,
    cursor: RepoListCursor,
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry {
    spot: FoundGitDir,
    /// Absent in lists of earlier versions.
    record: Option<Record>,
}

/// A git directory as the last sweep left it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Record {
    birth: Birth,
    /// Inode and change time of each obeyed name. No program can set a change time.
    stamp: String,
}

/// How far the list was read: which file, and how many bytes of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RepoListCursor {
    inode: u64,
    length: u64,
}

impl CreatedRepos {
    /// The git directories, worktrees' directories and `.git` files that are the commands' own.
    pub(crate) fn made(&self) -> &HashSet<Birth> {
        &self.made
    }

    /// The directories that hold a `HEAD` which an earlier command made, and since when.
    pub(crate) fn heads(&self) -> HashMap<InodeId, FsTimestamp> {
        let heads = self.entries.iter().filter(|entry| entry.spot.what == GitMarker::Head);
        heads.map(|entry| (entry.spot.identity, entry.spot.since)).collect()
    }
}

impl RunRegistry {
    /// Reads what commands have made so far. A list that a command could write counts for nothing.
    pub(crate) fn listed(&self, grants: &Grants) -> CreatedRepos {
        let _turn = self.turn();
        let (mut entries, cursor) = self.entries(RepoListCursor::default());
        let is_trusted = !is_written_by(grants, &self.quarantine);
        let mut made = HashSet::new();
        entries.retain(|Entry { spot, record }| {
            let Some(directory) = spot.open() else { return false };
            let Some(now) = Record::of(&directory, spot) else { return true };
            let is_same = record.as_ref() == Some(&now);
            if is_trusted && is_same && now.birth.born().is_some() && now.stamp != LARGE {
                made.insert(now.birth);
            }
            // A repository that the user took over, or that has only the inode of the listed one,
            // is the user's.
            spot.what == GitMarker::Setting || record.is_none() || is_same || !is_trusted
        });
        CreatedRepos { entries, made, cursor }
    }

    /// All that commands made until now: as if it were this one, or by identity if it was moved.
    pub(crate) fn made(&self, listed: &CreatedRepos) -> (Vec<GitMarkerCreated>, HashSet<InodeId>) {
        let _turn = self.turn();
        self.made_until_now(listed)
    }

    /// The same for a caller that has the turn.
    pub(super) fn made_until_now(
        &self,
        listed: &CreatedRepos,
    ) -> (Vec<GitMarkerCreated>, HashSet<InodeId>) {
        let (mut made, mut moved) = (Vec::new(), HashSet::new());
        let all = listed.entries.iter().cloned().chain(self.entries(listed.cursor).0);
        let mut known = HashSet::new();
        for spot in newest(all.collect()).into_iter().map(|entry| entry.spot) {
            // Several settings may stand in one directory.
            if !known.insert((spot.identity, spot.what)) {
                continue;
            }
            match spot.open() {
                Some(directory) => made.push(GitMarkerCreated {
                    directory: Some(directory),
                    path: spot.directory(),
                    what: spot.what,
                    birth: None,
                }),
                None => drop(moved.insert(spot.identity)),
            }
        }
        (made, moved)
    }

    /// Adds to the list; what is no longer there is taken off it if no other run goes on.
    pub(crate) fn note(
        &self,
        spotted: Vec<FoundGitDir>,
        listed: &CreatedRepos,
        own: Option<&RunMarker>,
    ) {
        if spotted.is_empty() {
            return;
        }
        let Ok(_turn) = self.turn() else { return };
        let itself = |entry: &Entry| {
            (entry.spot.identity, entry.spot.what, entry.record.as_ref().map(|record| record.birth))
        };
        let (noted, _) = self.entries(RepoListCursor::default());
        let since: HashMap<_, FsTimestamp> =
            noted.iter().map(|entry| (itself(entry), entry.spot.since)).collect();
        let known: HashSet<&Entry> = listed.entries.iter().collect();
        let mut entries: Vec<Entry> = spotted.into_iter().map(Entry::of).collect();
        for entry in &mut entries {
            let earlier = since.get(&itself(entry)).copied().unwrap_or(entry.spot.since);
            entry.spot.since = earlier.min(entry.spot.since);
        }
        entries.retain(|entry| !known.contains(entry));
        if entries.is_empty() {
            return;
        }
        // A list that cannot be written is as one that there is no store for.
        let _ = if self.others_go_on(own) {
            self.append(LIST, entries.iter())
        } else {
            self.rewrite(entries)
        };
    }

    /// Remembers the contents of files with a denied name that a command made or wrote.
    pub(crate) fn remember(&self, files: &HashMap<AbsPath, Birth>, left: Option<&RememberedFiles>) {
        let Ok(_turn) = self.turn() else { return };
        if let Some(list) = place(&self.quarantine).map(|place| place.join(CONTENTS)) {
            // Without the list, such files are denied in the next run.
            let _ = remember(&list, files, left);
        }
    }

    fn append<'a>(&self, name: &str, entries: impl Iterator<Item = &'a Entry>) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | PLAIN;
        let mut file = fs::File::from(rustix::fs::openat(
            &self.directory,
            name,
            flags,
            Mode::RUSR | Mode::WUSR,
        )?);
        file.write_all(&entries.flat_map(written).collect::<Vec<u8>>())
    }

    fn rewrite(&self, added: Vec<Entry>) -> io::Result<()> {
        let (mut entries, _) = self.entries(RepoListCursor::default());
        entries.extend(added);
        let mut kept = newest(entries);
        kept.retain(|Entry { spot, .. }| {
            let directory = spot.open();
            // A setting that is gone is not made again without being listed.
            directory.is_some_and(|directory| {
                spot.what != GitMarker::Setting || Record::of(&directory, spot).is_some()
            })
        });
        let _ = rustix::fs::unlinkat(&self.directory, NEXT, AtFlags::empty());
        self.append(NEXT, kept.iter())?;
        Ok(rustix::fs::renameat(&self.directory, NEXT, &self.directory, LIST)?)
    }

    /// What the list says behind `cursor`; all of it if it is another list by now.
    fn entries(&self, cursor: RepoListCursor) -> (Vec<Entry>, RepoListCursor) {
        let mut text = Vec::new();
        let read = |text: &mut Vec<u8>| -> io::Result<RepoListCursor> {
            let file = rustix::fs::openat(
                &self.directory,
                LIST,
                OFlags::RDONLY | OFlags::NONBLOCK | PLAIN,
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
        (newest(text.split(|byte| *byte == 0).filter_map(parsed).collect()), cursor)
    }
}

/// Answers whether a command could write to the store, and so to the list.
fn is_written_by(grants: &Grants, quarantine: &AbsPath) -> bool {
    let real = |path: &AbsPath| fs::canonicalize(path.as_path()).ok().and_then(AbsPath::new);
    let Some(store) = place(quarantine).as_ref().and_then(real) else { return true };
    let mut written = grants.rules.iter().filter(|rule| rule.effect == Effect::Write);
    written.any(|rule| real(&rule.root).is_some_and(|root| store.is_within(&root)))
}

/// The last entry of each directory: it may have been moved or swept since.
fn newest(entries: Vec<Entry>) -> Vec<Entry> {
    let key = |Entry { spot, .. }: &Entry| {
        let name =
            spot.path.name().filter(|_| spot.what == GitMarker::Setting).map(OsStr::to_owned);
        (spot.identity, spot.what, name)
    };
    let mut last = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        last.insert(key(entry), at);
    }
    let is_last = |(at, entry): &(usize, Entry)| last[&key(entry)] == *at;
    entries.into_iter().enumerate().filter(is_last).map(|(_, entry)| entry).collect()
}

impl Entry {
    fn of(spot: FoundGitDir) -> Self {
        let record = spot.open().and_then(|directory| Record::of(&directory, &spot));
        Self { spot, record }
    }
}

impl Record {
    fn of(directory: &OwnedFd, spot: &FoundGitDir) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let what = spot.what;
        let git = match what {
            GitMarker::DotGit => {
                rustix::fs::openat(directory, ".git", flags, Mode::empty()).ok()?
            }
            GitMarker::Setting => return Self::of_setting(directory, spot.path.name()?),
            GitMarker::File => return None,
            GitMarker::Head | GitMarker::Store | GitMarker::Tree => {
                rustix::io::fcntl_dupfd_cloexec(directory, 3).ok()?
            }
        };
        let status = rustix::fs::fstat(&git).ok()?;
        let stamp = match what {
            _ if !FileType::from_raw_mode(status.st_mode).is_dir() => changed(&status),
            GitMarker::Store => stamp(git.as_fd(), &[]),
            GitMarker::DotGit
            | GitMarker::Head
            | GitMarker::Tree
            | GitMarker::Setting
            | GitMarker::File => {
                let branch = branch(&git);
                stamp(
                    git.as_fd(),
                    &USED.iter().copied().chain(branch.as_deref()).collect::<Vec<_>>(),
                )
            }
        };
        Some(Self { birth: Birth::of_open(&git)?, stamp })
    }

    /// Of a setting, with all that is in it: the user may have written any of its files.
    fn of_setting(directory: &OwnedFd, name: &OsStr) -> Option<Self> {
        let birth = Birth::of(directory, name)?;
        let (mut hasher, mut left) = (DefaultHasher::new(), SMALL);
        let stamp = hash_tree(directory, name, &mut hasher, &mut left)
            .map_or(LARGE.to_owned(), |()| hasher.finish().to_string());
        Some(Self { birth, stamp })
    }
}

/// A setting of more entries than this counts as the user's.
const SMALL: usize = 1024;

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
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | PLAIN;
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

/// The ref that a `HEAD` names: a commit changes it, also where git keeps no reflog.
fn branch(git: &OwnedFd) -> Option<String> {
    const LONGEST: usize = 4096;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | PLAIN;
    let head = rustix::fs::openat2(git, "HEAD", flags, Mode::empty(), resolve).ok()?;
    let mut text = vec![0; LONGEST];
    let length = rustix::io::read(&head, text.as_mut_slice()).ok()?;
    let name = std::str::from_utf8(&text[..length]).ok()?.strip_prefix("ref:")?.trim().to_owned();
    (name.starts_with("refs/") && !name.split('/').any(|part| part == "..") && !name.contains('\0'))
        .then_some(name)
}

fn changed(status: &rustix::fs::Stat) -> String {
    format!("{}.{}.{}", status.st_ino, status.st_ctime, status.st_ctime_nsec)
}

fn written(entry: &Entry) -> Vec<u8> {
    let word = match entry.spot.what {
        GitMarker::DotGit => "git",
        GitMarker::Head => "head",
        GitMarker::Store => "store",
        GitMarker::Setting => "setting",
        // Of a tree, the repositories found in it are listed; of files, their content.
        GitMarker::Tree | GitMarker::File => return Vec::new(),
    };
    let (device, inode) = entry.spot.identity;
    let mut text = format!("{word} {device} {inode} ");
    if let Some(Record { birth, stamp }) = &entry.record {
        // No path begins like this.
        let _ = write!(text, "{birth} {stamp} {} ", entry.spot.since);
    }
    [text.as_bytes(), entry.spot.path.as_bytes(), b"\0"].concat()
}

fn parsed(line: &[u8]) -> Option<Entry> {
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let what = match words.next()? {
        b"git" => GitMarker::DotGit,
        b"head" => GitMarker::Head,
        b"store" => GitMarker::Store,
        b"setting" => GitMarker::Setting,
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
        (Some(Record { birth, stamp }), words.next()?)
    };
    let from = rest.iter().position(|byte| *byte == b'/')?;
    let since = std::str::from_utf8(&rest[..from]).ok()?.trim_end();
    // Absent in lists of earlier versions.
    let since = if since.is_empty() { FsTimestamp::new(0, 0) } else { FsTimestamp::parse(since)? };
    Some(Entry {
        spot: FoundGitDir {
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
    use ringfence_enforce::apply::{Birth, GitMarker};
    use ringfence_policy::AbsPath;

    use super::{Entry, FoundGitDir, FsTimestamp, Record, newest, parsed, written};

    fn entry(what: GitMarker, path: &str, stamp: Option<&str>) -> Entry {
        let since = FsTimestamp::new(stamp.map_or(0, |_| 3), 0);
        let spot = FoundGitDir { path: AbsPath::new(path).unwrap(), identity: (1, 2), what, since };
        let birth = Birth::of(rustix::fs::CWD, "/").unwrap();
        Entry { spot, record: stamp.map(|stamp| Record { birth, stamp: stamp.into() }) }
    }

    #[test]
    fn lines_are_read_back() {
        for (what, stamp) in [
            (GitMarker::DotGit, None),
            (GitMarker::Head, Some(";;;;;;")),
            (GitMarker::Store, Some("1.2.3;;4.5.6;;;;")),
            (GitMarker::Setting, Some("12")),
        ] {
            let entry = entry(what, "/a b/c\n", stamp);
            let line = written(&entry);
            assert_eq!(parsed(line.strip_suffix(b"\0").unwrap()), Some(entry));
        }
        let old = parsed(b"git 1 2 1:2:3:4:5 stamp /x").unwrap();
        assert_eq!(
            (old.spot.since, old.spot.path.as_bytes()),
            (FsTimestamp::new(0, 0), b"/x".as_slice())
        );
        assert_eq!(parsed(b"git 1 2 3 4 /x"), None);
        assert_eq!(parsed(b"else 1 2 /x"), None);
    }

    #[test]
    fn later_entries_replace_earlier_ones() {
        let (old, new) =
            (entry(GitMarker::DotGit, "/a", Some("1")), entry(GitMarker::DotGit, "/b", Some("2")));
        let other = entry(GitMarker::Head, "/a", None);
        assert_eq!(newest(vec![old, other.clone(), new.clone()]), [other, new]);
        let (one, two) = (
            entry(GitMarker::Setting, "/a/.vscode", None),
            entry(GitMarker::Setting, "/a/.claude", None),
        );
        assert_eq!(newest(vec![one.clone(), two.clone(), one.clone()]), [two, one]);
    }
}
