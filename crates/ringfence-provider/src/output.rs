//! The captured output of a command.

use std::io::Read;
use std::thread::{self, JoinHandle};

use ringfence_api::StreamOutput;

/// Reads a stream to its end in a thread of its own. Keeps its first and last bytes, `limit` in
/// all, and counts the rest. A stream that is not captured is empty.
pub fn collect_output(
    stream: Option<impl Read + Send + 'static>,
    limit: usize,
) -> JoinHandle<StreamOutput> {
    thread::spawn(move || {
        let mut output = StreamOutput::default();
        let Some(mut stream) = stream else { return output };
        let (most, mut buffer) = (limit - limit / 2, vec![0; 64 * 1024]);
        // An error ends the stream: what was read counts.
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let (head, rest) = buffer[..count].split_at(count.min(most - output.head.len()));
            output.head.extend_from_slice(head);
            output.tail.extend_from_slice(rest);
            let surplus = output.tail.len().saturating_sub(limit / 2);
            output.tail.drain(..surplus);
            output.dropped += surplus as u64;
        }
        output
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &'static [u8], limit: usize, expect: (&[u8], &[u8], u64)) {
        let output = collect_output(Some(bytes), limit).join().unwrap();
        assert_eq!((output.head.as_slice(), output.tail.as_slice(), output.dropped), expect);
    }

    #[test]
    fn output_beyond_the_limit_is_cut_in_the_middle() {
        check(b"", 4, (b"", b"", 0));
        check(b"abcd", 4, (b"ab", b"cd", 0));
        check(b"abcdefg", 4, (b"ab", b"fg", 3));
        check(b"abcdefg", 5, (b"abc", b"fg", 2));
        check(b"abc", 0, (b"", b"", 3));
        check(b"abc", usize::MAX, (b"abc", b"", 0));
        static LONG: [u8; 200_000] = [7; 200_000];
        check(&LONG, 100_001, (&LONG[..50_001], &LONG[..50_000], 99_999));
    }

    #[test]
    fn stream_that_is_not_captured_is_empty() {
        let output = collect_output(None::<&[u8]>, 4).join().unwrap();
        assert_eq!(output, StreamOutput::default());
    }
}
