//! The path rules that cover one path, and their precedence.

use crate::grants::{Effect, Rule, Source};
use crate::path::AbsPath;

/// Effective path rules for one path.
#[derive(Debug, Default)]
pub(super) struct PathVerdicts<'a> {
    /// The rule that denies the path.
    pub(super) deny: Option<&'a Rule>,
    /// The rule that makes the path read-only.
    pub(super) protect: Option<&'a Rule>,
    /// The rule that opens the path.
    pub(super) opener: Option<&'a Rule>,
}

impl<'a> PathVerdicts<'a> {
    pub(super) fn from_rules(rules: &'a [Rule], path: &AbsPath) -> Self {
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

/// True if the rule covers `path`.
///
/// Built-in deny and protect rules ignore case: on some file systems `.VSCODE` is `.vscode`, also
/// for the programs that read such files. On other file systems the extra names are not needed.
fn is_about(rule: &Rule, path: &AbsPath) -> bool {
    let is_built_in = rule.origin.source == Source::BuiltIn && !rule.opens();
    if is_built_in { path.is_within_in_any_case(&rule.root) } else { path.is_within(&rule.root) }
}

/// Precedence of rules on the same root.
///
/// The stricter rule wins, except that a grant of the user overrides a built-in rule: naming
/// exactly that path is how the user opens it. The workspace counts as a grant of the user.
fn rank(rule: &Rule) -> (u8, u8) {
    let built_in = rule.origin.source == Source::BuiltIn;
    match rule.effect {
        Effect::Deny if !built_in => (6, 0),
        Effect::Protect if !built_in => (5, 0),
        _ if rule.opens() && rule.has_user_precedence() => (4, width(rule)),
        Effect::Deny => (3, 0),
        Effect::Protect => (2, 0),
        _ if rule.patterns_apply() => (1, width(rule)),
        _ => (0, width(rule)),
    }
}

/// Grants add up: on the same root the wider one wins.
fn width(rule: &Rule) -> u8 {
    match rule.effect {
        Effect::Write => 2,
        Effect::Private { .. } => 1,
        Effect::Read | Effect::Protect | Effect::Deny => 0,
    }
}

/// True if a stronger rule at or above `rule` cancels its effect.
fn is_overruled(rule: &Rule, covering: &[&Rule], at: usize) -> bool {
    let above = covering[at + 1..].iter();
    let same_root = covering[..at].iter().filter(|other| other.root == rule.root);
    above.chain(same_root).any(|stronger| overrules(stronger, rule))
}

/// True if `weak` cannot override `strong`, a rule at or above it.
///
/// The user overrides built-in rules. Neither the author of a repository nor a detected tool opens
/// a path that the user or the administrator denied.
fn overrules(strong: &Rule, weak: &Rule) -> bool {
    let weak_source = &weak.origin.source;
    match (&strong.effect, &strong.origin.source) {
        (Effect::Deny, Source::BuiltIn) => !weak_source.is_user_choice(),
        (Effect::Protect, Source::BuiltIn) => {
            weak.effect != Effect::Read
                && !weak_source.is_user_choice()
                && !matches!(weak_source, Source::Mode | Source::Tools)
        }
        (Effect::Deny, source) if source.is_user_choice() || *source == Source::Managed => {
            matches!(weak_source, Source::Project | Source::Preset(_))
        }
        (Effect::Protect, source) if source.is_user_choice() || *source == Source::Managed => {
            weak.effect != Effect::Read && *weak_source == Source::Project
        }
        _ => false,
    }
}
