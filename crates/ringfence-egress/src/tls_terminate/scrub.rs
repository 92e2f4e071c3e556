//! The value, taken out of what a host sends back.
//!
//! A value can come in pieces, so the last bytes of a piece are held back until the next one is
//! there. A program inside sees that they are, and chooses what many hosts send: were it the
//! beginning of a value that is held, it could be guessed letter by letter. So what is held
//! depends on nothing but how long the values are and of what kind of letters.
//!
//! Framing must be off before bytes come here: a chunk's length between two halves of a value
//! would hide both (`super::answers`).

mod needle;

use needle::Needle;

/// What stands in a value's place.
const STAR: u8 = b'*';
/// Shorter ones are words like others, and what a host sends would be spoiled by them.
const SHORTEST: usize = 8;

/// Looks through what a host says, piece by piece, and keeps its length.
#[derive(Debug)]
pub(super) struct SecretScrubber {
    needles: Vec<Needle>,
    /// The bytes that a needle can begin with.
    starts: [bool; 256],
    letters: ScrubAlphabet,
    /// The most bytes that one match can take.
    longest: usize,
    /// The last bytes, if they may be part of a value.
    held: Vec<u8>,
}

/// The letters that values are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScrubAlphabet {
    /// As tokens have them (RFC 9110, 11.2), and what escapes are written with.
    Token,
    /// All that can be printed.
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
            .flat_map(Needle::of_value)
            .filter(|needle| needle.length() >= SHORTEST)
            .collect();
        // One may begin as another does.
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.length()));
        let is_token =
            needles.iter().all(|needle| needle.is_made_of(|byte| ScrubAlphabet::Token.has(byte)));
        let letters = if is_token { ScrubAlphabet::Token } else { ScrubAlphabet::Printable };
        let longest = needles.iter().map(Needle::longest_match).max().unwrap_or(0);
        let mut starts = [false; 256];
        needles.iter().for_each(|needle| needle.mark_starts(&mut starts));
        Self { needles, starts, letters, longest, held: Vec::new() }
    }

    /// What can be passed on by now.
    pub(super) fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        let longest = self.longest.saturating_sub(1);
        let held =
            bytes.iter().rev().take(longest).take_while(|byte| self.letters.has(**byte)).count();
        // What begins in there may be the beginning of a longer one.
        let from = self.star(&mut bytes, held);
        self.held = bytes.split_off(from);
        bytes
    }

    /// Puts stars in place of values in something that has come as a whole.
    pub(super) fn whole(&self, bytes: &mut [u8]) {
        self.star(bytes, 0);
    }

    /// Puts stars in place of values, but for those that begin in the last `held` bytes; answers
    /// where what is held begins.
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

    /// Whether something waits for what comes next.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// What was held, since nothing comes.
    pub(super) fn release(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        self.whole(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests;
