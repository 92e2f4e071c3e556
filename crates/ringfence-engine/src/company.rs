//! Variables of company networks: their certificates, registries and mirrors pass if they hold no
//! secret.

use std::ffi::OsString;

use ringfence_enforce::SettingsCopy;
use ringfence_policy::{AbsPath, Access, Grants, ValueCheck, Verdict};

use crate::ResolvedPolicy;
use crate::files::plain_file;
use crate::package_settings::is_copied;

/// A variable that does not reach the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilteredVariable {
    /// Its name.
    pub name: String,
    /// The reason, where the value is it.
    pub why: Option<&'static str>,
}

/// Adds the variables whose values can be shown.
pub(crate) fn add_public(variables: &mut Vec<(OsString, OsString)>, resolved: &ResolvedPolicy) {
    let passing = resolved.surroundings.variables.iter().filter_map(|(name, value)| {
        let text = name.to_str().filter(|name| variables.iter().all(|(known, _)| known != name))?;
        let shown = judge(text, value.to_str()?, &resolved.grants)?.ok()?;
        Some((name.clone(), OsString::from(shown)))
    });
    let passing: Vec<_> = passing.collect();
    variables.extend(passing);
}

/// The value that the sandbox gets, or the reason why it gets none; `None` if the value does not
/// matter.
fn judge(name: &str, value: &str, grants: &Grants) -> Option<Result<String, &'static str>> {
    let check = grants.environment.value_check(name)?;
    let is_shown = || AbsPath::new(value).is_some_and(|path| is_certificates_of(&path, grants));
    Some(match check {
        _ if value.is_empty() => Ok(String::new()),
        ValueCheck::Certificates if !check.holds(value) || !is_shown() => {
            Err("it does not name a file that holds certificates only and can be shown")
        }
        _ => check.shown(value).ok_or("its value may hold a user, a password or a token"),
    })
}

/// True if the file holds certificates only, and is open or can be copied.
fn is_certificates_of(path: &AbsPath, grants: &Grants) -> bool {
    let is_open = grants.verdict(path, Access::Read) == Verdict::Allowed;
    // The sandbox may be told of a file that it can read.
    is_open || (is_copied(path, grants) && certificates(path).is_some())
}

/// The text of a file that holds PEM blocks of certificates and nothing else but comments outside
/// of them.
fn certificates(path: &AbsPath) -> Option<String> {
    let text = String::from_utf8(plain_file(path).ok()?).ok()?;
    is_certificates_only(&text).then(|| without_comments(&text))
}

/// A bundle without its comments: they may hold anything, such as a key that is commented out.
fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect()
}

fn is_certificates_only(text: &str) -> bool {
    let (mut count, mut is_inside) = (0, false);
    for line in text.lines().map(str::trim_end) {
        match line {
            "-----BEGIN CERTIFICATE-----" | "-----BEGIN TRUSTED CERTIFICATE-----" if !is_inside => {
                is_inside = true
            }
            "-----END CERTIFICATE-----" | "-----END TRUSTED CERTIFICATE-----" if is_inside => {
                (is_inside, count) = (false, count + 1)
            }
            _ if is_inside
                && line
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)) => {}
            _ if !is_inside && (line.is_empty() || line.starts_with('#')) => {}
            _ => return false,
        }
    }
    count > 0 && !is_inside
}

/// Copies of the files that the variables name, where nothing opens them.
pub(crate) fn copies(variables: &[(OsString, OsString)], grants: &Grants) -> Vec<SettingsCopy> {
    let mut copies: Vec<SettingsCopy> = Vec::new();
    for (name, value) in variables {
        let check = name.to_str().and_then(|name| grants.environment.value_check(name));
        let Some(path) = AbsPath::new(value).filter(|_| check == Some(ValueCheck::Certificates))
        else {
            continue;
        };
        if is_copied(&path, grants) && copies.iter().all(|copy| copy.path != path) {
            copies.extend(certificates(&path).map(|content| SettingsCopy { path, content }));
        }
    }
    copies
}

/// The decision about a variable by its value; `None` if it is not set or other rules decide.
pub fn value_decision(
    resolved: &ResolvedPolicy,
    name: &str,
) -> Option<Result<String, &'static str>> {
    let (_, value) = resolved.surroundings.variables.iter().find(|(known, _)| known == name)?;
    judge(name, value.to_str()?, &resolved.grants)
}

/// The caller's variables that do not reach the sandbox, by name.
pub fn filtered_variables(resolved: &ResolvedPolicy) -> Vec<FilteredVariable> {
    let grants = &resolved.grants;
    let filtered = resolved.surroundings.variables.iter().filter_map(|(name, value)| {
        let name = name.to_str()?;
        let why = match value.to_str().and_then(|value| judge(name, value, grants)) {
            Some(Ok(_)) => return None,
            Some(Err(why)) => Some(why),
            None => None,
        };
        (!grants.environment.decide(name).passes())
            .then(|| FilteredVariable { name: name.to_owned(), why })
    });
    let mut filtered: Vec<FilteredVariable> = filtered.collect();
    filtered.sort_by(|a, b| a.name.cmp(&b.name));
    filtered
}

#[cfg(test)]
mod tests {
    use super::is_certificates_only;

    #[test]
    fn only_certificates_and_comments_make_a_bundle() {
        let one = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n";
        assert!(is_certificates_only(one));
        assert!(is_certificates_only(&format!("# Company\n{one}\n{one}")));
        let key = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n";
        for text in [
            String::new(),
            format!("{one}{key}"),
            format!("{key}{one}"),
            format!("{one}password\n"),
            one.replace("END", "BEGIN"),
        ] {
            assert!(!is_certificates_only(&text), "{text}");
        }
        assert!(!is_certificates_only("-----BEGIN CERTIFICATE-----\nMIIB\n"));
        assert!(!is_certificates_only(
            "-----BEGIN CERTIFICATE-----\nnot base 64\n-----END CERTIFICATE-----\n"
        ));
    }
}
