//! Permanent grants: a new entry in one of the user's policy files.

mod local_port;
mod policy_file;
mod target;
#[cfg(test)]
mod tests;
mod variable;

use std::borrow::Cow;
use std::io;

use ringfence_policy::{
    AbsPath, Access, Facts, Flags, Grants, HostRule, Origin, PolicyEntryEdit, PolicyError,
    PolicyLayer, Source, Verdict, builtin, edit_policy_entry, parse_bytes, resolve_to_inspect,
};

use crate::EngineError;
use crate::configure::{PolicyScope, policy_file};
use crate::files::{PolicyFiles, policy_file_paths, read_layers, user_policy_file};
use crate::own_policy::{new_own_policy, own_policy_file};
pub(crate) use policy_file::PolicyFilePath;
pub use target::GrantTarget;

/// A permanent grant.
#[derive(Debug, Clone, PartialEq)]
pub struct PermanentGrant {
    /// The rule that allows it.
    pub origin: Origin,
    /// True if the entry is new.
    pub is_new: bool,
}

impl PermanentGrant {
    /// The position of the rule: `FILE:LINE`.
    pub fn position(&self) -> String {
        self.origin.place()
    }
}

/// The reason a permanent grant failed.
#[derive(Debug, thiserror::Error)]
pub enum AllowError {
    /// A policy file is invalid or could not be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No policy entry can name exactly this path.
    #[error("cannot allow {path}: a policy entry cannot name it")]
    Unnamed {
        /// The path.
        path: AbsPath,
    },
    /// The path holds ringfence's settings or state.
    #[error("cannot allow {path}: it belongs to ringfence")]
    Own {
        /// The path.
        path: AbsPath,
    },
    /// The path would stay denied in spite of the grant.
    #[error("{path} would stay denied by {} ({})", by.text, by)]
    Shut {
        /// The path.
        path: AbsPath,
        /// The rule that denies it.
        by: Box<Origin>,
    },
    /// The host would stay denied in spite of the grant.
    #[error("{host} would stay denied: {why}")]
    Unreachable {
        /// The host and its port.
        host: HostRule,
        /// The reason.
        why: String,
    },
    /// The port of the host's loopback would stay closed in spite of the grant.
    #[error("localhost:{port} would stay denied: {why}")]
    ClosedPort {
        /// The port.
        port: u16,
        /// The reason.
        why: String,
    },
    /// The environment variable would stay filtered in spite of the grant.
    #[error("{name} would stay filtered: {why}")]
    Filtered {
        /// The variable.
        name: String,
        /// The rule that filters it.
        why: String,
    },
    /// Commands can write to the file's directory.
    #[error("refused to edit {file}: commands can write there")]
    Exposed {
        /// The file that would be written.
        file: AbsPath,
    },
    /// ringfence would ignore the setting.
    #[error("`{key}` would have no effect: {why}")]
    Ignored {
        /// The setting.
        key: String,
        /// The warning that every run would print.
        why: String,
    },
    /// The file could not be written.
    #[error("cannot {what} {file}")]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        file: AbsPath,
        /// The cause.
        source: io::Error,
    },
}

impl From<PolicyError> for AllowError {
    fn from(error: PolicyError) -> Self {
        AllowError::Engine(EngineError::Policy(error))
    }
}

impl AllowError {
    /// The stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            AllowError::Engine(error) => error.code(),
            AllowError::Unnamed { .. } => "allow-unnamed",
            AllowError::Own { .. } => "allow-own",
            AllowError::Shut { .. }
            | AllowError::Unreachable { .. }
            | AllowError::ClosedPort { .. }
            | AllowError::Filtered { .. } => "allow-shut",
            AllowError::Exposed { .. } => "allow-exposed",
            AllowError::Ignored { .. } => "configure-ignored",
            AllowError::File { .. } => "allow-not-written",
        }
    }

    /// The hint: a command to type.
    pub fn hint(&self) -> Option<String> {
        match self {
            AllowError::Engine(error) => error.hint(),
            AllowError::Unnamed { .. } => Some("rename it, or allow its parent directory".into()),
            AllowError::Own { .. } => None,
            AllowError::Shut { path, .. } if builtin::git_protect_entry(path).is_some() => {
                Some("change it outside the sandbox: git runs programs that this file names. Harmless settings need no grant".into())
            }
            AllowError::Shut { path, .. } => Some(format!("ringfence explain read {path}")),
            AllowError::Unreachable { host, .. } => Some(format!("ringfence explain connect {host}")),
            AllowError::ClosedPort { port, .. } => Some(format!("ringfence explain connect localhost:{port}")),
            AllowError::Filtered { name, .. } => Some(format!("ringfence explain env {name}")),
            AllowError::Exposed { .. } => Some("move the file out of the project, or add the entry by hand".into()),
            AllowError::Ignored { key, .. } => Some(format!("ringfence configure --global set {key} …")),
            AllowError::File { .. } => Some("add the entry by hand".into()),
        }
    }
}

