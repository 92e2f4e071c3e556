//! Output of commands that only print their arguments or decode text: `echo`, `printf`, `which`,
//! `base64 -d`.

use super::expand_word::{self, HOLE, SPLIT};
use super::guess::Values;
use super::unwrap::base_name;
use super::{ParsedLine, ReachedBy, ShellWord, SimpleCommand};

/// Output of a line, if known.
pub(super) fn line_output(text: &str, values: &Values) -> Option<String> {
    let line = ParsedLine::parse(text).ok()?;
    let chains = pipelines(&line);
    let [chain] = chains.as_slice() else { return None };
    pipeline_output(chain, values).map(|text| text.trim_end_matches('\n').to_owned())
}

/// The parts in the text of a line, one list per pipeline.
pub(super) fn pipelines(line: &ParsedLine) -> Vec<Vec<&SimpleCommand>> {
    let mut chains: Vec<Vec<&SimpleCommand>> = Vec::new();
    let mut end = 0;
    for part in line
        .parts
        .iter()
        .filter(|part| part.reached_by != ReachedBy::Followed && !part.words().is_empty())
    {
        let between = line.text.get(end..part.span.start).map(str::trim);
        match chains.last_mut() {
            Some(chain) if matches!(between, Some("|" | "|&")) => chain.push(part),
            // A substitution inside the previous command.
            Some(_) if between.is_none() => continue,
            _ => chains.push(vec![part]),
        }
        end = part.span.end;
    }
    chains
}

/// Output of a pipeline, if known.
pub(super) fn pipeline_output(chain: &[&SimpleCommand], values: &Values) -> Option<String> {
    let (first, filters) = chain.split_first()?;
    let printed = printed(first, values)?;
    filters.iter().try_fold(printed, |text, part| filter_output(part, &text))
}

fn printed(part: &SimpleCommand, values: &Values) -> Option<String> {
    let words = part.words();
    let program = words.first()?.literal()?;
    if let Some(redirect) = part.redirects.iter().find(|redirect| redirect.operator == "<<<") {
        return filter_output(part, &known_text(&redirect.target, values)?);
    }
    let arguments: Option<Vec<String>> =
        words[1..].iter().map(|word| known_text(word, values)).collect();
    let arguments = arguments?;
    match base_name(&program) {
        "echo" => Some(echo_output(&arguments)),
        "printf" => Some(printf_output(&arguments)),
        "which" => arguments.into_iter().find(|argument| !argument.starts_with('-')),
        "command" | "type" | "hash"
            if arguments.first().is_some_and(|option| option.starts_with('-')) =>
        {
            arguments.into_iter().nth(1)
        }
        _ => None,
    }
}

/// The first fully known text of a word.
fn known_text(word: &ShellWord, values: &Values) -> Option<String> {
    let texts = if word.unknown().is_none() {
        vec![word.literal()?]
    } else {
        expand_word::texts(&word.raw, values)
    };
    texts.into_iter().find(|text| !text.contains(HOLE)).map(|text| text.replace(SPLIT, " "))
}

fn echo_output(arguments: &[String]) -> String {
    let is_option = |word: &&String| {
        word.len() > 1 && word.starts_with('-') && word[1..].chars().all(|c| "neE".contains(c))
    };
    let options = arguments.iter().take_while(is_option).count();
    let text = arguments[options..].join(" ");
    // Some shells decode escapes without `-e`.
    unescaped(&text)
}

/// Output of `printf` with `%s`, `%b` and escapes; reuses the format for the remaining arguments.
fn printf_output(arguments: &[String]) -> String {
    let arguments = if arguments.first().is_some_and(|word| word == "--") {
        &arguments[1..]
    } else {
        arguments
    };
    let Some((format, arguments)) = arguments.split_first() else { return String::new() };
    let format = unescaped(format);
    let mut given = arguments.iter();
    let mut text = String::new();
    loop {
        let before = given.len();
        let mut pieces = format.chars().peekable();
        while let Some(c) = pieces.next() {
            match (c, pieces.peek()) {
                ('%', Some('%')) => text.extend(pieces.next()),
                ('%', Some(_)) => {
                    while pieces.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
                    text.push_str(&given.next().map(|word| unescaped(word)).unwrap_or_default());
                }
                _ => text.push(c),
            }
        }
        if given.len() == 0 || given.len() == before || text.len() > super::MAX_LINE_BYTES {
            return text;
        }
    }
}

