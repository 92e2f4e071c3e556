//! Limits of uploads and downloads.

use std::time::Duration;

/// Limits of uploads and downloads. Excess input is refused, never truncated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadBounds {
    /// Bytes of an archive.
    pub archive: u64,
    /// Entries of an archive, with directories.
    pub entries: usize,
    /// Skills of an archive.
    pub skills: usize,
    /// Bytes of everything in an archive, unpacked.
    pub total: u64,
    /// Bytes of one unpacked file; also of a file that is read or edited.
    pub file: u64,
    /// The maximum compression ratio, beyond the first MiB.
    pub ratio: u64,
    /// The maximum depth of directories, with the skill's own.
    pub depth: usize,
    /// Bytes of one component of a name.
    pub component: usize,
    /// Bytes of a whole name.
    pub name: usize,
    /// Bytes of content per response.
    pub content: u64,
    /// Files listed per skill.
    pub listed: usize,
    /// The maximum number of file and directory names per user: each count of the usage visits all
    /// of them.
    pub counted: u64,
    /// The time limit for other users of the same skill.
    pub patience: Duration,
}

impl Default for UploadBounds {
    fn default() -> UploadBounds {
        UploadBounds {
            archive: 64 << 20,
            entries: 10_000,
            skills: 100,
            total: 512 << 20,
            file: 128 << 20,
            ratio: 200,
            depth: 32,
            component: 255,
            name: 1024,
            content: 8 << 20,
            listed: 20_000,
            counted: 250_000,
            patience: Duration::from_secs(30),
        }
    }
}
