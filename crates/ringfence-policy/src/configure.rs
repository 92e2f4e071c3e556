//! Changes one setting of a policy file and keeps everything else.

mod layout;
#[cfg(test)]
mod tests;

use serde_json::Value as Json;
use toml_edit::{DocumentMut, Item, Value};

use crate::error::{PolicyError, SourcePosition};
use crate::grants::Source;
use crate::keys;
use crate::layer::PolicyLayer;
use crate::parse::parse;
use crate::path::AbsPath;

/// An empty policy file.
const EMPTY: &str = "version = 1\n";

/// The text of a policy file with its layer.
#[derive(Debug, Clone, Copy)]
pub struct PolicyDocument<'a> {
    /// The content; `None` if the file does not exist.
    pub text: Option<&'a str>,
    /// The file.
    pub file: &'a AbsPath,
    /// The layer of the file.
    pub source: &'a Source,
}

/// The name of a setting: `mode`, `sandbox.enabled`, `environment.set.NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingKey(Vec<String>);

impl SettingKey {
    /// Parses a name. An unknown name is an error with the nearest known one.
    pub fn parse(typed: &str) -> Result<SettingKey, PolicyError> {
        let unknown = |nearest| PolicyError::UnknownKey {
            at: SourcePosition::default(),
            key: typed.to_owned(),
            nearest,
        };
        let parts: Vec<&str> = typed.split('.').collect();
        let top = keys::section_keys("").unwrap_or_default();
        let (section, rest) = match parts.as_slice() {
            [] => return Err(unknown(None)),
            [section, rest @ ..] => (*section, rest),
        };
        if !top.contains(&section) {
            return Err(unknown(keys::nearest(section, top).map(|near| {
                [near]
                    .iter()
                    .map(String::as_str)
                    .chain(rest.iter().copied())
                    .collect::<Vec<_>>()
                    .join(".")
            })));
        }
        let (known, is_section) =
            keys::section_keys(section).map_or((&[][..], false), |known| (known, true));
        match rest {
            // Tables and the version are not settings.
            [] if is_section || ["secrets", "version", "project"].contains(&section) => {
                Err(not_a_setting(typed, known))
            }
            [] => Ok(()),
            [name]
                if is_section
                    && known.contains(name)
                    && (section, *name) != ("environment", "set") =>
            {
                Ok(())
            }
            ["set", name] if section == "environment" && !name.is_empty() => Ok(()),
            [name, ..] => Err(unknown(
                keys::nearest_word(name, known).map(|near| format!("{section}.{near}")),
            )),
        }?;
        Ok(SettingKey(parts.into_iter().map(str::to_owned).collect()))
    }

    /// All settings, in the order of the format.
    fn all() -> impl Iterator<Item = SettingKey> {
        let of_section = |(section, names): &(&'static str, &'static [&'static str])| {
            let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
            names.iter().map(move |name| format!("{prefix}{name}")).collect::<Vec<_>>()
        };
        keys::KEYS.iter().flat_map(of_section).filter_map(|name| SettingKey::parse(&name).ok())
    }
}

impl std::fmt::Display for SettingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

fn not_a_setting(typed: &str, known: &[&str]) -> PolicyError {
    let what = match typed {
        "version" => "`version` cannot be changed".to_owned(),
        "project" => {
            "`project` is the path of the project that the file applies to, and is set when the file is created"
                .to_owned()
        }
        "secrets" => "`secrets` is a list of tables: edit the file".to_owned(),
        _ => format!("`{typed}` is a section, with {}", known.join(", ")),
    };
    PolicyError::NotASetting { what }
}

impl<'a> PolicyDocument<'a> {
    fn words(&self) -> &'a str {
        self.text.unwrap_or(EMPTY)
    }

    fn layer(&self, text: &str) -> Result<PolicyLayer, PolicyError> {
        parse(text, self.file, self.source.clone())
    }

    fn unfit(&self, key: &SettingKey) -> PolicyError {
        PolicyError::NotAmendable {
            at: SourcePosition { file: Some(self.file.clone()), line: None, column: None },
            entry: key.to_string(),
        }
    }

    /// The value of a setting as the user would type it; `None` if the file does not set it.
    pub fn get(&self, key: &SettingKey) -> Result<Option<String>, PolicyError> {
        self.layer(self.words())?;
        let document: DocumentMut =
            layout::normalize_line_ends(self.words()).0.parse().map_err(|_| self.unfit(key))?;
        Ok(layout::find(document.as_item(), &key.0).map(display_value))
    }

    /// All settings of the file, with their values as the user would type them.
    pub fn settings(&self) -> Result<Vec<(String, String)>, PolicyError> {
        let layer = self.layer(self.words())?;
        let mut settings = Vec::new();
        for key in SettingKey::all() {
            settings.extend(self.get(&key)?.map(|value| (key.to_string(), value)));
        }
        for name in layer.policy.environment.set.keys() {
            let key = SettingKey(vec!["environment".into(), "set".into(), name.clone()]);
            settings.extend(self.get(&key)?.map(|value| (key.to_string(), value)));
        }
        Ok(settings)
    }

