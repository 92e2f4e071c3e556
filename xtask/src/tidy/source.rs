//! Rust text without its comments and literals.
//!
//! Not a parser: it knows just enough of the lexical grammar that a brace in a
//! string or `unsafe` in a sentence misleads no rule.

/// `text` with comments and literals blanked; every line keeps its number.
pub(super) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skip(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where `word` stands as a word of its own in `line`.
pub(super) fn find_word(line: &str, word: &str) -> Option<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = line[..*at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// The end of the comment or literal that starts at `at`, or `at` if none does.
fn skip(chars: &[char], at: usize) -> usize {
    let next = |offset: usize| chars.get(at + offset).copied();
    match (chars[at], next(1)) {
        ('/', Some('/')) => until(chars, at, |rest| rest.first() == Some(&'\n')),
        ('/', Some('*')) => block_comment(chars, at),
        ('"', _) => quoted(chars, at, '"'),
        ('\'', Some('\\')) => quoted(chars, at, '\''),
        // Anything else after the tick is a lifetime unless it is one character long.
        ('\'', Some(_)) if next(2) == Some('\'') => at + 3,
        ('r', Some('"' | '#')) if starts_literal(chars, at) => raw_string(chars, at),
        _ => at,
    }
}

fn until(chars: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len()).find(|at| stop(&chars[*at..])).unwrap_or(chars.len())
}

fn block_comment(chars: &[char], from: usize) -> usize {
    let mut depth = 0;
    let mut at = from;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn quoted(chars: &[char], from: usize, quote: char) -> usize {
    let mut at = from + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// True if the `r` at `at` is a prefix, not the end of a name.
fn starts_literal(chars: &[char], at: usize) -> bool {
    match at.checked_sub(1).map(|before| chars[before]) {
        Some('b' | 'c') => at < 2 || !(chars[at - 2].is_alphanumeric() || chars[at - 2] == '_'),
        Some(c) => !(c.is_alphanumeric() || c == '_'),
        None => true,
    }
}

fn raw_string(chars: &[char], from: usize) -> usize {
    let hashes = chars[from + 1..].iter().take_while(|c| **c == '#').count();
    // `r#name` is a name, not a string.
    if chars.get(from + 1 + hashes) != Some(&'"') {
        return from;
    }
    let closes = |rest: &[char]| {
        rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|c| *c == '#')
    };
    (until(chars, from + 2 + hashes, closes) + 1 + hashes).min(chars.len())
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let squeezed = super::code(text)
            .split(' ')
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(squeezed, expect, "{text}");
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        check("a // unsafe {\nb", "a \nb");
        check("a /* { /* } */ { */ b", "a b");
        check(r#"f("}\"{", '{', '\'', b"}")"#, "f( , , , b )");
        check("r\"}\" br#\"}\"}\"# c", "b c");
        check("r#fn(var\"x\")", "r#fn(var )");
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check("a\n\"x\ny\"\nb", "a\n \n \nb");
        check("\"never closed", "");
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(super::find_word("forbid(unsafe_code) unsafe", "unsafe"), Some(20));
        assert_eq!(super::find_word("unsafe_code", "unsafe"), None);
    }
}
