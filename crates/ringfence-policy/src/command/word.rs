//! Words: what is known of them before they are expanded.

use std::ops::Range;

use super::globs_and_braces::expanded;
use super::reader::{LineReader, ReadResult, is_separator};

/// One word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellWord {
    /// Where it stands in the line.
    pub span: Range<usize>,
    /// As it is written.
    pub raw: String,
    /// What it is made of, quotes taken away.
    pub(super) pieces: Vec<WordPiece>,
    /// The characters at its start that no quotation mark or backslash protects.
    pub(super) bare: String,
    pub(super) quoting: QuoteKind,
}

/// A piece of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordPiece {
    Char(char),
    /// Not known before the command runs.
    Hole(UnknownWord),
}

/// Why a part of a word is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownWord {
    /// A variable or the output of a command: any text, and any number of words.
    Expansion,
    /// A pattern: the names of files, without a slash.
    Glob,
    /// Somebody's home directory.
    Tilde,
    /// One of several words: `{a,b}`.
    Brace,
    /// What another program reads and hands on.
    Input,
    /// Digits, perhaps with a minus in front, or nothing: `$?`, `$((1 + 2))`.
    Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuoteKind {
    Bare,
    Some,
}

/// A character while its word is still being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RawChar {
    Bare(char),
    Quoted(char),
    Hole(UnknownWord),
    /// Quotation marks with nothing in them: the word is there.
    Nothing,
}

/// Around what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordEnclosure {
    Bare,
    Double,
    /// The body of a here-document: as in double quotes, but those are characters.
    Document,
}

impl ShellWord {
    /// A word of which every character is known.
    pub(super) fn literal_of(text: &str, span: Range<usize>) -> Self {
        let pieces = text.chars().map(WordPiece::Char).collect();
        Self { span, raw: text.to_owned(), pieces, bare: String::new(), quoting: QuoteKind::Some }
    }

    /// A word of which nothing is known; `raw` is what is shown for it.
    pub(super) fn hole(raw: impl Into<String>, span: Range<usize>, why: UnknownWord) -> Self {
        Self {
            span,
            raw: raw.into(),
            pieces: vec![WordPiece::Hole(why)],
            bare: String::new(),
            quoting: QuoteKind::Bare,
        }
    }

    /// What it is, if that is known before the command runs.
    pub fn literal(&self) -> Option<String> {
        let known = |piece: &WordPiece| match piece {
            WordPiece::Char(c) => Some(*c),
            WordPiece::Hole(_) => None,
        };
        self.pieces.iter().map(known).collect()
    }

    /// What it begins with, as far as that is known.
    pub fn prefix(&self) -> String {
        let known = |piece: &WordPiece| match piece {
            WordPiece::Char(c) => Some(*c),
            WordPiece::Hole(_) => None,
        };
        self.pieces.iter().map_while(known).collect()
    }

    /// The first reason for which it is not known.
    pub fn unknown(&self) -> Option<UnknownWord> {
        self.pieces.iter().find_map(|piece| match piece {
            WordPiece::Char(_) => None,
            WordPiece::Hole(why) => Some(*why),
        })
    }

    /// True if the shell makes exactly one word of it: all of it stands in one pair of double
    /// quotes, and it is no list of arguments.
    pub(super) fn is_one_field(&self) -> bool {
        let inside = self.raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
        inside.is_some_and(|inside| !inside.contains(['"', '@', '\\']))
    }

    /// Whether a slash is written in it.
    pub(super) fn has_slash(&self) -> bool {
        self.pieces.contains(&WordPiece::Char('/'))
    }

    /// What comes after the last slash that is written in it.
    pub(super) fn after_slash(&self) -> Self {
        let start = self
            .pieces
            .iter()
            .rposition(|piece| *piece == WordPiece::Char('/'))
            .map_or(0, |at| at + 1);
        Self { pieces: self.pieces[start..].to_vec(), ..self.clone() }
    }

    /// Whether it is exactly this, unquoted.
    pub(super) fn is_plain(&self, text: &str) -> bool {
        self.quoting == QuoteKind::Bare && self.unknown().is_none() && self.bare == text
    }

    /// Whether it is exactly this, quoted or not.
    pub(super) fn is(&self, text: &str) -> bool {
        let mut characters = text.chars();
        self.pieces
            .iter()
            .all(|piece| matches!(piece, WordPiece::Char(c) if characters.next() == Some(*c)))
            && characters.next().is_none()
    }
}

/// A sentence's subject for a word that is not known: the word, or what ringfence says for it.
pub(super) fn named(word: &ShellWord) -> String {
    match word.raw.strip_prefix('<').and_then(|raw| raw.strip_suffix('>')) {
        Some(what) if what.contains(' ') => what.to_owned(),
        _ => format!("`{}`", word.raw),
    }
}

/// Words as somebody would write them.
pub(super) fn shown(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ")
}

