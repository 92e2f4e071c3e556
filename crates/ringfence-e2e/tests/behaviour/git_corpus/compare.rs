//! The state of a world on the host, and the difference between two of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringfence_testkit::TestOutput;

/// Everything that is compared: a name and its content.
pub(super) type State = BTreeMap<String, String>;

/// The most entries that one failure shows.
const MOST_SHOWN: usize = 14;

/// Adds the output and the end of a command.
pub(super) fn add_outcome(state: &mut State, ran: &TestOutput, base: &Path) {
    state.insert("exit status".into(), ran.status.to_string());
    state.insert("stdout".into(), normalised(&ran.stdout, base));
    state.insert("stderr".into(), normalised(&ran.stderr, base));
}

/// Reader of a world's files that reads each of them again only after a change.
#[derive(Default)]
pub(super) struct TreeReader {
    known: HashMap<PathBuf, (CorpusFileStamp, String)>,
}

/// Stamps of the indexes and ref tables, which are not compared.
pub(super) type Stamps = BTreeMap<PathBuf, CorpusFileStamp>;

/// Attributes that change with the content of a file: inode, size and times.
pub(super) type CorpusFileStamp = (u64, u64, SystemTime, i64, i64);

fn stamp(metadata: &Metadata) -> CorpusFileStamp {
    let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    (metadata.ino(), metadata.size(), written, metadata.ctime(), metadata.ctime_nsec())
}

impl TreeReader {
    /// Adds every file, directory and link below `directory`: type, mode, owner and content.
    ///
    /// Objects, indexes and ref tables are left out: packs, cached file times and names of tables
    /// differ between equal repositories. `git ls-files`, `git for-each-ref` and `git fsck` stand
    /// for them. Their stamps are returned.
    pub(super) fn add_tree(&mut self, state: &mut State, directory: &Path, base: &Path) -> Stamps {
        let mut stamps = Stamps::new();
        let mut entries: Vec<_> = fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if matches!(&*name, "index" | "reftable") || name.starts_with("sharedindex.") {
                stamps.insert(path.clone(), stamp(&metadata));
                continue;
            }
            if name == "objects" {
                continue;
            }
            let content = if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap_or_default().display())
            } else if metadata.is_file() {
                self.content(&path, &metadata, base)
            } else {
                String::new()
            };
            let mode = format!("{:o} {}", metadata.mode(), metadata.uid());
            state.insert(
                normalised(path.as_os_str().as_encoded_bytes(), base),
                format!("{mode}\n{content}"),
            );
            if metadata.is_dir() {
                stamps.append(&mut self.add_tree(state, &path, base));
            }
        }
        stamps
    }

    fn content(&mut self, path: &Path, metadata: &Metadata, base: &Path) -> String {
        let stamp = stamp(metadata);
        if let Some((known, content)) = self.known.get(path)
            && *known == stamp
        {
            return content.clone();
        }
        let content = file_content(path, base);
        // The clock of file systems ticks slowly: a young file could change again with the same
        // stamp.
        let changed = SystemTime::UNIX_EPOCH
            + Duration::new(metadata.ctime() as u64, metadata.ctime_nsec() as u32);
        if changed.elapsed().is_ok_and(|age| age > Duration::from_millis(50)) {
            self.known.insert(path.to_owned(), (stamp, content.clone()));
        }
        content
    }
}

fn file_content(path: &Path, base: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if path.file_name().is_some_and(|name| name == "config" || name == "config.worktree") {
        return settings(&normalised(&bytes, base));
    }
    if bytes.len() > 4096 {
        let mut hasher = DefaultHasher::new();
        normalised(&bytes, base).hash(&mut hasher);
        return format!("{} bytes, hash {:x}", bytes.len(), hasher.finish());
    }
    normalised(&bytes, base)
}

/// The settings of a git config in sorted order: where a section stands is no difference.
fn settings(text: &str) -> String {
    let mut section = "";
    let mut settings = BTreeSet::new();
    for line in
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if line.starts_with('[') {
            section = line;
        } else {
            settings.insert(format!("{section} {line}\n"));
        }
    }
    settings.into_iter().collect()
}

/// Text in which the world's own directory has a fixed name.
fn normalised(bytes: &[u8], base: &Path) -> String {
    String::from_utf8_lossy(bytes).replace(&*base.to_string_lossy(), "/WORLD")
}

/// The differences, one paragraph for each; empty if there are none.
pub(super) fn differences(bare: &State, inside: &State) -> String {
    let names: BTreeSet<&String> = bare.keys().chain(inside.keys()).collect();
    let mut differing: Vec<&String> =
        names.into_iter().filter(|name| bare.get(*name) != inside.get(*name)).collect();
    // Output explains a difference sooner than paths do.
    differing.sort_by_key(|name| name.starts_with('/'));
    differing
        .into_iter()
        .take(MOST_SHOWN)
        .map(|name| paragraph(name, bare.get(name), inside.get(name)))
        .collect()
}

fn paragraph(name: &str, bare: Option<&String>, inside: Option<&String>) -> String {
    let (Some(bare), Some(inside)) = (bare, inside) else {
        return format!("    {name}: only {}\n", if bare.is_some() { "bare" } else { "inside" });
    };
    let lines = |text: &String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (bare, inside) = (lines(bare), lines(inside));
    let only = |sign: char, these: &[String], those: &[String]| -> String {
        these
            .iter()
            .filter(|line| !those.contains(line))
            .take(8)
            .map(|line| format!("      {sign} {line}\n"))
            .collect()
    };
    format!(
        "    {name} (- bare, + inside):\n{}{}",
        only('-', &bare, &inside),
        only('+', &inside, &bare)
    )
}
