//! Precedence of rules, patterns and exceptions: one decision with its reason.

mod explain;
mod verdicts;

use serde::{Deserialize, Serialize};

use crate::glob::components;
use crate::grants::{Effect, Grants, Mode, NameException, NameRule, NameRuleEffect, Rule, Source};
use crate::path::AbsPath;
use crate::presets::ON_PATH;
pub use explain::ExplainLine;
use verdicts::PathVerdicts;

/// Kind of access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read or list.
    Read,
    /// Write, create, rename or remove.
    Write,
    /// Execute as a program.
    Execute,
}

/// Result of an access check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The access is allowed.
    Allowed,
    /// No rule opens the path: it looks absent (ENOENT).
    Absent,
    /// A rule denies the path (EACCES).
    Denied,
    /// The path is readable, but not writable (EACCES).
    ReadOnly,
}

/// Result of an access check, with the deciding rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The path.
    pub path: AbsPath,
    /// The requested access.
    pub access: Access,
    /// The result.
    pub verdict: Verdict,
    /// The deciding rule; `None` if no rule matches, or nothing is confined.
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
    /// Position of the rule.
    pub fn origin(&self) -> &crate::grants::Origin {
        match self {
            DecidingRule::Rule(rule) => &rule.origin,
            DecidingRule::Pattern(pattern) => &pattern.origin,
        }
    }

    /// True if no grant overrides the rule.
    pub fn is_locked(&self) -> bool {
        match self {
            DecidingRule::Rule(rule) => rule.is_locked(),
            DecidingRule::Pattern(pattern) => pattern.is_locked(),
        }
    }
}

/// Like [`DecidingRule`], by reference.
enum DecidingRuleRef<'a> {
    Rule(&'a Rule),
    Pattern(&'a NameRule),
}

impl Grants {
    /// Decides `wanted` access to `path`.
    ///
    /// The deepest rule that covers the path wins. Of two rules on the same root the stricter one
    /// wins, so the merge order cannot change a result.
    ///
    /// A pattern overrides the rule that opens the tree, unless an exception covers the matched
    /// path or the user granted exactly that path. Only a rule of the user opens a built-in denial,
    /// and no rule opens a locked one.
    pub fn decide(&self, path: &AbsPath, wanted: Access) -> Decision {
        let (verdict, found) = self.find(path, wanted);
        let rule = found.map(|found| match found {
            DecidingRuleRef::Rule(rule) => DecidingRule::Rule(rule.clone()),
            DecidingRuleRef::Pattern(pattern) => DecidingRule::Pattern(pattern.clone()),
        });
        Decision { path: path.clone(), access: wanted, verdict, rule }
    }

    /// Like [`Grants::decide`], without the reason: for callers that need no message.
    pub fn verdict(&self, path: &AbsPath, wanted: Access) -> Verdict {
        self.find(path, wanted).0
    }

    /// The deny or protect pattern that matches the path, after exceptions and grants.
    ///
    /// Patterns apply in trees that the user, a policy file or the mode opened. Toolchains and
    /// system directories are full of public files with names that look like secrets.
    pub fn pattern_for(&self, path: &AbsPath) -> Option<&NameRule> {
        if !self.is_confined() || !self.opening_rule(path).is_some_and(Rule::patterns_apply) {
            return None;
        }
        self.find_pattern(path, NameRuleEffect::Deny)
            .or_else(|| self.find_pattern(path, NameRuleEffect::Protect))
    }

    /// The deny pattern that matches `path` itself, which lies in `root`, a tree without patterns.
    /// A tool's own directory is full of public files, but only few names lie directly below it,
    /// and some of them are credentials.
    pub fn denied_name_in(&self, root: &AbsPath, path: &AbsPath) -> Option<&NameRule> {
        let parts = components(path);
        let below = parts.get(root.depth()..).unwrap_or_default();
        self.patterns.iter().filter(|pattern| pattern.effect == NameRuleEffect::Deny).find(
            |pattern| {
                let lifts = |exception: &&NameException| {
                    let parts = if exception.is_general() { below } else { &parts };
                    exception.may_override(pattern) && exception.covers(parts)
                };
                pattern.glob.matches_components(&parts)
                    && (pattern.is_locked()
                        || !self.exceptions.iter().any(|exception| lifts(&exception)))
            },
        )
    }

    /// The rule that opens the path, ignoring patterns and protect rules.
    pub fn opening_rule(&self, path: &AbsPath) -> Option<&Rule> {
        let standing = PathVerdicts::from_rules(&self.rules, path);
        standing.deny.is_none().then_some(standing.opener).flatten()
    }

    /// True if any access is restricted.
    pub fn is_confined(&self) -> bool {
        self.enabled && self.mode != Mode::FullAccess
    }

    fn find(&self, path: &AbsPath, wanted: Access) -> (Verdict, Option<DecidingRuleRef<'_>>) {
        if !self.is_confined() {
            return (Verdict::Allowed, None);
        }
        let standing = PathVerdicts::from_rules(&self.rules, path);
        if let Some(deny) = standing.deny {
            return (Verdict::Denied, Some(DecidingRuleRef::Rule(deny)));
        }
        let Some(opener) = standing.opener else {
            return (Verdict::Absent, None);
        };
        let patterned = opener.patterns_apply();
        if patterned && let Some(pattern) = self.find_pattern(path, NameRuleEffect::Deny) {
            return (Verdict::Denied, Some(DecidingRuleRef::Pattern(pattern)));
        }
        if wanted != Access::Write {
            return (Verdict::Allowed, Some(DecidingRuleRef::Rule(opener)));
        }
        if let Some(protect) = standing.protect {
            return (Verdict::ReadOnly, Some(DecidingRuleRef::Rule(protect)));
        }
        if patterned && let Some(pattern) = self.find_pattern(path, NameRuleEffect::Protect) {
            return (Verdict::ReadOnly, Some(DecidingRuleRef::Pattern(pattern)));
        }
        let verdict =
            if opener.effect == Effect::Read { Verdict::ReadOnly } else { Verdict::Allowed };
        (verdict, Some(DecidingRuleRef::Rule(opener)))
    }

    /// The first pattern of this effect that matches the path or one of its parents and has no
    /// exception there.
    fn find_pattern(&self, path: &AbsPath, effect: NameRuleEffect) -> Option<&NameRule> {
        let is_tracked = effect == NameRuleEffect::Deny && self.tracked.opens(path);
        self.first_caught(path, |pattern| {
            pattern.effect == effect && !(is_tracked && pattern.exempts_tracked_files())
        })
    }

    /// True if only built-in protect rules prevent a write: the tree is writable, and no protect
    /// rule of the user, the administrator or the project covers the path.
    pub fn is_protected_only_by_built_ins(&self, path: &AbsPath) -> bool {
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
        self.opening_rule(path).is_some_and(|rule| rule.effect == Effect::Write)
            && !is_protected
            && is_caught().is_none()
    }

    /// The first deny pattern that matches the path, ignoring files that git tracks.
    pub(crate) fn find_pattern_ignoring_git(&self, path: &AbsPath) -> Option<&NameRule> {
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
                    && !self.is_excepted(pattern, &parts[..depth], path)
            })
        })
    }

    /// Depth of the tree in which a built-in exception may apply to `path`.
    ///
    /// `**/vendor` means a directory inside a project, not a project that lies in `~/vendor`.
    fn tree_depth(&self, path: &AbsPath) -> usize {
        if path.is_within(&self.workspace) {
            return self.workspace.depth();
        }
        let openers = self
            .rules
            .iter()
            .filter(|rule| rule.opens() && rule.patterns_apply() && path.is_within(&rule.root));
        openers.map(|rule| rule.root.depth()).min().unwrap_or(0)
    }

    /// True if an exception or a grant re-opens `caught`, the directory or file that the pattern
    /// matched.
    fn is_excepted(&self, pattern: &NameRule, caught: &[&[u8]], path: &AbsPath) -> bool {
        if pattern.is_locked() {
            return false;
        }
        let (tree, is_whole) = (self.tree_depth(path), caught.len() == path.depth());
        let excepted =
            self.exceptions.iter().filter(|exception| exception.may_override(pattern)).any(
                |exception| {
                    let parts = if exception.is_general() {
                        caught.get(tree..).unwrap_or_default()
                    } else {
                        caught
                    };
                    // A path with something below it is a directory, so an exception for files does not
                    // apply.
                    (is_whole || !exception.is_for_files()) && exception.covers(parts)
                },
            );
        excepted || self.rules.iter().any(|rule| rule.names_for(pattern, caught.len(), path))
    }
}

