//! The choice of a sandbox provider: `NAME` or `NAME:key=value,…`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A sandbox provider, with its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderSpec {
    /// Its name in the registry.
    pub name: String,
    /// Its options, as written; the provider checks them.
    pub options: ProviderOptions,
}

/// Options of a sandbox provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderOptions(BTreeMap<String, String>);

/// The text is no choice of a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", ProviderSpec::FORMAT)]
pub struct ProviderSpecError;

impl ProviderSpec {
    /// The provider of this machine: the default.
    pub const LOCAL: &'static str = "local";
    /// The provider that confines nothing.
    pub const PROCESS: &'static str = "process";
    /// The expected text.
    pub(crate) const FORMAT: &'static str = "`NAME` or `NAME:key=value,…`";

    /// A provider without options.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), options: ProviderOptions::default() }
    }
}

impl Default for ProviderSpec {
    fn default() -> Self {
        Self::named(Self::LOCAL)
    }
}

impl ProviderOptions {
    /// The value of an option.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Sets an option.
    pub fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), value.to_owned());
    }

    /// The first option that is not in `known`.
    pub fn find_unknown(&self, known: &[&str]) -> Option<&str> {
        self.0.keys().map(String::as_str).find(|key| !known.contains(key))
    }
}

impl FromIterator<(String, String)> for ProviderOptions {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(options: T) -> Self {
        Self(options.into_iter().collect())
    }
}

impl FromStr for ProviderSpec {
    type Err = ProviderSpecError;

    fn from_str(text: &str) -> Result<Self, ProviderSpecError> {
        let (name, options) = match text.split_once(':') {
            Some((name, options)) => (name, Some(options)),
            None => (text, None),
        };
        let mut known = BTreeMap::new();
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            let (key, value) = option.split_once('=').ok_or(ProviderSpecError)?;
            if !is_word(key) || known.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(ProviderSpecError);
            }
        }
        let spec = Self { name: name.to_owned(), options: ProviderOptions(known) };
        if is_word(name) { Ok(spec) } else { Err(ProviderSpecError) }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

impl fmt::Display for ProviderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (i, (key, value)) in self.options.0.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ProviderSpec;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let spec = text.parse::<ProviderSpec>().ok();
        assert_eq!(spec.map(|spec| spec.to_string()).as_deref(), expect, "{text}");
    }

    #[test]
    fn provider_has_a_name_and_options() {
        check("local", Some("local"));
        check("docker:image=a/b:1,cpus=2", Some("docker:cpus=2,image=a/b:1"));
        check("docker:url=http://h?a=b", Some("docker:url=http://h?a=b"));
        for wrong in ["", ":", "a b", "docker:", "docker:image", "docker:=x", "d:a=1,a=2", "d:a=1,"]
        {
            check(wrong, None);
        }
        let spec: ProviderSpec = "docker:image=x,cpus=2".parse().unwrap();
        assert_eq!(spec.options.get("image"), Some("x"));
        assert_eq!(spec.options.find_unknown(&["cpus", "image"]), None);
        assert_eq!(spec.options.find_unknown(&["cpus"]), Some("image"));
    }
}
