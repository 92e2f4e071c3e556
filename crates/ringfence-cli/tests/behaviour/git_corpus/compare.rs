//! The state of a world on the host, and the difference between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ringfence_testkit::Ran;

/// Everything that is compared: a name and its content.
pub(super) type State = BTreeMap<String, String>;

/// The most entries that one failure shows.
const MOST_SHOWN: usize = 14;

/// Adds the output and the end of a command.
pub(super) fn add_outcome(state: &mut State, ran: &Ran, base: &Path) {
    state.insert("exit status".into(), ran.status.to_string());
    state.insert("stdout".into(), normalised(&ran.stdout, base));
    state.insert("stderr".into(), normalised(&ran.stderr, base));
}

/// Adds every file, directory and link below `directory`: type, mode, owner and content.
///
/// Objects, indexes and ref tables are left out: packs, cached file times and names of tables differ
/// between equal repositories. `git ls-files`, `git for-each-ref` and `git fsck` stand for them.
pub(super) fn add_tree(state: &mut State, directory: &Path, base: &Path) {
    let mut entries: Vec<_> = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if matches!(&*name, "objects" | "index" | "reftable") || name.starts_with("sharedindex.") {
            continue;
        }
        let mode = format!("{:o} {}", metadata.mode(), metadata.uid());
        let content = if metadata.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap_or_default().display())
        } else if metadata.is_file() {
            file_content(&path, &name, base)
        } else {
            String::new()
        };
        let key = normalised(path.as_os_str().as_encoded_bytes(), base);
        state.insert(key, format!("{mode}\n{}", content.replace(&*base.to_string_lossy(), "/WORLD")));
        if metadata.is_dir() {
            add_tree(state, &path, base);
        }
    }
}

fn file_content(path: &Path, name: &str, base: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if matches!(name, "config" | "config.worktree") {
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
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
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
    let mut differing: Vec<&String> = names.into_iter().filter(|name| bare.get(*name) != inside.get(*name)).collect();
    // Output explains a difference sooner than paths do.
    differing.sort_by_key(|name| name.starts_with('/'));
    differing.into_iter().take(MOST_SHOWN).map(|name| paragraph(name, bare.get(name), inside.get(name))).collect()
}

fn paragraph(name: &str, bare: Option<&String>, inside: Option<&String>) -> String {
    let (Some(bare), Some(inside)) = (bare, inside) else {
        return format!("    {name}: only {}\n", if bare.is_some() { "bare" } else { "inside" });
    };
    let lines = |text: &String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (bare, inside) = (lines(bare), lines(inside));
    let only = |sign: char, these: &[String], those: &[String]| -> String {
        these.iter().filter(|line| !those.contains(line)).take(8).map(|line| format!("      {sign} {line}\n")).collect()
    };
    format!("    {name} (- bare, + inside):\n{}{}", only('-', &bare, &inside), only('+', &inside, &bare))
}
