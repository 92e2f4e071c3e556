//! How much is taken in and handed out.

use std::time::Duration;

/// How much is taken in and handed out. What goes beyond is refused, never cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadBounds {
    /// Bytes of an archive.
    pub archive: u64,
    /// Entries of an archive, directories included.
    pub entries: usize,
    /// Skills of an archive.
    pub skills: usize,
    /// Bytes of everything in an archive, unpacked.
    pub total: u64,
    /// Bytes of one file, unpacked; also of one that is read or edited.
    pub file: u64,
    /// How many times as large something may become by unpacking, beyond its first MiB.
    pub ratio: u64,
    /// Directories in each other, the skill's own included.
    pub depth: usize,
    /// Bytes of one component of a name.
    pub component: usize,
    /// Bytes of a whole name.
    pub name: usize,
    /// Bytes of content that are handed out at once.
    pub content: u64,
    /// Files that are listed of a skill.
    pub listed: usize,
    /// Names of files and directories that are counted of a user, who may have no more: each look
    /// at what the user has goes through all of them.
    pub counted: u64,
    /// How long somebody waits for others who are at the same skill.
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
