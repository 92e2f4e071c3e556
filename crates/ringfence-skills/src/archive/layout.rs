//! The layout of an archive: entries without gaps from the first byte, then the directory, then its
//! end with a comment, up to the last byte.
//!
//! In any other layout two programs may see different archives: a gap may hold headers for a reader
//! from the front, bytes before the first entry shift every offset for a reader from the back, and
//! entries that share bytes expand a few bytes to petabytes.

use std::io::{Read, Seek, SeekFrom};

use super::fault::{ArchiveError, ArchiveFault};
use super::record::{CentralRecord, DESCRIPTOR, RecordCursor, extras};
use crate::bounds::UploadBounds;

/// The length of the end record without its comment.
const END: u64 = 22;
/// The length of an entry's header without name and extra field.
const HEADER: u64 = 30;
/// The size limit of the directory, far above that of a valid one.
const MAX_DIRECTORY_SIZE: u64 = 16 << 20;

/// All entries in the order of the directory, without overlap.
pub(super) fn read(
    archive: &mut (impl Read + Seek),
    bounds: &UploadBounds,
) -> Result<Vec<CentralRecord>, ArchiveError> {
    let size =
        archive.seek(SeekFrom::End(0)).map_err(|error| ArchiveFault::from(error).for_archive())?;
    if size > bounds.archive {
        return Err(ArchiveFault::ArchiveSize { size, limit: bounds.archive }.for_archive());
    }
    let directory =
        CentralDirectory::find(archive, size, bounds).map_err(ArchiveFault::for_archive)?;
    let bytes =
        read_range(archive, directory.at, directory.length).map_err(ArchiveFault::for_archive)?;
    let mut fields = RecordCursor(&bytes);
    let mut records = Vec::new();
    for _ in 0..directory.count {
        records.push(
            CentralRecord::central(&mut fields).map_err(|(name, fault)| fault.for_entry(&name))?,
        );
    }
    if !fields.0.is_empty() {
        return Err(ArchiveFault::Broken { what: "it is longer than its entries" }.for_archive());
    }
    for record in &mut records {
        read_local_header(archive, record, directory.at)
            .map_err(|fault| fault.for_entry(&record.name))?;
    }
    check_no_gaps(archive, &records, directory.at)?;
    Ok(records)
}

/// The position of the directory.
struct CentralDirectory {
    at: u64,
    length: u64,
    count: u16,
}

impl CentralDirectory {
    fn find(
        archive: &mut (impl Read + Seek),
        size: u64,
        bounds: &UploadBounds,
    ) -> Result<CentralDirectory, ArchiveFault> {
        let tail = size.min(END + u64::from(u16::MAX));
        let bytes = read_range(archive, size - tail, tail)?;
        // The last end record counts, as for all readers from the back.
        let from = bytes
            .windows(4)
            .rposition(|window| window == b"PK\x05\x06")
            .ok_or(ArchiveFault::NoArchive)?;
        let at = size - tail + from as u64;
        let mut fields = RecordCursor(&bytes[from + 4..]);
        let disks = (fields.u16()?, fields.u16()?);
        let (here, count) = (fields.u16()?, fields.u16()?);
        let (length, begin) = (fields.u32()?, fields.u32()?);
        let comment = fields.u16()?;
        if here == u16::MAX || count == u16::MAX || length == u32::MAX || begin == u32::MAX {
            return Err(ArchiveFault::Zip64);
        }
        if disks != (0, 0) || here != count {
            return Err(ArchiveFault::Volumes);
        }
        if fields.0.len() != usize::from(comment) {
            return Err(ArchiveFault::Stray {
                from: size - fields.0.len() as u64 + u64::from(comment),
                to: size,
            });
        }
        let (length, begin) = (u64::from(length), u64::from(begin));
        if begin + length != at {
            return Err(if begin + length < at {
                ArchiveFault::Stray { from: begin + length, to: at }
            } else {
                ArchiveFault::Broken { what: "it overlaps its end" }
            });
        }
        if usize::from(count) > bounds.entries {
            return Err(ArchiveFault::Entries {
                count: count.into(),
                limit: bounds.entries as u64,
            });
        }
        if length > MAX_DIRECTORY_SIZE {
            return Err(ArchiveFault::Broken { what: "it is larger than 16 MiB" });
        }
        Ok(CentralDirectory { at: begin, length, count })
    }
}

/// Reads the header before an entry's bytes, and finds their position.
fn read_local_header(
    archive: &mut (impl Read + Seek),
    record: &mut CentralRecord,
    end: u64,
) -> Result<(), ArchiveFault> {
    if record.header + HEADER > end {
        return Err(ArchiveFault::Broken { what: "an entry is not where the directory says" });
    }
    let fixed = read_range(archive, record.header, HEADER)?;
    let (name, extra) = record.compare(&fixed)?;
    let bytes = read_range(archive, record.header + HEADER, (name + extra) as u64)?;
    let (name, extra) = bytes.split_at(name);
    if name != record.name {
        return Err(ArchiveFault::Disagreement { what: "name" });
    }
    extras(extra, name)?;
    record.data = record.header + HEADER + bytes.len() as u64;
    Ok(())
}

/// Checks that the entries follow each other from the first byte to the directory.
fn check_no_gaps(
    archive: &mut (impl Read + Seek),
    records: &[CentralRecord],
    end: u64,
) -> Result<(), ArchiveError> {
    let mut order: Vec<&CentralRecord> = records.iter().collect();
    order.sort_by_key(|record| record.header);
    let first = order.first().map_or(end, |record| record.header);
    if first != 0 {
        return Err(ArchiveFault::Stray { from: 0, to: first }.for_archive());
    }
    for (i, record) in order.iter().enumerate() {
        let next = order.get(i + 1).map_or(end, |next| next.header);
        let data_end = record.data + record.length;
        let fault = match next.checked_sub(data_end) {
            None => Some(ArchiveFault::Overlap),
            Some(gap) if record.flags & DESCRIPTOR != 0 => {
                let bytes = if gap <= 16 {
                    read_range(archive, data_end, gap)
                        .map_err(|fault| fault.for_entry(&record.name))?
                } else {
                    Vec::new()
                };
                (!record.is_described_by(&bytes))
                    .then_some(ArchiveFault::Disagreement { what: "size" })
            }
            Some(0) => None,
            Some(_) => Some(ArchiveFault::Stray { from: data_end, to: next }),
        };
        if let Some(fault) = fault {
            return Err(fault.for_entry(&record.name));
        }
    }
    Ok(())
}

fn read_range(
    archive: &mut (impl Read + Seek),
    at: u64,
    length: u64,
) -> Result<Vec<u8>, ArchiveFault> {
    archive.seek(SeekFrom::Start(at))?;
    let mut bytes = vec![
        0;
        usize::try_from(length)
            .map_err(|_| ArchiveFault::Broken { what: "it ends too early" })?
    ];
    archive.read_exact(&mut bytes)?;
    Ok(bytes)
}
