//! Hearing the end of a command among whatever else is said.

use crate::EndMarker;

/// What is heard where a shell tells of an end. Everything that it starts can write there as
/// well, so all that does not hold the word counts as noise.
#[derive(Debug, Default)]
pub struct EndMarkerReader {
    /// The end of what was heard, in which a word may have begun.
    kept: Vec<u8>,
    noise: usize,
}

impl EndMarkerReader {
    /// So many bytes of noise are borne with during one command: too few to guess a word.
    const BORNE: usize = 64 * 1024;

    /// The longest that is said of an end, less one byte.
    const LONGEST: usize = " 255 ".len() + EndMarker::LENGTH;

    /// Hears more; answers the status of the command that was to say `word`, if that was said.
    pub fn hear(&mut self, said: &[u8], word: &EndMarker) -> Option<i32> {
        self.kept.extend_from_slice(said);
        self.noise += said.len();
        if let Some(status) = ended(&self.kept, word) {
            return Some(status);
        }
        let over = self.kept.len().saturating_sub(Self::LONGEST);
        self.kept.drain(..over);
        None
    }

    /// Whether it is so loud that nobody should go on listening.
    pub fn is_loud(&self) -> bool {
        self.noise > Self::BORNE
    }
}

/// The status that stands before `word`: between two spaces, so that whatever was written
/// before it is not taken for a part of it. What a shell says, it says in one piece.
fn ended(said: &[u8], word: &EndMarker) -> Option<i32> {
    let word = word.text().as_bytes();
    said.windows(word.len() + 1)
        .enumerate()
        .filter(|(_, window)| window.strip_suffix(b"\n") == Some(word))
        .find_map(|(at, _)| {
            let before = said[..at].strip_suffix(b" ")?;
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
    fn check(said: &[&str], status: Option<i32>) {
        let mut hearing = EndMarkerReader::default();
        let text = |piece: &&str| piece.replace("WORD", word().text()).into_bytes();
        let heard = said
            .iter()
            .map(text)
            .fold(None, |heard: Option<i32>, piece| heard.or(hearing.hear(&piece, &word())));
        assert_eq!(heard, status, "{said:?}");
    }

    /// Promise: P48
    #[test]
    fn an_end_is_told_by_its_word_alone() {
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
    fn noise_around_an_end_changes_nothing() {
        check(&["1", " 0 WORD\n"], Some(0));
        check(&[" 1", " 0 WORD\n"], Some(0));
        check(&["noise 7 \n\n", " 12 WORD\n more 3 WORD\n"], Some(12));
        check(&["WORD\n 9 WOR 9 ", " 3 WORD\n"], Some(3));
    }

    #[test]
    fn an_end_may_come_in_pieces() {
        let whole = format!("{} 203 WORD\n", "x".repeat(50)).replace("WORD", word().text());
        for at in 0..whole.len() {
            check(&[&whole[..at], &whole[at..]], Some(203));
        }
    }

    #[test]
    fn nobody_listens_for_ever() {
        let mut hearing = EndMarkerReader::default();
        assert_eq!(hearing.hear(&[b'x'; EndMarkerReader::BORNE], &word()), None);
        assert!(!hearing.is_loud());
        hearing.hear(b"x", &word());
        assert!(hearing.is_loud());
    }
}
