//! Bounded capture of output: its beginning, its end, and the count of bytes between.

use std::collections::VecDeque;

use ringfence_api::StreamOutput;

/// Bytes of one stream within a limit.
#[derive(Debug)]
pub struct BoundedCapture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    dropped: u64,
}

impl BoundedCapture {
    /// Keeps `limit` bytes in all.
    pub fn new(limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: limit / 2, dropped: 0 }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let space = self.half - self.head.len();
        let (first, rest) = bytes.split_at(space.min(bytes.len()));
        self.head.extend_from_slice(first);
        // Of a piece longer than the tail, only its end is kept.
        let skipped = rest.len().saturating_sub(self.half);
        let rest = &rest[skipped..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over.min(self.tail.len()));
        self.dropped += (skipped + over) as u64;
        self.tail.extend(rest);
    }

    /// The kept output.
    pub fn finish(self) -> StreamOutput {
        StreamOutput { head: self.head, tail: self.tail.into(), dropped: self.dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedCapture;

    #[track_caller]
    fn check(limit: usize, pieces: &[&str], head: &str, tail: &str, dropped: u64) {
        let mut capture = BoundedCapture::new(limit);
        for piece in pieces {
            capture.push(piece.as_bytes());
        }
        let output = capture.finish();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(
            (text(output.head).as_str(), text(output.tail).as_str(), output.dropped),
            (head, tail, dropped)
        );
    }

    #[test]
    fn both_ends_are_kept_and_the_middle_is_counted() {
        check(8, &["abc"], "abc", "", 0);
        check(8, &["abcdefgh"], "abcd", "efgh", 0);
        check(8, &["abcdefghij"], "abcd", "ghij", 2);
        check(8, &["ab", "cdefg", "hijklmnopq"], "abcd", "nopq", 9);
        check(8, &["abcd", "e", "f", "g", "h", "i"], "abcd", "fghi", 1);
    }
}
