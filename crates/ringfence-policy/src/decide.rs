//! Who wins: from rules, patterns and exceptions to one answer with its reason.

mod explain;
mod verdicts;

use serde::{Deserialize, Serialize};

use crate::glob::components;
use crate::grants::{Effect, Grants, Mode, NameException, NameRule, NameRuleEffect, Rule, Source};
use crate::path::AbsPath;
use crate::presets::ON_PATH;
pub use explain::ExplainLine;
use verdicts::PathVerdicts;

/// What somebody wants to do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read it, or list it.
    Read,
    /// Write, create, rename or remove it.
    Write,
    /// Start it as a program.
    Execute,
}

/// The answer to a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It goes through.
    Allowed,
    /// No rule opens it: it looks as if it did not exist (ENOENT).
    Absent,
    /// A rule shuts it (EACCES).
    Denied,
    /// It may be read, but not written (EACCES).
    ReadOnly,
}

/// The answer to a wish, with the rule that made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What was asked about.
    pub path: AbsPath,
    /// What was wanted.
    pub access: Access,
    /// The answer.
    pub verdict: Verdict,
    /// What decided; `None` where no rule says anything, or nothing is confined.
    pub rule: Option<DecidingRule>,
}

/// The rule that decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum DecidingRule {
    /// A rule on a path.
    Rule(Rule),
    /// A rule on names.
    Pattern(NameRule),
}

impl DecidingRule {
    /// Where the rule was written.
    pub fn origin(&self) -> &crate::grants::Origin {
        match self {
            DecidingRule::Rule(rule) => &rule.origin,
            DecidingRule::Pattern(pattern) => &pattern.origin,
        }
    }

    /// Whether no grant lifts it.
    pub fn is_locked(&self) -> bool {
        match self {
            DecidingRule::Rule(rule) => rule.is_locked(),
            DecidingRule::Pattern(pattern) => pattern.is_locked(),
        }
    }
}

