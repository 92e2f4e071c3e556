//! The kernel's side of the conversation: `fuse(4)`, as much of it as is spoken here.
//!
//! Requests and answers are laid out by the kernel's header, in the machine's own byte
//! order. What is malformed is no request: the kernel does not send such.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What the kernel asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FuseRequest<'a> {
    /// To be repeated in the answer.
    pub(crate) unique: u64,
    /// About which node.
    pub(crate) node: u64,
    /// Who asks, as numbered where the file system was mounted.
    pub(crate) pid: u32,
    pub(crate) ask: FuseOp<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FuseOp<'a> {
    /// Which protocol: the kernel's minor number and flags.
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
    /// From an offset, at most so many bytes; with each entry's attributes, or not.
    List {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    Access(u32),
    /// Something is to be made at a name.
    Make(&'a OsStr),
    /// A name is to be taken away.
    Remove(&'a OsStr),
    /// A name here is to become another.
    Rename(&'a OsStr),
    Statistics,
    /// From an offset, at most so many bytes of what was opened.
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    /// The kernel forgets so many lookups of a node. Nobody waits for an answer.
    Forget(u64),
    /// The same of several: pairs of a node and a number.
    ForgetMany(&'a [u8]),
    /// Whoever waits for the answer to this request is wanted elsewhere. Nobody waits for an
    /// answer to that.
    Interrupt(u64),
    /// Somebody closed a descriptor of what was opened.
    Flush,
    /// The last one did.
    Release(u64),
    /// A call that does not exist here; the kernel need not ask again.
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
    /// `None` if this is no request.
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

/// The pairs of a request to forget.
pub(crate) fn forgotten(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    bytes.chunks_exact(16).filter_map(|pair| Some((u64_at(pair, 0)?, u64_at(pair, 8)?)))
}

/// An answer in the making.
pub(crate) struct FuseReply(Vec<u8>);

impl FuseReply {
    fn new(unique: u64) -> Self {
        let mut answer = Self(Vec::with_capacity(256));
        answer.u32(0).u32(0).u64(unique);
        answer
    }

    /// The call fails with this error number.
    pub(crate) fn error(unique: u64, number: i32) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.0[4..8].copy_from_slice(&(-number).to_ne_bytes());
        answer.done()
    }

    /// The call succeeds, and that is all.
    pub(crate) fn nothing(unique: u64) -> Vec<u8> {
        Self::new(unique).done()
    }

    /// `ahead` is how many bytes the kernel may read before somebody wants them.
    pub(crate) fn hello(unique: u64, minor: u32, flags: u32, ahead: u32) -> Vec<u8> {
        /// What is taken of what the kernel offers: entries with attributes in lists,
        /// several calls in one directory at a time, links remembered.
        const WANTED: u32 = 1 << 13 | 1 << 18 | 1 << 23;
        const MINOR: u32 = 31;
        let mut answer = Self::new(unique);
        answer.u32(7).u32(minor.min(MINOR)).u32(ahead).u32(flags & WANTED);
        // Most requests under way, longest write, granularity of time.
        answer.u16(12).u16(9).u32(4096).u32(1).u16(0).u16(0);
        answer.0.resize(16 + 64, 0);
        answer.done()
    }

    pub(crate) fn entry(unique: u64, entry: &FuseEntry) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.put_entry(entry);
        answer.done()
    }

    /// The name is not there, and need not be asked for again so soon.
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
        /// The list does not change behind the kernel's back.
        const KEEP_AND_CACHE: u32 = 1 << 1 | 1 << 3;
        let mut answer = Self::new(unique);
        answer.u64(0).u32(KEEP_AND_CACHE).u32(0);
        answer.done()
    }

    /// Something of the host was opened for whoever asks, and has this number. It may be
    /// another the next time.
    pub(crate) fn opened_as(unique: u64, handle: u64) -> Vec<u8> {
        let mut answer = Self::new(unique);
        answer.u64(handle).u32(0).u32(0);
        answer.done()
    }

    pub(crate) fn statistics(unique: u64) -> Vec<u8> {
        let mut answer = Self::new(unique);
        // Nothing is free here, and names may be long.
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
            // Without a number of its own, a program would take the entry for deleted.
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

/// For how long the kernel may believe what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryTtl {
    /// Nothing of it changes.
    Forever,
    /// The name stands for the node, and the node may be opened for somebody.
    Name,
    /// For this once.
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

/// What stands at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FuseEntry {
    pub(crate) node: u64,
    /// Kind and permissions.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// When it was last written to, in seconds since 1970.
    pub(crate) modified: u64,
    pub(crate) lasts: EntryTtl,
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{EntryTtl, FuseEntry, FuseOp, FuseReply, FuseRequest, forgotten};

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
    fn requests_are_read() {
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
        assert_eq!(forgotten(&pairs[8..]).collect::<Vec<_>>(), [(7, 2), (8, 3)]);
    }

    #[test]
    fn what_is_cut_short_is_no_request() {
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
    fn answers_have_the_kernels_sizes() {
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
            (FuseReply::opened_as(7, 1), 16 + 16),
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
    fn lists_hold_what_fits_and_go_on_from_there() {
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