/// Whether a tilde here stands for a home, as it does in what looks like an assignment.
fn is_after_sign(raws: &[RawChar]) -> bool {
    match raws.last() {
        Some(RawChar::Bare('=')) => raws.len() > 1,
        Some(RawChar::Bare(':')) => raws.contains(&RawChar::Bare('=')),
        _ => false,
    }
}

/// Writes a word so that a shell reads just this.
pub(super) fn quote(word: &str, into: &mut String) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        into.push_str(word);
    } else {
        into.push('\'');
        into.push_str(&word.replace('\'', r"'\''"));
        into.push('\'');
    }
}

impl LineReader<'_> {
    /// The word that begins here, if one does.
    pub(super) fn word(&mut self) -> ReadResult<Option<ShellWord>> {
        let mut raws = Vec::new();
        self.peek();
        let start = self.at;
        while self.piece(&mut raws)? {}
        Ok((!raws.is_empty()).then(|| self.word_of(raws, start)))
    }

    pub(super) fn word_of(&self, raws: Vec<RawChar>, start: usize) -> ShellWord {
        let bare = raws
            .iter()
            .map_while(|raw| match raw {
                RawChar::Bare(c) => Some(*c),
                _ => None,
            })
            .collect();
        let is_bare = raws.iter().all(|raw| matches!(raw, RawChar::Bare(_) | RawChar::Hole(_)));
        let raw = self.text[start..self.at].to_owned();
        let quoting = if is_bare { QuoteKind::Bare } else { QuoteKind::Some };
        ShellWord { span: self.span(start, self.at), raw, pieces: expanded(&raws), bare, quoting }
    }

    /// Reads one piece of a word; false where it ends.
    pub(super) fn piece(&mut self, raws: &mut Vec<RawChar>) -> ReadResult<bool> {
        let Some(c) = self.peek() else { return Ok(false) };
        match c {
            '<' | '>' if self.peek_second() == Some('(') => {
                self.process_substitution()?;
                raws.push(RawChar::Hole(UnknownWord::Expansion));
            }
            _ if is_separator(c) => return Ok(false),
            '\\' => {
                self.at += 1;
                match self.peek_raw() {
                    None => return Err(self.problem("a backslash with nothing after it")),
                    Some(c) => {
                        self.check_shown(c)?;
                        self.at += c.len_utf8();
                        raws.push(RawChar::Quoted(c));
                    }
                }
            }
            '\'' => {
                self.at += 1;
                self.single_quoted(raws)?;
            }
            '"' => {
                self.at += 1;
                raws.push(RawChar::Nothing);
                self.double_quoted(raws)?;
            }
            '$' => self.dollar(WordEnclosure::Bare, raws)?,
            '`' => {
                self.backtick(WordEnclosure::Bare)?;
                raws.push(RawChar::Hole(UnknownWord::Expansion));
            }
            '~' if raws.is_empty() || is_after_sign(raws) => {
                self.at += 1;
                raws.push(RawChar::Hole(UnknownWord::Tilde));
            }
            _ => {
                self.check_shown(c)?;
                self.at += c.len_utf8();
                raws.push(RawChar::Bare(c));
            }
        }
        Ok(true)
    }

    /// After the first quotation mark.
    pub(super) fn single_quoted(&mut self, raws: &mut Vec<RawChar>) -> ReadResult<()> {
        let Some(length) = self.rest().find('\'') else {
            return Err(self.problem("a quotation mark that nothing closes"));
        };
        raws.push(RawChar::Nothing);
        raws.extend(self.rest()[..length].chars().map(RawChar::Quoted));
        self.at += length + 1;
        Ok(())
    }

    /// After the first quotation mark.
    pub(super) fn double_quoted(&mut self, raws: &mut Vec<RawChar>) -> ReadResult<()> {
        let start = self.at;
        loop {
            match self.peek() {
                None => return Err(self.problem_at(start, "a quotation mark that nothing closes")),
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(c) => self.in_double(c, WordEnclosure::Double, raws)?,
            }
        }
    }

    /// One piece where double quotes hold.
    pub(super) fn in_double(
        &mut self,
        c: char,
        place: WordEnclosure,
        raws: &mut Vec<RawChar>,
    ) -> ReadResult<()> {
        match c {
            '\\' => {
                self.at += 1;
                match self.peek_raw() {
                    Some(next)
                        if matches!(next, '$' | '`' | '\\')
                            || next == '"' && place == WordEnclosure::Double =>
                    {
                        self.at += 1;
                        raws.push(RawChar::Quoted(next));
                    }
                    _ => raws.push(RawChar::Quoted('\\')),
                }
            }
            '$' => self.dollar(place, raws)?,
            '`' => {
                self.backtick(place)?;
                raws.push(RawChar::Hole(UnknownWord::Expansion));
            }
            _ => {
                self.at += c.len_utf8();
                raws.push(RawChar::Quoted(c));
            }
        }
        Ok(())
    }
}
