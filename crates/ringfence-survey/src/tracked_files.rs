//! Files that git tracks unchanged, although a built-in pattern denies their names.
//!
//! Such a file is granted: its content is in git's objects, where any command can read it. The
//! proof is the content alone. It must hash to the object that the index names for the path; times
//! and sizes in the index are not trusted, since a sandboxed command can write the index. It cannot
//! name the hash of a file that it cannot read.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ringfence_plan::{GitEntry, GitIndex, parse_blobs};
use ringfence_policy::builtin::is_source_name;
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Grants, TrackedFile, TrackedFiles, TrackedMode, Verdict,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use sha1::{Digest, Sha1};
use sha2::Sha256;

use super::gitlinks::read_index;
use super::{git, remembered};
use crate::birth::FileIdentity;

/// Largest file to hash. A larger one stays denied.
const MAX_FILE: u64 = 64 << 20;

/// Maximum of bytes hashed per survey. The rest stays denied.
const MAX_TOTAL: u64 = 512 << 20;

/// SHA-256 of a file's content, or of a symbolic link's target.
pub(crate) type ContentDigest = [u8; 32];

/// Contents that commands of the project left in files granted to them.
pub type RememberedFiles = HashMap<AbsPath, ContentDigest>;

/// Finds tracked files, and caches the indexes.
pub struct TrackedLookup<'a> {
    grants: &'a Grants,
    roots: &'a [AbsPath],
    /// Contents that are granted in addition to the project's list.
    surveyed: &'a RememberedFiles,
    /// The project's list, read for the first file with a denied name.
    listed: OnceCell<RememberedFiles>,
    /// Index of each working tree; `None` without a usable one.
    indexes: HashMap<AbsPath, Option<GitIndex>>,
    left: u64,
}

impl<'a> TrackedLookup<'a> {
    /// A lookup in repositories below `roots`.
    pub fn new(grants: &'a Grants, roots: &'a [AbsPath], surveyed: &'a RememberedFiles) -> Self {
        Self {
            grants,
            roots,
            surveyed,
            listed: OnceCell::new(),
            indexes: HashMap::new(),
            left: MAX_TOTAL,
        }
    }

    /// Adds to `found` the tracked files at or below `path`, which a built-in pattern denies.
    pub fn find_tracked(&mut self, path: &AbsPath, found: &mut TrackedFiles) {
        if self.grants.tracked.mode == TrackedMode::Deny || !self.is_spared(path) {
            return;
        }
        let Ok(metadata) = fs::symlink_metadata(path.as_path()) else { return };
        if !metadata.is_dir() {
            if let Some(file) = self.open_file(path) {
                found.files.insert(path.clone(), file);
            }
            return;
        }
        for file in self.below(path) {
            if let Some(tracked) = self.open_file(&file) {
                found
                    .directories
                    .extend(file.ancestors().skip(1).take_while(|above| above.is_within(path)));
                found.files.insert(file, tracked);
            }
        }
        if let Some(directories) = source_directories(path, found) {
            found.directories.extend(directories.iter().cloned());
            found.sources.extend(directories);
        }
    }

    /// True if the pattern that denies `path` exempts tracked files.
    fn is_spared(&self, path: &AbsPath) -> bool {
        let denied =
            [path.clone(), path.join("x")].map(|path| self.grants.decide(&path, Access::Read));
        let denied = denied.iter().find(|decision| decision.verdict == Verdict::Denied);
        matches!(denied.and_then(|decision| decision.rule.as_ref()), Some(DecidingRule::Pattern(pattern)) if pattern.exempts_tracked_files())
    }

    /// Files below a directory that the index or the remembered list names.
    fn below(&mut self, directory: &AbsPath) -> Vec<AbsPath> {
        let remembered = self.surveyed.keys().chain(self.listed().keys());
        let mut files: Vec<AbsPath> = remembered
            .filter(|path| *path != directory && path.is_within(directory))
            .cloned()
            .collect();
        if let Some((tree, name)) = self.locate(directory)
            && let Some(Some(index)) = self.indexes.get(&tree)
        {
            let prefix = [name.as_slice(), b"/"].concat();
            let entries =
                index.range::<[u8], _>((Bound::Included(prefix.as_slice()), Bound::Unbounded));
            let entries = entries.take_while(|(name, _)| name.starts_with(&prefix));
            files.extend(
                entries.map(|(name, _)| tree.join(Path::new(std::ffi::OsStr::from_bytes(name)))),
            );
        }
        files
    }

