//! Lists of `[filesystem]`, and git directories outside the workspace.

use crate::builtin;
use crate::disguise::Disguises;
use crate::error::{PolicyError, SourcePosition};
use crate::expand::{EntryTarget, ExpandedEntry, exact_glob};
use crate::facts::{Facts, Flags};
use crate::glob::{Glob, GlobCase};
use crate::grants::{
    Effect, Grants, NameException, NameRule, NameRuleEffect, Origin, Rule, Source,
};
use crate::layer::PolicyLayer;
use crate::path::AbsPath;

/// The lists of all layers, after the built-in patterns.
pub(super) struct PathLists {
    pub(super) rules: Vec<Rule>,
    pub(super) patterns: Vec<NameRule>,
    pub(super) exceptions: Vec<NameException>,
    pub(super) disguises: Disguises,
}

/// An entry to add to [`PathLists`].
struct WrittenEntry<'a> {
    entry: ExpandedEntry<'a>,
    origin: Origin,
    locked: bool,
}

pub(super) fn collect(
    layers: &[PolicyLayer],
    flags: &Flags,
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<PathLists, PolicyError> {
    let mut lists = PathLists {
        rules: Vec::new(),
        patterns: builtin::patterns().collect(),
        exceptions: builtin::exceptions().collect(),
        disguises: Disguises::from_layers(layers),
    };
    for layer in layers {
        let files = &layer.policy.filesystem;
        let anchor = layer.base_directory(&facts.workspace);
        for (key, entries) in keyed([
            &files.read,
            &files.write,
            &files.deny,
            &files.hide,
            &files.protect,
            &files.except,
        ]) {
            for (i, entry) in entries.iter().enumerate() {
                let full = format!("filesystem.{key}.{i}");
                let written = WrittenEntry {
                    entry: ExpandedEntry {
                        text: entry.path(),
                        key,
                        anchor: &anchor,
                        at: layer.position(&full),
                    },
                    origin: Origin {
                        reason: entry.reason().map(str::to_owned),
                        ..layer.origin(&full, entry.path())
                    },
                    locked: entry.is_locked(),
                };
                lists.add(written, facts, warnings)?;
            }
        }
    }
    for (key, entries) in
        keyed([&flags.read, &flags.write, &flags.deny, &flags.hide, &flags.protect, &flags.except])
    {
        for text in entries {
            let entry =
                ExpandedEntry { text, key, anchor: &flags.cwd, at: SourcePosition::default() };
            let origin = Origin::new(Source::Flag, format!("--{key} {text}"));
            lists.add(WrittenEntry { entry, origin, locked: false }, facts, warnings)?;
        }
    }
    Ok(lists)
}

/// The lists with their keys.
fn keyed<T>(lists: [&[T]; 6]) -> impl Iterator<Item = (&'static str, &[T])> {
    ["read", "write", "deny", "hide", "protect", "except"].into_iter().zip(lists)
}

impl PathLists {
    fn add(
        &mut self,
        written: WrittenEntry<'_>,
        facts: &Facts,
        warnings: &mut Vec<String>,
    ) -> Result<(), PolicyError> {
        let WrittenEntry { entry, origin, locked } = written;
        match entry.key {
            "read" | "write" => {
                let root = entry.path(facts)?;
                if origin.source == Source::Project && !root.is_within(&facts.workspace) {
                    warnings.push(format!(
                        "{}`{}` is ignored: a project's file cannot open paths outside the project; \
                         put it into ~/.config/ringfence/policy.toml or use --{}",
                        entry.at, entry.text, entry.key
                    ));
                    return Ok(());
                }
                let effect = if entry.key == "read" { Effect::Read } else { Effect::Write };
                self.rules.push(Rule { root, effect, origin, locked: false });
            }
            "except" => {
                let glob = match entry.target(facts)? {
                    EntryTarget::Glob(glob) => Some(glob),
                    EntryTarget::Path(path) => exact_glob(&path),
                };
                self.exceptions.extend(glob.map(|glob| NameException { glob, origin }));
            }
            key => {
                let target = entry.target(facts)?;
                if key == "hide" {
                    self.disguises.hide(&target);
                }
                self.add_restriction(target, key, origin, locked);
            }
        }
        Ok(())
    }

    /// Adds a deny or protect rule. A hidden path is denied, and only the error differs.
    fn add_restriction(&mut self, target: EntryTarget, key: &str, origin: Origin, locked: bool) {
        match (target, key == "protect") {
            (EntryTarget::Path(root), true) => {
                self.rules.push(Rule { root, effect: Effect::Protect, origin, locked })
            }
            (EntryTarget::Path(root), false) => {
                self.rules.push(Rule { root, effect: Effect::Deny, origin, locked })
            }
            (EntryTarget::Glob(glob), true) => self.patterns.push(NameRule {
                glob,
                effect: NameRuleEffect::Protect,
                origin,
                locked,
            }),
            (EntryTarget::Glob(glob), false) => {
                self.patterns.push(NameRule { glob, effect: NameRuleEffect::Deny, origin, locked })
            }
        }
    }
}

/// Opens the real git directories of a linked worktree or submodule, with the protect rules that
/// `.git` has in a plain repository.
///
/// The directory may have another name than `.git` (a worktree of a bare repository), so the
/// built-in patterns do not cover all of it.
pub(super) fn open_git(
    facts: &Facts,
    effect: Effect,
    rules: &mut Vec<Rule>,
    lists: &mut PathLists,
) {
    let Some(git) = &facts.git else { return };
    for dir in [&git.common_dir, &git.git_dir] {
        if rules.iter().all(|rule| rule.root != *dir || !rule.opens()) {
            rules.push(super::mode_rule(dir, effect.clone()));
        }
    }
    let mut protect = |root: AbsPath| {
        let origin = builtin::origin(&root.to_string());
        let rule = Rule { root, effect: Effect::Protect, origin, locked: false };
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    };
    for name in ["hooks", "config", "config.worktree", "commondir", "info/attributes"] {
        protect(git.common_dir.join(name));
    }
    for name in ["config.worktree", "commondir", "gitdir"] {
        protect(git.git_dir.join(name));
    }
    // A file that points to the git directory: a change would select another config.
    protect(facts.workspace.join(".git"));
    for text in
        ["./modules/**/{hooks,config,config.worktree,commondir}", "./modules/**/info/attributes"]
    {
        if let Ok(glob) = Glob::new(text, Some(&git.common_dir), GlobCase::Sensitive) {
            let pattern = NameRule {
                glob,
                effect: NameRuleEffect::Protect,
                origin: builtin::origin(text),
                locked: false,
            };
            lists.patterns.push(pattern);
        }
    }
    let glob = exact_glob(&git.common_dir);
    lists.exceptions.extend(
        glob.map(|glob| NameException { glob, origin: builtin::origin("git's own store") }),
    );
}

/// Warnings about rules without effect.
pub(super) fn warn_without_effect(
    rules: &[Rule],
    patterns: &[NameRule],
    exceptions: &[NameException],
) -> Vec<String> {
    let mut warnings = Vec::new();
    let shut: Vec<&Rule> = rules
        .iter()
        .filter(|rule| rule.effect == Effect::Deny && rule.origin.source == Source::BuiltIn)
        .collect();
    for rule in rules.iter().filter(|rule| rule.opens()) {
        if !matches!(
            rule.origin.source,
            Source::Project | Source::Managed | Source::Mode | Source::Tools
        ) {
            continue;
        }
        if let Some(deny) = shut.iter().find(|deny| rule.root.is_within(&deny.root)) {
            warnings.push(format!(
                "{}: `{}` has no effect: `{}` is denied, and only a rule of the user opens it",
                rule.origin.place(),
                rule.origin.text,
                deny.origin.text
            ));
        }
    }
    let has_own_pattern = patterns.iter().any(|pattern| pattern.origin.source == Source::Project);
    for exception in
        exceptions.iter().filter(|exception| exception.origin.source == Source::Project)
    {
        if !has_own_pattern {
            warnings.push(format!(
                "{}: `{}` in `except` has no effect: a project's file can only except its own patterns; \
                 put it into ~/.config/ringfence/policy.toml or use --except",
                exception.origin.place(),
                exception.origin.text
            ));
        }
    }
    warnings
}

/// Warnings about grants of files that a deny pattern matches: only a rule of the user overrides a
/// pattern.
pub(super) fn warn_caught_by_patterns(grants: &Grants) -> Vec<String> {
    let by_file = |rule: &&Rule| {
        rule.opens() && matches!(rule.origin.source, Source::Project | Source::Managed)
    };
    let warn = |rule: &Rule| {
        let pattern = grants
            .pattern_for(&rule.root)
            .filter(|pattern| pattern.effect == NameRuleEffect::Deny)?;
        Some(format!(
            "{}: `{}` has no effect: `{}` denies it, and only a rule of the user opens it",
            rule.origin.place(),
            rule.origin.text,
            pattern.origin.text
        ))
    };
    grants.rules.iter().filter(by_file).filter_map(warn).collect()
}
