//! Patterns on commands: `npm run lint`, `npm run test:*`, `docker*`.

use super::Word;
use super::word::{Piece, Unknown};

/// A pattern as a policy has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    signs: Vec<Sign>,
    /// Whether more words may follow: `x:*`.
    is_prefix: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Char(char),
    /// Between two words.
    Space,
    /// `*`: anything.
    Star,
}

/// What a command is made of, for matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Char(char),
    Space,
    Hole,
}

/// How sure a match has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// Whatever is not known, it matches: for what opens.
    Surely,
    /// It may come to match: for what shuts.
    Possibly,
}

impl Pattern {
    /// Reads a pattern. Blanks at the ends do not count, and several are one.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let (text, is_prefix) = text.strip_suffix(":*").map_or((text, false), |text| (text.trim_end(), true));
        let mut signs = Vec::new();
        for (at, word) in text.split_whitespace().enumerate() {
            if at > 0 {
                signs.push(Sign::Space);
            }
            signs.extend(word.chars().map(|c| if c == '*' { Sign::Star } else { Sign::Char(c) }));
        }
        Self { signs, is_prefix }
    }

    /// Whether it says nothing: such a pattern matches nothing.
    pub fn is_empty(&self) -> bool {
        self.signs.is_empty()
    }

    /// Whether the first word of it is plain, so that it names one program.
    pub(super) fn program(&self) -> Option<String> {
        let first = self.signs.iter().take_while(|sign| **sign != Sign::Space);
        first.map(|sign| if let Sign::Char(c) = sign { Some(*c) } else { None }).collect()
    }

    pub(super) fn matches(&self, words: &[Word], certainty: Certainty) -> bool {
        let mut units = Vec::new();
        for (at, word) in words.iter().enumerate() {
            if at > 0 {
                units.push(Unit::Space);
            }
            for piece in &word.pieces {
                match piece {
                    Piece::Char(c) => units.push(Unit::Char(*c)),
                    // An absolute path, whosever home it is.
                    Piece::Hole(Unknown::Tilde) if certainty == Certainty::Possibly => units.extend([Unit::Char('/'), Unit::Hole]),
                    Piece::Hole(_) => units.push(Unit::Hole),
                }
            }
        }
        self.matches_units(&units, certainty)
    }

    /// Whether it matches a text as it stands, blanks for blanks.
    pub(super) fn matches_text(&self, text: &str) -> bool {
        let words = text
            .split_whitespace()
            .map(|word| Word { pieces: word.chars().map(Piece::Char).collect(), ..Word::hole("", 0..0, Unknown::Input) });
        self.matches(&words.collect::<Vec<_>>(), Certainty::Possibly)
    }

    /// Position by position, all states at once.
    fn matches_units(&self, units: &[Unit], certainty: Certainty) -> bool {
        if self.is_empty() || units.is_empty() {
            return false;
        }
        let mut signs = self.signs.clone();
        if self.is_prefix && !self.matches_signs(&self.signs, units, certainty) {
            signs.extend([Sign::Space, Sign::Star]);
            return self.matches_signs(&signs, units, certainty);
        }
        self.is_prefix || self.matches_signs(&signs, units, certainty)
    }

    fn matches_signs(&self, signs: &[Sign], units: &[Unit], certainty: Certainty) -> bool {
        let count = signs.len();
        // After the units so far, which of the signs may all have been used.
        let mut used = vec![false; count + 1];
        used[0] = true;
        skip_stars(signs, &mut used);
        for unit in units {
            let mut next = vec![false; count + 1];
            for at in (0..=count).filter(|at| used[*at]) {
                let sign = signs.get(at);
                if sign == Some(&Sign::Star) {
                    next[at] = true;
                }
                match (unit, certainty) {
                    // A hole may be any text, the empty one, too.
                    (Unit::Hole, Certainty::Possibly) => next[at..].fill(true),
                    (Unit::Hole, Certainty::Surely) => {}
                    (unit, _) if sign.is_some_and(|sign| is_same(*sign, *unit, certainty)) => next[at + 1] = true,
                    _ => {}
                }
            }
            skip_stars(signs, &mut next);
            used = next;
        }
        used[count]
    }
}

/// A star may stand for nothing.
fn skip_stars(signs: &[Sign], used: &mut [bool]) {
    for at in 0..signs.len() {
        if used[at] && signs[at] == Sign::Star {
            used[at + 1] = true;
        }
    }
}

fn is_same(sign: Sign, unit: Unit, certainty: Certainty) -> bool {
    match (sign, unit) {
        (Sign::Char(a), Unit::Char(b)) => a == b,
        (Sign::Space, Unit::Space) => true,
        // A blank within a word is no space between words, unless somebody is to be refused.
        (Sign::Space, Unit::Char(c)) => certainty == Certainty::Possibly && c.is_whitespace(),
        _ => false,
    }
}
