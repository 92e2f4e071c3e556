//! The part of the kernel's FUSE protocol that is used here, `fuse(4)`.
//!
//! Requests and replies have the layout of the kernel's header, in native byte order. A malformed
//! message is not a request: the kernel does not send such.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A request of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FuseRequest<'a> {
    /// Repeated in the reply.
    pub(crate) unique: u64,
    /// The node it is about.
    pub(crate) node: u64,
    /// The calling pid, in the pid namespace of the mount.
    pub(crate) pid: u32,
    pub(crate) ask: FuseOp<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FuseOp<'a> {
    /// Protocol handshake: the kernel's minor version and flags.
    Hello {
        minor: u32,
        flags: u32,
    },
    Lookup(&'a OsStr),
    Attributes,
    SetAttributes,
    ReadLink,
    /// With the caller's flags.
    Open(u32),
    OpenDirectory,
    /// From an offset, at most `size` bytes; with each entry's attributes, or not.
    List {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    Access(u32),
    /// Creates an entry.
    Make(&'a OsStr),
    /// Removes an entry.
    Remove(&'a OsStr),
    /// Renames an entry.
    Rename(&'a OsStr),
    Statistics,
    /// From an offset, at most `size` bytes of an opened file.
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    /// The kernel forgets this many lookups of a node. It expects no reply.
    Forget(u64),
    /// The same for several nodes: pairs of a node and a count.
    ForgetMany(&'a [u8]),
    /// A signal interrupts the caller of this request. The kernel expects no reply.
    Interrupt(u64),
    /// A process closed an fd of an opened file.
    Flush,
    /// The last fd was closed.
    Release(u64),
    /// An opcode that is not supported; the kernel need not send it again.
    Unknown,
}

const HEADER: usize = 40;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The name that ends with NUL at an offset.
fn name_at(bytes: &[u8], at: usize) -> Option<&OsStr> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(OsStr::from_bytes(&rest[..end]))
}

impl<'a> FuseRequest<'a> {
    /// Parses a message; `None` if it is not a request.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let length = u32_at(bytes, 0)? as usize;
        let body = bytes.get(HEADER..length)?;
        let ask = match u32_at(bytes, 4)? {
            1 => FuseOp::Lookup(name_at(body, 0)?),
            2 => FuseOp::Forget(u64_at(body, 0)?),
            3 => FuseOp::Attributes,
            4 => FuseOp::SetAttributes,
            5 => FuseOp::ReadLink,
            6 => FuseOp::Make(name_at(body, 0)?),
            8 => FuseOp::Make(name_at(body, 16)?),
            9 => FuseOp::Make(name_at(body, 8)?),
            10 | 11 => FuseOp::Remove(name_at(body, 0)?),
            12 => FuseOp::Rename(name_at(body, 8)?),
            13 => FuseOp::Make(name_at(body, 8)?),
            14 => FuseOp::Open(u32_at(body, 0)?),
            15 => FuseOp::Read {
                handle: u64_at(body, 0)?,
                offset: u64_at(body, 8)?,
                size: u32_at(body, 16)?,
            },
            17 => FuseOp::Statistics,
            18 | 29 => FuseOp::Release(u64_at(body, 0)?),
            25 => FuseOp::Flush,
            26 => FuseOp::Hello { minor: u32_at(body, 4)?, flags: u32_at(body, 12)? },
            27 => FuseOp::OpenDirectory,
            28 => FuseOp::List {
                handle: u64_at(body, 0)?,
                offset: u64_at(body, 8)?,
                size: u32_at(body, 16)?,
                plus: false,
            },
            34 => FuseOp::Access(u32_at(body, 0)?),
            36 => FuseOp::Interrupt(u64_at(body, 0)?),
            35 | 51 => FuseOp::Make(name_at(body, 16)?),
            42 => FuseOp::ForgetMany(body.get(8..)?),
            44 => FuseOp::List {
                handle: u64_at(body, 0)?,
                offset: u64_at(body, 8)?,
                size: u32_at(body, 16)?,
                plus: true,
            },
            45 => FuseOp::Rename(name_at(body, 16)?),
            _ => FuseOp::Unknown,
        };
        Some(Self {
            unique: u64_at(bytes, 8)?,
            node: u64_at(bytes, 16)?,
            pid: u32_at(bytes, 32)?,
            ask,
        })
    }
}

/// The pairs of a `ForgetMany` request.
pub(crate) fn parse_forget_pairs(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    bytes.chunks_exact(16).filter_map(|pair| Some((u64_at(pair, 0)?, u64_at(pair, 8)?)))
}

/// A reply under construction.
pub(crate) struct FuseReply(Vec<u8>);

impl FuseReply {
    fn new(unique: u64) -> Self {
        let mut answer = Self(Vec::with_capacity(256));
        answer.u32(0).u32(0).u64(unique);
        answer
    }

    /// The call fails with this errno.
    pub(crate) fn error(unique: u64, number: i32) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.0[4..8].copy_from_slice(&(-number).to_ne_bytes());
        answer.done()
    }

    /// The call succeeds without data.
    pub(crate) fn nothing(unique: u64) -> Vec<u8> {
        Self::new(unique).done()
    }

    /// `ahead`: bytes that the kernel may read ahead.
    pub(crate) fn hello(unique: u64, minor: u32, flags: u32, ahead: u32) -> Vec<u8> {
        /// Kernel features in use: entries with attributes in lists, parallel calls in one
        /// directory, cached links.
        const WANTED: u32 = 1 << 13 | 1 << 18 | 1 << 23;
        const MINOR: u32 = 31;
        let mut answer = Self::new(unique);
        answer.u32(7).u32(minor.min(MINOR)).u32(ahead).u32(flags & WANTED);
        // Most requests in flight, longest write, time granularity.
        answer.u16(12).u16(9).u32(4096).u32(1).u16(0).u16(0);
        answer.0.resize(16 + 64, 0);
        answer.done()
    }

    pub(crate) fn entry(unique: u64, entry: &FuseEntry) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.put_entry(entry);
        answer.done()
    }

    /// The name is absent, and the kernel may cache that.
    pub(crate) fn absent(unique: u64, seconds: u64) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.u64(0).u64(0).u64(seconds).u64(0).u64(0);
        answer.0.resize(16 + 128, 0);
        answer.done()
    }

    pub(crate) fn attributes(unique: u64, entry: &FuseEntry) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.u64(entry.lasts.attributes()).u64(0).put_attributes(entry);
        answer.done()
    }

    pub(crate) fn text(unique: u64, text: &[u8]) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.0.extend_from_slice(text);
        answer.done()
    }

    pub(crate) fn opened(unique: u64) -> Vec<u8> {
        /// The kernel may cache the list, which does not change.
        const KEEP_AND_CACHE: u32 = 1 << 1 | 1 << 3;
        let mut answer = Self::new(unique);
        answer.u64(0).u32(KEEP_AND_CACHE).u32(0);
        answer.done()
    }

    /// A file of the host was opened under this handle. The kernel does not cache it: it may be
    /// another file next time.
    pub(crate) fn opened_with_handle(unique: u64, handle: u64) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.u64(handle).u32(0).u32(0);
        answer.done()
    }

    pub(crate) fn statistics(unique: u64) -> Vec<u8> {
        let mut answer = Self::new(unique);
        // No free space, and long names.
        answer.u64(0).u64(0).u64(0).u64(0).u64(0).u32(4096).u32(255).u32(4096);
        answer.0.resize(16 + 80, 0);
        answer.done()
    }

    /// A list of entries from an offset on, as many as fit.
    pub(crate) fn list<'e>(
        unique: u64,
        size: u32,
        plus: bool,
        entries: impl Iterator<Item = (u64, &'e OsStr, FuseEntry)>,
    ) -> Vec<u8> {
        let mut answer = Self::new(unique);
        for (offset, name, entry) in entries {
            let (name, before) = (name.as_bytes(), answer.0.len());
            if plus {
                answer.put_entry(&entry);
            }
            // With inode 0, programs take the entry for deleted.
            answer.u64(entry.node.max(1)).u64(offset).u32(name.len() as u32).u32(entry.mode >> 12);
            answer.0.extend_from_slice(name);
            answer.0.resize(before + (answer.0.len() - before).next_multiple_of(8), 0);
            if answer.0.len() - 16 > size as usize {
                answer.0.truncate(before);
                break;
            }
        }
        answer.done()
    }

    /// The same, from all entries.
    pub(crate) fn list_from<'e>(
        unique: u64,
        (offset, size, plus): (u64, u32, bool),
        all: impl IntoIterator<Item = (&'e OsStr, FuseEntry)>,
    ) -> Vec<u8> {
        let rest = (1..).zip(all).skip(offset as usize);
        Self::list(unique, size, plus, rest.map(|(number, (name, entry))| (number, name, entry)))
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn put_entry(&mut self, entry: &FuseEntry) -> &mut Self {
        let (name, attributes) = (entry.lasts.name(), entry.lasts.attributes());
        self.u64(entry.node).u64(0).u64(name).u64(attributes).u32(0).u32(0).put_attributes(entry)
    }

    fn put_attributes(&mut self, entry: &FuseEntry) -> &mut Self {
        self.u64(entry.node)
            .u64(entry.size)
            .u64(entry.size.div_ceil(512))
            .u64(entry.modified)
            .u64(entry.modified)
            .u64(entry.modified)
            .u32(0)
            .u32(0)
            .u32(0);
        self.u32(entry.mode).u32(1).u32(entry.uid).u32(entry.gid).u32(0).u32(4096).u32(0)
    }

    fn done(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// Time for which the kernel may cache a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryTtl {
    /// Nothing of it changes.
    Forever,
    /// The name is fixed, but the node may be opened for a process.
    Name,
    /// Not cached.
    Once,
}

impl EntryTtl {
    const FOREVER: u64 = 1 << 30;

    /// In seconds.
    fn name(self) -> u64 {
        if self == EntryTtl::Once { 0 } else { Self::FOREVER }
    }

    fn attributes(self) -> u64 {
        if self == EntryTtl::Forever { Self::FOREVER } else { 0 }
    }
}

/// An entry at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FuseEntry {
    pub(crate) node: u64,
    /// File type and permissions.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Last modification, in seconds since 1970.
    pub(crate) modified: u64,
    pub(crate) lasts: EntryTtl,
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{EntryTtl, FuseEntry, FuseOp, FuseReply, FuseRequest, parse_forget_pairs};

    /// A request as the kernel lays it out.
    fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(((40 + body.len()) as u32).to_ne_bytes());
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(7u64.to_ne_bytes());
        bytes.extend(node.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(1234u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes
    }

    #[track_caller]
    fn check(opcode: u32, body: &[u8], expect: FuseOp<'_>) {
        let bytes = request(opcode, 5, body);
        assert_eq!(
            FuseRequest::parse(&bytes),
            Some(FuseRequest { unique: 7, node: 5, pid: 1234, ask: expect }),
            "{opcode}"
        );
    }

    #[test]
    fn requests_are_parsed() {
        check(1, b"name\0", FuseOp::Lookup(OsStr::new("name")));
        check(9, b"\xff\x01\0\0\0\0\0\0new\0", FuseOp::Make(OsStr::new("new")));
        check(14, &2u32.to_ne_bytes(), FuseOp::Open(2));
        check(3, &[], FuseOp::Attributes);
        check(99, &[], FuseOp::Unknown);
        check(2, &3u64.to_ne_bytes(), FuseOp::Forget(3));
        check(36, &9u64.to_ne_bytes(), FuseOp::Interrupt(9));
        check(18, &[4u64.to_ne_bytes(), [0; 8]].concat(), FuseOp::Release(4));
        check(
            15,
            &[4u64, 5, 6].map(u64::to_ne_bytes).concat(),
            FuseOp::Read { handle: 4, offset: 5, size: 6 },
        );
        let pairs = [1u64, 7, 2, 8, 3].map(u64::to_ne_bytes).concat();
        check(42, &pairs, FuseOp::ForgetMany(&pairs[8..]));
        assert_eq!(parse_forget_pairs(&pairs[8..]).collect::<Vec<_>>(), [(7, 2), (8, 3)]);
    }

    #[test]
    fn truncated_message_is_no_request() {
        for opcode in 0..60 {
            let whole = request(opcode, 5, b"name without an end");
            for length in 0..whole.len() {
                let _ = FuseRequest::parse(&whole[..length]);
            }
            assert!(FuseRequest::parse(&whole[..39]).is_none());
        }
        assert_eq!(FuseRequest::parse(&request(1, 5, b"no end")), None);
    }

    #[test]
    fn replies_have_the_kernels_sizes() {
        let entry = FuseEntry {
            node: 9,
            mode: 0o040_755,
            size: 0,
            uid: 1,
            gid: 2,
            modified: 0,
            lasts: EntryTtl::Forever,
        };
        let sizes = [
            (FuseReply::error(7, 13), 16),
            (FuseReply::hello(7, 40, u32::MAX, 0), 16 + 64),
            (FuseReply::entry(7, &entry), 16 + 128),
            (FuseReply::absent(7, 1), 16 + 128),
            (FuseReply::attributes(7, &entry), 16 + 104),
            (FuseReply::opened(7), 16 + 16),
            (FuseReply::opened_with_handle(7, 1), 16 + 16),
            (FuseReply::statistics(7), 16 + 80),
        ];
        for (answer, size) in sizes {
            assert_eq!(answer.len(), size);
            assert_eq!(answer[..4], (size as u32).to_ne_bytes());
            assert_eq!(answer[8..16], 7u64.to_ne_bytes());
        }
        assert_eq!(FuseReply::error(7, 13)[4..8], (-13i32).to_ne_bytes());
    }

    #[test]
    fn list_holds_the_entries_that_fit() {
        let entry = FuseEntry {
            node: 9,
            mode: 0o040_755,
            size: 0,
            uid: 1,
            gid: 2,
            modified: 0,
            lasts: EntryTtl::Forever,
        };
        let names = ["a", "longer-name", "b"];
        let all =
            || names.iter().enumerate().map(|(at, name)| (at as u64 + 1, OsStr::new(*name), entry));
        assert_eq!(FuseReply::list(7, 4096, false, all()).len(), 16 + 32 + 40 + 32);
        assert_eq!(FuseReply::list(7, 80, false, all()).len(), 16 + 32 + 40);
        assert_eq!(FuseReply::list(7, 4096, true, all()).len(), 16 + 32 + 40 + 32 + 3 * 128);
        assert_eq!(FuseReply::list(7, 4096, false, all().skip(3)).len(), 16);
    }
}
