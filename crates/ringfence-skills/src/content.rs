//! Reads a file of a skill.

use std::fs::File;
use std::io::{BufRead, BufReader};

use base64::prelude::{BASE64_STANDARD, Engine};
use ringfence_policy::is_hidden;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bounds::UploadBounds;
use crate::error::StoreError;
use crate::lines::LineRange;
use crate::name::SkillId;
use crate::store::{HeldVersion, SkillStore};
use crate::tree;

/// The content of a file, or some lines of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillFileContent {
    /// The path as requested.
    pub path: String,
    /// The requested content.
    #[serde(flatten)]
    pub body: SkillFileBody,
    /// The size of the whole file.
    pub bytes: u64,
    /// SHA-256 of the whole file, in hexadecimal, for the precondition of an edit.
    pub etag: String,
    /// The number of lines, if it is a text.
    pub total_lines: Option<u64>,
    /// The first line in the content.
    pub start: Option<u64>,
    /// The last line in the content, possibly truncated.
    pub end: Option<u64>,
    /// True if the content is truncated.
    pub truncated: bool,
    /// True if its owner may execute it.
    pub executable: bool,
    /// The modification time, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// Text unchanged, anything else in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "encoding", content = "content", rename_all = "camelCase")]
pub enum SkillFileBody {
    /// UTF-8 without NUL.
    Text(String),
    /// RFC 4648, with padding.
    Base64(String),
}

impl SkillStore {
    /// The content of a file of a skill; with `lines`, only these, and the file must be a text.
    pub fn content(
        &self,
        skill: &SkillId,
        path: &str,
        lines: Option<LineRange>,
    ) -> Result<SkillFileContent, StoreError> {
        check_path(path, &self.inner.bounds)?;
        let held = self.hold(skill)?;
        let (file, stat) = open(&held, path)?;
        let size = stat.st_size as u64;
        if size > self.inner.bounds.file {
            return Err(StoreError::TooLarge {
                what: format!("`{path}`"),
                size,
                limit: self.inner.bounds.file,
            });
        }
        let mut taken = FileScan::new(lines, self.inner.bounds.content);
        taken
            .read(file, self.inner.bounds.file)
            .map_err(StoreError::io("read", format!("skills/{skill}/{path}")))?;
        taken.finish(skill, path, &stat)
    }
}

/// Opens a regular file of a held version.
pub(crate) fn open(held: &HeldVersion, path: &str) -> Result<(File, Stat), StoreError> {
    let not_a_file =
        |kind| StoreError::NotAFile { skill: held.skill.clone(), path: path.to_owned(), kind };
    let file = tree::open_readable(&held.directory, path).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => {
            StoreError::NoFile { skill: held.skill.clone(), path: path.to_owned() }
        }
        Errno::LOOP => not_a_file("a link, or below one"),
        Errno::NXIO | Errno::NODEV => not_a_file("a socket or a device"),
        errno => StoreError::system("open", format!("skills/{}/{path}", held.skill))(errno),
    })?;
    let stat = rustix::fs::fstat(&file)
        .map_err(StoreError::system("stat", format!("skills/{}/{path}", held.skill)))?;
    match tree::kind(&stat) {
        FileType::RegularFile => Ok((File::from(file), stat)),
        FileType::Directory => Err(not_a_file("a directory")),
        _ => Err(not_a_file("a pipe or a device")),
    }
}

/// Checks the path of a file in a skill. The kernel enforces that it stays below the skill; this
/// check gives a better error.
pub(crate) fn check_path(path: &str, bounds: &UploadBounds) -> Result<(), StoreError> {
    let refuse = |what| {
        Err(StoreError::Path {
            path: path.chars().filter(|c| !is_hidden(*c)).take(200).collect(),
            what,
        })
    };
    if path.starts_with('/') {
        return refuse("it is absolute");
    }
    if path.contains('\0') {
        return refuse("it contains NUL");
    }
    if path.len() > tree::LONGEST || path.split('/').any(|part| part.len() > bounds.component) {
        return refuse("it is too long");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return refuse("a component is empty, `.` or `..`");
    }
    Ok(())
}

