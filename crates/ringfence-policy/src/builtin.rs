//! Rules without any policy file: tables with a reason for each entry.
//!
//! Policies add to these deny and protect rules and never remove any; the user opens a single path
//! by naming it.

mod guarded;
mod settings;
mod tables;

use crate::disguise::Disguises;
use crate::glob::{Glob, GlobCase};
use crate::grants::{
    Asking, AuditRules, CommandRules, Effect, EnvironmentRules, Grants, Limits, Mode,
    NameException, NameRule, NameRuleEffect, NetworkRules, Observe, OnGap, Origin, Rule,
    SandboxRules, Source,
};
use crate::path::AbsPath;
use crate::tools::ToolRules;
use crate::tracked::TrackedFiles;
pub use guarded::GuardedNames;
pub use settings::*;
pub use tables::*;

/// The programs of `@strict` in `allow-binaries`.
pub const STRICT_BINARIES: &[&str] = &[
    "python3", "bash", "sh", "ls", "cat", "mkdir", "touch", "cp", "mv", "rm", "tee", "echo",
    "grep", "sed", "find", "chmod", "xargs",
];
/// The texts of `@strict` in `deny-arguments`.
pub const STRICT_ARGUMENTS: &[&str] = &[
    "..",
    "/etc/",
    "/root/",
    "/proc/",
    "/dev/",
    "/sys/",
    "/boot/",
    "--privileged",
    "eval",
    "exec",
];

/// An entry of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltinEntry {
    /// A path (`~` is the home directory) or a glob.
    pub text: &'static str,
    /// Reason for the entry.
    pub reason: &'static str,
}

/// The reason for a built-in rule, by its text.
pub fn reason_for(text: &str) -> Option<&'static str> {
    let tables = [HOME_DENIES, SYSTEM_DENIES, PATTERN_DENIES, PATTERN_EXCEPTIONS, PATTERN_PROTECTS];
    let entries = tables.into_iter().flatten().map(|entry| (entry.text, entry.reason));
    let settings = SETTINGS.iter().map(|setting| (setting.text, setting.reason));
    entries.chain(settings).find(|(known, _)| *known == text).map(|(_, reason)| reason)
}

/// True if a name is that of source code or compiled code, by the endings in [`PATTERN_EXCEPTIONS`]
/// for names that mention secrets.
pub fn is_source_name(name: &std::ffi::OsStr) -> bool {
    let Some(ending) = std::path::Path::new(name).extension().and_then(|ending| ending.to_str())
    else {
        return false;
    };
    let lists = PATTERN_EXCEPTIONS.iter().filter_map(|entry| {
        entry.text.strip_prefix("**/*{credentials,secret}*.{")?.strip_suffix('}')
    });
    lists.flat_map(|list| list.split(',')).any(|known| known.eq_ignore_ascii_case(ending))
}

/// The entry that keeps `path` read-only in a repository of the user: no rule opens the git files
/// that make git run programs.
pub fn git_protect_entry(path: &AbsPath) -> Option<&'static BuiltinEntry> {
    let covers = |entry: &&BuiltinEntry| {
        entry.text.contains(".git/")
            && Glob::new(entry.text, None, GlobCase::Insensitive)
                .is_ok_and(|glob| glob.covers(path))
    };
    PATTERN_PROTECTS.iter().find(covers)
}

/// The built-in path rules that do not depend on opened trees.
pub(crate) fn rules(home: &AbsPath) -> impl Iterator<Item = Rule> + '_ {
    let denies = HOME_DENIES
        .iter()
        .map(|entry| path_rule(home.join(&entry.text[2..]), Effect::Deny, entry.text));
    let system = SYSTEM_DENIES.iter().filter_map(|entry| system_rule(entry.text, Effect::Deny));
    let roots = SYSTEM_READS.iter().filter_map(|text| system_rule(text, Effect::Read));
    let etc_root = AbsPath::root().join("etc");
    let etc = ETC_READS
        .iter()
        .map(move |name| path_rule(etc_root.join(name), Effect::Read, &["/etc/", name].concat()));
    denies.chain(system).chain(roots).chain(etc)
}

