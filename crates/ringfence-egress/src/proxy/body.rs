//! Lets exactly one request body through, and nothing after it.

use super::head::BodyFraming;
use crate::peek::requests::LONGEST_CHUNK;
use crate::relay::{StreamCheck, StreamObjection, StreamVerdict};

/// Longest line between chunks: a length, or a trailer field.
const LINE: usize = 8 * 1024;

/// Lets one body through.
pub(super) struct SingleBody {
    next: BodyStep,
}

/// Expected input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyStep {
    Bytes(u64),
    /// A line with the length of a chunk.
    Length,
    /// The line end behind a chunk.
    ChunkEnd,
    /// Trailer fields, or the empty line.
    Trailer,
    Nothing,
}

impl SingleBody {
    pub(super) fn new(body: BodyFraming) -> SingleBody {
        let next = match body {
            BodyFraming::Length(0) => BodyStep::Nothing,
            BodyFraming::Length(length) => BodyStep::Bytes(length),
            BodyFraming::Chunks => BodyStep::Length,
        };
        SingleBody { next }
    }
}

impl StreamCheck for SingleBody {
    fn check(&mut self, held: &[u8]) -> StreamVerdict {
        let (let_through, next) = match self.next {
            BodyStep::Nothing => return StreamVerdict::DropRest,
            BodyStep::Bytes(length) => (length, BodyStep::Nothing),
            BodyStep::ChunkEnd => match held {
                [b'\r', b'\n', ..] => (2, BodyStep::Length),
                [b'\r'] => return StreamVerdict::NeedMore,
                _ => return bad("a chunk is longer than its declared length"),
            },
            BodyStep::Length | BodyStep::Trailer => {
                let Some(line) = line(held) else {
                    return if held.len() > LINE {
                        bad("a chunk line has no end")
                    } else {
                        StreamVerdict::NeedMore
                    };
                };
                let whole = line.len() as u64 + 2;
                if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
                    return bad("there are control characters between chunks");
                }
                match (self.next, length(line)) {
                    (BodyStep::Length, Some(0)) => (whole, BodyStep::Trailer),
                    (BodyStep::Length, Some(length)) => (whole + length, BodyStep::ChunkEnd),
                    (BodyStep::Length, None) => return bad("a chunk has no length"),
                    _ if line.is_empty() => (whole, BodyStep::Nothing),
                    _ => (whole, BodyStep::Trailer),
                }
            }
        };
        self.next = next;
        StreamVerdict::PassBytes(let_through)
    }
}

/// The line at the start of `held`, without its end.
fn line(held: &[u8]) -> Option<&[u8]> {
    held.windows(2).position(|two| two == b"\r\n").map(|at| &held[..at])
}

/// The length of a chunk; extensions behind a semicolon are ignored.
fn length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let plain = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let length =
        plain.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten();
    length.filter(|length| *length <= LONGEST_CHUNK)
}

fn bad(reason: &str) -> StreamVerdict {
    StreamVerdict::Refuse(StreamObjection { reason: reason.to_owned(), answer: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output and end state for `input`, fed byte by byte.
    fn goes_out(body: BodyFraming, input: &[u8]) -> (Vec<u8>, &'static str) {
        let mut check = SingleBody::new(body);
        let (mut out, mut held, mut credit) = (Vec::new(), Vec::new(), 0);
        for byte in input.iter().copied() {
            if credit > 0 {
                credit -= 1;
                out.push(byte);
                continue;
            }
            held.push(byte);
            match check.check(&held) {
                StreamVerdict::NeedMore => {}
                StreamVerdict::PassBytes(count) => {
                    let now = (count as usize).min(held.len());
                    out.extend(held.drain(..now));
                    credit = count - now as u64;
                }
                StreamVerdict::DropRest => return (out, "finished"),
                StreamVerdict::Refuse(_) => return (out, "refused"),
                StreamVerdict::Pass | StreamVerdict::Replace(..) => {
                    panic!("it neither lets everything pass nor changes anything")
                }
            }
        }
        (out, "open")
    }

    #[track_caller]
    fn check(body: BodyFraming, input: &str, out: &str, how: &str) {
        assert_eq!(goes_out(body, input.as_bytes()), (out.as_bytes().to_vec(), how), "{input:?}");
    }

    #[test]
    fn body_ends_at_its_declared_length() {
        check(BodyFraming::Length(5), "hello", "hello", "open");
        check(BodyFraming::Length(5), "helloGET http://b/", "hello", "finished");
        check(BodyFraming::Length(5), "hel", "hel", "open");
        check(BodyFraming::Length(0), "G", "", "finished");
    }

    #[test]
    fn body_ends_at_its_last_chunk() {
        check(BodyFraming::Chunks, "5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "open");
        check(
            BodyFraming::Chunks,
            "5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\nGET",
            "5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n",
            "finished",
        );
        check(
            BodyFraming::Chunks,
            "A\r\n0\r\n\r\nGET /\r\n0\r\n\r\nX",
            "A\r\n0\r\n\r\nGET /\r\n0\r\n\r\n",
            "finished",
        );
        check(BodyFraming::Chunks, "5\r\nhelloX", "5\r\nhello", "refused");
        for line in [
            "-1\r\n",
            "0x5\r\n",
            "\r\n",
            " 5\r\n",
            "5\n\r\n",
            "fffffffffffffffff\r\n",
            "5\0\r\n",
            "000000005\r\n",
            "80000000\r\n",
        ] {
            check(BodyFraming::Chunks, line, "", "refused");
        }
        check(BodyFraming::Chunks, &"1".repeat(LINE + 2), "", "refused");
    }
}
