//! Who and what a path of the service names.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A user, an agent or a skill: 1 to 64 of `A-Z a-z 0-9 . _ @ -`, beginning with a letter or a
/// digit, without `..` and not ending in a dot. It is one component of a path as it stands.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline)]
pub struct SkillName(
    #[schemars(regex(pattern = SkillName::PATTERN), length(min = 1, max = SkillName::LONGEST))]
    String,
);

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillNameError {
    /// Nothing stands there.
    #[error("a name is empty")]
    Empty,
    /// It is too long.
    #[error("a name has {length} characters, and at most {} are taken", SkillName::LONGEST)]
    TooLong {
        /// How long it is.
        length: usize,
    },
    /// It begins with something that no name begins with.
    #[error("a name begins with {character:?}")]
    First {
        /// What it begins with.
        character: char,
    },
    /// It has a character that no name has.
    #[error("a name has {character:?} in it")]
    Character {
        /// Which one.
        character: char,
    },
    /// It has `..` in it, or ends in a dot.
    #[error("a name has two dots in a row, or a dot at its end")]
    Dots,
}

impl SkillNameError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        "name"
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        format!(
            "write 1 to {} of A-Z a-z 0-9 . _ @ -, beginning with a letter or a digit",
            SkillName::LONGEST
        )
    }
}

impl SkillName {
    /// How many characters it has at most.
    pub const LONGEST: usize = 64;
    /// What it matches, beside its length; for whoever describes it to others.
    pub const PATTERN: &str = "^[A-Za-z0-9](\\.?[A-Za-z0-9_@-])*$";

    /// As it stands.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for SkillName {
    type Error = SkillNameError;

    fn try_from(text: &str) -> Result<SkillName, SkillNameError> {
        let first = text.chars().next().ok_or(SkillNameError::Empty)?;
        if let Some(character) =
            text.chars().find(|c| !(c.is_ascii_alphanumeric() || "._@-".contains(*c)))
        {
            return Err(SkillNameError::Character { character });
        }
        if text.len() > SkillName::LONGEST {
            return Err(SkillNameError::TooLong { length: text.len() });
        }
        if !first.is_ascii_alphanumeric() {
            return Err(SkillNameError::First { character: first });
        }
        if text.contains("..") || text.ends_with('.') {
            return Err(SkillNameError::Dots);
        }
        Ok(SkillName(text.to_owned()))
    }
}

impl TryFrom<String> for SkillName {
    type Error = SkillNameError;

    fn try_from(text: String) -> Result<SkillName, SkillNameError> {
        SkillName::try_from(text.as_str())
    }
}

impl FromStr for SkillName {
    type Err = SkillNameError;

    fn from_str(text: &str) -> Result<SkillName, SkillNameError> {
        SkillName::try_from(text)
    }
}

impl From<SkillName> for String {
    fn from(name: SkillName) -> String {
        name.0
    }
}

impl AsRef<str> for SkillName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One skill of one agent of one user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SkillId {
    /// Whose it is.
    pub user: SkillName,
    /// Which of the user's agents has it.
    pub agent: SkillName,
    /// Which one.
    pub skill: SkillName,
}

impl SkillId {
    /// Where it stands below a directory of users.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}/{}", self.user, self.agent, self.skill)
    }
}

impl fmt::Display for SkillId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.user, self.agent, self.skill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expect: Result<(), SkillNameError>) {
        assert_eq!(text.parse::<SkillName>().map(|_| ()), expect, "{text:?}");
    }

    #[test]
    fn a_name_is_one_plain_component() {
        for text in ["a", "7", "user_1", "ada@example.org", "a-b.c", &"x".repeat(64)] {
            check(text, Ok(()));
        }
        check("", Err(SkillNameError::Empty));
        check(&"x".repeat(65), Err(SkillNameError::TooLong { length: 65 }));
        for (text, character) in
            [(".", '.'), ("..", '.'), (".hidden", '.'), ("-rf", '-'), ("_x", '_'), ("@x", '@')]
        {
            check(text, Err(SkillNameError::First { character }));
        }
        for (text, character) in [
            ("a/b", '/'),
            ("a\\b", '\\'),
            ("a\0", '\0'),
            ("a b", ' '),
            ("a%2e", '%'),
            ("é", 'é'),
            ("a\n", '\n'),
        ] {
            check(text, Err(SkillNameError::Character { character }));
        }
        check("a..b", Err(SkillNameError::Dots));
        check("a.", Err(SkillNameError::Dots));
    }

    #[test]
    fn what_is_read_is_checked_too() {
        assert!(serde_json::from_str::<SkillName>("\"../x\"").is_err());
        assert_eq!(serde_json::to_string(&SkillName::try_from("a").unwrap()).unwrap(), "\"a\"");
    }

    proptest! {
        #[test]
        fn a_name_never_leads_elsewhere(text in "[a.@/_\\-\\\\\u{0}é]{0,8}") {
            if let Ok(name) = text.parse::<SkillName>() {
                let mut parts = std::path::Path::new(name.as_str()).components();
                prop_assert!(matches!(parts.next(), Some(std::path::Component::Normal(part)) if part == text.as_str()));
                prop_assert!(parts.next().is_none());
            }
        }
    }
}