impl Grants {
    /// The part of every policy that opens the system: it can be prepared before the policy is
    /// known.
    pub fn system_only() -> Self {
        let nowhere = AbsPath::root().join("nowhere");
        let rules = rules(&nowhere)
            .filter(|rule| rule.effect == Effect::Read || !rule.root.is_within(&nowhere))
            .collect();
        Self {
            mode: Mode::ReadOnly,
            workspace: nowhere.clone(),
            audit: AuditRules::default_below(&nowhere),
            home: nowhere,
            rules,
            patterns: Vec::new(),
            exceptions: Vec::new(),
            tracked: TrackedFiles::default(),
            disguises: Disguises::default(),
            suspects: Vec::new(),
            environment: EnvironmentRules::default(),
            network: NetworkRules::default(),
            commands: CommandRules::default(),
            tools: ToolRules::default(),
            limits: Limits::default(),
            on_gap: OnGap::Refuse,
            observe: Observe::Denials,
            ask: Asking::Never,
            enabled: true,
            sandbox: SandboxRules::default(),
            warnings: Vec::new(),
        }
    }
}

/// Protect rules for a working directory: a writable root, or a directory between it and the start
/// directory of a command.
pub(crate) fn protect_rules(directory: &AbsPath) -> impl Iterator<Item = Rule> + '_ {
    SETTINGS.iter().map(|setting| setting.rule_in(directory))
}

impl Setting {
    /// The rule that protects this setting in a directory.
    pub fn rule_in(&self, directory: &AbsPath) -> Rule {
        path_rule(directory.join(self.text), Effect::Protect, self.text)
    }
}

/// The built-in rules on names.
pub(crate) fn patterns() -> impl Iterator<Item = NameRule> {
    let denies = PATTERN_DENIES.iter().map(|entry| (entry, NameRuleEffect::Deny));
    let protects = PATTERN_PROTECTS.iter().map(|entry| (entry, NameRuleEffect::Protect));
    denies.chain(protects).filter_map(|(entry, effect)| {
        Some(NameRule {
            glob: built_in_glob(entry.text)?,
            effect,
            origin: origin(entry.text),
            locked: false,
        })
    })
}

/// Exceptions from the built-in rules on names.
pub(crate) fn exceptions() -> impl Iterator<Item = NameException> {
    PATTERN_EXCEPTIONS.iter().filter_map(|entry| {
        Some(NameException { glob: built_in_glob(entry.text)?, origin: origin(entry.text) })
    })
}

/// Names of directories with dependencies or build output: the exceptions open all of them.
pub fn vendored_names() -> impl Iterator<Item = &'static str> {
    let names = PATTERN_EXCEPTIONS
        .iter()
        .filter_map(|entry| entry.text.strip_prefix("**/")?.strip_suffix("/**"));
    names.filter(|name| !name.contains(['/', '*', '?', '[', '{']))
}

/// The origin of a built-in rule.
pub(crate) fn origin(text: &str) -> Origin {
    Origin::new(Source::BuiltIn, text)
}

fn path_rule(root: AbsPath, effect: Effect, text: &str) -> Rule {
    Rule { root, effect, origin: origin(text), locked: false }
}

fn system_rule(text: &str, effect: Effect) -> Option<Rule> {
    Some(path_rule(AbsPath::new(text)?, effect, text))
}

/// A test checks that every built-in glob compiles, so none is ever left out.
fn built_in_glob(text: &str) -> Option<Glob> {
    Glob::new(text, None, GlobCase::Insensitive).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_tables_becomes_a_rule() {
        let home = AbsPath::new("/home/me").unwrap();
        let expected =
            HOME_DENIES.len() + SYSTEM_DENIES.len() + SYSTEM_READS.len() + ETC_READS.len();
        assert_eq!(rules(&home).count(), expected);
        assert_eq!(patterns().count(), PATTERN_DENIES.len() + PATTERN_PROTECTS.len());
        assert_eq!(exceptions().count(), PATTERN_EXCEPTIONS.len());
        assert_eq!(protect_rules(&home).count(), SETTINGS.len());
    }

    #[test]
    fn every_deny_and_protect_has_a_reason() {
        for entry in
            [HOME_DENIES, SYSTEM_DENIES, PATTERN_DENIES, PATTERN_PROTECTS].into_iter().flatten()
        {
            assert!(entry.reason.len() > 8, "{}", entry.text);
        }
        assert!(HOME_DENIES.iter().all(|entry| entry.text.starts_with("~/")));
        assert_eq!(reason_for("~/.ssh"), Some(HOME_DENIES[0].reason));
        assert_eq!(reason_for("~/nothing"), None);
    }
}
