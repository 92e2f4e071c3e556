//! The options of wrappers, read as `getopt` reads them.

use super::Word;

/// Where a wrapper's own words end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// The rest begins at this word.
    Until(usize),
    /// It runs none of its arguments.
    RunsNothing,
    /// The word at this place could mean anything.
    Unknown(usize),
}

/// What an option is: the sign after its name in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// No sign: nothing.
    Nothing,
    /// `=`: a value.
    Value,
    /// `?`: a value only if it is attached.
    Attached,
    /// `!`: with it the wrapper runs none of its arguments.
    Stops,
}

/// Skips the options in `words`, of which the first is the wrapper itself.
///
/// `short` and `long` are its options: `k=s=v` and `kill-after= verbose`. One that is not listed
/// is not known to take no value, so everything after it could be anything.
pub(super) fn skip(words: &[Word], short: &str, long: &str) -> Own {
    let mut at = 1;
    while at < words.len() {
        let Some(word) = words[at].literal() else { return Own::Unknown(at) };
        if word == "--" {
            return Own::Until(at + 1);
        }
        let taken = if let Some(name) = word.strip_prefix("--") {
            long_option(name, long)
        } else if word.len() > 1 && word.starts_with('-') {
            short_options(&word[1..], short)
        } else {
            return Own::Until(at);
        };
        match taken {
            None => return Own::Unknown(at),
            Some(Takes::Stops) => return Own::RunsNothing,
            Some(Takes::Value) => {
                if words.get(at + 1).is_none_or(|word| word.literal().is_none()) {
                    return Own::Unknown(at);
                }
                at += 2;
            }
            Some(Takes::Nothing | Takes::Attached) => at += 1,
        }
    }
    Own::Until(at)
}

/// What the option takes of the words after it.
fn long_option(name: &str, long: &str) -> Option<Takes> {
    let (name, has_value) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
    let entry = long.split(' ').find(|entry| entry.trim_end_matches(['=', '?', '!']) == name)?;
    match (sign(entry.chars().next_back()), has_value) {
        (Takes::Value | Takes::Attached, true) => Some(Takes::Nothing),
        (_, true) => None,
        (takes, false) => Some(takes),
    }
}

/// The same for several letters behind one hyphen.
fn short_options(letters: &str, short: &str) -> Option<Takes> {
    for (at, letter) in letters.char_indices() {
        let place = short.find(letter).filter(|_| letter.is_ascii_alphanumeric())?;
        let is_last = at + letter.len_utf8() == letters.len();
        match sign(short[place + 1..].chars().next()) {
            Takes::Nothing => {}
            Takes::Value if is_last => return Some(Takes::Value),
            // The rest of the word is the value.
            Takes::Value | Takes::Attached => return Some(Takes::Nothing),
            Takes::Stops => return Some(Takes::Stops),
        }
    }
    Some(Takes::Nothing)
}

fn sign(c: Option<char>) -> Takes {
    match c {
        Some('=') => Takes::Value,
        Some('?') => Takes::Attached,
        Some('!') => Takes::Stops,
        _ => Takes::Nothing,
    }
}
