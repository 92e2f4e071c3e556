//! Names of users, agents and skills.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A user, an agent or a skill: 1 to 64 of `A-Z a-z 0-9 . _ @ -`, beginning with a letter or a
/// digit, without `..` and not ending in a dot. It is a valid path component.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline)]
pub struct SkillName(
    #[schemars(regex(pattern = SkillName::PATTERN), length(min = 1, max = SkillName::LONGEST))]
    String,
);

/// The reason a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillNameError {
    /// It is empty.
    #[error("the name is empty")]
    Empty,
    /// It is too long.
    #[error("the name has {length} characters, more than the limit of {}", SkillName::LONGEST)]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// The first character is not a letter or a digit.
    #[error("the name begins with {character:?}")]
    First {
        /// The first character.
        character: char,
    },
    /// It contains a character that is not allowed.
    #[error("the name contains {character:?}")]
    Character {
        /// The character.
        character: char,
    },
    /// It contains `..`, or ends in a dot.
    #[error("the name contains `..` or ends in a dot")]
    Dots,
}

impl SkillNameError {
    /// The stable error code.
    pub fn code(&self) -> &'static str {
        "name"
    }

    /// The hint.
    pub fn hint(&self) -> String {
        format!(
            "use 1 to {} characters of A-Z a-z 0-9 . _ @ -, beginning with a letter or a digit",
            SkillName::LONGEST
        )
    }
}

impl SkillName {
    /// The maximum length.
    pub const LONGEST: usize = 64;
    /// The pattern of a name, without its length, for schemas.
    pub const PATTERN: &str = "^[A-Za-z0-9](\\.?[A-Za-z0-9_@-])*$";

    /// The name as text.
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
    /// The owner.
    pub user: SkillName,
    /// The user's agent.
    pub agent: SkillName,
    /// The skill.
    pub skill: SkillName,
}

impl SkillId {
    /// The path below a directory of users.
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
    fn name_is_one_path_component() {
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
    fn deserialized_name_is_checked() {
        assert!(serde_json::from_str::<SkillName>("\"../x\"").is_err());
        assert_eq!(serde_json::to_string(&SkillName::try_from("a").unwrap()).unwrap(), "\"a\"");
    }

    proptest! {
        #[test]
        fn name_never_leaves_its_directory(text in "[a.@/_\\-\\\\\u{0}é]{0,8}") {
            if let Ok(name) = text.parse::<SkillName>() {
                let mut parts = std::path::Path::new(name.as_str()).components();
                prop_assert!(matches!(parts.next(), Some(std::path::Component::Normal(part)) if part == text.as_str()));
                prop_assert!(parts.next().is_none());
            }
        }
    }
}
