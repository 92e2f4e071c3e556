//! Removes secrets from the bytes a host sends back.
//!
//! A secret can be split across reads, so the last bytes of a read are held until the next one. A
//! program sees the delay, and it controls what many hosts send: if only a secret's prefix were
//! held, it could guess the secret letter by letter. So the number of held bytes depends only on
//! the lengths and alphabets of the secrets.
//!
//! Framing must be removed before: a chunk length between two halves of a secret would hide both
//! (`super::responses`).

mod needle;

use needle::Needle;

/// Replacement for each byte of a secret.
const STAR: u8 = b'*';
/// Shorter secrets look like ordinary words, and scrubbing them would damage responses.
const SHORTEST: usize = 8;

/// Scrubs a byte stream and keeps its length.
#[derive(Debug)]
pub(super) struct SecretScrubber {
    needles: Vec<Needle>,
    /// Possible first bytes of a needle.
    starts: [bool; 256],
    letters: ScrubAlphabet,
    /// Longest possible match.
    longest: usize,
    /// The last bytes, if they may be part of a secret.
    held: Vec<u8>,
}

/// Alphabet of the secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScrubAlphabet {
    /// Token characters (RFC 9110, section 11.2), and those used in escapes.
    Token,
    /// All printable characters.
    Printable,
}

impl ScrubAlphabet {
    fn has(self, byte: u8) -> bool {
        match self {
            ScrubAlphabet::Token => {
                byte.is_ascii_alphanumeric() || b"-._~+/=%\\&#;".contains(&byte)
            }
            ScrubAlphabet::Printable => byte.is_ascii_graphic() || byte == b' ',
        }
    }
}

impl SecretScrubber {
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut needles: Vec<Needle> = values
            .flat_map(Needle::from_value)
            .filter(|needle| needle.length() >= SHORTEST)
            .collect();
        // Longest first, since one may be the prefix of another.
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.length()));
        let is_token =
            needles.iter().all(|needle| needle.is_made_of(|byte| ScrubAlphabet::Token.has(byte)));
        let letters = if is_token { ScrubAlphabet::Token } else { ScrubAlphabet::Printable };
        let longest = needles.iter().map(Needle::longest_match).max().unwrap_or(0);
        let mut starts = [false; 256];
        needles.iter().for_each(|needle| needle.mark_starts(&mut starts));
        Self { needles, starts, letters, longest, held: Vec::new() }
    }

    /// Scrubs `piece`; returns the bytes that can be passed on now.
    pub(super) fn scrub(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        let longest = self.longest.saturating_sub(1);
        let held =
            bytes.iter().rev().take(longest).take_while(|byte| self.letters.has(**byte)).count();
        // A match that begins in the held part may be the prefix of a longer one.
        let from = self.star(&mut bytes, held);
        self.held = bytes.split_off(from);
        bytes
    }

    /// Scrubs a complete text.
    pub(super) fn scrub_whole(&self, bytes: &mut [u8]) {
        self.star(bytes, 0);
    }

    /// Replaces all matches except those that begin in the last `held` bytes; returns the start of
    /// the held part.
    fn star(&self, bytes: &mut [u8], held: usize) -> usize {
        let end = bytes.len() - held;
        let mut at = 0;
        while at < end {
            let Some(next) = bytes[at..end].iter().position(|byte| self.starts[usize::from(*byte)])
            else {
                return end;
            };
            at += next;
            match self.needles.iter().filter_map(|needle| needle.match_at(&bytes[at..])).max() {
                Some(length) => {
                    bytes[at..at + length].fill(STAR);
                    at += length;
                }
                None => at += 1,
            }
        }
        at
    }

    /// True if bytes are held.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the held bytes, since no more come.
    pub(super) fn release(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        self.scrub_whole(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests;
