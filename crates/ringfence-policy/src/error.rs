//! Errors in policies.

use std::fmt;

use crate::foreign::ForeignTool;
use crate::glob::GlobError;
use crate::network::HostRuleError;
use crate::path::AbsPath;

/// Position in a policy file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// The file; `None` for a flag.
    pub file: Option<AbsPath>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column in characters, from 1.
    pub column: Option<u32>,
}

/// Reason for which a policy cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PolicyError {
    #[error("{at}not valid TOML: {message}")]
    Syntax { at: SourcePosition, message: String },
    #[error("{at}{what}")]
    FrontMatter { at: SourcePosition, what: String },
    #[error("{at}not UTF-8 at byte {offset}")]
    NotUtf8 { at: SourcePosition, offset: usize },
    #[error("{at}unknown key `{key}`")]
    UnknownKey { at: SourcePosition, key: String, nearest: Option<String> },
    #[error("{at}{message}")]
    WrongType { at: SourcePosition, message: String },
    #[error("{at}`{value}` is not a value for `{key}`")]
    BadValue { at: SourcePosition, key: String, value: String, expected: &'static str },
    #[error("{at}the policy has no `version`")]
    NoVersion { at: SourcePosition },
    #[error("{at}version {found} is not supported")]
    BadVersion { at: SourcePosition, found: String },
    #[error("{at}bad glob `{entry}`")]
    BadGlob { at: SourcePosition, entry: String, source: GlobError },
    #[error("{at}`{entry}` is no host: {problem}")]
    BadHost { at: SourcePosition, entry: String, problem: HostRuleError },
    #[error("{at}`{entry}` is not a path")]
    BadPath { at: SourcePosition, entry: String },
    #[error("{at}`{entry}` is a glob, and `{key}` takes paths")]
    GlobInGrant { at: SourcePosition, entry: String, key: &'static str },
    #[error("{at}`{entry}` cannot be opened as a whole: the sandbox has its own")]
    OwnPlace { at: SourcePosition, entry: String },
    #[error("{at}`{entry}` needs the variable `{name}`, which is not set")]
    UnsetVariable { at: SourcePosition, entry: String, name: String },
    #[error("{at}`locked` is only allowed in the managed policy")]
    LockedOutsideManaged { at: SourcePosition },
    #[error("{at}`mode = allow-list` needs at least one host in `allow`")]
    EmptyList { at: SourcePosition },
    #[error("{at}the value of `{env}` cannot be used in a header: {problem}")]
    BadSecret { at: SourcePosition, env: String, problem: &'static str },
    #[error("{at}`{entry}` cannot be added without changing something else in the file")]
    NotAmendable { at: SourcePosition, entry: String },
    #[error("{what}")]
    NotASetting { what: String },
    #[error("{at}`{name}` in `extends` is neither a file nor a known tool")]
    UnknownTool { at: SourcePosition, name: String },
    #[error("{at}{message}")]
    Foreign { at: SourcePosition, code: &'static str, message: String },
    #[error("policy files extend each other in a circle: {}", chain(.files))]
    ExtendsCycle { files: Vec<AbsPath> },
    #[error("the workspace {workspace} contains the whole home directory")]
    WorkspaceTooBroad { workspace: AbsPath },
    #[error("{flag} goes beyond what the managed policy allows, `{ceiling}`")]
    BeyondCeiling { flag: &'static str, ceiling: String },
}

impl PolicyError {
    /// A stable word for this error.
    pub fn code(&self) -> &'static str {
        match self {
            PolicyError::Syntax { .. } => "policy-syntax",
            PolicyError::FrontMatter { .. } => "front-matter",
            PolicyError::NotUtf8 { .. } => "policy-not-utf8",
            PolicyError::UnknownKey { .. } => "policy-unknown-key",
            PolicyError::WrongType { .. } => "policy-wrong-type",
            PolicyError::BadValue { .. } => "policy-bad-value",
            PolicyError::NoVersion { .. } => "policy-no-version",
            PolicyError::BadVersion { .. } => "policy-bad-version",
            PolicyError::BadGlob { .. } => "policy-bad-glob",
            PolicyError::BadHost { .. } => "policy-bad-host",
            PolicyError::BadPath { .. } => "policy-bad-path",
            PolicyError::GlobInGrant { .. } => "policy-glob-in-grant",
            PolicyError::OwnPlace { .. } => "policy-own-place",
            PolicyError::UnsetVariable { .. } => "policy-unset-variable",
            PolicyError::LockedOutsideManaged { .. } => "policy-locked-outside-managed",
            PolicyError::EmptyList { .. } => "policy-empty-list",
            PolicyError::BadSecret { .. } => "policy-bad-secret",
            PolicyError::NotAmendable { .. } => "policy-not-amendable",
            PolicyError::NotASetting { .. } => "policy-not-a-setting",
            PolicyError::UnknownTool { .. } => "policy-unknown-tool",
            PolicyError::Foreign { code, .. } => code,
            PolicyError::ExtendsCycle { .. } => "policy-extends-cycle",
            PolicyError::WorkspaceTooBroad { .. } => "policy-workspace-too-broad",
            PolicyError::BeyondCeiling { .. } => "policy-beyond-ceiling",
        }
    }

    /// A hint for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            PolicyError::Syntax { .. } | PolicyError::WrongType { .. } => "`ringfence policy schema` shows the expected format".to_owned(),
            PolicyError::FrontMatter { .. } => "see docs/agents.md for the keys of an agent definition".to_owned(),
            PolicyError::NotUtf8 { .. } => "save the file as UTF-8".to_owned(),
            PolicyError::UnknownKey { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            PolicyError::UnknownKey { nearest: None, .. } => "`ringfence policy schema` lists the keys".to_owned(),
            PolicyError::BadValue { expected, .. } => format!("write {expected}"),
            PolicyError::NoVersion { .. } => "write `version = 1` on the first line".to_owned(),
            PolicyError::BadVersion { .. } => "this ringfence supports `version = 1`: write that, or use a newer ringfence".to_owned(),
            PolicyError::BadGlob { source, .. } => source.hint().to_owned(),
            PolicyError::BadHost { problem, .. } => problem.hint(),
            PolicyError::BadPath { .. } => "write a path such as `/data`, `~/data` or `data`".to_owned(),
            PolicyError::OwnPlace { .. } => "name the directories in it that are needed".to_owned(),
            PolicyError::GlobInGrant { key, .. } => {
                format!("name the directory itself: `{key}` opens everything below it, and `deny` can exclude globs below it")
            }
            PolicyError::UnsetVariable { name, .. } => format!("export {name}=…, or write the full path"),
            PolicyError::LockedOutsideManaged { .. } => "move the entry to /etc/ringfence/policy.toml".to_owned(),
            PolicyError::EmptyList { .. } => {
                "list hosts in `allow` under [network] or by `--allow-host`; use `mode = \"none\"` or `--net none` for no network".to_owned()
            }
            PolicyError::BadSecret { env, .. } => format!("export {env} again, without line breaks and surrounding whitespace"),
            PolicyError::NotAmendable { .. } => "add it by hand".to_owned(),
            PolicyError::NotASetting { .. } => "ringfence configure list".to_owned(),
            PolicyError::UnknownTool { name, .. } => {
                format!("known tools: {}; write `./{name}` for a file", ForeignTool::known_names())
            }
            PolicyError::Foreign { .. } => "fix the file; `ringfence policy import FILE` checks it".to_owned(),
            PolicyError::ExtendsCycle { .. } => "remove one of the files from `extends`".to_owned(),
            PolicyError::WorkspaceTooBroad { workspace } => {
                format!("cd into a project, or name one with `-C DIR`; `--write {workspace}` opens all of it to commands")
            }
            PolicyError::BeyondCeiling { .. } => "ask the administrator to change /etc/ringfence/policy.toml".to_owned(),
        })
    }

    /// The file, if the error is in one.
    pub fn file(&self) -> Option<&AbsPath> {
        self.place()?.file.as_ref()
    }

    /// Line in the file, from 1.
    pub fn line(&self) -> Option<u32> {
        self.place()?.line
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> Option<u32> {
        self.place()?.column
    }

    fn place(&self) -> Option<&SourcePosition> {
        match self {
            PolicyError::Syntax { at, .. }
            | PolicyError::FrontMatter { at, .. }
            | PolicyError::NotUtf8 { at, .. }
            | PolicyError::UnknownKey { at, .. }
            | PolicyError::WrongType { at, .. }
            | PolicyError::BadValue { at, .. }
            | PolicyError::NoVersion { at }
            | PolicyError::BadVersion { at, .. }
            | PolicyError::BadGlob { at, .. }
            | PolicyError::BadHost { at, .. }
            | PolicyError::BadPath { at, .. }
            | PolicyError::GlobInGrant { at, .. }
            | PolicyError::OwnPlace { at, .. }
            | PolicyError::UnsetVariable { at, .. }
            | PolicyError::LockedOutsideManaged { at }
            | PolicyError::BadSecret { at, .. }
            | PolicyError::EmptyList { at }
            | PolicyError::UnknownTool { at, .. }
            | PolicyError::Foreign { at, .. }
            | PolicyError::NotAmendable { at, .. } => Some(at),
            PolicyError::NotASetting { .. }
            | PolicyError::ExtendsCycle { .. }
            | PolicyError::WorkspaceTooBroad { .. }
            | PolicyError::BeyondCeiling { .. } => None,
        }
    }
}

fn chain(files: &[AbsPath]) -> String {
    files.iter().map(AbsPath::to_string).collect::<Vec<_>>().join(" → ")
}

/// Formats `FILE:LINE:COLUMN: `, as far as known.
impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(file) = &self.file else { return Ok(()) };
        write!(f, "{file}:")?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
            if let Some(column) = self.column {
                write!(f, "{column}:")?;
            }
        }
        f.write_str(" ")
    }
}
