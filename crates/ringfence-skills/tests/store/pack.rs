//! Archives built byte by byte, including invalid ones.

use std::io::Write;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// One of the two headers of an entry.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) name: Vec<u8>,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) checksum: u32,
    pub(crate) length: u32,
    pub(crate) size: u32,
    pub(crate) extra: Vec<u8>,
}

/// An entry: two headers, which may be wrong, and bytes.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) local: Header,
    pub(crate) central: Header,
    pub(crate) attributes: u32,
    pub(crate) data: Vec<u8>,
    /// Bytes after the data.
    pub(crate) behind: Vec<u8>,
    /// The offset in the directory, if it is wrong.
    pub(crate) at: Option<u32>,
}

/// An archive.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pack {
    pub(crate) items: Vec<Item>,
    /// Bytes before the first entry.
    pub(crate) before: Vec<u8>,
    /// Bytes between the entries and the directory.
    pub(crate) between: Vec<u8>,
    pub(crate) comment: Vec<u8>,
    /// The number of entries in the end record, if it is wrong.
    pub(crate) count: Option<u16>,
    /// Bytes after the end.
    pub(crate) trailing: Vec<u8>,
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

pub(crate) fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

impl Item {
    /// A stored file.
    pub(crate) fn file(name: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> Item {
        let bytes = bytes.as_ref();
        let size = u32::try_from(bytes.len()).unwrap();
        let name = name.as_ref().to_vec();
        let header = Header {
            name,
            flags: 0,
            method: 0,
            checksum: checksum(bytes),
            length: size,
            size,
            extra: Vec::new(),
        };
        Item {
            local: header.clone(),
            central: header,
            attributes: 0o100_644 << 16,
            data: bytes.to_vec(),
            behind: Vec::new(),
            at: None,
        }
    }

    pub(crate) fn directory(name: &str) -> Item {
        Item::file(name, "").attributes(0o040_755 << 16 | 0x10)
    }

    /// The same item, compressed.
    pub(crate) fn deflated(self) -> Item {
        let data = deflate(&self.data);
        let length = u32::try_from(data.len()).unwrap();
        let mut item = self.both(|header| (header.method, header.length) = (8, length));
        item.data = data;
        item
    }

    pub(crate) fn attributes(mut self, attributes: u32) -> Item {
        self.attributes = attributes;
        self
    }

    pub(crate) fn both(mut self, change: impl Fn(&mut Header)) -> Item {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    pub(crate) fn local(mut self, change: impl Fn(&mut Header)) -> Item {
        change(&mut self.local);
        self
    }

    pub(crate) fn central(mut self, change: impl Fn(&mut Header)) -> Item {
        change(&mut self.central);
        self
    }

    /// With a data descriptor, as written by programs that do not know the size in advance.
    pub(crate) fn described(self) -> Item {
        let Header { checksum, length, size, .. } = self.central;
        let mut item = self.both(|header| header.flags |= 8);
        item = item.local(|header| (header.checksum, header.length, header.size) = (0, 0, 0));
        item.behind = [
            &b"PK\x07\x08"[..],
            &checksum.to_le_bytes(),
            &length.to_le_bytes(),
            &size.to_le_bytes(),
        ]
        .concat();
        item
    }
}

impl Pack {
    pub(crate) fn new(items: impl IntoIterator<Item = Item>) -> Pack {
        Pack { items: items.into_iter().collect(), ..Pack::default() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.before.clone();
        let mut places = Vec::new();
        for item in &self.items {
            places.push(bytes.len() as u32);
            let Header { name, extra, .. } = &item.local;
            bytes.extend(b"PK\x03\x04\x14\0");
            fields(&mut bytes, &item.local);
            lengths(&mut bytes, name, extra);
            bytes.extend(name.iter().chain(extra).chain(&item.data).chain(&item.behind));
        }
        bytes.extend(&self.between);
        let directory = bytes.len() as u32;
        for (item, place) in self.items.iter().zip(places) {
            let Header { name, extra, .. } = &item.central;
            bytes.extend(b"PK\x01\x02\x14\x03\x14\0");
            fields(&mut bytes, &item.central);
            lengths(&mut bytes, name, extra);
            bytes.extend([0; 6]);
            bytes.extend(item.attributes.to_le_bytes());
            bytes.extend(item.at.unwrap_or(place).to_le_bytes());
            bytes.extend(name.iter().chain(extra));
        }
        let length = bytes.len() as u32 - directory;
        let count = self.count.unwrap_or(self.items.len() as u16).to_le_bytes();
        bytes.extend(b"PK\x05\x06\0\0\0\0");
        bytes.extend(count.iter().chain(&count));
        bytes.extend(length.to_le_bytes().iter().chain(&directory.to_le_bytes()));
        bytes.extend(
            (self.comment.len() as u16)
                .to_le_bytes()
                .iter()
                .chain(&self.comment)
                .chain(&self.trailing),
        );
        bytes
    }
}

fn fields(bytes: &mut Vec<u8>, header: &Header) {
    bytes.extend(header.flags.to_le_bytes().iter().chain(&header.method.to_le_bytes()));
    bytes.extend([0, 0, 0x21, 0x5a]);
    for field in [header.checksum, header.length, header.size] {
        bytes.extend(field.to_le_bytes());
    }
}

fn lengths(bytes: &mut Vec<u8>, name: &[u8], extra: &[u8]) {
    bytes.extend(
        (name.len() as u16).to_le_bytes().iter().chain(&(extra.len() as u16).to_le_bytes()),
    );
}
