//! Identity of a file that outlives its inode number.

use std::fmt;
use std::os::fd::AsFd;
use std::str::FromStr;

use rustix::fs::{AtFlags, StatxFlags};
use serde::{Deserialize, Serialize};

/// Identity of a file, which another file with the same inode does not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Birth {
    device: (u32, u32),
    inode: u64,
    /// When it was made, in seconds and nanoseconds, where the file system knows.
    born: (i64, u32),
}

impl Birth {
    /// Of what stands at a name, be it a link.
    pub fn of(directory: impl AsFd, name: impl rustix::path::Arg) -> Option<Self> {
        Self::by(directory, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Of an open file.
    pub fn of_open(file: impl AsFd) -> Option<Self> {
        Self::by(file, "", AtFlags::EMPTY_PATH)
    }

    fn by(directory: impl AsFd, name: impl rustix::path::Arg, flags: AtFlags) -> Option<Self> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = rustix::fs::statx(directory, name, flags, wanted).ok()?;
        let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born =
            if is_known { (found.stx_btime.tv_sec, found.stx_btime.tv_nsec) } else { (0, 0) };
        Some(Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            born,
        })
    }

    /// Seconds and nanoseconds of its creation; `None` where the file system does not record
    /// it. Without it, another file may have taken over the inode.
    pub fn born(&self) -> Option<(i64, u32)> {
        (self.born != (0, 0)).then_some(self.born)
    }
}

impl fmt::Display for Birth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}:{}:{}",
            self.device.0, self.device.1, self.inode, self.born.0, self.born.1
        )
    }
}

/// Text that is no [`Birth`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotABirth;

impl FromStr for Birth {
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
    use super::{Birth, NotABirth};

    #[test]
    fn text_is_read_back() {
        let birth = Birth::of(rustix::fs::CWD, "/").unwrap();
        assert_eq!(birth.to_string().parse(), Ok(birth));
        for text in ["", "1:2:3:4", "1:2:3:4:5:6", "a:2:3:4:5"] {
            assert_eq!(text.parse::<Birth>(), Err(NotABirth), "{text}");
        }
    }
}
