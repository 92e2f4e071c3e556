//! Settings of policy files, changed for whoever they belong to.

use std::borrow::Cow;
use std::io;

use ringfence_policy::configure::{PolicyDocument, SettingKey};
use ringfence_policy::{
    AbsPath, Access, Facts, Flags, Grants, PolicyLayer, Source, Verdict, parse_bytes,
    resolve_to_inspect,
};

use crate::files::{PolicyFiles, layers, of_the_person, of_the_project};
use crate::own_policy::own_policy_file;
use crate::permanent_grant::{AllowError, PolicyFilePath, fresh, put};

/// Which policy file is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyScope {
    /// The repository's, for everybody who works on it: it may narrow what its user has chosen.
    Project,
    /// The user's own for this project alone.
    OwnProject,
    /// The user's own for all projects.
    Global,
}

/// What is to be done to a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingEdit<'a> {
    /// It is to be this, as somebody has typed it.
    Set(&'a str),
    /// The file is to say nothing of it.
    Unset,
}

/// What became of a policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// The file.
    pub file: AbsPath,
    /// Whether it says something else than before.
    pub is_new: bool,
    /// What its user should know, such as that something else goes before it.
    pub warnings: Vec<String>,
}

/// The file of this scope.
pub fn policy_file(scope: PolicyScope, facts: &Facts) -> AbsPath {
    match scope {
        PolicyScope::Project => of_the_project(facts),
        PolicyScope::OwnProject => own_policy_file(facts),
        PolicyScope::Global => of_the_person(facts),
    }
}

fn source(scope: PolicyScope) -> Source {
    match scope {
        PolicyScope::Project => Source::Project,
        PolicyScope::OwnProject | PolicyScope::Global => Source::User,
    }
}

/// What the file of this scope says of a setting, or of all that it says something of.
pub fn configured(
    scope: PolicyScope,
    key: Option<&SettingKey>,
    facts: &Facts,
) -> Result<Vec<(String, String)>, AllowError> {
    let (file, source) = (policy_file(scope, facts), source(scope));
    let bytes = PolicyFilePath::find(&file)?.peek()?;
    let text = text(bytes.as_deref(), &file, &source)?;
    let document = PolicyDocument { text: text.as_deref(), file: &file, source: &source };
    Ok(match key {
        Some(key) => document.get(key)?.map(|value| (key.to_string(), value)).into_iter().collect(),
        None => document.settings()?,
    })
}

/// Changes one setting.
///
/// What comes out is read and resolved with all other files before it is written; the file is
/// replaced as a whole or not at all, and keeps its comments, its order, its mode and its owner.
pub fn configure(
    scope: PolicyScope,
    key: &SettingKey,
    edit: SettingEdit<'_>,
    facts: &Facts,
) -> Result<SettingChange, AllowError> {
    let (file, source) = (policy_file(scope, facts), source(scope));
    let place = PolicyFilePath::find(&file)?;
    let before = grants(&layers(&PolicyFiles::default(), facts)?, facts)?;
    if before.is_confined() && before.verdict(place.draft(), Access::Write) == Verdict::Allowed {
        return Err(AllowError::Exposed { file: place.file().clone() });
    }
    let outcome = |bytes: Option<&[u8]>| -> Result<Option<(String, Vec<String>)>, AllowError> {
        let text = text(bytes, &file, &source)?.or_else(|| fresh(scope, facts).map(Cow::Owned));
        let document = PolicyDocument { text: text.as_deref(), file: &file, source: &source };
        let edited = match edit {
            SettingEdit::Set(typed) => document.set(key, typed)?,
            SettingEdit::Unset => document.unset(key)?,
        };
        let Some(edited) = edited else { return Ok(None) };
        let mut layers = layers(&PolicyFiles::default(), facts)?;
        put(
            &mut layers,
            parse_bytes(edited.as_bytes(), &file, source.clone())?,
            &PolicyFiles::default(),
            facts,
        );
        Ok(Some((edited, grants(&layers, facts)?.warnings)))
    };
    let unchanged = SettingChange { file: file.clone(), is_new: false, warnings: Vec::new() };
    // Not even a directory is made for what changes nothing, or cannot be.
    let Some((_, warnings)) = outcome(place.peek()?.as_deref())? else { return Ok(unchanged) };
    if let (SettingEdit::Set(_), Some(why)) =
        (edit, newly_ignored(&before.warnings, &warnings, &file))
    {
        return Err(AllowError::Ignored { key: key.to_string(), why });
    }
    let place = place.take()?;
    let Some((edited, warnings)) = outcome(place.read()?.as_deref())? else { return Ok(unchanged) };
    place.replace(&edited)?;
    let here = format!("{file}:");
    let warnings = warnings.into_iter().filter(|warning| warning.starts_with(&here)).collect();
    Ok(SettingChange { file, is_new: true, warnings })
}

/// Puts a policy file with the text `after` in the place of one with the text `before`; a file that
/// says something else by now is left.
pub fn replace_policy(file: &AbsPath, before: Option<&str>, after: &str) -> Result<(), AllowError> {
    let place = PolicyFilePath::find(file)?.take()?;
    if place.read()?.as_deref() != before.map(str::as_bytes) {
        let source = io::Error::new(io::ErrorKind::ResourceBusy, "it was changed meanwhile");
        return Err(AllowError::File { what: "write", file: file.clone(), source });
    }
    place.replace(after)
}

/// The warning about an entry of `file` that the edit would add for nothing.
fn newly_ignored(before: &[String], after: &[String], file: &AbsPath) -> Option<String> {
    let here = format!("{file}:");
    // Without its place, which moves when a line is added.
    let text = |warning: &String| {
        warning
            .strip_prefix(&here)
            .and_then(|rest| rest.split_once(": "))
            .map(|(_, text)| text.to_owned())
    };
    let known: Vec<String> = before.iter().filter_map(text).collect();
    after.iter().filter_map(text).find(|text| text.contains(" is ignored") && !known.contains(text))
}

/// What holds in a later run, without the flags of this one.
fn grants(layers: &[PolicyLayer], facts: &Facts) -> Result<Grants, AllowError> {
    Ok(resolve_to_inspect(layers, &Flags::none(facts.workspace.clone()), facts)?)
}

/// What is not text is told by its place.
fn text<'a>(
    bytes: Option<&'a [u8]>,
    file: &AbsPath,
    source: &Source,
) -> Result<Option<Cow<'a, str>>, AllowError> {
    Ok(bytes
        .map(|bytes| {
            parse_bytes(bytes, file, source.clone()).map(|_| String::from_utf8_lossy(bytes))
        })
        .transpose()?)
}
