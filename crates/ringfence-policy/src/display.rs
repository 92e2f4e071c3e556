//! Words for rules and origins, in policies and messages.

use std::fmt;

use crate::grants::{Asking, Effect, Mode, NameRuleEffect, Observe, Origin, Source};

impl Effect {
    /// The word in policies and messages.
    pub fn word(&self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Write => "write",
            Effect::Protect => "protect",
            Effect::Deny => "deny",
            Effect::Private { .. } => "private",
        }
    }
}

impl Mode {
    /// The word in policies and messages.
    pub fn word(self) -> &'static str {
        match self {
            Mode::ReadOnly => "read-only",
            Mode::WorkspaceWrite => "workspace-write",
            Mode::FullAccess => "full-access",
        }
    }
}

impl Observe {
    /// The word in policies and messages.
    pub fn word(self) -> &'static str {
        match self {
            Observe::All => "all",
            Observe::Denials => "denials",
        }
    }
}

impl Asking {
    /// The word in policies and messages.
    pub fn word(self) -> &'static str {
        match self {
            Asking::Never => "never",
            Asking::Terminal => "terminal",
        }
    }
}

impl NameRuleEffect {
    /// The word in policies and messages.
    pub fn word(self) -> &'static str {
        match self {
            NameRuleEffect::Deny => "deny",
            NameRuleEffect::Protect => "protect",
        }
    }
}

impl Origin {
    /// The reason given in the file, or the reason of a built-in rule.
    pub fn why(&self) -> Option<&str> {
        let built_in = || {
            (self.source == Source::BuiltIn)
                .then(|| crate::builtin::reason_for(&self.text))
                .flatten()
        };
        self.reason.as_deref().or_else(built_in)
    }

    /// The file and line, or the name of the layer.
    pub fn place(&self) -> String {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.to_string(),
            (None, _) => self.source.to_string(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            Some(_) => write!(f, "{} ({})", self.place(), self.source),
            None => self.source.fmt(f),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::BuiltIn => f.write_str("built in"),
            Source::Mode => f.write_str("the mode"),
            Source::Tools => f.write_str("tools"),
            Source::Preset(name) => write!(f, "preset {name}"),
            Source::Managed => f.write_str("managed policy"),
            Source::User => f.write_str("user policy"),
            Source::Project => f.write_str("project policy"),
            Source::Flag => f.write_str("a flag"),
            Source::Session => f.write_str("an answer in this session"),
        }
    }
}

/// True if a character is invisible and changes the display of others: terminal controls, text
/// direction marks and zero-width characters.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}
