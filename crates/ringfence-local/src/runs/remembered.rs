//! Contents that commands left in files with a denied name.
//!
//! A file that git tracks is open to commands, and they may change it. The changed content is no
//! longer the one in git's index, but it holds nothing that commands did not know: the next run finds
//! it open as long as the content is still this one. The list lies in the project's store, where no
//! command can write.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

use ringfence_enforce::apply::Birth;
use ringfence_enforce::{ContentDigest, RememberedFiles, content_digest};
use ringfence_policy::AbsPath;
use rustix::fs::{CWD, Mode, OFlags};

use super::{PLAIN, Runs};

const LIST: &str = ".contents";
const NEXT: &str = ".contents.next";

/// So many files are remembered; the rest is denied when its content is not the tracked one.
const MOST: usize = 10_000;

impl Runs {
    /// Reads the list. A list that is not whole counts as far as it goes.
    pub(super) fn remembered(&self) -> RememberedFiles {
        let mut text = Vec::new();
        let read = |text: &mut Vec<u8>| -> io::Result<usize> {
            let file = rustix::fs::openat(&self.directory, LIST, OFlags::RDONLY | OFlags::NONBLOCK | PLAIN, Mode::empty())?;
            fs::File::from(file).read_to_end(text)
        };
        if read(&mut text).is_err() {
            return RememberedFiles::new();
        }
        text.split(|byte| *byte == 0).filter_map(parse_line).collect()
    }

    /// Remembers the contents of files that a command made or wrote, if they are still those files.
    pub(crate) fn remember(&self, files: &HashMap<AbsPath, Birth>) {
        if files.is_empty() {
            return;
        }
        let Ok(_turn) = self.turn() else { return };
        let mut remembered = self.remembered();
        for (path, birth) in files {
            remembered.remove(path);
            // Digest between two looks at the name: the host may put another file there meanwhile.
            let is_same = || Birth::of(CWD, path.as_path()) == Some(*birth);
            if is_same()
                && let Some(digest) = content_digest(path).filter(|_| is_same())
            {
                remembered.insert(path.clone(), digest);
            }
        }
        remembered.retain(|path, _| path.as_path().symlink_metadata().is_ok());
        // Without the list, changed files are denied in the next run.
        let _ = self.write_remembered(&remembered);
    }

    fn write_remembered(&self, remembered: &RememberedFiles) -> io::Result<()> {
        let text: Vec<u8> = remembered.iter().take(MOST).flat_map(|(path, digest)| line(path, digest)).collect();
        let _ = rustix::fs::unlinkat(&self.directory, NEXT, rustix::fs::AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | PLAIN;
        let file = rustix::fs::openat(&self.directory, NEXT, flags, Mode::RUSR | Mode::WUSR)?;
        fs::File::from(file).write_all(&text)?;
        Ok(rustix::fs::renameat(&self.directory, NEXT, &self.directory, LIST)?)
    }
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
    fn lines_are_read_back() {
        let (path, mut digest) = (AbsPath::new("/a b/c\n").unwrap(), [7; 32]);
        digest[31] = 0xfe;
        assert_eq!(parse_line(line(&path, &digest).strip_suffix(b"\0").unwrap()), Some((path, digest)));
        for bad in ["", "00 /a", &"0".repeat(64), &format!("{} a", "0".repeat(64)), &format!("{} /a", "x".repeat(64))] {
            assert_eq!(parse_line(bad.as_bytes()), None, "{bad}");
        }
    }
}
