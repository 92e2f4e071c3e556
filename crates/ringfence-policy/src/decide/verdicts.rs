//! The rules on paths that bear on one path, and which of them counts.

use crate::grants::{Effect, Rule, Source};
use crate::path::AbsPath;

/// What the rules on paths say about one path.
#[derive(Debug, Default)]
pub(super) struct PathVerdicts<'a> {
    /// Shut by this.
    pub(super) deny: Option<&'a Rule>,
    /// Not writable because of this.
    pub(super) protect: Option<&'a Rule>,
    /// Opened by this.
    pub(super) opener: Option<&'a Rule>,
}

impl<'a> PathVerdicts<'a> {
    pub(super) fn of(rules: &'a [Rule], path: &AbsPath) -> Self {
        let mut covering: Vec<&Rule> = rules.iter().filter(|rule| is_about(rule, path)).collect();
        let locked = |effect: &Effect| {
            covering.iter().copied().find(|r| r.is_locked() && r.effect == *effect)
        };
        if let Some(deny) = locked(&Effect::Deny) {
            return Self { deny: Some(deny), ..Self::default() };
        }
        let mut standing = Self { protect: locked(&Effect::Protect), ..Self::default() };
        // All roots are ancestors of one path, so the longer root is the deeper one.
        covering.sort_by_key(|rule| std::cmp::Reverse((rule.root.as_bytes().len(), rank(rule))));
        for (at, rule) in covering.iter().enumerate() {
            match rule.effect {
                Effect::Deny => {
                    standing.deny = Some(rule);
                    return standing;
                }
                Effect::Protect => {
                    standing.protect.get_or_insert(rule);
                }
                Effect::Read | Effect::Write | Effect::Private { .. } => {
                    if !is_overruled(rule, &covering, at) {
                        standing.opener = Some(rule);
                        return standing;
                    }
                }
            }
        }
        standing
    }
}

/// Whether the rule is about `path`.
///
/// What is built in to shut or protect holds in any case: to some file systems, and then to
/// the programs that obey such files, `.VSCODE` is `.vscode`, and nobody misses it on others.
fn is_about(rule: &Rule, path: &AbsPath) -> bool {
    let is_built_in = rule.origin.source == Source::BuiltIn && !rule.opens();
    if is_built_in { path.is_within_in_any_case(&rule.root) } else { path.is_within(&rule.root) }
}

/// Who comes first on the same root.
///
/// Stricter first, but that a person's grant goes before what is built in: naming that
/// very path is how a person opens it. The workspace counts like a person's word.
fn rank(rule: &Rule) -> (u8, u8) {
    let built_in = rule.origin.source == Source::BuiltIn;
    match rule.effect {
        Effect::Deny if !built_in => (6, 0),
        Effect::Protect if !built_in => (5, 0),
        _ if rule.opens() && rule.has_a_persons_weight() => (4, width(rule)),
        Effect::Deny => (3, 0),
        Effect::Protect => (2, 0),
        _ if rule.patterns_hold() => (1, width(rule)),
        _ => (0, width(rule)),
    }
}

/// Grants add up: on the same root the wider one holds.
fn width(rule: &Rule) -> u8 {
    match rule.effect {
        Effect::Write => 2,
        Effect::Private { .. } => 1,
        Effect::Read | Effect::Protect | Effect::Deny => 0,
    }
}

/// Whether a stronger rule at or above `rule` takes its effect away.
fn is_overruled(rule: &Rule, covering: &[&Rule], at: usize) -> bool {
    let above = covering[at + 1..].iter();
    let same_root = covering[..at].iter().filter(|other| other.root == rule.root);
    above.chain(same_root).any(|stronger| overrules(stronger, rule))
}

/// Whether `strong`, which stands at or above `weak`, is out of reach for it.
///
/// What is built in yields to people, and what people or the administrator shut is not
/// for the repository's author to open, nor for a tool that was found.
fn overrules(strong: &Rule, weak: &Rule) -> bool {
    let weak_source = &weak.origin.source;
    match (&strong.effect, &strong.origin.source) {
        (Effect::Deny, Source::BuiltIn) => !weak_source.is_person(),
        (Effect::Protect, Source::BuiltIn) => {
            weak.effect != Effect::Read
                && !weak_source.is_person()
                && !matches!(weak_source, Source::Mode | Source::Tools)
        }
        (Effect::Deny, source) if source.is_person() || *source == Source::Managed => {
            matches!(weak_source, Source::Project | Source::Preset(_))
        }
        (Effect::Protect, source) if source.is_person() || *source == Source::Managed => {
            weak.effect != Effect::Read && *weak_source == Source::Project
        }
        _ => false,
    }
}