    /// The file at `path` if its content is the tracked one, or one that a command left there.
    pub fn open_file(&mut self, path: &AbsPath) -> Option<TrackedFile> {
        let entry = self
            .locate(path)
            .and_then(|(tree, name)| self.indexes.get(&tree)?.as_ref()?.get(&name).cloned());
        let remembered = [self.surveyed.get(path).copied(), self.listed().get(path).copied()];
        if entry.is_none() && remembered == [None, None] {
            return None;
        }
        let content = TrackedContent::read(path, self.left)?;
        self.left = self.left.saturating_sub(content.bytes.len() as u64);
        let file = TrackedFile {
            digest: content.digest(),
            identity: content.identity,
            born: content.born,
        };
        let is_open = remembered.contains(&Some(file.digest))
            || entry.is_some_and(|entry| content.is_object(&entry));
        is_open.then_some(file)
    }

    fn listed(&self) -> &RememberedFiles {
        self.listed.get_or_init(|| remembered::read_list(self.grants))
    }

    /// The working tree around a path, and the path in its index, which is loaded.
    fn locate(&mut self, path: &AbsPath) -> Option<(AbsPath, Vec<u8>)> {
        let is_inside = |above: &AbsPath| self.roots.iter().any(|root| above.is_within(root));
        let mut above = path.ancestors().skip(1).take_while(is_inside);
        let tree =
            above.find(|above| fs::symlink_metadata(above.as_path().join(".git")).is_ok())?;
        if !self.indexes.contains_key(&tree) {
            let index = self.index_of(&tree);
            self.indexes.insert(tree.clone(), index);
        }
        let name = path.relative_to(&tree)?.as_os_str().as_bytes().to_vec();
        Some((tree, name))
    }

    /// Index of a working tree whose git directory commands can read.
    fn index_of(&self, tree: &AbsPath) -> Option<GitIndex> {
        let dot_git = tree.join(".git");
        let is_directory = fs::symlink_metadata(dot_git.as_path()).ok()?.is_dir();
        let directory = if is_directory {
            dot_git
        } else {
            git::gitdir_target(&dot_git).or_else(|| git::link_target_dir(&dot_git))?
        };
        let file = directory.join("index");
        let is_readable = self.grants.verdict(&file, Access::Read) == Verdict::Allowed;
        let is_plain =
            fs::symlink_metadata(file.as_path()).is_ok_and(|metadata| metadata.is_file());
        if is_readable && is_plain { parse_blobs(&read_index(file.as_path()).ok()?) } else { None }
    }
}

/// The directory and all below it, if they contain only source code or tracked files.
fn source_directories(directory: &AbsPath, tracked: &TrackedFiles) -> Option<Vec<AbsPath>> {
    const MANY: usize = 4096;
    let (mut directories, mut seen, mut has_files) = (vec![directory.clone()], 0, false);
    let mut at = 0;
    while let Some(directory) = directories.get(at).cloned() {
        at += 1;
        for entry in fs::read_dir(directory.as_path()).ok()? {
            let entry = entry.ok()?;
            let (name, kind) = (entry.file_name(), entry.file_type().ok()?);
            let path = directory.join(&name);
            seen += 1;
            if seen > MANY {
                return None;
            } else if kind.is_dir() {
                directories.push(path);
            } else if (kind.is_file() && is_source_name(&name)) || tracked.files.contains_key(&path)
            {
                has_files = true;
            } else {
                return None;
            }
        }
    }
    has_files.then_some(directories)
}

/// Content of a file, or target of a symbolic link.
struct TrackedContent {
    is_link: bool,
    /// Device and inode.
    identity: (u64, u64),
    /// Creation time.
    born: Option<(i64, u32)>,
    bytes: Vec<u8>,
}