/// Allows `path`, and everything below it, in every later sandbox of this project: adds an entry to
/// the user's own policy for the project, unless it is already allowed.
///
/// The file keeps its comments, order, mode and owner, and is replaced atomically. Concurrent
/// writers each see the entries of the others. If the file is a link, its target is replaced and
/// the link stays. An invalid file is not touched.
pub fn allow_permanent(
    path: &AbsPath,
    access: Access,
    files: &PolicyFiles,
    facts: &Facts,
) -> Result<PermanentGrant, AllowError> {
    allow_target_permanent(&GrantTarget::Path(path.clone(), access), files, facts)
}

/// As [`allow_permanent`], for hosts too.
pub fn allow_target_permanent(
    opening: &GrantTarget,
    files: &PolicyFiles,
    facts: &Facts,
) -> Result<PermanentGrant, AllowError> {
    Amendment::new(opening, files, facts).write()
}

/// True if [`allow_target_permanent`] would succeed, as far as known without writing.
pub(crate) fn can_allow_permanent(
    opening: &GrantTarget,
    files: &PolicyFiles,
    facts: &Facts,
) -> bool {
    Amendment::new(opening, files, facts).preview().is_ok()
}

/// True if a path belongs to ringfence's settings or state.
pub(crate) fn is_ringfence_path(path: &AbsPath, facts: &Facts) -> bool {
    let settings = user_policy_file(facts).parent().unwrap_or_else(AbsPath::root);
    path.is_within(&settings) || path.is_within(&facts.state)
}

/// The target of a new policy entry.
#[derive(Debug, Clone, Copy)]
pub enum Permitted<'a> {
    /// A path or a host.
    Opening(&'a GrantTarget),
    /// A port of the host's loopback.
    LocalPort(u16),
    /// An environment variable, by its exact name.
    Variable(&'a str),
}

impl Permitted<'_> {
    /// The entry for `file`, which is one of the `layers` if it exists.
    fn policy_entry(
        &self,
        file: &AbsPath,
        layers: &[PolicyLayer],
        facts: &Facts,
    ) -> Result<PolicyEntryEdit, AllowError> {
        match self {
            Permitted::Opening(opening) => opening.policy_entry(facts),
            Permitted::LocalPort(port) => {
                Ok(PolicyEntryEdit::localhost(*port, &local_port::inherited(file, layers)))
            }
            Permitted::Variable(name) => Ok(PolicyEntryEdit::variable(name)),
        }
    }

    /// The path, if a private cache hides the host's file.
    fn hidden_by_cache(&self, grants: &Grants) -> Option<&AbsPath> {
        match self {
            Permitted::Opening(opening) => opening.hidden_by_cache(grants),
            Permitted::LocalPort(_) | Permitted::Variable(_) => None,
        }
    }

    /// The rule that allows it; an error with the rule that denies it.
    fn allowing_rule(&self, grants: &Grants, layers: &[PolicyLayer]) -> Result<Origin, AllowError> {
        match self {
            Permitted::Opening(opening) => opening.allowing_rule(grants),
            Permitted::LocalPort(port) => local_port::allowing_rule(*port, grants),
            Permitted::Variable(name) => variable::allowing_rule(name, grants, layers),
        }
    }
}

/// One new entry of a policy file.
#[derive(Debug, Clone, Copy)]
pub struct Amendment<'a> {
    /// The target that it allows.
    pub subject: Permitted<'a>,
    /// The file to edit: never the repository's, which cannot allow more.
    pub scope: PolicyScope,
    /// The policy files that apply.
    pub files: &'a PolicyFiles,
    /// The host, the user and the project.
    pub facts: &'a Facts,
}

impl<'a> Amendment<'a> {
    /// Tenants of a service have one policy and no projects.
    fn new(opening: &'a GrantTarget, files: &'a PolicyFiles, facts: &'a Facts) -> Self {
        let scope =
            if files.service.is_some() { PolicyScope::Global } else { PolicyScope::OwnProject };
        Self { subject: Permitted::Opening(opening), scope, files, facts }
    }

