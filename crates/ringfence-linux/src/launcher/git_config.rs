//! Files in git's config syntax, read exactly as git reads them.
//!
//! Anything that git versions could read in two ways is an error: control characters, a byte order
//! mark, carriage returns, `[section.subsection]`.

mod change;
mod known;
mod modules;
mod replace;
mod upstream;
mod url;

pub(crate) use known::KnownConfigs;
pub(crate) use replace::replace;

/// One setting of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitConfigEntry {
    /// In lower case.
    pub(crate) section: String,
    /// As written, without its quotes.
    pub(crate) subsection: Option<String>,
    /// In lower case.
    pub(crate) key: String,
    /// `None` for a key without `=`, which git takes for true.
    pub(crate) value: Option<String>,
}

impl GitConfigEntry {
    /// The name as git shows it.
    pub(crate) fn name(&self) -> String {
        match &self.subsection {
            Some(subsection) => format!("{}.{subsection}.{}", self.section, self.key),
            None => format!("{}.{}", self.section, self.key),
        }
    }

    /// `section.key`, or `section.*.key` if there is a subsection.
    pub(crate) fn pattern(&self) -> String {
        let between = if self.subsection.is_some() { ".*." } else { "." };
        format!("{}{between}{}", self.section, self.key)
    }

    fn is_in(&self, section: &str, subsection: &str) -> bool {
        self.section == section && self.subsection.as_deref() == Some(subsection)
    }
}

/// All settings of a file in their order; `None` if git would not read it, or could read it in two
/// ways.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<GitConfigEntry>> {
    let text = std::str::from_utf8(text).ok()?;
    if text.chars().any(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{feff}') {
        return None;
    }
    GitConfigReader { rest: text }.entries()
}

/// The text that [`parse`] reads these settings from.
fn to_text(entries: &[GitConfigEntry]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let setting = |entry: &GitConfigEntry| {
        let subsection = entry
            .subsection
            .as_ref()
            .map_or(String::new(), |name| format!(" \"{}\"", escaped(name)));
        let value = |value: &String| {
            escaped(value).replace('\n', "\\n").replace('\t', "\\t").replace('\u{8}', "\\b")
        };
        let value =
            entry.value.as_ref().map_or(String::new(), |text| format!(" = \"{}\"", value(text)));
        format!("[{}{subsection}]\n{}{value}\n", entry.section, entry.key)
    };
    entries.iter().map(setting).collect()
}

struct GitConfigReader<'a> {
    rest: &'a str,
}