impl Rule {
    /// True if the rule gives access.
    pub fn opens(&self) -> bool {
        match self.effect {
            Effect::Read | Effect::Write | Effect::Private { .. } => true,
            Effect::Protect | Effect::Deny => false,
        }
    }

    /// True if patterns apply in the tree that this rule opens.
    pub fn patterns_apply(&self) -> bool {
        match &self.origin.source {
            Source::BuiltIn => false,
            Source::Preset(name) => name == ON_PATH,
            _ => true,
        }
    }

    /// True if no grant overrides the rule: a locked managed rule, or a rule on ringfence's own
    /// files.
    pub fn is_locked(&self) -> bool {
        self.locked && matches!(self.origin.source, Source::Managed | Source::BuiltIn)
    }

    /// True if the user chose the rule. This includes the workspace: a user who starts in
    /// `~/my-secret-app` means that directory.
    fn has_user_precedence(&self) -> bool {
        self.origin.source.is_user_choice()
            || matches!(self.origin.source, Source::Mode | Source::Tools)
    }

    /// True if this rule names the path that the pattern matched at `depth`, or a path between that
    /// and `path`.
    fn names_for(&self, pattern: &NameRule, depth: usize, path: &AbsPath) -> bool {
        let enough = match pattern.effect {
            NameRuleEffect::Deny => self.opens(),
            NameRuleEffect::Protect => self.opens() && self.effect != Effect::Read,
        };
        self.has_user_precedence()
            && enough
            && path.is_within(&self.root)
            && self.root.depth() >= depth
    }
}

impl NameRule {
    /// True if no grant overrides the rule: a locked managed rule.
    pub fn is_locked(&self) -> bool {
        self.locked && self.origin.source == Source::Managed
    }
}

impl NameException {
    /// True if the glob applies in any workspace tree.
    fn is_general(&self) -> bool {
        self.origin.source == Source::BuiltIn && self.glob.applies_at_any_depth()
    }

    /// True if the glob describes a kind of file by its name: a general glob that does not end in
    /// `/**`. A user's glob may mean a directory.
    fn is_for_files(&self) -> bool {
        self.is_general() && !self.glob.text().ends_with("/**")
    }

    /// True if the exception covers a path. An excepted directory covers everything below it.
    fn covers(&self, parts: &[&[u8]]) -> bool {
        let first = if self.is_for_files() { parts.len().max(1) } else { 1 };
        (first..=parts.len()).any(|depth| self.glob.matches_components(&parts[..depth]))
    }

    /// True if this exception may override the pattern.
    ///
    /// A built-in exception only overrides built-in denials: a user who denies `*.pub` means it. A
    /// project's exception only overrides the project's own patterns: the author of a repository
    /// must not open the user's secrets.
    fn may_override(&self, pattern: &NameRule) -> bool {
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
