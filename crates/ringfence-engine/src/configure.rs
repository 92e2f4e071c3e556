//! Edits of single settings in policy files.

use std::borrow::Cow;
use std::io;

use ringfence_policy::configure::{PolicyDocument, SettingKey};
use ringfence_policy::{
    AbsPath, Access, Facts, Flags, Grants, PolicyLayer, Source, Verdict, parse_bytes,
    resolve_to_inspect,
};

use crate::files::{PolicyFiles, project_policy_file, read_layers, user_policy_file};
use crate::own_policy::own_policy_file;
use crate::permanent_grant::{AllowError, PolicyFilePath, initial_text, insert_layer};

/// The policy file to edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyScope {
    /// The repository's, shared by all its users. It may only narrow the user's policy.
    Project,
    /// The user's own for this project alone.
    OwnProject,
    /// The user's own for all projects.
    Global,
}

/// The edit of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingEdit<'a> {
    /// Sets it to this text, as typed.
    Set(&'a str),
    /// Removes it from the file.
    Unset,
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// The file.
    pub file: AbsPath,
    /// True if the file changed.
    pub is_new: bool,
    /// Warnings for the user, such as that another file overrides the setting.
    pub warnings: Vec<String>,
}

/// The file of this scope.
pub fn policy_file(scope: PolicyScope, facts: &Facts) -> AbsPath {
    match scope {
        PolicyScope::Project => project_policy_file(facts),
        PolicyScope::OwnProject => own_policy_file(facts),
        PolicyScope::Global => user_policy_file(facts),
    }
}

fn source(scope: PolicyScope) -> Source {
    match scope {
        PolicyScope::Project => Source::Project,
        PolicyScope::OwnProject | PolicyScope::Global => Source::User,
    }
}

/// The value of one setting in the file of this scope, or of all settings in it.
pub fn configured_settings(
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
/// The result is parsed and resolved with all other files before it is written. The file is
/// replaced atomically and keeps its comments, order, mode and owner.
pub fn configure(
    scope: PolicyScope,
    key: &SettingKey,
    edit: SettingEdit<'_>,
    facts: &Facts,
) -> Result<SettingChange, AllowError> {
    let (file, source) = (policy_file(scope, facts), source(scope));
    let place = PolicyFilePath::find(&file)?;
    let before = grants(&read_layers(&PolicyFiles::default(), facts)?, facts)?;
    if before.is_confined() && before.verdict(place.draft(), Access::Write) == Verdict::Allowed {
        return Err(AllowError::Exposed { file: place.file().clone() });
    }
    let outcome = |bytes: Option<&[u8]>| -> Result<Option<(String, Vec<String>)>, AllowError> {
        let text =
            text(bytes, &file, &source)?.or_else(|| initial_text(scope, facts).map(Cow::Owned));
        let document = PolicyDocument { text: text.as_deref(), file: &file, source: &source };
        let edited = match edit {
            SettingEdit::Set(typed) => document.set(key, typed)?,
            SettingEdit::Unset => document.unset(key)?,
        };
        let Some(edited) = edited else { return Ok(None) };
        let mut layers = read_layers(&PolicyFiles::default(), facts)?;
        insert_layer(
            &mut layers,
            parse_bytes(edited.as_bytes(), &file, source.clone())?,
            &PolicyFiles::default(),
            facts,
        );
        Ok(Some((edited, grants(&layers, facts)?.warnings)))
    };
    let unchanged = SettingChange { file: file.clone(), is_new: false, warnings: Vec::new() };
    // An edit that changes nothing or fails does not even create a directory.
    let Some((_, warnings)) = outcome(place.peek()?.as_deref())? else { return Ok(unchanged) };
    if let (SettingEdit::Set(_), Some(why)) =
        (edit, newly_ignored(&before.warnings, &warnings, &file))
    {
        return Err(AllowError::Ignored { key: key.to_string(), why });
    }
    let place = place.lock()?;
    let Some((edited, warnings)) = outcome(place.read()?.as_deref())? else { return Ok(unchanged) };
    place.replace(&edited)?;
    let here = format!("{file}:");
    let warnings = warnings.into_iter().filter(|warning| warning.starts_with(&here)).collect();
    Ok(SettingChange { file, is_new: true, warnings })
}

/// Replaces a policy file with the text `before` by `after`. Fails if the text changed meanwhile.
pub fn replace_policy(file: &AbsPath, before: Option<&str>, after: &str) -> Result<(), AllowError> {
    let place = PolicyFilePath::find(file)?.lock()?;
    if place.read()?.as_deref() != before.map(str::as_bytes) {
        let source = io::Error::new(io::ErrorKind::ResourceBusy, "the file changed meanwhile");
        return Err(AllowError::File { what: "write", file: file.clone(), source });
    }
    place.replace(after)
}

/// The warning about an entry of `file` that the edit would add without effect.
fn newly_ignored(before: &[String], after: &[String], file: &AbsPath) -> Option<String> {
    let here = format!("{file}:");
    // Without the line number, which moves when a line is added.
    let text = |warning: &String| {
        warning
            .strip_prefix(&here)
            .and_then(|rest| rest.split_once(": "))
            .map(|(_, text)| text.to_owned())
    };
    let known: Vec<String> = before.iter().filter_map(text).collect();
    after.iter().filter_map(text).find(|text| text.contains(" is ignored") && !known.contains(text))
}

/// The policy of a later run, without the flags of this one.
fn grants(layers: &[PolicyLayer], facts: &Facts) -> Result<Grants, AllowError> {
    Ok(resolve_to_inspect(layers, &Flags::none(facts.workspace.clone()), facts)?)
}

/// The file as text. Invalid UTF-8 is an error with its position.
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
