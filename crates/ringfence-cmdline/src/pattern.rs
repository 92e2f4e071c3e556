//! Command patterns: `npm run lint`, `npm run test:*`, `docker*`.

use super::ShellWord;
use super::word::{UnknownWord, WordPiece};

/// A command pattern from a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern {
    signs: Vec<PatternSign>,
    /// True if more words may follow: `x:*`.
    is_prefix: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternSign {
    Char(char),
    /// The gap between two words.
    Space,
    /// `*`: any text.
    Star,
}

/// Element of a command, for matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandUnit {
    Char(char),
    Space,
    Hole,
    /// A hole that stays within one word.
    Field,
    /// Starts an optional section that ends at the next [`CommandUnit::Join`].
    Fork,
    Join,
}

/// Required certainty of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchCertainty {
    /// Matches for every value of the unknown parts: for allow rules.
    Surely,
    /// Matches for some value of the unknown parts: for deny rules.
    Possibly,
}

impl CommandPattern {
    /// Parses a pattern. Trims whitespace at the ends and collapses it between words.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let (text, is_prefix) =
            text.strip_suffix(":*").map_or((text, false), |text| (text.trim_end(), true));
        let mut signs = Vec::new();
        for (at, word) in text.split_whitespace().enumerate() {
            if at > 0 {
                signs.push(PatternSign::Space);
            }
            signs.extend(
                word.chars()
                    .map(|c| if c == '*' { PatternSign::Star } else { PatternSign::Char(c) }),
            );
        }
        Self { signs, is_prefix }
    }

    /// True for an empty pattern, which matches nothing.
    pub fn is_empty(&self) -> bool {
        self.signs.is_empty()
    }

    /// The first word, if it contains no `*` and so names one program.
    pub(super) fn program(&self) -> Option<String> {
        let first = self.signs.iter().take_while(|sign| **sign != PatternSign::Space);
        first.map(|sign| if let PatternSign::Char(c) = sign { Some(*c) } else { None }).collect()
    }

    /// True if all literal pieces of the pattern occur in a text.
    pub(super) fn is_mentioned(&self, text: &str) -> bool {
        let known =
            |sign: &PatternSign| if let PatternSign::Char(c) = sign { Some(*c) } else { None };
        let mut pieces = self
            .signs
            .split(|sign| known(sign).is_none())
            .map(|piece| piece.iter().filter_map(known).collect::<String>());
        !self.is_empty() && pieces.all(|piece| text.contains(&piece))
    }

    pub(super) fn matches(&self, words: &[ShellWord], certainty: MatchCertainty) -> bool {
        let may_vanish =
            |word: &ShellWord| certainty == MatchCertainty::Possibly && may_vanish(word);
        // Optional words at the start include the space after them, all others the space before.
        let leading = words.iter().take_while(|word| may_vanish(word)).count();
        let units = words.iter().enumerate().flat_map(move |(at, word)| {
            let (fork, join) = if may_vanish(word) {
                (Some(CommandUnit::Fork), Some(CommandUnit::Join))
            } else {
                (None, None)
            };
            let before = (at > leading).then_some(CommandUnit::Space);
            let behind = (at < leading && at + 1 < words.len()).then_some(CommandUnit::Space);
            let hole = if word.is_one_field() { CommandUnit::Field } else { CommandUnit::Hole };
            let pieces =
                word.pieces.iter().flat_map(move |piece| units_of(*piece, certainty, hole));
            fork.into_iter().chain(before).chain(pieces).chain(behind).chain(join)
        });
        self.matches_units(units, certainty)
    }

    /// True if the pattern matches a raw text, split at whitespace.
    pub(super) fn matches_text(&self, text: &str) -> bool {
        let units = text.split_whitespace().enumerate().flat_map(|(at, word)| {
            let space = (at > 0).then_some(CommandUnit::Space);
            space.into_iter().chain(word.chars().map(CommandUnit::Char))
        });
        self.matches_units(units, MatchCertainty::Possibly)
    }

    fn matches_units(
        &self,
        units: impl Iterator<Item = CommandUnit> + Clone,
        certainty: MatchCertainty,
    ) -> bool {
        if self.is_empty() || units.clone().next().is_none() {
            return false;
        }
        let more: &[PatternSign] =
            if self.is_prefix { &[PatternSign::Space, PatternSign::Star] } else { &[] };
        has_match(&self.signs, &[], units.clone(), certainty)
            || self.is_prefix && has_match(&self.signs, more, units, certainty)
    }
}

