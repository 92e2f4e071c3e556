//! Checks on arguments: a contained text, and a path outside a directory.

use super::word::{ShellWord, UnknownWord, WordPiece};
use ringfence_policy::AbsPath;

/// Returns the reason if an argument may contain `text`.
///
/// Input of a program is data and is not checked. A glob stands for file names: it counts only if
/// some of `text` is written next to it.
pub(super) fn check_contains(word: &ShellWord, text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if word.unknown().is_none() {
        let begins = |at: usize| {
            let mut pieces = word.pieces[at..].iter();
            text.chars().all(|c| pieces.next() == Some(&WordPiece::Char(c)))
        };
        return (0..word.pieces.len())
            .any(begins)
            .then(|| format!("`{}` contains `{text}`", word.raw));
    }
    let needle: Vec<char> = text.chars().collect();
    let is_open = word.pieces.iter().any(|piece| {
        matches!(
            piece,
            WordPiece::Hole(UnknownWord::Expansion | UnknownWord::Tilde | UnknownWord::Brace)
        )
    });
    let may_hold = is_open || may_find(&word.pieces, &needle);
    may_hold.then(|| format!("`{}` is only known at run time and may contain `{text}`", word.raw))
}

/// True if the expanded pieces may contain the needle, with at least one character of it written.
///
/// Tracks all states at once: the length of the needle matched so far, and whether one of those
/// characters is written.
fn may_find(pieces: &[WordPiece], needle: &[char]) -> bool {
    let count = needle.len();
    // Index 0: no written character so far; index 1: at least one.
    let mut found = [vec![false; count + 1], vec![false; count + 1]];
    for (at, piece) in pieces.iter().enumerate() {
        found[0][0] = true;
        let mut next = [vec![false; count + 1], vec![false; count + 1]];
        for (written, length) in
            (0..2).flat_map(|written| (0..count).map(move |length| (written, length)))
        {
            if !found[written][length] {
                continue;
            }
            match piece {
                WordPiece::Char(c) if *c == needle[length] => next[1][length + 1] = true,
                WordPiece::Hole(UnknownWord::Glob) => {
                    // A glob matches no slash, and only `.*` matches `..`.
                    let is_hidden = at > 0
                        && pieces[at - 1] == WordPiece::Char('.')
                        && (at == 1 || pieces[at - 2] == WordPiece::Char('/'));
                    let most = needle[length..]
                        .iter()
                        .take_while(|c| **c != '/' && (is_hidden || **c != '.'))
                        .count();
                    next[written][length..=length + most].fill(true);
                }
                WordPiece::Hole(UnknownWord::Number) => {
                    next[written][length] = true;
                    let most = needle[length..]
                        .iter()
                        .take_while(|c| c.is_ascii_digit() || **c == '-')
                        .count();
                    next[1][length + 1..=length + most].fill(true);
                }
                _ => {}
            }
        }
        if next[1][count] {
            return true;
        }
        found = next;
    }
    false
}

/// Returns the reason if an argument may be an absolute path outside `root`.
pub(super) fn check_outside(word: &ShellWord, root: &AbsPath) -> Option<String> {
    starts(&word.pieces).into_iter().find_map(|start| outside_at(&word.pieces[start..], word, root))
}

/// Offsets at which a path may begin in an argument: its start, after a separator, and after the
/// letters of short options.
///
/// The program decides how many letters are options: `-rt/etc` is `-r -t /etc` for one program, and
/// `-r` with the relative path `t/etc` for another. The check assumes the path outside.
fn starts(pieces: &[WordPiece]) -> Vec<usize> {
    let mut starts = vec![0];
    let after_sign = pieces
        .iter()
        .enumerate()
        .filter(|(_, piece)| matches!(piece, WordPiece::Char('=' | ':' | ',' | '@')))
        .map(|(at, _)| at + 1);
    starts.extend(after_sign);
    if pieces.first() == Some(&WordPiece::Char('-')) && pieces.get(1) != Some(&WordPiece::Char('-'))
    {
        let is_letter = |piece: &WordPiece| matches!(piece, WordPiece::Char(c) if c.is_ascii_graphic() && !"/.-_~".contains(*c));
        let letters = pieces[1..].iter().take_while(|piece| is_letter(piece)).count();
        starts.extend([2, letters + 1]);
    }
    starts.retain(|start| *start < pieces.len());
    starts
}

fn outside_at(pieces: &[WordPiece], word: &ShellWord, root: &AbsPath) -> Option<String> {
    let first_hole = pieces.iter().position(|piece| matches!(piece, WordPiece::Hole(_)));
    let open = first_hole.map(|at| pieces[at]);
    match pieces.first()? {
        WordPiece::Char('/') => {}
        WordPiece::Char(_)
        | WordPiece::Hole(UnknownWord::Glob | UnknownWord::Input | UnknownWord::Number) => {
            return None;
        }
        WordPiece::Hole(_) => {
            return Some(format!(
                "`{}` is only known at run time and may be a path outside {root}",
                word.raw
            ));
        }
    }
    let known: String = pieces
        .iter()
        .map_while(|piece| if let WordPiece::Char(c) = piece { Some(*c) } else { None })
        .collect();
    // The last component is incomplete if a hole follows it, so it does not count.
    let whole = if open.is_some() {
        &known[..known.rfind('/').unwrap_or(0)]
    } else {
        known.trim_end_matches('/')
    };
    let climbs = pieces.split(|piece| *piece == WordPiece::Char('/')).any(may_climb)
        || matches!(open, Some(WordPiece::Hole(why)) if !matches!(why, UnknownWord::Glob | UnknownWord::Number));
    let is_within = !climbs
        && AbsPath::new(if whole.is_empty() { "/" } else { whole })
            .is_some_and(|path| path.is_within(root));
    (!is_within).then(|| format!("`{}` is not below {root}", word.raw))
}

/// True if a name is `..`, or a glob that some shells expand to it.
fn may_climb(name: &[WordPiece]) -> bool {
    let dot = WordPiece::Char('.');
    name == [dot, dot]
        || name.first() == Some(&dot) && name.contains(&WordPiece::Hole(UnknownWord::Glob))
}
