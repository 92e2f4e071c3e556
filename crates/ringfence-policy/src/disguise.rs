//! Denied names that look absent or empty to programs that read them.
//!
//! A disguise changes the result of a denied read, never the verdict: the path stays denied, and
//! every attempt to open it is recorded.

use serde::{Deserialize, Serialize};

use crate::decide::{Access, DecidingRule, Decision, Verdict};
use crate::expand::EntryTarget;
use crate::glob::{Glob, components};
use crate::grants::{Grants, Source};
use crate::layer::PolicyLayer;
use crate::path::AbsPath;

/// Result of reading a denied path.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Disguise {
    /// The read fails with EACCES.
    #[default]
    Deny,
    /// The path looks absent: ENOENT.
    Hide,
    /// The path reads as an empty file or directory.
    Empty,
}

/// Built-in patterns that `env-files` applies to.
const ENV_FILES: &[&str] = &["**/.env", "**/.env.*", "**/.envrc"];

/// Entries of `hide`, and the choice for `.env` files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Disguises {
    paths: Vec<AbsPath>,
    globs: Vec<Glob>,
    env_files: Disguise,
}

impl Disguises {
    /// The choice of the last layer that makes one. No value opens a path, so every layer may
    /// choose.
    pub(crate) fn from_layers(layers: &[PolicyLayer]) -> Self {
        let chosen = layers.iter().rev().find_map(|layer| layer.policy.filesystem.env_files);
        Self { env_files: chosen.unwrap_or_default(), ..Self::default() }
    }

    pub(crate) fn hide(&mut self, target: &EntryTarget) {
        match target {
            EntryTarget::Path(path) => self.paths.push(path.clone()),
            EntryTarget::Glob(glob) => self.globs.push(glob.clone()),
        }
    }

    /// True if any denied path may have a disguise.
    pub fn has_any(&self) -> bool {
        self.env_files != Disguise::Deny || !self.paths.is_empty() || !self.globs.is_empty()
    }

    fn hides(&self, path: &AbsPath) -> bool {
        let parts = components(path);
        let catches =
            |glob: &Glob| (1..=parts.len()).any(|depth| glob.matches_components(&parts[..depth]));
        self.paths.iter().any(|hidden| path.is_within(hidden)) || self.globs.iter().any(catches)
    }
}

impl Grants {
    /// The result for a program that reads `path`, if it is denied; [`Disguise::Deny`] for every
    /// path without a disguise.
    pub fn disguise(&self, path: &AbsPath) -> Disguise {
        if !self.disguises.has_any() {
            return Disguise::Deny;
        }
        let decision = self.decide(path, Access::Read);
        if decision.verdict != Verdict::Denied {
            return Disguise::Deny;
        }
        if self.disguises.hides(path) {
            return Disguise::Hide;
        }
        match &decision.rule {
            Some(DecidingRule::Pattern(pattern))
                if is_env_file(&pattern.origin.source, &pattern.origin.text) =>
            {
                self.disguises.env_files
            }
            _ => Disguise::Deny,
        }
    }
}

impl Decision {
    /// True for a built-in pattern that `env-files` applies to.
    pub fn is_env_file_pattern(&self) -> bool {
        let pattern = match &self.rule {
            Some(DecidingRule::Pattern(pattern)) => pattern,
            _ => return false,
        };
        self.verdict == Verdict::Denied && is_env_file(&pattern.origin.source, &pattern.origin.text)
    }
}

fn is_env_file(source: &Source, text: &str) -> bool {
    *source == Source::BuiltIn && ENV_FILES.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Flags;
    use crate::resolve::tests::facts;
    use crate::testing::path;
    use crate::{layer::PolicyLayer, parse, resolve};

    fn grants(policy: &str, hide: &[&str]) -> Grants {
        let layers: Vec<PolicyLayer> = vec![
            parse(
                &format!("version = 1\n{policy}"),
                &path("/home/me/p/.ringfence/policy.toml"),
                Source::Project,
            )
            .unwrap(),
        ];
        let mut flags = Flags::none(path("/home/me/p"));
        flags.hide = hide.iter().map(|text| (*text).to_owned()).collect();
        resolve(&layers, &flags, &facts()).unwrap()
    }

    #[track_caller]
    fn check(policy: &str, hide: &[&str], file: &str, expect: (Verdict, Disguise)) {
        let (grants, file) = (grants(policy, hide), path(file));
        assert_eq!(
            (grants.verdict(&file, Access::Read), grants.disguise(&file)),
            expect,
            "{policy} {hide:?} {file}"
        );
    }

    #[test]
    fn hidden_names_are_denied_and_look_absent() {
        let hidden = (Verdict::Denied, Disguise::Hide);
        check("[filesystem]\nhide = [\"notes\"]", &[], "/home/me/p/notes", hidden);
        check("[filesystem]\nhide = [\"notes\"]", &[], "/home/me/p/notes/deep/file", hidden);
        check("[filesystem]\nhide = [\"**/*.token\"]", &[], "/home/me/p/a/b/x.token", hidden);
        check("", &["**/*.pem"], "/home/me/p/tls/x.pem", hidden);
        check("", &["~/.ssh"], "/home/me/.ssh/id_rsa", hidden);
        check("", &["**/*.pem"], "/home/me/p/x.key", (Verdict::Denied, Disguise::Deny));
        check(
            "[filesystem]\nhide = [\"**/*.token\"]\nexcept = [\"**/open.token\"]",
            &[],
            "/home/me/p/open.token",
            (Verdict::Allowed, Disguise::Deny),
        );
    }

    #[test]
    fn env_files_choice_holds_for_env_files_alone() {
        let policy = "[filesystem]\nenv-files = \"empty\"";
        for name in [".env", ".env.local", "packages/web/.env.production", ".envrc"] {
            check(policy, &[], &format!("/home/me/p/{name}"), (Verdict::Denied, Disguise::Empty));
            check("", &[], &format!("/home/me/p/{name}"), (Verdict::Denied, Disguise::Deny));
        }
        check(policy, &[], "/home/me/p/server.key", (Verdict::Denied, Disguise::Deny));
        check(policy, &[], "/home/me/p/.env.example", (Verdict::Allowed, Disguise::Deny));
        check(policy, &["**/.env"], "/home/me/p/.env", (Verdict::Denied, Disguise::Hide));
    }

    #[test]
    fn own_deny_of_env_file_is_not_disguised_by_env_files() {
        let policy = "[filesystem]\nenv-files = \"empty\"\ndeny = [\"conf/.env\"]";
        check(policy, &[], "/home/me/p/conf/.env", (Verdict::Denied, Disguise::Deny));
    }
}
