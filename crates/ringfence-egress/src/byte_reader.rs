//! Reads big-endian numbers and length-prefixed slices from the front of a byte slice.

/// The unread rest. A read fails if fewer bytes are left than it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Reads a slice with a one-byte length prefix.
    pub(crate) fn prefixed_u8(&mut self) -> Option<ByteReader<'a>> {
        let count = self.u8()?;
        self.take(count.into()).map(ByteReader)
    }

    /// Reads a slice with a two-byte length prefix.
    pub(crate) fn prefixed_u16(&mut self) -> Option<ByteReader<'a>> {
        let count = self.u16()?;
        self.take(count.into()).map(ByteReader)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
