//! Import entries that would open a built-in denial.
//!
//! The user opens such a path by naming it to ringfence. A file of another tool names it without
//! knowledge of the built-in rules, and may come with a repository.

use super::ImportedPolicy;
use crate::builtin::{
    self, BuiltinEntry, HOME_DENIES, PATTERN_DENIES, PATTERN_EXCEPTIONS, PATTERN_PROTECTS,
    SYSTEM_DENIES,
};
use crate::expand::is_created_by_sandbox;
use crate::glob::{Glob, GlobCase, components};
use crate::path::AbsPath;
use crate::policy::PathEntry;

impl ImportedPolicy {
    /// Removes entries that would open a built-in denial or make a protected path writable, with a
    /// note.
    pub(super) fn without_opened_denies(mut self) -> Self {
        let files = &mut self.policy.filesystem;
        let mut dropped: Vec<(&str, String, String)> = Vec::new();
        let mut sift = |key: &'static str,
                        list: &mut Vec<PathEntry>,
                        opened: &dyn Fn(&str) -> Option<String>| {
            list.retain(|entry| {
                let reason = opened(entry.path());
                dropped.extend(reason.clone().map(|reason| (key, entry.path().to_owned(), reason)));
                reason.is_none()
            });
        };
        sift("read", &mut files.read, &reason_to_withhold);
        sift("write", &mut files.write, &reason_to_withhold_write);
        sift("except", &mut files.except, &lifts);
        for (key, entry, reason) in dropped {
            let why = format!(
                "`{entry}` is not opened: {reason}; only the user can open it, in the user policy"
            );
            self.not_carried(format!("filesystem.{key}"), why);
        }
        self
    }
}

/// The reason for which only the user may make a path writable, if any: a built-in rule denies or
/// protects it.
pub fn reason_to_withhold_write(text: &str) -> Option<String> {
    reason_to_withhold(text).or_else(|| protected(text).map(by_rule))
}

fn by_rule(rule: &str) -> String {
    format!("the built-in rule `{rule}` denies it")
}

/// The reason to remove a path, if any.
fn reason_to_withhold(text: &str) -> Option<String> {
    let is_unknown = text.starts_with('$') && Written::below_home(text).is_none();
    let unknown = || {
        is_unknown.then(|| "its variable may hold a path that a built-in rule denies".to_owned())
    };
    denied(text).map(by_rule).or_else(unknown).or_else(|| own_directory(text))
}

/// The reason for a directory that the sandbox has of its own: it cannot be opened as a whole.
fn own_directory(text: &str) -> Option<String> {
    let path =
        text.strip_prefix('/').map(|below| AbsPath::root().join(below.trim_end_matches("**")));
    let is_own = path.is_some_and(|path| is_created_by_sandbox(&path));
    is_own.then(|| "the sandbox has its own; name the directories in it that are needed".to_owned())
}

/// The built-in rule that denies a path as written. An import does not know the home directory, so
/// it matches paths below it at any depth.
fn denied(text: &str) -> Option<&'static str> {
    let path = Written::from_text(text).whole;
    let parts = components(&path);
    let by_path = |entry: &&BuiltinEntry| match entry.text.strip_prefix("~/") {
        Some(below) => {
            let below = AbsPath::root().join(below);
            let below = components(&below);
            parts.windows(below.len()).any(|run| {
                run.iter().zip(&below).all(|(one, other)| one.eq_ignore_ascii_case(other))
            })
        }
        None => AbsPath::new(entry.text).is_some_and(|denied| path.is_within_in_any_case(&denied)),
    };
    let found = HOME_DENIES.iter().chain(SYSTEM_DENIES).find(by_path).map(|entry| entry.text);
    found.or_else(|| denied_by_name(&path))
}

/// The built-in pattern that denies a path or one of its parents.
fn denied_by_name(path: &AbsPath) -> Option<&'static str> {
    let parts = components(path);
    let matches = |entry: &&BuiltinEntry, parts: &[&[u8]]| {
        glob(entry.text).is_some_and(|glob| glob.matches_components(parts))
    };
    PATTERN_DENIES
        .iter()
        .map(|entry| {
            (entry.text, (1..=parts.len()).find(|depth| matches(&entry, &parts[..*depth])))
        })
        .find_map(|(text, caught)| {
            let caught = &parts[..caught?];
            // An exception for a kind of file opens no directory of that name.
            let may_lift =
                |entry: &&BuiltinEntry| entry.text.ends_with("/**") || caught.len() == parts.len();
            let is_lifted =
                PATTERN_EXCEPTIONS.iter().filter(may_lift).any(|entry| matches(&entry, caught));
            (!is_lifted).then_some(text)
        })
}

