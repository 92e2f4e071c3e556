//! Many openings become few: what is in an opened directory needs no rule of its own, and
//! of several things in one directory the directory is opened.

use std::collections::{BTreeMap, BTreeSet};

use super::{ProposedRule, Proposer};
use crate::grants::Effect;
use crate::path::AbsPath;

/// So many different things of one directory stand for the directory.
pub(super) const SEVERAL: usize = 4;

/// Folds openings until nothing can be folded any more; sorted by path.
pub(super) fn fold(openings: Vec<ProposedRule>, judge: &Proposer<'_>) -> Vec<ProposedRule> {
    let mut kept = merge(openings);
    let mut tried = BTreeSet::new();
    while let Some((directory, effect)) = crowded(&kept, &tried) {
        tried.insert((directory.clone(), is_write(&effect)));
        if judge.may_be_opened_whole(&directory).is_err() {
            continue;
        }
        let is_in = |opening: &ProposedRule| {
            opening.effect == effect && opening.root.parent().as_ref() == Some(&directory)
        };
        let (inside, rest): (Vec<ProposedRule>, Vec<ProposedRule>) =
            kept.into_iter().partition(is_in);
        let things = inside.iter().map(|opening| opening.folded.unwrap_or(1)).sum();
        let wishes = inside.iter().flat_map(|opening| opening.wishes.iter().copied()).collect();
        kept = match judge.made(directory, effect, wishes, Some(things)) {
            Ok(whole) => merge(rest.into_iter().chain([whole]).collect()),
            Err(_) => rest.into_iter().chain(inside).collect(),
        };
    }
    kept.sort_by(|a, b| a.root.cmp(&b.root));
    kept
}

/// The deepest directory, not tried yet, of which several things are to be opened alike.
fn crowded(
    openings: &[ProposedRule],
    tried: &BTreeSet<(AbsPath, bool)>,
) -> Option<(AbsPath, Effect)> {
    let mut directories: BTreeMap<(AbsPath, bool), (usize, Effect)> = BTreeMap::new();
    for opening in openings {
        let Some(above) = opening.root.parent() else { continue };
        directories
            .entry((above, is_write(&opening.effect)))
            .or_insert_with(|| (0, opening.effect.clone()))
            .0 += 1;
    }
    let crowded = directories
        .into_iter()
        .filter(|(key, (number, _))| *number >= SEVERAL && !tried.contains(key));
    crowded
        .max_by_key(|((directory, _), _)| directory.depth())
        .map(|((directory, _), (_, effect))| (directory, effect))
}

/// One opening for each root, the wider one, and none in a directory that is opened as widely.
fn merge(openings: Vec<ProposedRule>) -> Vec<ProposedRule> {
    let mut kept: Vec<ProposedRule> = Vec::new();
    let mut sorted = openings;
    // Outer and wider first: whatever they give is there when the others come.
    sorted.sort_by(|a, b| {
        a.root.cmp(&b.root).then_with(|| is_write(&b.effect).cmp(&is_write(&a.effect)))
    });
    for opening in sorted {
        let gives = |other: &&mut ProposedRule| {
            opening.root.is_within(&other.root)
                && is_write(&other.effect) >= is_write(&opening.effect)
        };
        match kept.iter_mut().find(gives) {
            Some(other) => {
                let is_own = opening.root == other.root && opening.folded.is_none();
                other.folded = match (other.folded, opening.folded) {
                    _ if is_own => None,
                    (Some(things), more) if opening.root != other.root => {
                        Some(things + more.unwrap_or(1))
                    }
                    (things, _) => things,
                };
                other.wishes.extend(opening.wishes);
            }
            None => kept.push(opening),
        }
    }
    kept
}

fn is_write(effect: &Effect) -> bool {
    *effect == Effect::Write
}
