//! The value, taken out of what a host sends back.

/// What stands in its place.
const STAR: u8 = b'*';
/// Shorter ones are words like others, and what a host sends would be spoiled by them.
const SHORTEST: usize = 8;

/// Looks through what a host says, piece by piece, and keeps its length.
#[derive(Debug)]
pub(super) struct Scrub {
    values: Vec<Vec<u8>>,
    /// The last bytes, if they may be the beginning of a value.
    held: Vec<u8>,
}

impl Scrub {
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let values = values.filter(|value| value.len() >= SHORTEST).map(|value| value.as_bytes().to_vec());
        Self { values: values.collect(), held: Vec::new() }
    }

    /// What can be passed on by now.
    pub(super) fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        for value in &self.values {
            let mut from = 0;
            while let Some(at) = find(&bytes[from..], value) {
                bytes[from + at..from + at + value.len()].fill(STAR);
                from += at + value.len();
            }
        }
        let begun = self.values.iter().map(|value| begun(&bytes, value)).max().unwrap_or(0);
        self.held = bytes.split_off(bytes.len() - begun);
        bytes
    }

    /// Whether something waits for what comes next.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// What was held, since nothing comes.
    pub(super) fn release(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

fn find(bytes: &[u8], value: &[u8]) -> Option<usize> {
    let first = value[0];
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        if bytes[from + at..].starts_with(value) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// How many of the last bytes are the beginning of `value`, and not all of it.
fn begun(bytes: &[u8], value: &[u8]) -> usize {
    let longest = bytes.len().min(value.len() - 1);
    (1..=longest).rev().find(|count| bytes.ends_with(&value[..*count])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expect: &str) {
        let mut scrub = Scrub::new(["s3cret-value", "aab-aaab", "short"].into_iter());
        let mut passed: Vec<u8> = pieces.iter().flat_map(|piece| scrub.pass(piece.as_bytes())).collect();
        passed.extend(scrub.release());
        assert_eq!(String::from_utf8(passed).unwrap(), expect);
    }

    #[test]
    fn a_value_is_found_however_it_is_cut() {
        let text = "x s3cret-value, s3cret-valu, short, aaab-aaab-aaab.";
        let expect = "x ************, s3cret-valu, short, a********-aaab.";
        for cut in 0..text.len() {
            check(&[&text[..cut], &text[cut..]], expect);
        }
        let single: Vec<&str> = text.split_inclusive(|_| true).collect();
        check(&single, expect);
    }

    #[test]
    fn what_only_begins_like_one_comes_as_well() {
        check(&["s3cret-"], "s3cret-");
        check(&[""], "");
    }
}
