//! Names that no command may change in a project, from the built-in tables alone.

use std::ffi::OsStr;
use std::path::Path;

use super::{SETTINGS, exceptions, patterns};
use crate::grants::{NameException, NameRule};
use crate::path::AbsPath;

/// The built-in tables of denied and protected names, ready for matching.
pub struct GuardedNames {
    patterns: Vec<NameRule>,
    exceptions: Vec<NameException>,
}

impl Default for GuardedNames {
    fn default() -> Self {
        Self { patterns: patterns().collect(), exceptions: exceptions().collect() }
    }
}

impl GuardedNames {
    /// True if a path below a project has a guarded name, lies below one, or may be the parent
    /// directory of one.
    pub fn contains(&self, below: &Path) -> bool {
        let path = AbsPath::root().join(below);
        let is_setting = |path: &AbsPath| {
            let names: Vec<&OsStr> = path.as_path().iter().collect();
            SETTINGS.iter().any(|setting| {
                let wanted: Vec<&str> = setting.names().collect();
                (1..=wanted.len()).any(|count| ends_with(&names, &wanted[..count]))
            })
        };
        let is_open = || self.exceptions.iter().any(|exception| exception.glob.matches(&path));
        let is_shut = || self.patterns.iter().any(|pattern| pattern.glob.covers(&path));
        path.ancestors().any(|above| is_setting(&above)) || (is_shut() && !is_open())
    }
}

fn ends_with(names: &[&OsStr], wanted: &[&str]) -> bool {
    let last = names.len().checked_sub(wanted.len()).map(|from| &names[from..]);
    last.is_some_and(|last| {
        last.iter().zip(wanted).all(|(name, wanted)| name.eq_ignore_ascii_case(wanted))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::GuardedNames;

    #[test]
    fn settings_and_secrets_are_guarded_at_any_depth() {
        let names = GuardedNames::default();
        for path in [
            ".mcp.json",
            ".claude/settings.json",
            "a/.Claude/x",
            ".hg",
            ".hg/hgrc",
            ".env",
            "a/b.pem",
            ".ringfence/policy.toml",
        ] {
            assert!(names.contains(Path::new(path)), "{path}");
        }
        for path in [
            "README",
            "src/main.rs",
            "a/claude/x",
            "src/secrets.rs",
            "hgrc",
            ".env.example",
            "vendor/x.pem",
        ] {
            assert!(!names.contains(Path::new(path)), "{path}");
        }
    }
}
