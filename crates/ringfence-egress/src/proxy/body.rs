//! The body of one request: as much of it goes out as was announced, and nothing after it.

use super::head::Body;
use crate::peek::requests::LONGEST_CHUNK;
use crate::relay::{Check, Objection, Verdict};

/// The longest line that stands between chunks: a length, or a field after the last.
const LINE: usize = 8 * 1024;

/// Lets one body through.
pub(super) struct OneBody {
    next: Next,
}

/// What is expected next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Bytes(u64),
    /// A line with the length of a chunk.
    Length,
    /// The end of the line after a chunk.
    ChunkEnd,
    /// Fields after the last chunk, or the empty line.
    Trailer,
    Nothing,
}

impl OneBody {
    pub(super) fn new(body: Body) -> OneBody {
        let next = match body {
            Body::Length(0) => Next::Nothing,
            Body::Length(length) => Next::Bytes(length),
            Body::Chunks => Next::Length,
        };
        OneBody { next }
    }
}

impl Check for OneBody {
    fn look(&mut self, held: &[u8]) -> Verdict {
        let (let_through, next) = match self.next {
            Next::Nothing => return Verdict::Finish,
            Next::Bytes(length) => (length, Next::Nothing),
            Next::ChunkEnd => match held {
                [b'\r', b'\n', ..] => (2, Next::Length),
                [b'\r'] => return Verdict::NeedMore,
                _ => return bad("a chunk is longer than was said"),
            },
            Next::Length | Next::Trailer => {
                let Some(line) = line(held) else {
                    return if held.len() > LINE {
                        bad("a line between chunks has no end")
                    } else {
                        Verdict::NeedMore
                    };
                };
                let whole = line.len() as u64 + 2;
                if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
                    return bad("there are control characters between chunks");
                }
                match (self.next, length(line)) {
                    (Next::Length, Some(0)) => (whole, Next::Trailer),
                    (Next::Length, Some(length)) => (whole + length, Next::ChunkEnd),
                    (Next::Length, None) => return bad("a chunk has no length"),
                    _ if line.is_empty() => (whole, Next::Nothing),
                    _ => (whole, Next::Trailer),
                }
            }
        };
        self.next = next;
        Verdict::Through(let_through)
    }
}

/// The line at the beginning of `held`, without its end.
fn line(held: &[u8]) -> Option<&[u8]> {
    held.windows(2).position(|two| two == b"\r\n").map(|at| &held[..at])
}

/// The length of a chunk; what stands behind it after a semicolon says nothing about it.
fn length(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let plain = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let length =
        plain.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten();
    length.filter(|length| *length <= LONGEST_CHUNK)
}

fn bad(reason: &str) -> Verdict {
    Verdict::Refuse(Objection { reason: reason.to_owned(), answer: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes out of `said`, which comes byte by byte, and how it ends.
    fn goes_out(body: Body, said: &[u8]) -> (Vec<u8>, &'static str) {
        let mut check = OneBody::new(body);
        let (mut out, mut held, mut credit) = (Vec::new(), Vec::new(), 0);
        for byte in said.iter().copied() {
            if credit > 0 {
                credit -= 1;
                out.push(byte);
                continue;
            }
            held.push(byte);
            match check.look(&held) {
                Verdict::NeedMore => {}
                Verdict::Through(count) => {
                    let now = (count as usize).min(held.len());
                    out.extend(held.drain(..now));
                    credit = count - now as u64;
                }
                Verdict::Finish => return (out, "finished"),
                Verdict::Refuse(_) => return (out, "refused"),
                Verdict::Pass | Verdict::Instead(..) => {
                    panic!("it neither lets everything pass nor changes anything")
                }
            }
        }
        (out, "open")
    }

    #[track_caller]
    fn check(body: Body, said: &str, out: &str, how: &str) {
        assert_eq!(goes_out(body, said.as_bytes()), (out.as_bytes().to_vec(), how), "{said:?}");
    }

    #[test]
    fn as_many_bytes_as_were_announced() {
        check(Body::Length(5), "hello", "hello", "open");
        check(Body::Length(5), "helloGET http://b/", "hello", "finished");
        check(Body::Length(5), "hel", "hel", "open");
        check(Body::Length(0), "G", "", "finished");
    }

    #[test]
    fn as_many_chunks_as_were_announced() {
        check(Body::Chunks, "5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "open");
        check(
            Body::Chunks,
            "5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\nGET",
            "5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n",
            "finished",
        );
        check(
            Body::Chunks,
            "A\r\n0\r\n\r\nGET /\r\n0\r\n\r\nX",
            "A\r\n0\r\n\r\nGET /\r\n0\r\n\r\n",
            "finished",
        );
        check(Body::Chunks, "5\r\nhelloX", "5\r\nhello", "refused");
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
            check(Body::Chunks, line, "", "refused");
        }
        check(Body::Chunks, &"1".repeat(LINE + 2), "", "refused");
    }
}