    /// The text with a setting added or changed; `None` if it already has that value. `typed` is
    /// parsed as TOML, or else taken as a text.
    ///
    /// The result means exactly the old text plus the setting, or the call fails.
    pub fn set(&self, key: &SettingKey, typed: &str) -> Result<Option<String>, PolicyError> {
        let before = self.layer(self.words())?;
        let text = Value::from(typed);
        let read = typed.trim().parse::<Value>().ok();
        let first = self.try_set(key, &before, read.clone().unwrap_or_else(|| text.clone()));
        let set = match (first, read) {
            // `1` may be meant as a text.
            (Err(error), Some(_)) => self.try_set(key, &before, text).map_err(|_| error),
            (first, _) => first,
        };
        set.map_err(|error| of_value(error, key, typed))
    }

    fn try_set(
        &self,
        key: &SettingKey,
        before: &PolicyLayer,
        value: Value,
    ) -> Result<Option<String>, PolicyError> {
        let wanted = as_json(&value).ok_or_else(|| self.unfit(key))?;
        let edited =
            layout::edit(self.words(), |document| layout::set_value(document, &key.0, value))
                .ok_or_else(|| self.unfit(key))?;
        let after = self.layer(&edited)?;
        if after.policy == before.policy && self.get(key)?.is_some() {
            return Ok(None);
        }
        let mut expected = meaning(before);
        let parent = key.0[..key.0.len() - 1].iter().try_fold(&mut expected, |table, name| {
            let table = table.as_object_mut()?;
            Some(table.entry(name.clone()).or_insert_with(|| Json::Object(Default::default())))
        });
        if let (Some(Json::Object(table)), Some(name)) = (parent, key.0.last()) {
            table.insert(name.clone(), wanted);
        }
        self.check(key, &after, expected).map(|()| Some(edited))
    }

    /// The text without a setting; `None` if it was not set.
    pub fn unset(&self, key: &SettingKey) -> Result<Option<String>, PolicyError> {
        let before = self.layer(self.words())?;
        if self.get(key)?.is_none() {
            return Ok(None);
        }
        let edited = layout::edit(self.words(), |document| layout::remove_value(document, &key.0))
            .ok_or_else(|| self.unfit(key))?;
        let after = self.layer(&edited)?;
        let mut expected = meaning(&before);
        let parent = key.0[..key.0.len() - 1]
            .iter()
            .try_fold(&mut expected, |table, name| table.get_mut(name));
        if let (Some(Json::Object(table)), Some(name)) = (parent, key.0.last()) {
            table.shift_remove(name);
        }
        self.check(key, &after, expected).map(|()| Some(edited))
    }

    /// Checks the meaning of the result. Empty tables are equal to missing ones.
    fn check(
        &self,
        key: &SettingKey,
        after: &PolicyLayer,
        expected: Json,
    ) -> Result<(), PolicyError> {
        let is_right = serde_json::from_value(expected)
            .is_ok_and(|expected: crate::Policy| expected == after.policy);
        if is_right { Ok(()) } else { Err(self.unfit(key)) }
    }
}

fn meaning(layer: &PolicyLayer) -> Json {
    serde_json::to_value(&layer.policy).unwrap_or_default()
}

/// An error about the typed value, not about a line of a file that is never written.
fn of_value(error: PolicyError, key: &SettingKey, typed: &str) -> PolicyError {
    let at = SourcePosition::default();
    match error {
        PolicyError::WrongType { message, .. } => PolicyError::WrongType {
            at,
            message: format!("`{typed}` is not a value for `{key}`: {message}"),
        },
        PolicyError::BadValue { expected, .. } => {
            PolicyError::BadValue { at, key: key.to_string(), value: typed.to_owned(), expected }
        }
        PolicyError::BadGlob { entry, source, .. } => PolicyError::BadGlob { at, entry, source },
        PolicyError::BadHost { entry, problem, .. } => PolicyError::BadHost { at, entry, problem },
        PolicyError::UnknownKey { key, nearest, .. } => {
            PolicyError::UnknownKey { at, key, nearest }
        }
        PolicyError::LockedOutsideManaged { .. } => PolicyError::LockedOutsideManaged { at },
        other => other,
    }
}

/// A value as the user would type it.
fn display_value(item: &Item) -> String {
    match item {
        Item::Value(Value::String(text)) => text.value().clone(),
        Item::Value(value) => {
            let mut plain = value.clone();
            plain.decor_mut().clear();
            plain.to_string()
        }
        other => other.to_string().trim().to_owned(),
    }
}

fn as_json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::String(text) => Json::String(text.value().clone()),
        Value::Integer(number) => Json::from(*number.value()),
        Value::Boolean(is_so) => Json::Bool(*is_so.value()),
        Value::Array(items) => Json::Array(items.iter().map(as_json).collect::<Option<_>>()?),
        Value::InlineTable(table) => Json::Object(
            table
                .iter()
                .map(|(name, value)| Some((name.to_owned(), as_json(value)?)))
                .collect::<Option<_>>()?,
        ),
        Value::Float(_) | Value::Datetime(_) => return None,
    })
}
