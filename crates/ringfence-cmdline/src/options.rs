//! Options of wrappers, parsed like `getopt`.

use super::ShellWord;

/// End of a wrapper's own arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WrapperArgs {
    /// The wrapped command begins at this word.
    Until(usize),
    /// The wrapper runs none of its arguments.
    RunsNothing,
    /// The word at this index is ambiguous.
    Unknown(usize),
}

/// Kind of an option, from the sign after its name in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionArity {
    /// No sign: no value.
    Nothing,
    /// `=`: a required value.
    Value,
    /// `?`: an optional, attached value.
    Attached,
    /// `!`: the wrapper runs none of its arguments.
    Stops,
}

/// Skips the options in `words`; the first word is the wrapper itself.
///
/// `short` and `long` list its options: `k=s=v` and `kill-after= verbose`. An unlisted option may
/// take a value, so everything after it is ambiguous.
pub(super) fn skip(words: &[ShellWord], short: &str, long: &str) -> WrapperArgs {
    each(words, short, long, &mut |_, _| {})
}

/// Like [`skip`], and passes each option with a value to `seen`.
pub(super) fn each(
    words: &[ShellWord],
    short: &str,
    long: &str,
    seen: &mut dyn FnMut(&str, &str),
) -> WrapperArgs {
    let mut at = 1;
    while at < words.len() {
        let Some(word) = words[at].literal() else { return WrapperArgs::Unknown(at) };
        if word == "--" {
            return WrapperArgs::Until(at + 1);
        }
        let taken = if let Some(name) = word.strip_prefix("--") {
            long_option(name, long, seen).map(|takes| (name, takes))
        } else if word.len() > 1 && word.starts_with('-') {
            short_options(&word[1..], short, seen)
        } else {
            return WrapperArgs::Until(at);
        };
        match taken {
            None => return WrapperArgs::Unknown(at),
            Some((_, OptionArity::Stops)) => return WrapperArgs::RunsNothing,
            Some((name, OptionArity::Value)) => {
                let Some(value) = words.get(at + 1).and_then(ShellWord::literal) else {
                    return WrapperArgs::Unknown(at);
                };
                seen(name, &value);
                at += 2;
            }
            Some((_, OptionArity::Nothing | OptionArity::Attached)) => at += 1,
        }
    }
    WrapperArgs::Until(at)
}

/// Kind of a long option.
fn long_option(name: &str, long: &str, seen: &mut dyn FnMut(&str, &str)) -> Option<OptionArity> {
    let (name, value) =
        name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
    let entry = long.split(' ').find(|entry| entry.trim_end_matches(['=', '?', '!']) == name)?;
    match (sign(entry.chars().next_back()), value) {
        (OptionArity::Value | OptionArity::Attached, Some(value)) => {
            seen(name, value);
            Some(OptionArity::Nothing)
        }
        (_, Some(_)) => None,
        (takes, None) => Some(takes),
    }
}

/// Kind of the last option in a group of letters after one hyphen, with its letter.
fn short_options<'a>(
    letters: &'a str,
    short: &str,
    seen: &mut dyn FnMut(&str, &str),
) -> Option<(&'a str, OptionArity)> {
    for (at, letter) in letters.char_indices() {
        let place = short.find(letter).filter(|_| letter.is_ascii_alphanumeric())?;
        let (name, value) = letters[at..].split_at(letter.len_utf8());
        match sign(short[place + 1..].chars().next()) {
            OptionArity::Nothing => {}
            OptionArity::Value if value.is_empty() => return Some((name, OptionArity::Value)),
            // The rest of the word is the value.
            OptionArity::Value | OptionArity::Attached => {
                seen(name, value);
                return Some((name, OptionArity::Nothing));
            }
            OptionArity::Stops => return Some((name, OptionArity::Stops)),
        }
    }
    Some((letters, OptionArity::Nothing))
}

fn sign(c: Option<char>) -> OptionArity {
    match c {
        Some('=') => OptionArity::Value,
        Some('?') => OptionArity::Attached,
        Some('!') => OptionArity::Stops,
        _ => OptionArity::Nothing,
    }
}