/// Output of a filter that only decodes or reverses text.
fn filter_output(part: &SimpleCommand, text: &str) -> Option<String> {
    let words: Option<Vec<String>> = part.words().iter().map(ShellWord::literal).collect();
    let words = words?;
    let has = |options: &[&str]| words[1..].iter().any(|word| options.contains(&word.as_str()));
    match base_name(words.first()?) {
        "cat" | "tee" => Some(text.to_owned()),
        "rev" => Some(
            text.lines()
                .map(|line| line.chars().rev().collect::<String>())
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        "base64" | "openssl" if has(&["-d", "-D", "--decode", "-di", "-id"]) => base64(text),
        "xxd" if has(&["-r", "-rp", "-pr"]) => hexadecimal(text),
        "tr" => tr_output(text, words.get(1)?, words.get(2)?),
        _ => None,
    }
}

/// Output of `tr A B` with ranges.
fn tr_output(text: &str, from: &str, to: &str) -> Option<String> {
    let (from, to) = (set(from), set(to));
    let last = *to.last()?;
    let change = |c: char| {
        from.iter().position(|f| *f == c).map_or(c, |at| to.get(at).copied().unwrap_or(last))
    };
    Some(text.chars().map(change).collect())
}

fn set(text: &str) -> Vec<char> {
    let characters: Vec<char> = text.chars().collect();
    let mut set = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let is_range = characters.get(at + 1) == Some(&'-') && at + 2 < characters.len();
        let end = if is_range { characters[at + 2] } else { characters[at] };
        set.extend((characters[at]..=end).take(256));
        at += if is_range { 3 } else { 1 };
    }
    set
}

/// Decodes base64, if the bytes are UTF-8.
pub(super) fn base64(text: &str) -> Option<String> {
    let digit = |c: char| match c {
        'A'..='Z' => Some(u32::from(c) - 65),
        'a'..='z' => Some(u32::from(c) - 71),
        '0'..='9' => Some(u32::from(c) + 4),
        '+' | '-' => Some(62),
        '/' | '_' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for c in text.trim().trim_end_matches('=').chars().filter(|c| !c.is_whitespace()) {
        bits = bits << 6 | digit(c)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Decodes hexadecimal digits, if the bytes are UTF-8.
pub(super) fn hexadecimal(text: &str) -> Option<String> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    String::from_utf8(
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect(),
    )
    .ok()
}

/// Decodes `\xHH`, `\NNN`, `\n` and `\t`.
pub(super) fn unescaped(text: &str) -> String {
    let mut decoded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        decoded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let number = |skip: usize, radix: u32, most: usize| {
            let digits: String =
                after.chars().skip(skip).take(most).take_while(|c| c.is_digit(radix)).collect();
            let value = u32::from_str_radix(&digits, radix).ok().and_then(char::from_u32)?;
            Some((value, skip + digits.len()))
        };
        let found = match after.chars().next() {
            Some('x') => number(1, 16, 2),
            Some('u') => number(1, 16, 4),
            Some('0') => number(1, 8, 3).or(Some(('\0', 1))),
            Some('1'..='7') => number(0, 8, 3),
            Some('n') => Some(('\n', 1)),
            Some('t') => Some(('\t', 1)),
            Some('\\') => Some(('\\', 1)),
            _ => None,
        };
        let (c, length) = found.unwrap_or(('\\', 0));
        decoded.push(c);
        rest = &after[length..];
    }
    decoded + rest
}
