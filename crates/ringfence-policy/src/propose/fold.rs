//! Reduces the number of proposed rules: a path in an opened directory needs no rule of its own,
//! and several paths in one directory are replaced by the directory.

use std::collections::{BTreeMap, BTreeSet};

use super::{ProposedRule, Proposer};
use crate::grants::Effect;
use crate::path::AbsPath;

/// Number of different paths in one directory that are replaced by the directory.
pub(super) const SEVERAL: usize = 4;

/// Folds rules until nothing changes; sorted by path.
pub(super) fn fold(openings: Vec<ProposedRule>, proposer: &Proposer<'_>) -> Vec<ProposedRule> {
    let mut kept = merge(openings);
    let mut tried = BTreeSet::new();
    while let Some((directory, effect)) = crowded(&kept, &tried) {
        tried.insert((directory.clone(), is_write(&effect)));
        if proposer.may_be_opened_whole(&directory).is_err() {
            continue;
        }
        let is_in = |opening: &ProposedRule| {
            opening.effect == effect && opening.root.parent().as_ref() == Some(&directory)
        };
        let (inside, rest): (Vec<ProposedRule>, Vec<ProposedRule>) =
            kept.into_iter().partition(is_in);
        let things = inside.iter().map(|opening| opening.folded.unwrap_or(1)).sum();
        let accesses = inside.iter().flat_map(|opening| opening.accesses.iter().copied()).collect();
        kept = match proposer.made(directory, effect, accesses, Some(things)) {
            Ok(whole) => merge(rest.into_iter().chain([whole]).collect()),
            Err(_) => rest.into_iter().chain(inside).collect(),
        };
    }
    kept.sort_by(|a, b| a.root.cmp(&b.root));
    kept
}

/// The deepest untried directory with several paths to open in the same way.
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

/// Keeps the wider rule for each root, and drops rules below a directory that is opened as widely.
fn merge(openings: Vec<ProposedRule>) -> Vec<ProposedRule> {
    let mut kept: Vec<ProposedRule> = Vec::new();
    let mut sorted = openings;
    // Outer and wider rules first, so that they cover the later ones.
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
                other.accesses.extend(opening.accesses);
            }
            None => kept.push(opening),
        }
    }
    kept
}

fn is_write(effect: &Effect) -> bool {
    *effect == Effect::Write
}