/// As [`Because`], without the copy.
enum DecidingRuleRef<'a> {
    Rule(&'a Rule),
    Pattern(&'a NameRule),
}

impl Grants {
    /// Decides `wanted` access to `path`.
    ///
    /// The deepest rule that covers the path wins. Two rules on the same root are
    /// settled for the stricter one, so the order of merging cannot change an answer.
    ///
    /// A pattern beats the rule that opens the tree, unless an exception covers what the
    /// pattern caught or a person named that very path. What is built in is opened by a
    /// person's rule only, and a locked rule by none.
    pub fn decide(&self, path: &AbsPath, wanted: Access) -> Decision {
        let (verdict, found) = self.find(path, wanted);
        let rule = found.map(|found| match found {
            DecidingRuleRef::Rule(rule) => DecidingRule::Rule(rule.clone()),
            DecidingRuleRef::Pattern(pattern) => DecidingRule::Pattern(pattern.clone()),
        });
        Decision { path: path.clone(), access: wanted, verdict, rule }
    }

    /// As [`Grants::decide`], without the reason: for the many that need no message.
    pub fn verdict(&self, path: &AbsPath, wanted: Access) -> Verdict {
        self.find(path, wanted).0
    }

    /// The deny or protect pattern that catches the path, after exceptions and grants.
    ///
    /// Patterns hold in trees that a person, a file or the mode opened; toolchains and
    /// system directories are full of public files with secret-looking names.
    pub fn pattern_for(&self, path: &AbsPath) -> Option<&NameRule> {
        if !self.is_confined() || !self.opener(path).is_some_and(Rule::patterns_hold) {
            return None;
        }
        self.caught(path, NameRuleEffect::Deny)
            .or_else(|| self.caught(path, NameRuleEffect::Protect))
    }

    /// The deny pattern that catches the very path, which lies in `root`, a tree in which patterns
    /// do not hold: a tool's own directory is full of public files, but the names directly below it
    /// are few, and some are credentials.
    pub fn denied_name_in(&self, root: &AbsPath, path: &AbsPath) -> Option<&NameRule> {
        let parts = components(path);
        let below = parts.get(root.depth()..).unwrap_or_default();
        self.patterns.iter().filter(|pattern| pattern.effect == NameRuleEffect::Deny).find(
            |pattern| {
                let lifts = |exception: &&NameException| {
                    let parts = if exception.is_general() { below } else { &parts };
                    exception.may_lift(pattern) && exception.covers(parts)
                };
                pattern.glob.matches_components(&parts)
                    && (pattern.is_locked()
                        || !self.exceptions.iter().any(|exception| lifts(&exception)))
            },
        )
    }

    /// The rule that opens the path, patterns and protects aside.
    pub fn opener(&self, path: &AbsPath) -> Option<&Rule> {
        let standing = PathVerdicts::of(&self.rules, path);
        standing.deny.is_none().then_some(standing.opener).flatten()
    }

    /// Whether anything is held back at all.
    pub fn is_confined(&self) -> bool {
        self.enabled && self.mode != Mode::FullAccess
    }

    fn find(&self, path: &AbsPath, wanted: Access) -> (Verdict, Option<DecidingRuleRef<'_>>) {
        if !self.is_confined() {
            return (Verdict::Allowed, None);
        }
        let standing = PathVerdicts::of(&self.rules, path);
        if let Some(deny) = standing.deny {
            return (Verdict::Denied, Some(DecidingRuleRef::Rule(deny)));
        }
        let Some(opener) = standing.opener else {
            return (Verdict::Absent, None);
        };
        let patterned = opener.patterns_hold();
        if patterned && let Some(pattern) = self.caught(path, NameRuleEffect::Deny) {
            return (Verdict::Denied, Some(DecidingRuleRef::Pattern(pattern)));
        }
        if wanted != Access::Write {
            return (Verdict::Allowed, Some(DecidingRuleRef::Rule(opener)));
        }
        if let Some(protect) = standing.protect {
            return (Verdict::ReadOnly, Some(DecidingRuleRef::Rule(protect)));
        }
        if patterned && let Some(pattern) = self.caught(path, NameRuleEffect::Protect) {
            return (Verdict::ReadOnly, Some(DecidingRuleRef::Pattern(pattern)));
        }
        let verdict =
            if opener.effect == Effect::Read { Verdict::ReadOnly } else { Verdict::Allowed };
        (verdict, Some(DecidingRuleRef::Rule(opener)))
    }

    /// The first pattern of this effect that catches the path or a directory above it,
    /// and is not lifted there.
    fn caught(&self, path: &AbsPath, effect: NameRuleEffect) -> Option<&NameRule> {
        let is_tracked = effect == NameRuleEffect::Deny && self.tracked.opens(path);
        self.first_caught(path, |pattern| {
            pattern.effect == effect && !(is_tracked && pattern.spares_tracked())
        })
    }

    /// Tells whether built-in protects are all that keeps a path from being written: its tree is
    /// writable, and no protect of the user, the administrator or the project covers it.
    pub fn is_writable_but_for_built_ins(&self, path: &AbsPath) -> bool {
        let is_foreign = |source: &Source| *source != Source::BuiltIn;
        let is_protected = self.rules.iter().any(|rule| {
            rule.effect == Effect::Protect
                && is_foreign(&rule.origin.source)
                && path.is_within(&rule.root)
        });
        let is_caught = || {
            self.first_caught(path, |pattern| {
                pattern.effect == NameRuleEffect::Protect && is_foreign(&pattern.origin.source)
            })
        };
        self.opener(path).is_some_and(|rule| rule.effect == Effect::Write)
            && !is_protected
            && is_caught().is_none()
    }

    /// The first deny pattern that catches the path, as if git tracked nothing.
    pub(crate) fn caught_untracked(&self, path: &AbsPath) -> Option<&NameRule> {
        self.first_caught(path, |pattern| pattern.effect == NameRuleEffect::Deny)
    }

    fn first_caught(
        &self,
        path: &AbsPath,
        is_meant: impl Fn(&NameRule) -> bool,
    ) -> Option<&NameRule> {
        let parts = components(path);
        self.patterns.iter().filter(|pattern| is_meant(pattern)).find(|pattern| {
            (1..=parts.len()).any(|depth| {
                pattern.glob.matches_components(&parts[..depth])
                    && !self.lifted(pattern, &parts[..depth], path)
            })
        })
    }

    /// How deep the tree begins in which a built-in exception may hold for `path`.
    ///
    /// `**/vendor` speaks of what a project vendors, not of a project that happens to lie
    /// in `~/vendor`.
    fn tree_depth(&self, path: &AbsPath) -> usize {
        if path.is_within(&self.workspace) {
            return self.workspace.depth();
        }
        let openers = self
            .rules
            .iter()
            .filter(|rule| rule.opens() && rule.patterns_hold() && path.is_within(&rule.root));
        openers.map(|rule| rule.root.depth()).min().unwrap_or(0)
    }

    /// Whether something re-opens `caught`, the directory or file that the pattern matched.
    fn lifted(&self, pattern: &NameRule, caught: &[&[u8]], path: &AbsPath) -> bool {
        if pattern.is_locked() {
            return false;
        }
        let (tree, is_whole) = (self.tree_depth(path), caught.len() == path.depth());
        let excepted = self.exceptions.iter().filter(|exception| exception.may_lift(pattern)).any(
            |exception| {
                let parts = if exception.is_general() {
                    caught.get(tree..).unwrap_or_default()
                } else {
                    caught
                };
                // What has something below it is a directory, and no file of that kind.
                (is_whole || !exception.is_for_files()) && exception.covers(parts)
            },
        );
        excepted || self.rules.iter().any(|rule| rule.names_for(pattern, caught.len(), path))
    }
}

impl Rule {
    /// Whether the rule lets something in, rather than keeping it out.
    pub fn opens(&self) -> bool {
        match self.effect {
            Effect::Read | Effect::Write | Effect::Private { .. } => true,
            Effect::Protect | Effect::Deny => false,
        }
    }

    /// Whether patterns hold in the tree this rule opens.
    pub fn patterns_hold(&self) -> bool {
        match &self.origin.source {
            Source::BuiltIn => false,
            Source::Preset(name) => name == ON_PATH,
            _ => true,
        }
    }

    /// Whether no grant lifts it: only a managed rule can be, and what is ringfence's own.
    pub fn is_locked(&self) -> bool {
        self.locked && matches!(self.origin.source, Source::Managed | Source::BuiltIn)
    }

    /// Whether a person chose it. The workspace counts: whoever starts in
    /// `~/my-secret-app` means that directory.
    fn has_a_persons_weight(&self) -> bool {
        self.origin.source.is_person() || matches!(self.origin.source, Source::Mode | Source::Tools)
    }

    /// Whether this rule names what the pattern caught at `depth`, or something below it
    /// on the way to `path`.
    fn names_for(&self, pattern: &NameRule, depth: usize, path: &AbsPath) -> bool {
        let enough = match pattern.effect {
            NameRuleEffect::Deny => self.opens(),
            NameRuleEffect::Protect => self.opens() && self.effect != Effect::Read,
        };
        self.has_a_persons_weight()
            && enough
            && path.is_within(&self.root)
            && self.root.depth() >= depth
    }
}

impl NameRule {
    /// Whether no grant lifts it: only a managed rule can be.
    pub fn is_locked(&self) -> bool {
        self.locked && self.origin.source == Source::Managed
    }
}

impl NameException {
    /// Whether it speaks of names in any tree that is worked in.
    fn is_general(&self) -> bool {
        self.origin.source == Source::BuiltIn && self.glob.floats()
    }

    /// Tells whether it speaks of a kind of file by its name, as a general one does that does not
    /// end in `/**`. A person may mean a directory.
    fn is_for_files(&self) -> bool {
        self.is_general() && !self.glob.text().ends_with("/**")
    }

    /// Tells whether it covers a path. A directory that is excepted covers all that is in it.
    fn covers(&self, parts: &[&[u8]]) -> bool {
        let first = if self.is_for_files() { parts.len().max(1) } else { 1 };
        (first..=parts.len()).any(|depth| self.glob.matches_components(&parts[..depth]))
    }

    /// Whether this exception has a say over the pattern.
    ///
    /// A built-in exception speaks of the built-in denies alone: a person who denies
    /// `*.pub` means it. A project's exception speaks of the project's own patterns: the
    /// author of a repository must not open the user's secrets.
    fn may_lift(&self, pattern: &NameRule) -> bool {
        match self.origin.source {
            Source::BuiltIn => {
                pattern.origin.source == Source::BuiltIn && pattern.effect == NameRuleEffect::Deny
            }
            Source::Project => pattern.origin.source == Source::Project,
            Source::Managed | Source::User | Source::Flag | Source::Session => true,
            Source::Mode | Source::Tools | Source::Preset(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
