//! The hash chain of the audit log.
//!
//! A line ends with `,"seq":N,"previous":"…","hash":"…"}`. The hash is the SHA-256 of all bytes
//! before `,"hash":`, so `sha256sum` can check it without a canonical form of JSON.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use sha2::{Digest, Sha256};

use ringfence_api::is_hidden;

use crate::record::Record;

/// A SHA-256 hash.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordHash(pub [u8; 32]);

/// The hash of some bytes.
pub fn digest(bytes: &[u8]) -> RecordHash {
    RecordHash(Sha256::digest(bytes).into())
}

impl RecordHash {
    /// Parses 64 hex digits, as [`fmt::Display`] writes them.
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

/// The chain fields of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainLink {
    /// The number of the record, from 1.
    pub seq: u64,
    /// The hash of the previous record.
    pub previous: RecordHash,
    /// The hash in the line.
    pub hash: RecordHash,
    /// The hash of the line's content.
    pub actual: RecordHash,
}

impl ChainLink {
    /// True if the line is unchanged.
    pub fn is_valid(&self) -> bool {
        self.hash == self.actual
    }

    /// Parses the end of a line without newline; `None` if it is not a record.
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

/// Appends a record to `lines` as the one after `previous`. Returns its hash.
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

/// JSON with every hidden character escaped: a file name in the log must not control the terminal
/// or reverse text when the user prints it with `cat`.
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
    fn line_holds_its_chain_fields() {
        let line = sealed("x");
        let read = ChainLink::read(line.strip_suffix(b"\n").unwrap()).unwrap();
        assert!(read.is_valid());
        assert_eq!((read.seq, read.previous), (7, digest(b"before")));
        assert_eq!(RecordHash::parse(&read.hash.to_string()), Some(read.hash));
        assert_eq!(
            digest(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn any_flipped_bit_breaks_the_hash() {
        let line = sealed("some/file");
        let line = line.strip_suffix(b"\n").unwrap();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.to_vec();
                changed[at] ^= 1 << bit;
                assert!(
                    !ChainLink::read(&changed).is_some_and(|read| read.is_valid()),
                    "byte {at}, bit {bit}"
                );
            }
            assert!(
                !ChainLink::read(&line[..at]).is_some_and(|read| read.is_valid()),
                "cut at {at}"
            );
        }
    }

    /// Promise: hostile-log-text
    #[test]
    fn hostile_text_stays_in_one_line_and_is_escaped() {
        let hostile = "a\nb\r\n\0\u{1b}[2J\u{7f}\u{85}\u{9b}31m\u{2028}\u{202e}txt.exe\u{e0041}\",\"seq\":99,\"previous\":\"\\";
        let line = sealed(hostile);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let text = std::str::from_utf8(&line).unwrap().trim_end();
        assert!(!text.chars().any(is_hidden), "{text}");
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["target"], hostile);
        assert_eq!(value["seq"], 7);
        assert!(ChainLink::read(text.as_bytes()).unwrap().is_valid());
    }
}