impl TrackedContent {
    fn read(path: &AbsPath, most: u64) -> Option<Self> {
        let metadata = fs::symlink_metadata(path.as_path()).ok()?;
        if metadata.is_symlink() {
            let target = fs::read_link(path.as_path()).ok()?;
            let identity = (metadata.dev(), metadata.ino());
            let born = FileIdentity::from_entry(CWD, path.as_path())?.birth_time();
            return Some(Self {
                is_link: true,
                identity,
                born,
                bytes: target.into_os_string().as_bytes().to_vec(),
            });
        }
        let most = most.min(MAX_FILE);
        if !metadata.is_file() || metadata.len() > most {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(
            rustix::fs::openat2(
                CWD,
                path.as_path(),
                flags,
                Mode::empty(),
                ResolveFlags::NO_SYMLINKS,
            )
            .ok()?,
        );
        let mut bytes = Vec::new();
        let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
        let identity = (metadata.dev(), metadata.ino());
        let born = FileIdentity::from_fd(&file)?.birth_time();
        file.take(most + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= most).then_some(Self { is_link: false, identity, born, bytes })
    }

    fn digest(&self) -> ContentDigest {
        let mut hasher = Sha256::new();
        hasher.update(if self.is_link { b"l" } else { b"f" });
        hasher.update(&self.bytes);
        hasher.finalize().into()
    }

    /// True if git would store this content as the object of an index entry.
    fn is_object(&self, entry: &GitEntry) -> bool {
        if self.is_link != entry.is_link {
            return false;
        }
        // With `core.autocrlf`, git stores lines without the carriage return.
        is_blob(&self.bytes, &entry.object)
            || (!self.is_link
                && without_carriage_returns(&self.bytes)
                    .is_some_and(|bytes| is_blob(&bytes, &entry.object)))
    }
}

fn is_blob(bytes: &[u8], object: &[u8]) -> bool {
    let head = format!("blob {}\0", bytes.len());
    match object.len() {
        20 => Sha1::new().chain_update(&head).chain_update(bytes).finalize()[..] == *object,
        32 => Sha256::new().chain_update(&head).chain_update(bytes).finalize()[..] == *object,
        _ => false,
    }
}

/// The content with `\n` for each `\r\n`; `None` if it has none.
fn without_carriage_returns(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.windows(2).any(|pair| pair == b"\r\n") {
        return None;
    }
    let is_kept = |at: &usize| bytes[*at] != b'\r' || bytes.get(at + 1) != Some(&b'\n');
    Some((0..bytes.len()).filter(is_kept).map(|at| bytes[at]).collect())
}

/// Digest of the file at `path`; `None` if it is no file, or too large.
pub(crate) fn content_digest(path: &AbsPath) -> Option<ContentDigest> {
    TrackedContent::read(path, MAX_FILE).map(|content| content.digest())
}

/// Adds `path` to the tracked files of `grants` if it is one: for a single query, without a survey.
pub fn grant_if_tracked(grants: &mut Grants, path: &AbsPath) {
    let mut found = TrackedFiles::default();
    let roots: Vec<AbsPath> = grants
        .rules
        .iter()
        .filter(|rule| super::is_walked(rule))
        .map(|rule| rule.root.clone())
        .collect();
    TrackedLookup::new(grants, &roots, &RememberedFiles::new()).find_tracked(path, &mut found);
    // A file in a directory with a denied name is granted together with it.
    if found.files.contains_key(path) {
        let denied = path
            .ancestors()
            .skip(1)
            .filter(|above| grants.verdict(above, Access::Read) == Verdict::Denied);
        found.directories.extend(denied.collect::<Vec<_>>());
    }
    grants.tracked.extend(found);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_hashes_match_git() {
        // `printf 'hello\n'
        // git hash-object --stdin`
        let sha1 = [
            0xce, 0x01, 0x36, 0x25, 0x03, 0x0b, 0xa8, 0xdb, 0xa9, 0x06, 0xf7, 0x56, 0x96, 0x7f,
            0x9e, 0x9c, 0xa3, 0x94, 0x46, 0x4a,
        ];
        let entry = GitEntry { is_link: false, object: sha1.to_vec() };
        let content = |bytes: &[u8], is_link| TrackedContent {
            is_link,
            identity: (0, 0),
            born: None,
            bytes: bytes.to_vec(),
        };
        assert!(content(b"hello\n", false).is_object(&entry));
        assert!(content(b"hello\r\n", false).is_object(&entry));
        assert!(!content(b"hello\r", false).is_object(&entry));
        assert!(!content(b"hello\n", true).is_object(&entry));
        assert!(!is_blob(b"hello\n", &sha1[..19]) && !is_blob(b"", b""));
    }
}
