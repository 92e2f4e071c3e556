//! Strict parser for values.

use super::{
    FrontMatterFault, FrontMatterKind, FrontMatterRow, FrontMatterRules, FrontMatterValue, entries,
    is_item,
};

/// Maximum nesting depth. No real file is deeper.
const DEEPEST: u32 = 8;

/// Parses the text after a colon, and the rows below that belong to it.
pub(super) fn read(
    first: FrontMatterRow<'_>,
    below: &[FrontMatterRow<'_>],
    depth: u32,
) -> Result<FrontMatterValue, FrontMatterFault> {
    if let Some(row) = below.iter().find(|row| {
        row.text.trim_start_matches(' ').starts_with('\t') && !row.text.trim().is_empty()
    }) {
        return Err((row.at(), "indented with a tab: use spaces".into()));
    }
    let at = first.at();
    let kind = match first.text.chars().next() {
        None | Some('#') => return nested(first, below, depth),
        Some('|' | '>') => FrontMatterKind::Text(block(first, below)?),
        Some('[') => FrontMatterKind::List(flow(first, below)?),
        Some('"' | '\'') => FrontMatterKind::Text(quoted(first, below)?),
        Some(c) if "&*!%@`{}],?".contains(c) || is_item(first.text) => {
            return Err((
                at,
                format!("a value that begins with `{c}` is not supported: put it in quotes"),
            ));
        }
        Some(_) => FrontMatterKind::Text(plain(first, below)?),
    };
    Ok(FrontMatterValue { at, kind })
}

/// Parses a list or a map in the rows below.
fn nested(
    first: FrontMatterRow<'_>,
    below: &[FrontMatterRow<'_>],
    depth: u32,
) -> Result<FrontMatterValue, FrontMatterFault> {
    let rows: Vec<FrontMatterRow<'_>> =
        below.iter().filter(|row| !row.is_blank()).copied().collect();
    let Some(head) = rows.first() else {
        return Ok(FrontMatterValue { at: first.at(), kind: FrontMatterKind::Nothing });
    };
    let indent = head.indent();
    if let Some(row) = rows.iter().find(|row| row.indent() < indent) {
        return Err((
            row.from(row.indent()).at(),
            "this line is indented less than the lines above".into(),
        ));
    }
    let rows: Vec<FrontMatterRow<'_>> = rows.iter().map(|row| row.from(indent)).collect();
    let kind = if is_item(rows[0].text) {
        FrontMatterKind::List(items(&rows)?)
    } else if depth >= DEEPEST {
        return Err((rows[0].at(), "this value is nested too deeply".into()));
    } else {
        FrontMatterKind::Map(entries(&rows, FrontMatterRules { strict: &[], depth: depth + 1 })?)
    };
    Ok(FrontMatterValue { at: rows[0].at(), kind })
}

fn items(rows: &[FrontMatterRow<'_>]) -> Result<Vec<FrontMatterValue>, FrontMatterFault> {
    let mut items = Vec::new();
    let mut next = 0;
    while next < rows.len() {
        let row = rows[next];
        if !is_item(row.text) {
            return Err((row.at(), "expected an item such as `- value`".into()));
        }
        let more = rows[next + 1..].iter().take_while(|row| row.text.starts_with(' ')).count();
        let behind = row.text[1..].len() - row.text[1..].trim_start().len();
        let value = row.from(1 + behind);
        let item = read(value, &rows[next + 1..=next + more], DEEPEST)?;
        if !matches!(item.kind, FrontMatterKind::Text(_)) {
            return Err((value.at(), "an item must be a text".into()));
        }
        items.push(item);
        next += more + 1;
    }
    Ok(items)
}

/// Parses an unquoted text up to a comment; joins further rows with a space.
fn plain(
    first: FrontMatterRow<'_>,
    below: &[FrontMatterRow<'_>],
) -> Result<String, FrontMatterFault> {
    let mut words: Vec<&str> = Vec::new();
    let mut is_over = false;
    for row in [first].into_iter().chain(
        below.iter().filter(|row| !row.text.trim().is_empty()).map(|row| row.from(row.indent())),
    ) {
        if row.text.starts_with('#') {
            is_over = true;
            continue;
        }
        if is_over {
            return Err((row.at(), "a value cannot continue after a comment".into()));
        }
        let comment = row.text.find(" #");
        is_over = comment.is_some();
        let text = row.text[..comment.unwrap_or(row.text.len())].trim_end();
        if let Some(colon) = text.find(": ").or_else(|| text.ends_with(':').then(|| text.len() - 1))
        {
            return Err((row.from(colon).at(), "a colon in a text: put the text in quotes".into()));
        }
        if is_item(text) {
            return Err((row.at(), "a list item after a text".into()));
        }
        words.extend(Some(text).filter(|text| !text.is_empty()));
    }
    Ok(words.join(" "))
}

/// Parses a block text: `|` keeps line breaks, `>` turns them into spaces.
fn block(
    first: FrontMatterRow<'_>,
    below: &[FrontMatterRow<'_>],
) -> Result<String, FrontMatterFault> {
    let header = first.text.split(" #").next().unwrap_or_default().trim_end();
    let (style, rest) = header.split_at(1);
    if !matches!(rest, "" | "-" | "+") {
        return Err((
            first.from(1).at(),
            "write `|` or `>`, and the text in the lines below".into(),
        ));
    }
    let indent =
        below.iter().find(|row| !row.text.trim().is_empty()).map_or(0, FrontMatterRow::indent);
    if indent == 0 && below.iter().any(|row| !row.text.trim().is_empty()) {
        return Err((first.at(), "the text in the lines below must be indented".into()));
    }
    let mut lines = Vec::new();
    for row in below {
        if !row.text.trim().is_empty() && row.indent() < indent {
            return Err((row.at(), "this line is indented less than the lines above".into()));
        }
        lines.push(row.text.get(indent..).unwrap_or_default());
    }
    let text = if style == "|" { lines.join("\n") } else { lines.join(" ") };
    Ok(text.trim_end().to_owned())
}

/// Parses a quoted text, which may span several rows.
fn quoted(
    first: FrontMatterRow<'_>,
    below: &[FrontMatterRow<'_>],
) -> Result<String, FrontMatterFault> {
    let joined = join(first, below);
    let (text, rest) = string(&joined).ok_or_else(|| {
        (first.at(), "this text is not closed, or has an unknown escape".to_owned())
    })?;
    nothing_behind(rest)
        .map(|()| text)
        .ok_or_else(|| (first.at(), "unexpected text after the closing quote".into()))
}

fn join(first: FrontMatterRow<'_>, below: &[FrontMatterRow<'_>]) -> String {
    let rows = below.iter().map(|row| row.text.trim()).filter(|text| !text.is_empty());
    [first.text].into_iter().chain(rows).collect::<Vec<_>>().join(" ")
}

fn nothing_behind(rest: &str) -> Option<()> {
    (rest.trim().is_empty() || rest.starts_with(" #")).then_some(())
}

/// The quoted text at the start of `text`, and the rest after it.
fn string(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next()?;
    let mut text_value = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((i, c)) = chars.next() {
        match c {
            '\'' if quote == '\'' && chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                chars.next();
                text_value.push('\'');
            }
            c if c == quote => return Some((text_value, &text[i + 1..])),
            '\\' if quote == '"' => text_value.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '0' => '\0',
                c @ ('"' | '\\' | '/' | ' ') => c,
                _ => return None,
            }),
            c => text_value.push(c),
        }
    }
    None
}

/// Parses `[a, "b"]` with only texts, on one row or several.
fn flow(
    first: FrontMatterRow<'_>,
    below: &[FrontMatterRow<'_>],
) -> Result<Vec<FrontMatterValue>, FrontMatterFault> {
    let mut rows = [first]
        .into_iter()
        .chain(below.iter().filter(|row| !row.is_blank()).map(|row| row.from(row.indent())));
    let mut row = rows.next().map(|row| row.from(1)).unwrap_or(first);
    let mut items = Vec::new();
    let mut is_after_item = false;
    loop {
        row = row.from(row.text.len() - row.text.trim_start().len());
        match row.text.chars().next() {
            None | Some('#') => {
                row =
                    rows.next().ok_or_else(|| (first.at(), "this list is not closed".to_owned()))?
            }
            Some(']') => {
                let behind = row.from(1);
                let is_end = nothing_behind(behind.text).is_some() && rows.next().is_none();
                return if is_end {
                    Ok(items)
                } else {
                    Err((behind.at(), "unexpected text after the end of the list".into()))
                };
            }
            Some(',') if is_after_item => (is_after_item, row) = (false, row.from(1)),
            Some(c) if is_after_item || ",[{}&*!%@`|>?".contains(c) => {
                return Err((
                    row.at(),
                    format!(
                        "`{c}` is unexpected in a list: put texts in quotes, separated by commas"
                    ),
                ));
            }
            Some('"' | '\'') => {
                let (text, rest) = string(row.text).ok_or_else(|| {
                    (row.at(), "this text is not closed, or has an unknown escape".to_owned())
                })?;
                items.push(FrontMatterValue { at: row.at(), kind: FrontMatterKind::Text(text) });
                (is_after_item, row) = (true, row.from(row.text.len() - rest.len()));
            }
            Some(_) => {
                let end = row
                    .text
                    .find([',', ']', '[', '{', '}', '"', '\'', '#'])
                    .unwrap_or(row.text.len());
                let text = row.text[..end].trim_end();
                if text.contains(": ") || text.ends_with(':') {
                    return Err((row.at(), "a colon in a text: put the text in quotes".into()));
                }
                items.push(FrontMatterValue {
                    at: row.at(),
                    kind: FrontMatterKind::Text(text.to_owned()),
                });
                (is_after_item, row) = (true, row.from(end));
            }
        }
    }
}
