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
    each(words, short, long, &mut |_, _| {})
}

/// The same, and `seen` is told each option that has a value.
pub(super) fn each(
    words: &[Word],
    short: &str,
    long: &str,
    seen: &mut dyn FnMut(&str, &str),
) -> Own {
    let mut at = 1;
    while at < words.len() {
        let Some(word) = words[at].literal() else { return Own::Unknown(at) };
        if word == "--" {
            return Own::Until(at + 1);
        }
        let taken = if let Some(name) = word.strip_prefix("--") {
            long_option(name, long, seen).map(|takes| (name, takes))
        } else if word.len() > 1 && word.starts_with('-') {
            short_options(&word[1..], short, seen)
        } else {
            return Own::Until(at);
        };
        match taken {
            None => return Own::Unknown(at),
            Some((_, Takes::Stops)) => return Own::RunsNothing,
            Some((name, Takes::Value)) => {
                let Some(value) = words.get(at + 1).and_then(Word::literal) else {
                    return Own::Unknown(at);
                };
                seen(name, &value);
                at += 2;
            }
            Some((_, Takes::Nothing | Takes::Attached)) => at += 1,
        }
    }
    Own::Until(at)
}

/// What the option takes of the words after it.
fn long_option(name: &str, long: &str, seen: &mut dyn FnMut(&str, &str)) -> Option<Takes> {
    let (name, value) =
        name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
    let entry = long.split(' ').find(|entry| entry.trim_end_matches(['=', '?', '!']) == name)?;
    match (sign(entry.chars().next_back()), value) {
        (Takes::Value | Takes::Attached, Some(value)) => {
            seen(name, value);
            Some(Takes::Nothing)
        }
        (_, Some(_)) => None,
        (takes, None) => Some(takes),
    }
}

/// The same for several letters behind one hyphen; and the last of them.
fn short_options<'a>(
    letters: &'a str,
    short: &str,
    seen: &mut dyn FnMut(&str, &str),
) -> Option<(&'a str, Takes)> {
    for (at, letter) in letters.char_indices() {
        let place = short.find(letter).filter(|_| letter.is_ascii_alphanumeric())?;
        let (name, value) = letters[at..].split_at(letter.len_utf8());
        match sign(short[place + 1..].chars().next()) {
            Takes::Nothing => {}
            Takes::Value if value.is_empty() => return Some((name, Takes::Value)),
            // The rest of the word is the value.
            Takes::Value | Takes::Attached => {
                seen(name, value);
                return Some((name, Takes::Nothing));
            }
            Takes::Stops => return Some((name, Takes::Stops)),
        }
    }
    Some((letters, Takes::Nothing))
}

fn sign(c: Option<char>) -> Takes {
    match c {
        Some('=') => Takes::Value,
        Some('?') => Takes::Attached,
        Some('!') => Takes::Stops,
        _ => Takes::Nothing,
    }
}
