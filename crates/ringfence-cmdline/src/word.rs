//! Words of a command, and their content before expansion.

use std::ops::Range;

use super::globs_and_braces::expanded;
use super::reader::{LineReader, ReadResult, is_separator};

/// One word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellWord {
    /// Position in the line.
    pub span: Range<usize>,
    /// The word as written.
    pub raw: String,
    /// The content without quotes.
    pub(super) pieces: Vec<WordPiece>,
    /// The unquoted characters at its start.
    pub(super) bare: String,
    pub(super) quoting: QuoteKind,
}

/// A piece of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordPiece {
    Char(char),
    /// Unknown before the command runs.
    Hole(UnknownWord),
}

/// Reason for which a part of a word is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownWord {
    /// A variable or the output of a command: any text, in any number of words.
    Expansion,
    /// A glob: file names without a slash.
    Glob,
    /// A home directory.
    Tilde,
    /// One of several words: `{a,b}`.
    Brace,
    /// Input of another program.
    Input,
    /// Digits with an optional minus sign, or nothing: `$?`, `$((1 + 2))`.
    Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuoteKind {
    Bare,
    Some,
}

/// A character of a word that is still being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RawChar {
    Bare(char),
    Quoted(char),
    Hole(UnknownWord),
    /// Empty quotes: the word exists.
    Nothing,
}

/// Construct around the current text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordEnclosure {
    Bare,
    Double,
    /// The body of a here-document: like double quotes, but `"` is an ordinary character.
    Document,
}

impl ShellWord {
    /// A fully known word.
    pub(super) fn from_literal(text: &str, span: Range<usize>) -> Self {
        let pieces = text.chars().map(WordPiece::Char).collect();
        Self { span, raw: text.to_owned(), pieces, bare: String::new(), quoting: QuoteKind::Some }
    }

    /// A fully unknown word; `raw` is its display text.
    pub(super) fn hole(raw: impl Into<String>, span: Range<usize>, why: UnknownWord) -> Self {
        Self {
            span,
            raw: raw.into(),
            pieces: vec![WordPiece::Hole(why)],
            bare: String::new(),
            quoting: QuoteKind::Bare,
        }
    }

    /// The text, if known before the command runs.
    pub fn literal(&self) -> Option<String> {
        let known = |piece: &WordPiece| match piece {
            WordPiece::Char(c) => Some(*c),
            WordPiece::Hole(_) => None,
        };
        self.pieces.iter().map(known).collect()
    }

    /// The known text at the start.
    pub fn prefix(&self) -> String {
        let known = |piece: &WordPiece| match piece {
            WordPiece::Char(c) => Some(*c),
            WordPiece::Hole(_) => None,
        };
        self.pieces.iter().map_while(known).collect()
    }

    /// The first reason for which the word is unknown.
    pub fn unknown(&self) -> Option<UnknownWord> {
        self.pieces.iter().find_map(|piece| match piece {
            WordPiece::Char(_) => None,
            WordPiece::Hole(why) => Some(*why),
        })
    }

    /// True if the shell makes exactly one word of it: the whole word is in one pair of double
    /// quotes, and is no argument list.
    pub(super) fn is_one_field(&self) -> bool {
        let inside = self.raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
        inside.is_some_and(|inside| !inside.contains(['"', '@', '\\']))
    }

    /// True if the word contains a written slash.
    pub(super) fn has_slash(&self) -> bool {
        self.pieces.contains(&WordPiece::Char('/'))
    }

    /// The part after the last written slash.
    pub(super) fn after_slash(&self) -> Self {
        let start = self
            .pieces
            .iter()
            .rposition(|piece| *piece == WordPiece::Char('/'))
            .map_or(0, |at| at + 1);
        Self { pieces: self.pieces[start..].to_vec(), ..self.clone() }
    }

    /// True if the word is exactly this text, unquoted.
    pub(super) fn is_plain(&self, text: &str) -> bool {
        self.quoting == QuoteKind::Bare && self.unknown().is_none() && self.bare == text
    }

    /// True if the word is exactly this text, quoted or not.
    pub(super) fn is(&self, text: &str) -> bool {
        let mut characters = text.chars();
        self.pieces
            .iter()
            .all(|piece| matches!(piece, WordPiece::Char(c) if characters.next() == Some(*c)))
            && characters.next().is_none()
    }
}

/// Display name of an unknown word: the word itself, or its placeholder.
pub(super) fn display_name(word: &ShellWord) -> String {
    match word.raw.strip_prefix('<').and_then(|raw| raw.strip_suffix('>')) {
        Some(what) if what.contains(' ') => what.to_owned(),
        _ => format!("`{}`", word.raw),
    }
}

/// Joins words, quoted for a shell.
pub(super) fn join_quoted(words: &[ShellWord]) -> String {
    words.iter().map(|word| word.raw.as_str()).collect::<Vec<_>>().join(" ")
}

/// True if a tilde here expands to a home directory, as after `=` or `:` in an assignment.
fn is_after_sign(raws: &[RawChar]) -> bool {
    match raws.last() {
        Some(RawChar::Bare('=')) => raws.len() > 1,
        Some(RawChar::Bare(':')) => raws.contains(&RawChar::Bare('=')),
        _ => false,
    }
}

/// Appends a word, quoted for a shell.
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
    /// Parses the word that begins here, if any.
    pub(super) fn word(&mut self) -> ReadResult<Option<ShellWord>> {
        let mut raws = Vec::new();
        self.peek();
        let start = self.at;
        while self.piece(&mut raws)? {}
        Ok((!raws.is_empty()).then(|| self.build_word(raws, start)))
    }

    pub(super) fn build_word(&self, raws: Vec<RawChar>, start: usize) -> ShellWord {
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

    /// Parses one piece of a word; returns false at its end.
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

    /// Parses after the opening single quote.
    pub(super) fn single_quoted(&mut self, raws: &mut Vec<RawChar>) -> ReadResult<()> {
        let Some(length) = self.rest().find('\'') else {
            return Err(self.problem("unclosed quote"));
        };
        raws.push(RawChar::Nothing);
        raws.extend(self.rest()[..length].chars().map(RawChar::Quoted));
        self.at += length + 1;
        Ok(())
    }

    /// Parses after the opening double quote.
    pub(super) fn double_quoted(&mut self, raws: &mut Vec<RawChar>) -> ReadResult<()> {
        let start = self.at;
        loop {
            match self.peek() {
                None => return Err(self.problem_at(start, "unclosed quote")),
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(c) => self.in_double(c, WordEnclosure::Double, raws)?,
            }
        }
    }

    /// Parses one piece inside double quotes.
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
