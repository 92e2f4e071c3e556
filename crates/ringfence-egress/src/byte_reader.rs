//! Reads numbers and pieces from the front of some bytes.

/// What is left to be read. Nothing is given of a piece that is not whole.
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

    /// A piece with its length in one byte before it.
    pub(crate) fn short(&mut self) -> Option<ByteReader<'a>> {
        let count = self.u8()?;
        self.take(count.into()).map(ByteReader)
    }

    /// A piece with its length in two bytes before it.
    pub(crate) fn long(&mut self) -> Option<ByteReader<'a>> {
        let count = self.u16()?;
        self.take(count.into()).map(ByteReader)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
