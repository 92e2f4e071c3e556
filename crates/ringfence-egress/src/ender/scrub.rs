//! The value, taken out of what a host sends back.
//!
//! A value can come in pieces, so the last bytes of a piece are held back until the next one is
//! there. Whoever is inside sees that they are, and chooses what many hosts send: were it the
//! beginning of a value that is held, it could be guessed letter by letter. So what is held
//! depends on nothing but how long the values are and of what kind of letters.

use ringfence_api::base64;

/// What stands in a value's place.
const STAR: u8 = b'*';
/// Shorter ones are words like others, and what a host sends would be spoiled by them.
const SHORTEST: usize = 8;

/// Looks through what a host says, piece by piece, and keeps its length.
#[derive(Debug)]
pub(super) struct Scrub {
    /// Longest first: one may begin as another does.
    patterns: Vec<Vec<u8>>,
    letters: Letters,
    /// The last bytes, if they may be part of a value.
    held: Vec<u8>,
}

/// The letters that values are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letters {
    /// As tokens have them (RFC 9110, 11.2).
    Token,
    /// All that can be printed.
    Printable,
}

impl Letters {
    fn has(self, byte: u8) -> bool {
        match self {
            Letters::Token => byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte),
            Letters::Printable => byte.is_ascii_graphic() || byte == b' ',
        }
    }
}

impl Scrub {
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut patterns: Vec<Vec<u8>> = values.flat_map(patterns).filter(|pattern| pattern.len() >= SHORTEST).collect();
        patterns.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        patterns.dedup();
        let is_token = patterns.iter().flatten().all(|byte| Letters::Token.has(*byte));
        Self { patterns, letters: if is_token { Letters::Token } else { Letters::Printable }, held: Vec::new() }
    }

    /// What can be passed on by now.
    pub(super) fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        let longest = self.patterns.first().map_or(0, |pattern| pattern.len() - 1);
        let held = bytes.iter().rev().take(longest).take_while(|byte| self.letters.has(**byte)).count();
        // What begins in there may be the beginning of a longer one.
        let from = self.star(&mut bytes, held);
        self.held = bytes.split_off(from);
        bytes
    }

    /// Puts stars in place of values, but for those that begin in the last `held` bytes; answers
    /// where what is held begins.
    fn star(&self, bytes: &mut [u8], held: usize) -> usize {
        let end = bytes.len() - held;
        let mut at = 0;
        while at < end {
            let begins = |byte: &u8| self.patterns.iter().any(|pattern| pattern[0] == *byte);
            let Some(next) = bytes[at..end].iter().position(begins) else { return end };
            at += next;
            match self.patterns.iter().find(|pattern| bytes[at..].starts_with(pattern)) {
                Some(pattern) => {
                    bytes[at..at + pattern.len()].fill(STAR);
                    at += pattern.len();
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
        self.star(&mut bytes, 0);
        bytes
    }
}

/// A value as it is, and what is sure to be in its base64, whatever stands before and behind it.
fn patterns(value: &str) -> impl Iterator<Item = Vec<u8>> {
    let wrapped = (0..3).map(move |before| {
        let text = base64(&[&b"   "[..before], value.as_bytes()].concat());
        let text = text.trim_end_matches('=').as_bytes();
        // Digits that have bits of a neighbour in them may be others.
        let first = (before * 8).div_ceil(6);
        let last = (before + value.len()) * 8 / 6;
        text[first..last].to_vec()
    });
    std::iter::once(value.as_bytes().to_vec()).chain(wrapped.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expect: &str) {
        let mut scrub = Scrub::new(["s3cret-value", "aab-aaab", "s3cret-value-and-more", "short"].into_iter());
        let mut passed: Vec<u8> = pieces.iter().flat_map(|piece| scrub.pass(piece.as_bytes())).collect();
        passed.extend(scrub.release());
        assert_eq!(String::from_utf8(passed).unwrap(), expect);
    }

    #[test]
    fn a_value_is_found_however_it_is_cut() {
        let text = "x s3cret-value, s3cret-valu, short, aaab-aaab-aaab, s3cret-value-and-more.";
        let expect = "x ************, s3cret-valu, short, a********-aaab, *********************.";
        for cut in 0..text.len() {
            check(&[&text[..cut], &text[cut..]], expect);
        }
        let single: Vec<&str> = text.split_inclusive(|_| true).collect();
        check(&single, expect);
    }

    #[test]
    fn a_value_is_found_in_base64() {
        for before in ["", "u", "us", "user:", "some:thing"] {
            let text = base64(format!("{before}s3cret-value;").as_bytes());
            let mut scrub = Scrub::new(["s3cret-value"].into_iter());
            let mut passed = scrub.pass(text.as_bytes());
            passed.extend(scrub.release());
            let stars = passed.iter().filter(|byte| **byte == STAR).count();
            assert!(stars >= 14, "{before}: {}", String::from_utf8(passed).unwrap());
        }
    }

    #[test]
    fn what_is_held_does_not_tell_of_the_value() {
        // Each is of the same kind and length, and one of them begins as the value does.
        let held = |text: &str| {
            let mut scrub = Scrub::new(["s3cret-value"].into_iter());
            text.len() - scrub.pass(text.as_bytes()).len()
        };
        for (one, other) in [("s", "x"), (" s3cret-valu", " x3crxx-vxxx"), ("s3cret-valu", "qqqqqqqqqqq"), ("s3cret-valu ", "xxxxxxxxxxx ")]
        {
            assert_eq!(held(one), held(other), "{one} {other}");
        }
        assert_eq!((held("{\"a\":1}"), held("data: x\n\n")), (0, 0));
    }
}
