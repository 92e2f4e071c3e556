//! The rows of `lines.txt`.

const LINES: &str = include_str!("lines.txt");

/// One row: verdicts, the line, and its parts.
pub(crate) struct LineRow {
    /// Line number in the file.
    pub(crate) number: usize,
    /// The verdicts of the rules.
    pub(crate) verdicts: &'static str,
    /// The line for a shell.
    pub(crate) line: String,
    /// The parsed parts.
    pub(crate) parts: &'static str,
}

/// The whole table.
pub(crate) fn rows() -> Vec<LineRow> {
    let rows =
        LINES.lines().enumerate().filter(|(_, text)| !text.is_empty() && !text.starts_with("## "));
    rows.map(|(at, text)| {
        let mut columns = text.splitn(3, '\t');
        let mut column =
            || columns.next().unwrap_or_else(|| panic!("line {}: three columns", at + 1));
        LineRow { number: at + 1, verdicts: column(), line: unescaped(column()), parts: column() }
    })
    .collect()
}

/// Decodes `\n`, `\t`, `\r`, `\\` and `\u{…}`.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let (c, length) = match rest[at + 1..].chars().next() {
            Some('n') => ('\n', 2),
            Some('t') => ('\t', 2),
            Some('r') => ('\r', 2),
            Some('u') => {
                let end = at + rest[at..].find('}').expect("a brace");
                let code = u32::from_str_radix(&rest[at + 3..end], 16).expect("a number");
                (char::from_u32(code).expect("a character"), end + 1 - at)
            }
            _ => ('\\', 2),
        };
        plain.push(c);
        rest = &rest[at + length..];
    }
    plain + rest
}
