//! `$'…'`: backslashes that stand for characters.

/// What is written up to the closing quotation mark, and how many bytes that is, the mark
/// included; or where and why not.
pub(super) fn escapes(text: &str) -> Result<(String, usize), (usize, &'static str)> {
    let mut decoded = String::new();
    let mut at = 0;
    loop {
        let Some(c) = text[at..].chars().next() else {
            return Err((0, "a quotation mark that nothing closes"));
        };
        at += c.len_utf8();
        match c {
            '\'' => return Ok((decoded, at)),
            '\\' => {
                let (c, length) = escape(&text[at..])
                    .ok_or((at, "an escape that shells may read differently"))?;
                decoded.push(c);
                at += length;
            }
            _ => decoded.push(c),
        }
    }
}

/// After a backslash: the character, and how long its name is. What is above ASCII depends on
/// the locale, and NUL ends the word, so that both are not read.
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
    // 0x01 and 0x7f have a meaning of their own inside bash.
    let is_known = (2..0x7f).contains(&value);
    is_known.then(|| char::from_u32(value).map(|c| (c, length))).flatten()
}
