//! HTTP response bodies.

use std::io::{self, BufRead, Read};

use httparse::Status;

/// The maximum size of the line before a chunk.
const MAX_LINE: u64 = 64 << 10;

/// A body with a `Content-Length`: an earlier end is an error.
pub(super) struct SizedBody<T> {
    pub(super) stream: T,
    pub(super) left: u64,
}

impl<T: BufRead> Read for SizedBody<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let taken = self.fill_buf()?.read(into)?;
        self.consume(taken);
        Ok(taken)
    }
}

impl<T: BufRead> BufRead for SizedBody<T> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let available = self.stream.fill_buf()?;
        if available.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(&available[..available.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))])
    }

    fn consume(&mut self, amount: usize) {
        self.stream.consume(amount);
        self.left -= amount as u64;
    }
}

/// A body with chunked transfer encoding.
pub(super) struct ChunkedBody<T> {
    stream: T,
    left: u64,
    is_over: bool,
}

impl<T> ChunkedBody<T> {
    pub(super) fn new(stream: T) -> Self {
        Self { stream, left: 0, is_over: false }
    }
}

impl<T: BufRead> Read for ChunkedBody<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.is_over || into.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            self.left = match httparse::parse_chunk_size(&read_line(&mut self.stream)?) {
                Ok(Status::Complete((_, size))) => size,
                Ok(Status::Partial) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(_) => return Err(io::ErrorKind::InvalidData.into()),
            };
            if self.left == 0 {
                self.is_over = true;
                return Ok(0);
            }
        }
        let most = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let taken = self.stream.read(&mut into[..most])?;
        if taken == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= taken as u64;
        if self.left == 0 && read_line(&mut self.stream)? != b"\r\n" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(taken)
    }
}

fn read_line(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    stream.take(MAX_LINE).read_until(b'\n', &mut line)?;
    Ok(line)
}
