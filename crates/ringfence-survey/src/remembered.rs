//! Contents that commands left in files with a denied name.
//!
//! A file that git tracks is granted to commands, and they may change it. The changed content is no
//! longer in git's index, but it contains nothing unknown to commands: the next run grants it as
//! long as the content is the same. The list is in the project's store, where no command can write.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use ringfence_policy::{AbsPath, Effect, Grants};
use rustix::fs::CWD;

use super::tracked_files::{ContentDigest, RememberedFiles, content_digest};
use crate::birth::FileIdentity;

/// Maximum of remembered files; others are denied if their content is not the tracked one.
const MAX_FILES: usize = 10_000;

/// Reads the list. A list that a command could write is ignored.
pub(crate) fn read_list(grants: &Grants) -> RememberedFiles {
    let Some(list) = &grants.tracked.contents else { return RememberedFiles::new() };
    let real = |path: &AbsPath| fs::canonicalize(path.as_path()).ok().and_then(AbsPath::new);
    let Some(place) = real(list).filter(|place| place.name() == list.name()) else {
        return RememberedFiles::new();
    };
    let mut written = grants.rules.iter().filter(|rule| rule.effect == Effect::Write);
    if written.any(|rule| real(&rule.root).is_some_and(|root| place.is_within(&root))) {
        return RememberedFiles::new();
    }
    parse(list)
}

fn parse(list: &AbsPath) -> RememberedFiles {
    let text = fs::read(list.as_path()).unwrap_or_default();
    text.split(|byte| *byte == 0).filter_map(parse_line).collect()
}

/// Digests of the files that are still those that a command created or wrote.
pub fn digest_unchanged(files: &HashMap<AbsPath, FileIdentity>) -> RememberedFiles {
    let digested = files.iter().filter_map(|(path, birth)| {
        // The name is checked before and after: the host may replace the file meanwhile.
        let is_same = || FileIdentity::from_entry(CWD, path.as_path()) == Some(*birth);
        let digest = is_same().then(|| content_digest(path)).flatten().filter(|_| is_same())?;
        Some((path.clone(), digest))
    });
    digested.collect()
}

/// Remembers the contents of `files`, which commands created or wrote. If `left` has the contents
/// after the last command, a file that was changed since is not remembered. The caller locks the
/// project.
pub fn remember_contents(
    list: &AbsPath,
    files: &HashMap<AbsPath, FileIdentity>,
    left: Option<&RememberedFiles>,
) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let mut remembered = parse(list);
    remembered.retain(|path, _| !files.contains_key(path));
    let is_left = |path: &AbsPath, digest: &ContentDigest| {
        left.is_none_or(|left| left.get(path) == Some(digest))
    };
    remembered
        .extend(digest_unchanged(files).into_iter().filter(|(path, digest)| is_left(path, digest)));
    remembered.retain(|path, _| path.as_path().symlink_metadata().is_ok());
    let text: Vec<u8> =
        remembered.iter().take(MAX_FILES).flat_map(|(path, digest)| line(path, digest)).collect();
    let Some(next) = list.parent().map(|above| above.join(".contents.next")) else { return Ok(()) };
    fs::write(next.as_path(), text)?;
    fs::rename(next.as_path(), list.as_path())
}

fn line(path: &AbsPath, digest: &ContentDigest) -> Vec<u8> {
    let mut text = String::new();
    for byte in digest {
        let _ = write!(text, "{byte:02x}");
    }
    [text.as_bytes(), b" ", path.as_bytes(), b"\0"].concat()
}

fn parse_line(line: &[u8]) -> Option<(AbsPath, ContentDigest)> {
    let (text, path) = (line.get(..64)?, line.get(64..)?.strip_prefix(b" ")?);
    let mut digest = ContentDigest::default();
    for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some((AbsPath::new(OsStr::from_bytes(path))?, digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip() {
        let (path, mut digest) = (AbsPath::new("/a b/c\n").unwrap(), [7; 32]);
        digest[31] = 0xfe;
        assert_eq!(
            parse_line(line(&path, &digest).strip_suffix(b"\0").unwrap()),
            Some((path, digest))
        );
        for bad in [
            "",
            "00 /a",
            &"0".repeat(64),
            &format!("{} a", "0".repeat(64)),
            &format!("{} /a", "x".repeat(64)),
        ] {
            assert_eq!(parse_line(bad.as_bytes()), None, "{bad}");
        }
    }
}