    /// Writes the entry, unless the target is already allowed.
    pub fn write(&self) -> Result<PermanentGrant, AllowError> {
        // An edit that changes nothing or fails does not even create a directory.
        let preview = self.preview()?;
        if !preview.is_new {
            return Ok(preview);
        }
        let place = self.policy_file_path()?.lock()?;
        let (text, origin) = self.outcome(place.read()?.as_deref())?;
        let is_new = text.is_some();
        if let Some(text) = text {
            place.replace(&text)?;
        }
        Ok(PermanentGrant { origin, is_new })
    }

    /// The result of [`Amendment::write`], without writing.
    pub fn preview(&self) -> Result<PermanentGrant, AllowError> {
        let text = self.policy_file_path()?.peek()?;
        self.outcome(text.as_deref())
            .map(|(text, origin)| PermanentGrant { origin, is_new: text.is_some() })
    }

    fn file(&self) -> AbsPath {
        policy_file(self.scope, self.facts)
    }

    /// The file to write, if no command can write there.
    fn policy_file_path(&self) -> Result<PolicyFilePath, AllowError> {
        let before = self.resolve(&read_layers(self.files, self.facts)?)?;
        let place = PolicyFilePath::find(&self.file())?;
        if before.is_confined() && before.verdict(place.draft(), Access::Write) == Verdict::Allowed
        {
            return Err(AllowError::Exposed { file: place.file().clone() });
        }
        Ok(place)
    }

    /// The policy of a later run, without the flags of this one.
    fn resolve(&self, layers: &[PolicyLayer]) -> Result<Grants, AllowError> {
        Ok(resolve_to_inspect(layers, &Flags::none(self.facts.workspace.clone()), self.facts)?)
    }

    /// The new text, if the target is not allowed yet, and the rule that then allows it.
    fn outcome(&self, text: Option<&[u8]>) -> Result<(Option<String>, Origin), AllowError> {
        if let Permitted::Opening(GrantTarget::Path(path, Access::Write)) = self.subject
            && let Some(entry) = builtin::git_protect_entry(path)
        {
            return Err(AllowError::Shut {
                path: path.clone(),
                by: Box::new(Origin::new(Source::BuiltIn, entry.text)),
            });
        }
        let file = self.file();
        let mut layers = read_layers(self.files, self.facts)?;
        let permit = self.subject.policy_entry(&file, &layers, self.facts)?;
        let mut before = layers.clone();
        if self.scope == PolicyScope::Global {
            // A path that is allowed in this project may be denied in others.
            let own = own_policy_file(self.facts);
            before.retain(|layer| layer.file != own && !layer.is_of_enclosing());
        }
        let grants = self.resolve(&before)?;
        let shut = match self.subject.allowing_rule(&grants, &before) {
            Ok(origin) => match self.subject.hidden_by_cache(&grants) {
                Some(path) => AllowError::Shut { path: path.clone(), by: Box::new(origin) },
                None => return Ok((None, origin)),
            },
            Err(shut) => shut,
        };
        // Invalid UTF-8 is an error with its position.
        let text = text
            .map(|text| {
                parse_bytes(text, &file, Source::User).map(|_| String::from_utf8_lossy(text))
            })
            .transpose()?;
        let text = text.or_else(|| initial_text(self.scope, self.facts).map(Cow::Owned));
        let Some(amended) = edit_policy_entry(text.as_deref(), &file, &permit)? else {
            return Err(shut);
        };
        insert_layer(
            &mut layers,
            parse_bytes(amended.as_bytes(), &file, Source::User)?,
            self.files,
            self.facts,
        );
        let new_origin = self.subject.allowing_rule(&self.resolve(&layers)?, &layers)?;
        Ok((Some(amended), new_origin))
    }
}

/// The initial text of a missing file of this scope, if it is not empty.
pub(crate) fn initial_text(scope: PolicyScope, facts: &Facts) -> Option<String> {
    (scope == PolicyScope::OwnProject).then(|| new_own_policy(facts))
}

/// Replaces the layer of the same file, or inserts the layer at its rank.
pub(crate) fn insert_layer(
    layers: &mut Vec<PolicyLayer>,
    layer: PolicyLayer,
    files: &PolicyFiles,
    facts: &Facts,
) {
    match layers.iter_mut().find(|known| known.file == layer.file && known.source == layer.source) {
        Some(known) => *known = layer,
        None => {
            let weaker: Vec<AbsPath> = policy_file_paths(files, facts)
                .into_iter()
                .take_while(|place| *place != layer.file)
                .collect();
            let index = layers
                .iter()
                .rposition(|known| weaker.contains(&known.file))
                .map_or(0, |last| last + 1);
            layers.insert(index, layer);
        }
    }
}