/// True if a word may expand to no word at all.
fn may_vanish(word: &ShellWord) -> bool {
    let is_open = |piece: &WordPiece| {
        matches!(
            piece,
            WordPiece::Hole(UnknownWord::Expansion | UnknownWord::Input | UnknownWord::Number)
        )
    };
    !word.pieces.is_empty() && word.pieces.iter().all(is_open)
}

fn units_of(
    piece: WordPiece,
    certainty: MatchCertainty,
    hole: CommandUnit,
) -> impl Iterator<Item = CommandUnit> + Clone {
    let (first, second) = match piece {
        WordPiece::Char(c) => (CommandUnit::Char(c), None),
        // A home directory is an absolute path.
        WordPiece::Hole(UnknownWord::Tilde) if certainty == MatchCertainty::Possibly => {
            (CommandUnit::Char('/'), Some(CommandUnit::Hole))
        }
        WordPiece::Hole(_) => (hole, None),
    };
    [first].into_iter().chain(second)
}

/// True if the signs, followed by `more`, match the units.
fn has_match(
    signs: &[PatternSign],
    more: &[PatternSign],
    mut units: impl Iterator<Item = CommandUnit> + Clone,
    certainty: MatchCertainty,
) -> bool {
    let count = signs.len() + more.len();
    let sign =
        |at: usize| signs.get(at).or_else(|| more.get(at.wrapping_sub(signs.len()))).copied();
    // Fast path: most patterns differ from most commands in the first characters.
    let mut start = 0;
    loop {
        let (Some(known), Some(unit)) = (sign(start), units.clone().next()) else { break };
        if known == PatternSign::Star
            || matches!(unit, CommandUnit::Hole | CommandUnit::Field | CommandUnit::Fork)
        {
            break;
        }
        if !is_same(known, unit, certainty) {
            return false;
        }
        units.next();
        start += 1;
    }
    matches_rest(&(start..count).filter_map(sign).collect::<Vec<_>>(), units, certainty)
}

/// Runs the NFA: one unit at a time, all states at once.
fn matches_rest(
    signs: &[PatternSign],
    units: impl Iterator<Item = CommandUnit>,
    certainty: MatchCertainty,
) -> bool {
    let count = signs.len();
    // `used[n]`: the units so far may have consumed the first `n` signs.
    let mut used = vec![false; count + 1];
    let mut next = used.clone();
    used[0] = true;
    skip_stars(signs, &mut used);
    let mut before = used.clone();
    for unit in units {
        match unit {
            CommandUnit::Fork => {
                before.clone_from(&used);
                continue;
            }
            CommandUnit::Join => {
                used.iter_mut().zip(&before).for_each(|(used, before)| *used |= *before);
                continue;
            }
            _ => next.fill(false),
        }
        for at in (0..=count).filter(|at| used[*at]) {
            let sign = signs.get(at);
            if sign == Some(&PatternSign::Star) {
                next[at] = true;
            }
            match (unit, certainty) {
                // A hole may be any text, including the empty one.
                (CommandUnit::Hole, MatchCertainty::Possibly) => next[at..].fill(true),
                (CommandUnit::Field, MatchCertainty::Possibly) => {
                    let end = signs[at..]
                        .iter()
                        .position(|sign| *sign == PatternSign::Space)
                        .map_or(count, |length| at + length);
                    next[at..=end].fill(true);
                }
                (CommandUnit::Hole | CommandUnit::Field, MatchCertainty::Surely) => {}
                (unit, _) if sign.is_some_and(|sign| is_same(*sign, unit, certainty)) => {
                    next[at + 1] = true
                }
                _ => {}
            }
        }
        skip_stars(signs, &mut next);
        std::mem::swap(&mut used, &mut next);
    }
    used[count]
}

/// Advances over stars, which may match nothing.
fn skip_stars(signs: &[PatternSign], used: &mut [bool]) {
    for at in 0..signs.len() {
        if used[at] && signs[at] == PatternSign::Star {
            used[at + 1] = true;
        }
    }
}

fn is_same(sign: PatternSign, unit: CommandUnit, certainty: MatchCertainty) -> bool {
    match (sign, unit) {
        (PatternSign::Char(a), CommandUnit::Char(b)) => a == b,
        (PatternSign::Space, CommandUnit::Space) => true,
        // Whitespace inside a word is no gap between words, except for a deny rule.
        (PatternSign::Space, CommandUnit::Char(c)) => {
            certainty == MatchCertainty::Possibly && c.is_whitespace()
        }
        _ => false,
    }
}
