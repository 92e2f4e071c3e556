//! Identity of a file that detects reuse of its inode number.

use std::fmt;
use std::os::fd::AsFd;
use std::str::FromStr;

use rustix::fs::{AtFlags, StatxFlags};
use serde::{Deserialize, Serialize};

/// Identity of a file, which another file with the same inode does not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    device: (u32, u32),
    inode: u64,
    /// Birth time in seconds and nanoseconds, if the file system records it.
    born: (i64, u32),
}

impl FileIdentity {
    /// Identity of the file at a name; a symlink is not followed.
    pub fn from_entry(directory: impl AsFd, name: impl rustix::path::Arg) -> Option<Self> {
        Self::from_statx(directory, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Identity of an open file.
    pub fn from_fd(file: impl AsFd) -> Option<Self> {
        Self::from_statx(file, "", AtFlags::EMPTY_PATH)
    }

    fn from_statx(
        directory: impl AsFd,
        name: impl rustix::path::Arg,
        flags: AtFlags,
    ) -> Option<Self> {
        let mask = StatxFlags::INO | StatxFlags::BTIME;
        let found = rustix::fs::statx(directory, name, flags, mask).ok()?;
        let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born =
            if is_known { (found.stx_btime.tv_sec, found.stx_btime.tv_nsec) } else { (0, 0) };
        Some(Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            born,
        })
    }

    /// Birth time in seconds and nanoseconds; `None` if the file system does not record it. Then
    /// another file may have reused the inode.
    pub fn birth_time(&self) -> Option<(i64, u32)> {
        (self.born != (0, 0)).then_some(self.born)
    }
}

impl fmt::Display for FileIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}:{}:{}",
            self.device.0, self.device.1, self.inode, self.born.0, self.born.1
        )
    }
}

/// Error for text that is not a [`FileIdentity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotABirth;

impl FromStr for FileIdentity {
    type Err = NotABirth;

    fn from_str(text: &str) -> Result<Self, NotABirth> {
        fn next<T: FromStr>(words: &mut std::str::Split<'_, char>) -> Result<T, NotABirth> {
            words.next().and_then(|word| word.parse().ok()).ok_or(NotABirth)
        }
        let mut words = text.split(':');
        let device = (next(&mut words)?, next(&mut words)?);
        let (inode, born) = (next(&mut words)?, (next(&mut words)?, next(&mut words)?));
        if words.next().is_none() { Ok(Self { device, inode, born }) } else { Err(NotABirth) }
    }
}

#[cfg(test)]
mod tests {
    use super::{FileIdentity, NotABirth};

    #[test]
    fn birth_round_trips_through_text() {
        let birth = FileIdentity::from_entry(rustix::fs::CWD, "/").unwrap();
        assert_eq!(birth.to_string().parse(), Ok(birth));
        for text in ["", "1:2:3:4", "1:2:3:4:5:6", "a:2:3:4:5"] {
            assert_eq!(text.parse::<FileIdentity>(), Err(NotABirth), "{text}");
        }
    }
}
