//! One entry, as its two headers describe it.

use super::fault::ArchiveFault;

/// An entry of the central directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CentralRecord {
    pub(super) name: Vec<u8>,
    /// The version of the format needed to unpack it, in tenths; the upper half is a system.
    pub(super) version: u16,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) checksum: u32,
    pub(super) length: u64,
    pub(super) size: u64,
    /// The upper half is the mode on Unix.
    pub(super) attributes: u32,
    /// The offset of its local header.
    pub(super) header: u64,
    /// The offset of its bytes, known after its local header was read.
    pub(super) data: u64,
}

/// In `flags`: a data descriptor follows the bytes.
pub(super) const DESCRIPTOR: u16 = 1 << 3;
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// The compression level, which does not matter.
const COMPRESSION_LEVEL: u16 = 0b110;
const UTF8: u16 = 1 << 11;

/// Version 6.3 of the format, the newest known one.
const MAX_VERSION: u16 = 63;
const STORED: u16 = 0;
pub(super) const DEFLATED: u16 = 8;

/// A cursor over bytes that returns `Broken` at the end, never panics.
pub(super) struct RecordCursor<'a>(pub(super) &'a [u8]);

impl<'a> RecordCursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], ArchiveFault> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(ArchiveFault::Broken { what: "it ends too early" })?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ArchiveFault> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u32(&mut self) -> Result<u32, ArchiveFault> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

impl CentralRecord {
    /// Reads the next entry of the central directory.
    pub(super) fn central(
        fields: &mut RecordCursor<'_>,
    ) -> Result<CentralRecord, (Vec<u8>, ArchiveFault)> {
        let fixed =
            |fields: &mut RecordCursor<'_>| -> Result<(CentralRecord, [u16; 4]), ArchiveFault> {
                if fields.u32()? != 0x0201_4b50 {
                    return Err(ArchiveFault::Broken { what: "an entry has no signature" });
                }
                fields.take(2)?;
                let (version, flags, method) = (fields.u16()?, fields.u16()?, fields.u16()?);
                fields.take(4)?;
                let (checksum, length, size) = (fields.u32()?, fields.u32()?, fields.u32()?);
                let lengths = [fields.u16()?, fields.u16()?, fields.u16()?, fields.u16()?];
                fields.take(2)?;
                let (attributes, header) = (fields.u32()?, fields.u32()?);
                let record = CentralRecord {
                    name: fields.take(lengths[0].into())?.to_vec(),
                    version,
                    flags,
                    method,
                    checksum,
                    length: length.into(),
                    size: size.into(),
                    attributes,
                    header: header.into(),
                    data: 0,
                };
                Ok((record, lengths))
            };
        let (record, [_, extra, comment, disk]) =
            fixed(fields).map_err(|fault| (Vec::new(), fault))?;
        let rest = |fields: &mut RecordCursor<'_>| -> Result<(), ArchiveFault> {
            let extra = fields.take(extra.into())?;
            fields.take(comment.into())?;
            record.judge(disk)?;
            extras(extra, &record.name)
        };
        match rest(fields) {
            Ok(()) => Ok(record),
            Err(fault) => Err((record.name, fault)),
        }
    }

    fn judge(&self, disk: u16) -> Result<(), ArchiveFault> {
        let huge = u64::from(u32::MAX);
        if self.length == huge || self.size == huge || self.header == huge {
            return Err(ArchiveFault::Zip64);
        }
        if disk != 0 {
            return Err(ArchiveFault::Volumes);
        }
        if self.version & 0xff > MAX_VERSION {
            return Err(ArchiveFault::Version { version: self.version });
        }
        if self.flags & ENCRYPTED != 0 {
            return Err(ArchiveFault::Encrypted);
        }
        if self.flags & !(COMPRESSION_LEVEL | DESCRIPTOR | UTF8) != 0 {
            return Err(ArchiveFault::Flags { flags: self.flags });
        }
        match self.method {
            STORED if self.length != self.size => Err(ArchiveFault::Size),
            STORED | DEFLATED => Ok(()),
            method => Err(ArchiveFault::Method { method }),
        }
    }

    /// Compares the local header, without name and extra field, with this record. Returns the
    /// lengths of those two.
    pub(super) fn compare(&self, fixed: &[u8]) -> Result<(usize, usize), ArchiveFault> {
        let mut fields = RecordCursor(fixed);
        if fields.u32()? != 0x0403_4b50 {
            return Err(ArchiveFault::Broken { what: "an entry is not where the directory says" });
        }
        fields.take(2)?;
        let (flags, method) = (fields.u16()?, fields.u16()?);
        fields.take(4)?;
        let (checksum, length, size) = (fields.u32()?, fields.u32()?, fields.u32()?);
        if length == u32::MAX || size == u32::MAX {
            return Err(ArchiveFault::Zip64);
        }
        let is_later = self.flags & DESCRIPTOR != 0;
        let same = |here: u32, there: u64| u64::from(here) == there || (is_later && here == 0);
        for (is_equal, what) in [
            (flags & !COMPRESSION_LEVEL == self.flags & !COMPRESSION_LEVEL, "flags"),
            (method == self.method, "method"),
            (same(checksum, self.checksum.into()), "checksum"),
            (same(length, self.length) && same(size, self.size), "size"),
        ] {
            if !is_equal {
                return Err(ArchiveFault::Disagreement { what });
            }
        }
        Ok((fields.u16()?.into(), fields.u16()?.into()))
    }

    /// True if the data descriptor `bytes` agrees with the directory, with or without a signature.
    pub(super) fn is_described_by(&self, bytes: &[u8]) -> bool {
        let agrees = |bytes: &[u8]| {
            let mut fields = RecordCursor(bytes);
            let mut is = |value: u64| fields.u32().is_ok_and(|field| u64::from(field) == value);
            is(self.checksum.into()) && is(self.length) && is(self.size)
        };
        match bytes.len() {
            12 => agrees(bytes),
            16 => bytes.starts_with(b"PK\x07\x08") && agrees(&bytes[4..]),
            _ => false,
        }
    }
}

/// Checks the extra fields. Most hold times and owners, but some could change the type or name of
/// the entry.
pub(super) fn extras(bytes: &[u8], name: &[u8]) -> Result<(), ArchiveFault> {
    let mut fields = RecordCursor(bytes);
    while fields.0.len() >= 4 {
        let (id, length) = (fields.u16()?, fields.u16()?);
        let data = fields.take(length.into()).map_err(|_| ArchiveFault::Broken {
            what: "an extra field is longer than all fields together",
        })?;
        match id {
            0x0001 => return Err(ArchiveFault::Zip64),
            0x0017 | 0x9901 => return Err(ArchiveFault::Encrypted),
            // The first four numbers are times and owners; then comes the target of a link.
            0x000d if data.len() > 12 => return Err(ArchiveFault::Link),
            0x756e => return Err(ArchiveFault::Extra { id, what: "kind" }),
            0x7075 if data.get(5..) != Some(name) => {
                return Err(ArchiveFault::Extra { id, what: "name" });
            }
            _ => {}
        }
    }
    // Programs that align the data leave up to three zero bytes.
    if fields.0.iter().any(|byte| *byte != 0) {
        return Err(ArchiveFault::Broken { what: "an extra field has no end" });
    }
    Ok(())
}
