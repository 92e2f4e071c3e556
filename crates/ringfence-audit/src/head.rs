//! The head file: the position of the last record.
//!
//! It has a fixed size and is written in place with one call. Every writer holds its lock, so there
//! is no other lock file.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::chain::{RecordHash, digest};
use crate::error::{AuditError, AuditStep};
use crate::platform;

/// The position of the log's end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LogHead {
    /// The number of the current file.
    pub file: u64,
    /// The length of its valid part in bytes.
    pub length: u64,
    /// The number of records in all files.
    pub seq: u64,
    /// The hash of the last record.
    pub hash: RecordHash,
}

/// The file name.
pub(crate) const NAME: &str = "head";

const LENGTH: usize = 238;

impl LogHead {
    /// The head before the first record.
    pub(crate) const START: LogHead =
        LogHead { file: 1, length: 0, seq: 0, hash: RecordHash([0; 32]) };

    fn write(&self) -> String {
        let LogHead { file, length, seq, hash } = self;
        let body = format!(
            "ringfence audit 1\nfile {file:020}\nlength {length:020}\nseq {seq:020}\nhash {hash}\n"
        );
        let check = digest(body.as_bytes());
        let text = format!("{body}check {check}\n");
        debug_assert_eq!(text.len(), LENGTH);
        text
    }

    fn read(text: &[u8]) -> Option<LogHead> {
        let text = std::str::from_utf8(text).ok()?;
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let number = |name: &str| field(name)?.parse().ok();
        let head = LogHead {
            file: number("file")?,
            length: number("length")?,
            seq: number("seq")?,
            hash: RecordHash::parse(field("hash")?)?,
        };
        // Also compares the check and everything else in the file.
        (head.write() == text).then_some(head)
    }

    /// Reads the head; `None` if the file is not a valid head.
    pub(crate) fn load(file: &File, path: &Path) -> Result<Option<LogHead>, AuditError> {
        let mut text = [0; LENGTH + 1];
        let length = platform::read_at(file, &mut text, 0).during("read", path)?;
        Ok(LogHead::read(&text[..length]))
    }

    pub(crate) fn store(&self, file: &File, path: &Path) -> Result<(), AuditError> {
        let text = self.write();
        let written = platform::write_at(file, text.as_bytes(), 0).during("write", path)?;
        if written < text.len() {
            return Err(io::Error::from(io::ErrorKind::StorageFull)).during("write", path);
        }
        Ok(())
    }
}

/// The lock of the log, released when dropped.
pub(crate) struct LogLock<'a>(&'a File);

/// The mode of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogLockMode {
    Shared,
    Exclusive,
}

/// The time limit for the lock. A writer needs some microseconds, but a stopped writer would block
/// all others.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

impl<'a> LogLock<'a> {
    pub(crate) fn take(
        file: &'a File,
        path: &Path,
        share: LogLockMode,
    ) -> Result<Self, AuditError> {
        let try_lock = match share {
            LogLockMode::Shared => File::try_lock_shared,
            LogLockMode::Exclusive => File::try_lock,
        };
        let mut begun = None;
        let mut pause = Duration::from_micros(10);
        loop {
            match try_lock(file) {
                Ok(()) => return Ok(LogLock(file)),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {
                    continue;
                }
                Err(TryLockError::Error(error)) => return Err(error).during("lock", path),
            }
            if begun.get_or_insert_with(Instant::now).elapsed() > LOCK_TIMEOUT {
                return Err(AuditError::Busy { path: path.to_owned() });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }
}

impl Drop for LogLock<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_has_fixed_size_and_survives_the_round_trip() {
        let large = LogHead { file: u64::MAX, length: u64::MAX, seq: u64::MAX, hash: digest(b"x") };
        for head in
            [LogHead::START, large, LogHead { file: 3, length: 1234, seq: 56, hash: digest(b"y") }]
        {
            assert_eq!(head.write().len(), LENGTH);
            assert_eq!(LogHead::read(head.write().as_bytes()), Some(head));
        }
    }

    #[test]
    fn any_flipped_bit_makes_the_head_invalid() {
        let text = LogHead { file: 3, length: 1234, seq: 56, hash: digest(b"y") }.write();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut changed = text.clone().into_bytes();
                changed[at] ^= 1 << bit;
                assert_eq!(LogHead::read(&changed), None, "byte {at}, bit {bit}");
            }
            assert_eq!(LogHead::read(&text.as_bytes()[..at]), None);
        }
    }
}
