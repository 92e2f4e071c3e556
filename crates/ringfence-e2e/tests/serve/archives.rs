//! Minimal ZIP archives, built by hand.

/// A ZIP file with these entries, uncompressed.
pub(crate) fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let entries: Vec<TestArchiveEntry<'_>> = files
        .iter()
        .map(|(name, content)| TestArchiveEntry { name, content, mode: 0o100_644 })
        .collect();
    zip_of(&entries)
}

pub(crate) struct TestArchiveEntry<'a> {
    pub(crate) name: &'a str,
    pub(crate) content: &'a [u8],
    /// The mode as in `stat`, with the file type.
    pub(crate) mode: u32,
}

pub(crate) fn zip_of(entries: &[TestArchiveEntry<'_>]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let start = archive.len() as u32;
        let size = entry.content.len() as u32;
        let mut common = Vec::new();
        for number in [20u16, 0x0800, 0, 0, 0x21] {
            common.extend(number.to_le_bytes());
        }
        for number in [crc(entry.content), size, size] {
            common.extend(number.to_le_bytes());
        }
        common.extend((entry.name.len() as u16).to_le_bytes());
        common.extend(0u16.to_le_bytes());
        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(entry.name.as_bytes());
        archive.extend(entry.content);
        directory.extend(b"PK\x01\x02");
        directory.extend((3u16 << 8 | 20).to_le_bytes());
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend(entry.name.as_bytes());
    }
    let (start, size, count) = (archive.len() as u32, directory.len() as u32, entries.len() as u16);
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(count.to_le_bytes());
    archive.extend(count.to_le_bytes());
    archive.extend(size.to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend(0u16.to_le_bytes());
    archive
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}