impl GitConfigReader<'_> {
    fn next(&mut self) -> Option<char> {
        let first = self.rest.chars().next()?;
        self.rest = &self.rest[first.len_utf8()..];
        Some(first)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn entries(mut self) -> Option<Vec<GitConfigEntry>> {
        let mut section: Option<(String, Option<String>)> = None;
        let mut found = Vec::new();
        while let Some(first) = self.next() {
            match first {
                ' ' | '\t' | '\n' => {}
                '#' | ';' => self.skip_line(),
                '[' => section = Some(self.header()?),
                _ if first.is_ascii_alphabetic() => {
                    let (section, subsection) = section.clone()?;
                    let (key, value) = self.setting(first)?;
                    found.push(GitConfigEntry { section, subsection, key, value });
                }
                _ => return None,
            }
        }
        Some(found)
    }

    fn skip_line(&mut self) {
        while self.next().is_some_and(|c| c != '\n') {}
    }

    /// Parses a section header, after the opening bracket.
    fn header(&mut self) -> Option<(String, Option<String>)> {
        let mut name = String::new();
        loop {
            match self.next()? {
                ']' => return (!name.is_empty()).then_some((name, None)),
                c if c.is_ascii_alphanumeric() || c == '-' => name.push(c.to_ascii_lowercase()),
                ' ' | '\t' if !name.is_empty() => break,
                _ => return None,
            }
        }
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.next();
        }
        if self.next()? != '"' {
            return None;
        }
        let mut subsection = String::new();
        loop {
            match self.next()? {
                '\n' => return None,
                '"' => break,
                '\\' => subsection.push(self.next().filter(|c| *c != '\n')?),
                c => subsection.push(c),
            }
        }
        (self.next()? == ']').then_some((name, Some(subsection)))
    }

    fn setting(&mut self, first: char) -> Option<(String, Option<String>)> {
        let mut key = first.to_ascii_lowercase().to_string();
        while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '-') {
            key.push(c.to_ascii_lowercase());
            self.next();
        }
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.next();
        }
        match self.next() {
            None | Some('\n') => Some((key, None)),
            Some('=') => self.value().map(|value| (key, Some(value))),
            Some(_) => None,
        }
    }

    fn value(&mut self) -> Option<String> {
        let mut value = String::new();
        // Unquoted blanks at the end of a line are not part of the value.
        let mut length = 0;
        let mut is_quoted = false;
        loop {
            match self.next() {
                None | Some('\n') if is_quoted => return None,
                None | Some('\n') => break,
                Some(' ' | '\t') if !is_quoted && value.is_empty() => continue,
                Some(blank @ (' ' | '\t')) if !is_quoted => {
                    value.push(blank);
                    continue;
                }
                Some('#' | ';') if !is_quoted => {
                    self.skip_line();
                    break;
                }
                Some('\\') => match self.next()? {
                    '\n' => {}
                    't' => value.push('\t'),
                    'n' => value.push('\n'),
                    'b' => value.push('\u{8}'),
                    same @ ('\\' | '"') => value.push(same),
                    _ => return None,
                },
                Some('"') => is_quoted = !is_quoted,
                Some(c) => value.push(c),
            }
            length = value.len();
        }
        value.truncate(length);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let shown = |text: &str| {
            parse(text.as_bytes()).map(|entries| {
                let value = |value: &Option<String>| {
                    value.as_ref().map_or("(true)".to_owned(), |value| format!("{value:?}"))
                };
                entries
                    .iter()
                    .map(|entry| format!("{}={}", entry.name(), value(&entry.value)))
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(
            shown(text).as_deref(),
            Some(expected.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().as_slice()),
            "{text}"
        );
    }

    /// The same list as `git config --list -f FILE` gives.
    #[test]
    fn settings_are_read_as_git_reads_them() {
        check("", &[]);
        check(
            "# x\n; y\n[Core]\n\tBare = false # z\n\tfileMode\n",
            &["core.bare=\"false\"", "core.filemode=(true)"],
        );
        check("[core] bare = true\n", &["core.bare=\"true\""]);
        check("[a \"B c\\\"d\\\\\"]k-1=\"x ; y\" ; z\n", &["a.B c\"d\\.k-1=\"x ; y\""]);
        check("[a]\nk = x\\\n  y\\tz\\\"\n", &["a.k=\"x  y\\tz\\\"\""]);
        check("[a]\nk = \"a\" b \\\n\n", &["a.k=\"a b \""]);
        check("[a]\nk = \"  \" \nl =\nm = a  b  \n", &["a.k=\"  \"", "a.l=\"\"", "a.m=\"a  b\""]);
        check("[a][b]c=d", &["b.c=\"d\""]);
        check("[x]\n\tk = v \\\n[core]\n", &["x.k=\"v [core]\""]);
    }

    #[test]
    fn invalid_or_ambiguous_text_is_an_error() {
        for text in [
            "k = v\n",
            "[a\nk=v",
            "[]\nk=v",
            "[a.b]\nk=v",
            "[a \"b\" ]\nk=v",
            "[a b]\nk=v",
            "[a \"b\nc\"]\n",
            "[a]\n1k=v",
            "[a]\nk v",
            "[a]\nk # v",
            "[a]\nk = \"v\n",
            "[a]\nk = \\x\n",
            "[a]\nk = v\\",
            "[a]\r\nk = v\r\n",
            "\u{feff}[a]\nk=v",
            "[a]\nk = v\0\n",
            "[a]\nk = v\u{b}\n",
            "[a]\nk_x = v\n",
            "[\u{e4}]\nk=v",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"[a]\nk = \xff\n"), None);
    }
}
