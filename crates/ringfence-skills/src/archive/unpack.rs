//! Unpacks files, with checks on the fly.

use std::io::{self, Read, Seek, SeekFrom};

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::fault::{ArchiveError, ArchiveFault};
use super::{ArchiveEntry, CheckedArchive};
use crate::error::StoreError;

const CHUNK: usize = 64 << 10;

/// The receiver of unpacked entries.
pub(crate) trait UnpackSink {
    /// Begins the next entry: a file of this kind, or a directory.
    fn begin(&mut self, entry: &ArchiveEntry) -> Result<(), StoreError>;
    /// Adds bytes to it.
    fn more(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Ends it.
    fn end(&mut self) -> Result<(), StoreError>;
}

/// Unpacks every entry, in the order of their names.
pub(crate) fn unpack(
    from: &mut (impl Read + Seek),
    archive: &CheckedArchive,
    into: &mut impl UnpackSink,
) -> Result<(), StoreError> {
    for entry in &archive.entries {
        into.begin(entry)?;
        let mut checked = CheckedEntry { entry, into, size: 0, crc: Crc::new() };
        from.seek(SeekFrom::Start(entry.packed.at)).map_err(|error| checked.fault(error.into()))?;
        let packed = from.by_ref().take(entry.packed.length);
        if entry.packed.is_deflated {
            inflate(packed, &mut checked)?
        } else {
            copy(packed, &mut checked)?
        }
        checked.close()?;
        into.end()?;
    }
    Ok(())
}

fn copy(
    mut packed: impl Read,
    checked: &mut CheckedEntry<'_, impl UnpackSink>,
) -> Result<(), StoreError> {
    let mut chunk = vec![0; CHUNK];
    loop {
        match fill(&mut packed, &mut chunk).map_err(|error| checked.fault(error.into()))? {
            0 => return Ok(()),
            count => checked.take(&chunk[..count])?,
        }
    }
}

/// The stream must end with the entry: hidden bytes behind it would be visible to some readers
/// only.
fn inflate(
    mut packed: impl Read,
    checked: &mut CheckedEntry<'_, impl UnpackSink>,
) -> Result<(), StoreError> {
    let mut machine = Decompress::new(false);
    let (mut chunk, mut out) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut is_over = false;
    loop {
        let count = fill(&mut packed, &mut chunk).map_err(|error| checked.fault(error.into()))?;
        if is_over || count == 0 {
            return if is_over && count == 0 {
                Ok(())
            } else {
                Err(checked.fault(ArchiveFault::Data))
            };
        }
        let mut rest = &chunk[..count];
        loop {
            let (before_in, before_out) = (machine.total_in(), machine.total_out());
            let status = machine
                .decompress(rest, &mut out, FlushDecompress::None)
                .map_err(|_| checked.fault(ArchiveFault::Data))?;
            let (read, made) = (
                (machine.total_in() - before_in) as usize,
                (machine.total_out() - before_out) as usize,
            );
            checked.take(&out[..made])?;
            rest = &rest[read..];
            if status == Status::StreamEnd {
                is_over = true;
                break;
            }
            // The input is used up.
            if read == 0 && made == 0 {
                break;
            }
        }
        if !rest.is_empty() {
            return Err(checked.fault(ArchiveFault::Data));
        }
    }
}

fn fill(from: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The bytes of one entry, compared with its header.
struct CheckedEntry<'a, S> {
    entry: &'a ArchiveEntry,
    into: &'a mut S,
    size: u64,
    crc: Crc,
}

impl<S: UnpackSink> CheckedEntry<'_, S> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.size += bytes.len() as u64;
        // The limits were checked against the declared size, so no more bytes are accepted.
        if self.size > self.entry.packed.size {
            return Err(self.fault(ArchiveFault::Size));
        }
        self.crc.update(bytes);
        self.into.more(bytes)
    }

    fn close(&self) -> Result<(), StoreError> {
        if self.size != self.entry.packed.size {
            return Err(self.fault(ArchiveFault::Size));
        }
        if self.crc.sum() != self.entry.packed.checksum {
            return Err(self.fault(ArchiveFault::Checksum));
        }
        Ok(())
    }

    fn fault(&self, fault: ArchiveFault) -> StoreError {
        let error: ArchiveError = fault.for_entry(self.entry.name.as_bytes());
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::super::{ArchiveEntryKind, PackedRange};
    use super::*;

    /// Counts the bytes it gets.
    #[derive(Default)]
    struct Counting(u64);

    impl UnpackSink for Counting {
        fn begin(&mut self, _: &ArchiveEntry) -> Result<(), StoreError> {
            Ok(())
        }

        fn more(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
            self.0 += bytes.len() as u64;
            Ok(())
        }

        fn end(&mut self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[test]
    fn entry_with_a_wrong_size_writes_no_more_than_declared() {
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![0; 8 << 20]).unwrap();
        let bytes = encoder.finish().unwrap();
        let packed = PackedRange {
            at: 0,
            length: bytes.len() as u64,
            size: 100_000,
            checksum: 0,
            is_deflated: true,
        };
        let entry = ArchiveEntry { name: "a/x".into(), kind: ArchiveEntryKind::File, packed };
        let archive =
            CheckedArchive { entries: vec![entry], skills: Vec::new(), warnings: Vec::new() };
        let mut counting = Counting::default();
        let error = unpack(&mut Cursor::new(bytes), &archive, &mut counting).unwrap_err();
        assert!(
            matches!(error, StoreError::Archive { source } if source.fault == ArchiveFault::Size)
        );
        assert!(counting.0 <= 100_000, "{}", counting.0);
    }
}
