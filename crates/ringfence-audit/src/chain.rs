//! How a record is sealed to the one before it.
//!
//! A line ends with `,"seq":N,"previous":"…","hash":"…"}`. The hash is the SHA-256 of all
//! that stands before `,"hash":`, byte for byte: nobody has to agree on how JSON is written
//! to check it, and `sha256sum` will do.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use sha2::{Digest, Sha256};

use ringfence_api::is_hidden;

use crate::record::Record;

/// A SHA-256.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordHash(pub [u8; 32]);

/// The hash of some bytes.
pub fn digest(bytes: &[u8]) -> RecordHash {
    RecordHash(Sha256::digest(bytes).into())
}

impl RecordHash {
    /// From its 64 digits, as [`fmt::Display`] writes them.
    pub fn parse(text: &str) -> Option<RecordHash> {
        let digits = text.as_bytes();
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut hash = RecordHash::default();
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in hash.0.iter_mut().zip(digits.chunks(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(hash)
    }

    fn hex(self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        text
    }
}

impl fmt::Display for RecordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).expect("digits"))
    }
}

impl fmt::Debug for RecordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for RecordHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const SEQ: &[u8] = b",\"seq\":";
const PREVIOUS: &[u8] = b",\"previous\":\"";
const HASH: &[u8] = b",\"hash\":\"";
const END: &[u8] = b"\"}";

/// What a line says of its place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainLink {
    /// Which record it is, from 1.
    pub seq: u64,
    /// The hash of the record before it.
    pub previous: RecordHash,
    /// The hash that stands in it.
    pub hash: RecordHash,
    /// The hash that it has.
    pub actual: RecordHash,
}

impl ChainLink {
    /// Whether the line is as it was written.
    pub fn is_whole(&self) -> bool {
        self.hash == self.actual
    }

    /// Reads the end of a line, given without its newline; `None` if it is no record's.
    pub fn read(line: &[u8]) -> Option<ChainLink> {
        let rest = line.strip_prefix(b"{").and_then(|_| line.strip_suffix(END))?;
        let (rest, hash) = tail_hash(rest)?;
        let content = rest.strip_suffix(HASH)?;
        let rest = content.strip_suffix(b"\"")?;
        let (rest, previous) = tail_hash(rest)?;
        let rest = rest.strip_suffix(PREVIOUS)?;
        let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (rest, seq) = rest.split_at(rest.len() - digits);
        let seq = std::str::from_utf8(seq).ok()?.parse().ok()?;
        rest.ends_with(SEQ).then(|| ChainLink { seq, previous, hash, actual: digest(content) })
    }
}

fn tail_hash(bytes: &[u8]) -> Option<(&[u8], RecordHash)> {
    let (rest, hash) = bytes.split_at_checked(bytes.len().checked_sub(64)?)?;
    Some((rest, RecordHash::parse(std::str::from_utf8(hash).ok()?)?))
}

/// Writes a record behind `lines` as the one after `previous`; answers its hash.
pub(crate) fn seal(
    record: &Record,
    seq: u64,
    previous: RecordHash,
    lines: &mut Vec<u8>,
) -> RecordHash {
    let start = lines.len();
    record
        .serialize(&mut serde_json::Serializer::with_formatter(&mut *lines, EscapedJson))
        .expect("records are plain data, and memory is written to");
    debug_assert_eq!(lines.last(), Some(&b'}'));
    lines.pop();
    lines.extend_from_slice(SEQ);
    lines.extend_from_slice(seq.to_string().as_bytes());
    lines.extend_from_slice(PREVIOUS);
    lines.extend_from_slice(&previous.hex());
    lines.push(b'"');
    let hash = digest(&lines[start..]);
    lines.extend_from_slice(HASH);
    lines.extend_from_slice(&hash.hex());
    lines.extend_from_slice(END);
    lines.push(b'\n');
    hash
}

/// JSON in which every character shows: whoever looks at a log with `cat` must not have
/// their terminal steered, nor text turned around, by the name of a file.
struct EscapedJson;

impl Formatter for EscapedJson {
    fn write_string_fragment<W: std::io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        let mut rest = fragment;
        while let Some((at, hidden)) =
            rest.char_indices().find(|(_, c)| !c.is_ascii_graphic() && is_hidden(*c))
        {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in hidden.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + hidden.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::record;

    fn sealed(target: &str) -> Vec<u8> {
        let mut lines = Vec::new();
        seal(&record(target), 7, digest(b"before"), &mut lines);
        lines
    }

    #[test]
    fn a_line_tells_its_place() {
        let line = sealed("x");
        let read = ChainLink::read(line.strip_suffix(b"\n").unwrap()).unwrap();
        assert!(read.is_whole());
        assert_eq!((read.seq, read.previous), (7, digest(b"before")));
        assert_eq!(RecordHash::parse(&read.hash.to_string()), Some(read.hash));
        assert_eq!(
            digest(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn every_bit_of_a_line_counts() {
        let line = sealed("some/file");
        let line = line.strip_suffix(b"\n").unwrap();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.to_vec();
                changed[at] ^= 1 << bit;
                assert!(
                    !ChainLink::read(&changed).is_some_and(|read| read.is_whole()),
                    "byte {at}, bit {bit}"
                );
            }
            assert!(
                !ChainLink::read(&line[..at]).is_some_and(|read| read.is_whole()),
                "cut at {at}"
            );
        }
    }

    /// Promise: P33
    #[test]
    fn hostile_text_stays_in_its_line_and_shows() {
        let hostile = "a\nb\r\n\0\u{1b}[2J\u{7f}\u{85}\u{9b}31m\u{2028}\u{202e}txt.exe\u{e0041}\",\"seq\":99,\"previous\":\"\\";
        let line = sealed(hostile);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let text = std::str::from_utf8(&line).unwrap().trim_end();
        assert!(!text.chars().any(is_hidden), "{text}");
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["target"], hostile);
        assert_eq!(value["seq"], 7);
        assert!(ChainLink::read(text.as_bytes()).unwrap().is_whole());
    }
}
