//! Lines of the session protocol.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde::Serialize;

/// The maximum length of a line.
const LONGEST: u64 = 256 * 1024 * 1024;

/// Writes a message as one line.
pub fn write_line(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads lines.
#[derive(Debug)]
pub struct LineStream<R>(BufReader<R>);

impl<R: Read> LineStream<R> {
    /// Reads from a transport.
    pub fn new(from: R) -> Self {
        Self(BufReader::new(from))
    }

    /// The transport. Bytes that were read ahead are missing there.
    pub fn transport(&self) -> &R {
        self.0.get_ref()
    }

    /// Reads the next line; `None` at the end.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.0.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a line is truncated or longer than 256 MiB",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_line_is_refused() {
        let mut lines = LineStream::new(&b"a\nb"[..]);
        assert_eq!(lines.next_line().unwrap(), Some(b"a\n".to_vec()));
        assert!(lines.next_line().is_err());
    }
}
