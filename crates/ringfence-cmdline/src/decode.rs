//! `$'…'`: ANSI-C quoting.

/// Returns the decoded text up to the closing quote and its length in bytes with the quote, or the
/// offset and the reason of a failure.
pub(super) fn escapes(text: &str) -> Result<(String, usize), (usize, &'static str)> {
    let mut decoded = String::new();
    let mut at = 0;
    loop {
        let Some(c) = text[at..].chars().next() else {
            return Err((0, "unclosed quote"));
        };
        at += c.len_utf8();
        match c {
            '\'' => return Ok((decoded, at)),
            '\\' => {
                let (c, length) = escape(&text[at..])
                    .ok_or((at, "an escape that shells may parse differently"))?;
                decoded.push(c);
                at += length;
            }
            _ => decoded.push(c),
        }
    }
}

/// Decodes after a backslash: the character and the length of the escape. Rejects characters above
/// ASCII, which depend on the locale, and NUL, which ends the word.
fn escape(text: &str) -> Option<(char, usize)> {
    let first = text.chars().next()?;
    let simple = |c: char| Some((c, 1));
    match first {
        'a' => simple('\u{7}'),
        'b' => simple('\u{8}'),
        'e' | 'E' => simple('\u{1b}'),
        'f' => simple('\u{c}'),
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        'v' => simple('\u{b}'),
        '\\' | '\'' | '"' | '?' => simple(first),
        'x' => number(&text[1..], 16, 2).map(|(c, length)| (c, length + 1)),
        'u' => number(&text[1..], 16, 4).map(|(c, length)| (c, length + 1)),
        'U' => number(&text[1..], 16, 8).map(|(c, length)| (c, length + 1)),
        '0'..='7' => number(text, 8, 3),
        _ => None,
    }
}

fn number(text: &str, radix: u32, most: usize) -> Option<(char, usize)> {
    let length = text.chars().take(most).take_while(|c| c.is_digit(radix)).count();
    let value = u32::from_str_radix(text.get(..length)?, radix).ok()?;
    // bash uses 0x01 and 0x7f internally.
    let is_known = (2..0x7f).contains(&value);
    is_known.then(|| char::from_u32(value).map(|c| (c, length))).flatten()
}