/// The built-in rule that makes a path read-only.
fn protected(text: &str) -> Option<&'static str> {
    let whole = Written::from_text(text).whole;
    let parts = components(&whole);
    (1..=parts.len()).find_map(|depth| {
        let setting =
            builtin::setting_at(parts[..depth].iter().copied()).map(|(setting, _)| setting.text);
        let pattern = || {
            PATTERN_PROTECTS.iter().find(|entry| {
                glob(entry.text).is_some_and(|glob| glob.matches_components(&parts[..depth]))
            })
        };
        setting.or_else(|| pattern().map(|entry| entry.text))
    })
}

/// The reason to remove an exception: it applies to every pattern, also below a directory of that
/// name, so it would cancel built-in patterns. Exceptions for single names that are built in as
/// well stay.
fn lifts(text: &str) -> Option<String> {
    let last = text.rsplit('/').next().unwrap_or(text);
    let path = AbsPath::root().join(last);
    let is_built_in = |entry: &BuiltinEntry| {
        !entry.text.ends_with("/**")
            && glob(entry.text).is_some_and(|glob| glob.matches_components(&components(&path)))
    };
    let is_plain = !last.is_empty() && !Glob::is_glob(last);
    let stays = is_plain && PATTERN_EXCEPTIONS.iter().any(is_built_in);
    (!stays).then(|| "an exception would also override built-in patterns".to_owned())
}

fn glob(text: &str) -> Option<Glob> {
    Glob::new(text, None, GlobCase::Insensitive).ok()
}

/// A path as written, not resolved on the host.
struct Written {
    /// The path with the home directory, or the value of a variable, as its root.
    whole: AbsPath,
}

impl Written {
    fn from_text(text: &str) -> Self {
        let text = text.trim_end_matches("/**");
        let without_variable = if text.starts_with('$') {
            text.split_once('/').map_or("", |(_, rest)| rest)
        } else {
            text
        };
        let below = Self::below_home(text).unwrap_or_else(|| without_variable.to_owned());
        Self { whole: AbsPath::root().join(below.trim_start_matches('/')) }
    }

    /// The path below the home directory, if the text is one.
    fn below_home(text: &str) -> Option<String> {
        const DIRECTORIES: &[(&str, &str)] = &[
            ("~", ""),
            ("$HOME", ""),
            ("${HOME}", ""),
            ("$XDG_CONFIG_HOME", "/.config"),
            ("${XDG_CONFIG_HOME}", "/.config"),
            ("$XDG_DATA_HOME", "/.local/share"),
            ("${XDG_DATA_HOME}", "/.local/share"),
        ];
        DIRECTORIES.iter().find_map(|(prefix, directory)| {
            let rest = text
                .strip_prefix(prefix)
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
            Some(format!("{directory}{rest}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{denied, lifts, protected, reason_to_withhold};

    #[test]
    fn built_in_denied_paths_are_found_in_any_spelling() {
        for text in [
            "~/.ssh",
            "~/.ssh/config",
            "$HOME/.aws",
            "${HOME}/.SSH",
            "/home/you/.gnupg/x",
            "/root/.netrc",
            "/Users/me/.kube/config",
        ] {
            assert!(denied(text).is_some(), "{text}");
        }
        for text in [
            "/etc/shadow",
            "/etc/../etc/shadow",
            ".env",
            "./deploy/.env.local",
            "a/server.pem",
            "/srv/x/.ssh/id",
            "~/.config/gh/**",
        ] {
            assert!(denied(text).is_some(), "{text}");
        }
        for text in [
            "../../.config/gh",
            "~/../me/.config/gh",
            "$XDG_CONFIG_HOME/gh",
            "/data/home/me/.Config/gh/hosts.yml",
        ] {
            assert!(denied(text).is_some(), "{text}");
        }
        for text in [
            "~",
            "~/projects",
            "/home/user/projects",
            "/var/data",
            ".",
            "..",
            "../lib",
            "./.env.example",
            "~/.sshx",
            "$HOME/x",
        ] {
            assert_eq!(reason_to_withhold(text), None, "{text}");
        }
        assert!(
            reason_to_withhold("$GNUPGHOME/x").is_some() && reason_to_withhold("$DATA").is_some()
        );
        for text in [".git/hooks", "./.claude", "/x/.vscode/tasks.json", "~/p/.Git/config"] {
            assert!(protected(text).is_some(), "{text}");
        }
        assert_eq!(protected("./docs"), None);
    }

    #[test]
    fn exceptions_overriding_built_in_patterns_are_found() {
        for text in [
            "**/.env",
            ".env",
            "*.pem",
            "**/*.{pem,crt}",
            "docs/**",
            "**/deploy",
            "**/*.yml",
            "**/*.tfvars",
            "**/*~",
            "**/config.json",
            "*",
            "**",
            "",
            "**/.e*",
            "certs/[a-z].pem",
            "x/secrets/a.txt",
            ".ssh",
            "**/node_modules",
        ] {
            assert!(lifts(text).is_some(), "{text}");
        }
        for text in [".env.example", "deploy/.env.sample", "cacert.pem", "**/id.pub"] {
            assert_eq!(lifts(text), None, "{text}");
        }
    }
}