/// A file read once from beginning to end.
struct FileScan {
    lines: Option<LineRange>,
    most: usize,
    kept: Vec<u8>,
    is_truncated: bool,
    digest: Sha256,
    /// The number of the next line, from 1.
    line: u64,
    is_within: bool,
    has_nul: bool,
    last_kept: u64,
    bytes: u64,
}

impl FileScan {
    fn new(lines: Option<LineRange>, most: u64) -> FileScan {
        FileScan {
            lines,
            most: usize::try_from(most).unwrap_or(usize::MAX),
            kept: Vec::new(),
            is_truncated: false,
            digest: Sha256::new(),
            line: 1,
            is_within: false,
            has_nul: false,
            last_kept: 0,
            bytes: 0,
        }
    }

    /// Stops at `limit`, even if the file grows meanwhile.
    fn read(&mut self, file: File, limit: u64) -> std::io::Result<()> {
        let mut file = BufReader::with_capacity(64 << 10, std::io::Read::take(file, limit));
        loop {
            let chunk = file.fill_buf()?;
            if chunk.is_empty() {
                return Ok(());
            }
            self.digest.update(chunk);
            self.bytes += chunk.len() as u64;
            self.has_nul |= chunk.contains(&0);
            for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
                self.keep_piece(piece);
                self.is_within = !piece.ends_with(b"\n");
                self.line += u64::from(!self.is_within);
            }
            let length = chunk.len();
            file.consume(length);
        }
    }

    fn keep_piece(&mut self, piece: &[u8]) {
        if self.lines.is_some_and(|lines| !lines.has(self.line)) {
            return;
        }
        let space = self.most - self.kept.len();
        self.is_truncated |= piece.len() > space;
        if space > 0 {
            self.kept.extend_from_slice(&piece[..piece.len().min(space)]);
            self.last_kept = self.line;
        }
    }

    fn finish(
        mut self,
        skill: &SkillId,
        path: &str,
        stat: &Stat,
    ) -> Result<SkillFileContent, StoreError> {
        let total = self.line - 1 + u64::from(self.is_within);
        let is_text = !self.has_nul && is_utf8(&mut self.kept, self.is_truncated);
        if let Some(lines) = self.lines {
            if !is_text {
                return Err(StoreError::NotText { skill: skill.clone(), path: path.to_owned() });
            }
            lines.check(total)?;
            if lines.start > total.max(1) {
                return Err(lines.none_of(total));
            }
        }
        let start = self.lines.map_or(1, |lines| lines.start);
        let body = match String::from_utf8(self.kept) {
            Ok(text) if is_text => SkillFileBody::Text(text),
            Ok(text) => SkillFileBody::Base64(BASE64_STANDARD.encode(text.as_bytes())),
            Err(error) => SkillFileBody::Base64(BASE64_STANDARD.encode(error.as_bytes())),
        };
        let has_lines = is_text && self.last_kept > 0;
        Ok(SkillFileContent {
            path: path.to_owned(),
            body,
            bytes: self.bytes,
            etag: hex(&self.digest.finalize()),
            total_lines: is_text.then_some(total),
            start: has_lines.then_some(start),
            end: has_lines.then_some(self.last_kept),
            truncated: self.is_truncated,
            executable: stat.st_mode & 0o100 != 0,
            modified_ms: tree::modified_ms(stat),
        })
    }
}

/// True for UTF-8. Removes a truncated character at the end.
fn is_utf8(bytes: &mut Vec<u8>, is_truncated: bool) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) if is_truncated && error.error_len().is_none() => {
            let valid = error.valid_up_to();
            bytes.truncate(valid);
            true
        }
        Err(_) => false,
    }
}

pub(crate) fn etag(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_stays_in_the_skill() {
        let check = |path: &str| check_path(path, &UploadBounds::default());
        for path in ["a", "a/b.txt", ".hidden", "a b", "ä\\x", "..."] {
            assert!(check(path).is_ok(), "{path:?}");
        }
        for path in [
            "",
            "/a",
            "a/",
            "a//b",
            "./a",
            "a/./b",
            "..",
            "a/../b",
            "a\0",
            &"x".repeat(256),
            &"a/".repeat(3000),
        ] {
            assert_eq!(check(path).unwrap_err().code(), "path", "{path:?}");
        }
    }
}
