//! Detection of the end of a command in the shell's report stream.

use crate::EndMarker;

/// Reader of the report stream. Every process that the shell starts can write there as well, so
/// text without the marker counts as noise.
#[derive(Debug, Default)]
pub struct EndMarkerReader {
    /// The last bytes read, in which a marker may have begun.
    kept: Vec<u8>,
    noise: usize,
}

impl EndMarkerReader {
    /// Bytes of noise accepted per command: too few to guess a marker.
    const MAX_NOISE: usize = 64 * 1024;

    /// Longest report of an end, less one byte.
    const MAX_REPORT: usize = " 255 ".len() + EndMarker::LENGTH;

    /// Reads more bytes; returns the status of the command with the marker `word`, if its report is
    /// complete.
    pub fn push(&mut self, bytes: &[u8], word: &EndMarker) -> Option<i32> {
        self.kept.extend_from_slice(bytes);
        self.noise += bytes.len();
        if let Some(status) = find_status(&self.kept, word) {
            return Some(status);
        }
        let over = self.kept.len().saturating_sub(Self::MAX_REPORT);
        self.kept.drain(..over);
        None
    }

    /// True if there is too much noise to go on.
    pub fn is_too_noisy(&self) -> bool {
        self.noise > Self::MAX_NOISE
    }
}

/// The status before `word`: between two spaces, so that earlier text is not taken for a part of
/// it. The shell writes its report in one piece.
fn find_status(bytes: &[u8], word: &EndMarker) -> Option<i32> {
    let word = word.text().as_bytes();
    bytes
        .windows(word.len() + 1)
        .enumerate()
        .filter(|(_, window)| window.strip_suffix(b"\n") == Some(word))
        .find_map(|(at, _)| {
            let before = bytes[..at].strip_suffix(b" ")?;
            let digits = before
                .rsplit(|byte| *byte == b' ')
                .next()
                .filter(|digits| digits.len() < before.len())?;
            let is_number = matches!(digits.len(), 1..=3) && digits.iter().all(u8::is_ascii_digit);
            std::str::from_utf8(digits)
                .ok()
                .filter(|_| is_number)?
                .parse()
                .ok()
                .filter(|status| (0..=255).contains(status))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word() -> EndMarker {
        EndMarker::new(*b"abcdef")
    }

    #[track_caller]
    fn check(bytes: &[&str], status: Option<i32>) {
        let mut reader = EndMarkerReader::default();
        let text = |piece: &&str| piece.replace("WORD", word().text()).into_bytes();
        let found = bytes
            .iter()
            .map(text)
            .fold(None, |found: Option<i32>, piece| found.or(reader.push(&piece, &word())));
        assert_eq!(found, status, "{bytes:?}");
    }

    /// Promise: end-marker
    #[test]
    fn only_the_marker_reports_an_end() {
        check(&[" 0 WORD\n"], Some(0));
        check(&[" 255 WORD\n"], Some(255));
        for wrong in [
            "",
            " WORD\n",
            " 256 WORD\n",
            " -1 WORD\n",
            " +1 WORD\n",
            " 0 WORD",
            "0 WORD\n",
            " 0  WORD\n",
            " 0 WORDx\n",
            " 0 0\n",
        ] {
            check(&[wrong], None);
        }
    }

    #[test]
    fn noise_around_a_report_is_ignored() {
        check(&["1", " 0 WORD\n"], Some(0));
        check(&[" 1", " 0 WORD\n"], Some(0));
        check(&["noise 7 \n\n", " 12 WORD\n more 3 WORD\n"], Some(12));
        check(&["WORD\n 9 WOR 9 ", " 3 WORD\n"], Some(3));
    }

    #[test]
    fn report_may_come_in_pieces() {
        let whole = format!("{} 203 WORD\n", "x".repeat(50)).replace("WORD", word().text());
        for at in 0..whole.len() {
            check(&[&whole[..at], &whole[at..]], Some(203));
        }
    }

    #[test]
    fn noise_is_bounded() {
        let mut reader = EndMarkerReader::default();
        assert_eq!(reader.push(&[b'x'; EndMarkerReader::MAX_NOISE], &word()), None);
        assert!(!reader.is_too_noisy());
        reader.push(b"x", &word());
        assert!(reader.is_too_noisy());
    }
}
