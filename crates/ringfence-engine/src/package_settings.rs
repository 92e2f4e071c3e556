//! Copies of package managers' settings without their secrets.
//!
//! `~/.npmrc`, `pip.conf` and similar files hold registries and mirrors, but also tokens. The files
//! stay denied. The sandbox sees a copy with known keys only, whose values cannot hold a secret. A
//! file without such a key has no copy.

mod ini;
mod yarn;

use ringfence_plan::SettingsCopy;
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Facts, Grants, Source, Verdict, are_public_urls, is_host,
    is_public_url, redact_url, redact_urls,
};

use crate::files::read_policy_file;

/// Makes the copy of a file's text; `None` if no setting can be shown.
type Filter = fn(&str) -> Option<String>;

/// The files below the home directory.
const IN_HOME: &[(&str, Filter)] = &[
    (".npmrc", ini::npm),
    (".yarnrc", yarn::classic),
    (".yarnrc.yml", yarn::berry),
    (".config/pip/pip.conf", ini::pip),
    (".pip/pip.conf", ini::pip),
];
/// The system-wide files.
const IN_ETC: &[(&str, Filter)] = &[("/etc/pip.conf", ini::pip), ("/etc/npmrc", ini::npm)];

/// The copies for a sandbox with these grants.
pub(crate) fn settings_copies(facts: &Facts, grants: &Grants) -> Vec<SettingsCopy> {
    // A sandbox with another home directory does not belong to the user.
    let is_own = facts.home == grants.home;
    let in_home =
        IN_HOME.iter().filter(|_| is_own).map(|(name, filter)| (facts.home.join(name), filter));
    let in_etc = IN_ETC.iter().filter_map(|(name, filter)| Some((AbsPath::new(name)?, filter)));
    let copy = |(path, filter): (AbsPath, &Filter)| {
        let bytes = is_copied(&path, grants).then(|| read_policy_file(&path).ok()).flatten()?;
        let content = filter(&String::from_utf8(bytes).ok()?)?;
        Some(SettingsCopy { path, content })
    };
    in_home.chain(in_etc).filter_map(copy).collect()
}

/// True if no rule allows the file, and no rule of the user or the administrator denies it.
pub(crate) fn is_copied(path: &AbsPath, grants: &Grants) -> bool {
    let decision = grants.decide(path, Access::Read);
    match decision.verdict {
        Verdict::Absent => true,
        Verdict::Denied => match &decision.rule {
            Some(DecidingRule::Rule(rule)) => rule.origin.source == Source::BuiltIn && !rule.locked,
            _ => false,
        },
        Verdict::Allowed | Verdict::ReadOnly => false,
    }
}

/// The values that a key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// A URL without user, password or token.
    Url,
    /// Such URLs, separated by white space.
    Urls,
    /// Host names, separated by white space or commas.
    Hosts,
    /// `true`, `false`, `1`, `0`.
    Switch,
    /// A short number.
    Number,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl Value {
    fn accepts(self, text: &str) -> bool {
        match self {
            Value::Url => is_public_url(text),
            Value::Urls => are_public_urls(text, &[]),
            Value::Hosts => {
                let mut hosts = text
                    .split(|c: char| c.is_whitespace() || c == ',')
                    .filter(|host| !host.is_empty())
                    .peekable();
                hosts.peek().is_some() && hosts.all(is_host)
            }
            Value::Switch => ["true", "false", "1", "0", "yes", "no", "on", "off"].contains(&text),
            Value::Number => {
                !text.is_empty()
                    && text.len() <= 7
                    && text.bytes().all(|byte| byte.is_ascii_digit())
            }
            Value::OneOf(words) => words.contains(&text),
        }
    }
}

/// A known key and its values.
type KnownKey = (&'static str, Value);

/// The value of a known key that can be shown. A registry's URL loses its secret parts: without the
/// URL the tool would use the public registry. A proxy with a password is left out.
fn known(keys: &[KnownKey], name: &str, value: &str) -> Option<String> {
    let (_, values) = keys.iter().find(|(key, _)| *key == name)?;
    let is_proxy = name.to_ascii_lowercase().contains("proxy");
    match values {
        Value::Url if !is_proxy => redact_url(value),
        Value::Urls if !is_proxy => redact_urls(value, &[], |_| false),
        _ => values.accepts(value).then(|| value.to_owned()),
    }
}

/// The registry URL of a scope (`@team:registry`).
fn scoped(name: &str, value: &str) -> Option<String> {
    name.strip_suffix(":registry").filter(|scope| is_scope(scope)).and_then(|_| redact_url(value))
}

/// A value without quotation marks.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let within = |mark: char| text.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

/// True for `@scope` in npm's syntax.
fn is_scope(name: &str) -> bool {
    let letters = name.strip_prefix('@').unwrap_or_default();
    !letters.is_empty()
        && letters.len() <= 64
        && letters.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
