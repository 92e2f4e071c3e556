//! Expands an entry of a list into a path or a glob.

use crate::error::{PolicyError, SourcePosition};
use crate::facts::Facts;
use crate::glob::{Glob, GlobCase, GlobError};
use crate::path::AbsPath;

/// An entry with its context.
pub(crate) struct ExpandedEntry<'a> {
    /// The entry as written.
    pub(crate) text: &'a str,
    /// The key of its list.
    pub(crate) key: &'static str,
    /// The base directory of relative entries.
    pub(crate) anchor: &'a AbsPath,
    /// Position of the entry.
    pub(crate) at: SourcePosition,
}

/// Directories that every sandbox creates for itself and needs.
const SANDBOX_DIRECTORIES: &[&str] = &["/", "/run"];

/// True if every sandbox creates this directory for itself, so that no rule can open it as a whole.
pub fn is_created_by_sandbox(path: &AbsPath) -> bool {
    SANDBOX_DIRECTORIES.iter().any(|own| path.as_path() == *own)
}

/// Target of an entry of `deny`, `protect` or `except`.
#[derive(Debug, PartialEq)]
pub(crate) enum EntryTarget {
    /// One path and everything below it.
    Path(AbsPath),
    /// Names.
    Glob(Glob),
}

impl ExpandedEntry<'_> {
    /// Resolves an entry of `read` or `write` to a path. `dir/**` is the directory.
    pub(crate) fn path(&self, facts: &Facts) -> Result<AbsPath, PolicyError> {
        let text = without_trailing_stars(self.text);
        if is_glob(text) {
            return Err(PolicyError::GlobInGrant {
                at: self.at.clone(),
                entry: self.text.to_owned(),
                key: self.key,
            });
        }
        let path = self.expand_path(text, facts)?;
        if is_created_by_sandbox(&path) {
            return Err(PolicyError::OwnPlace { at: self.at.clone(), entry: self.text.to_owned() });
        }
        Ok(path)
    }

    /// Resolves an entry of `deny`, `protect` or `except`.
    ///
    /// An entry without `/`, `~` or `$` is a name at any depth: `.env` means every `.env`.
    pub(crate) fn target(&self, facts: &Facts) -> Result<EntryTarget, PolicyError> {
        let text = without_trailing_stars(self.text);
        if !self.text.contains('/') && !text.starts_with(['~', '$']) && text != "." && text != ".."
        {
            return self.glob(text, None).map(EntryTarget::Glob);
        }
        if !is_glob(text) {
            return self.expand_path(text, facts).map(EntryTarget::Path);
        }
        if let Some(below) = text.strip_prefix("~/") {
            return self
                .glob(
                    &format!("./{}", self.variables(below, facts, Glob::escape)?),
                    Some(&facts.home),
                )
                .map(EntryTarget::Glob);
        }
        let expanded = self.variables(text, facts, Glob::escape)?;
        self.glob(&expanded, Some(self.anchor)).map(EntryTarget::Glob)
    }

    fn glob(&self, text: &str, anchor: Option<&AbsPath>) -> Result<Glob, PolicyError> {
        Glob::new(text, anchor, GlobCase::Sensitive).map_err(|source| self.bad_glob(source))
    }

    fn bad_glob(&self, source: GlobError) -> PolicyError {
        PolicyError::BadGlob { at: self.at.clone(), entry: self.text.to_owned(), source }
    }

    fn expand_path(&self, text: &str, facts: &Facts) -> Result<AbsPath, PolicyError> {
        let bad = || PolicyError::BadPath { at: self.at.clone(), entry: self.text.to_owned() };
        if text.is_empty() || text.contains('\0') {
            return Err(bad());
        }
        if text == "~" {
            return Ok(facts.home.clone());
        }
        if let Some(below) = text.strip_prefix("~/") {
            // After `~/` an absolute value must not replace the home directory.
            let below = self.variables(below, facts, str::to_owned)?;
            return Ok(facts.home.join(below.trim_start_matches('/')));
        }
        if text.starts_with('~') {
            return Err(bad());
        }
        Ok(self.anchor.join(self.variables(text, facts, str::to_owned)?))
    }

    /// Replaces `$NAME` and `${NAME}`. An unset variable is an error: an empty value would turn
    /// `$DATA/x` into `/x`.
    fn variables(
        &self,
        text: &str,
        facts: &Facts,
        quote: fn(&str) -> String,
    ) -> Result<String, PolicyError> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            out.push_str(&rest[..dollar]);
            let (name, after) = variable_name(&rest[dollar + 1..]);
            if name.is_empty() {
                out.push('$');
            } else {
                let value = facts
                    .variables
                    .get(name)
                    .filter(|value| !value.is_empty() && !value.contains('\0'));
                let unset = || PolicyError::UnsetVariable {
                    at: self.at.clone(),
                    entry: self.text.to_owned(),
                    name: name.to_owned(),
                };
                out.push_str(&quote(value.ok_or_else(unset)?));
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// The name after a `$`, and the rest of the text.
fn variable_name(text: &str) -> (&str, &str) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(braced) = text.strip_prefix('{') {
        return match braced.split_once('}') {
            Some((name, after)) if !name.is_empty() && name.chars().all(is_name) => (name, after),
            _ => ("", text),
        };
    }
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// True for a glob. The brace of `${NAME}` does not count.
fn is_glob(text: &str) -> bool {
    Glob::is_glob(&text.replace("${", "$"))
}

/// `dir/**` becomes `dir`: a rule on a directory applies to everything below it.
fn without_trailing_stars(text: &str) -> &str {
    match text.strip_suffix("/**") {
        Some("") => "/",
        Some("**") | None => text,
        Some(directory) => directory,
    }
}

/// A glob that matches exactly this path.
pub(crate) fn exact_glob(path: &AbsPath) -> Option<Glob> {
    let name = path.name()?.to_str()?;
    Glob::new(&format!("./{}", Glob::escape(name)), path.parent().as_ref(), GlobCase::Sensitive)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::tests::facts;
    use crate::testing::path;

    fn with_entry<T>(text: &str, act: impl Fn(&ExpandedEntry<'_>, &Facts) -> T) -> T {
        let mut facts = facts();
        facts.variables.insert("DATA".into(), "/d*ta".into());
        let anchor = path("/p");
        act(
            &ExpandedEntry { text, key: "read", anchor: &anchor, at: SourcePosition::default() },
            &facts,
        )
    }

    #[track_caller]
    fn check(text: &str, expect: Result<&str, &str>) {
        let found = with_entry(text, |entry, facts| entry.path(facts)).map(|path| path.to_string());
        assert_eq!(found.as_deref().map_err(|error| error.code()), expect, "{text}");
    }

    /// Checks for a path, or for a glob and one path that it matches.
    #[track_caller]
    fn check_target(text: &str, expect: Result<&str, &str>) {
        match (with_entry(text, |entry, facts| entry.target(facts)).unwrap(), expect) {
            (EntryTarget::Path(found), Ok(want)) => assert_eq!(found, path(want), "{text}"),
            (EntryTarget::Glob(glob), Err(want)) => {
                assert!(glob.matches(&path(want)), "{text} on {want}")
            }
            (found, _) => panic!("{text} is {found:?}"),
        }
    }

    #[test]
    fn grants_are_paths() {
        check("/a/b/", Ok("/a/b"));
        check("a", Ok("/p/a"));
        check("../a", Ok("/a"));
        check(".", Ok("/p"));
        check("~", Ok("/home/me"));
        check("~/x", Ok("/home/me/x"));
        check("$DATA/x", Ok("/d*ta/x"));
        check("${DATA}y", Ok("/d*tay"));
        check("~/$DATA", Ok("/home/me/d*ta"));
        check("a$", Ok("/p/a$"));
        check("dir/**", Ok("/p/dir"));
        for own in ["/", "/**", "/run", "/run/"] {
            check(own, Err("policy-own-place"));
        }
        check("/run/x", Ok("/run/x"));
        check("dir/*", Err("policy-glob-in-grant"));
        check("**/x", Err("policy-glob-in-grant"));
        check("$NOPE/x", Err("policy-unset-variable"));
        check("~bob/x", Err("policy-bad-path"));
        check("", Err("policy-bad-path"));
        check("a\0b", Err("policy-bad-path"));
    }

    #[test]
    fn denies_are_paths_or_names() {
        check_target("/a", Ok("/a"));
        check_target("./a", Ok("/p/a"));
        check_target("a/b", Ok("/p/a/b"));
        check_target("~/x", Ok("/home/me/x"));
        check_target("secrets/**", Ok("/p/secrets"));
        check_target(".", Ok("/p"));
        check_target(".env", Err("/deep/er/.env"));
        check_target("*.pem", Err("/x/y.pem"));
        check_target("a/*.pem", Err("/p/a/y.pem"));
        check_target("~/*.pem", Err("/home/me/y.pem"));
        check_target("**/x/**", Err("/q/x"));
        check_target("$DATA/*.x", Err("/d*ta/y.x"));
    }
}
