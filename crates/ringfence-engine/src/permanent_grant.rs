//! Allowing something for good: one more line in a policy file of the user's.

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
use crate::files::{PolicyFiles, layers, of_the_person, places};
use crate::own_policy::{new_own_policy, own_policy_file};
pub(crate) use policy_file::PolicyFilePath;
pub use target::GrantTarget;

/// What was allowed for good.
#[derive(Debug, Clone, PartialEq)]
pub struct PermanentGrant {
    /// By what.
    pub origin: Origin,
    /// Whether that line is new.
    pub is_new: bool,
}

impl PermanentGrant {
    /// Where the rule stands: `FILE:LINE`.
    pub fn place(&self) -> String {
        self.origin.place()
    }
}

/// Why something was not allowed for good.
#[derive(Debug, thiserror::Error)]
pub enum AllowError {
    /// A policy file is wrong, or could not be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No entry of a policy means this path and no other.
    #[error("{path} cannot be named in a policy")]
    Unnamed {
        /// The path.
        path: AbsPath,
    },
    /// It says what ringfence does, or what commands did.
    #[error("{path} is ringfence's own")]
    Own {
        /// The path.
        path: AbsPath,
    },
    /// The grant would be there and the path still shut.
    #[error("{path} would stay shut: {} ({})", by.text, by)]
    Shut {
        /// The path.
        path: AbsPath,
        /// The rule that keeps it shut.
        by: Box<Origin>,
    },
    /// The same of a host.
    #[error("{host} would stay shut: {why}")]
    Unreachable {
        /// The host and its port.
        host: HostRule,
        /// What keeps it shut.
        why: String,
    },
    /// The same of a variable.
    #[error("{name} would stay out: {why}")]
    Filtered {
        /// The variable.
        name: String,
        /// The rule that keeps it out.
        why: String,
    },
    /// Commands can write where the file is.
    #[error("{file} lies where commands can write")]
    Exposed {
        /// The file that would be written.
        file: AbsPath,
    },
    /// The setting would be in the file, and ringfence would ignore it.
    #[error("`{key}` would have no effect: {why}")]
    Ignored {
        /// The setting.
        key: String,
        /// The warning that every run would give.
        why: String,
    },
    /// The file could not be written.
    #[error("cannot {what} {file}")]
    File {
        /// What was attempted.
        what: &'static str,
        /// On what.
        file: AbsPath,
        /// Why it failed.
        source: io::Error,
    },
}

impl From<PolicyError> for AllowError {
    fn from(error: PolicyError) -> Self {
        AllowError::Engine(EngineError::Policy(error))
    }
}

impl AllowError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            AllowError::Engine(error) => error.code(),
            AllowError::Unnamed { .. } => "allow-unnamed",
            AllowError::Own { .. } => "allow-own",
            AllowError::Shut { .. }
            | AllowError::Unreachable { .. }
            | AllowError::Filtered { .. } => "allow-shut",
            AllowError::Exposed { .. } => "allow-exposed",
            AllowError::Ignored { .. } => "configure-ignored",
            AllowError::File { .. } => "allow-not-written",
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            AllowError::Engine(error) => error.hint(),
            AllowError::Unnamed { .. } => Some("rename it, or name the directory around it".into()),
            AllowError::Own { .. } => None,
            AllowError::Shut { path, .. } if builtin::git_protect(path).is_some() => {
                Some("change it outside the sandbox: git would run what it names. Harmless settings pass by themselves".into())
            }
            AllowError::Shut { path, .. } => Some(format!("ringfence explain read {path}")),
            AllowError::Unreachable { host, .. } => Some(format!("ringfence explain connect {host}")),
            AllowError::Filtered { name, .. } => Some(format!("ringfence explain env {name}")),
            AllowError::Exposed { .. } => Some("move the file out of the project, or add the line by hand".into()),
            AllowError::Ignored { key, .. } => Some(format!("ringfence configure --global set {key} …")),
            AllowError::File { .. } => Some("add the line by hand".into()),
        }
    }
}

/// Opens `path`, and what is below it, in every later sandbox of this project: writes it into the
/// user's own policy for the project, unless it is open already.
///
/// The file keeps its comments, its order, its mode and its owner, and is replaced as a whole or
/// not at all. Of several who do so at once, each finds what the others wrote. Where the file is a
/// link, what it leads to is replaced and the link stays. A file with a mistake in it is not
/// touched.
pub fn allow_permanent(
    path: &AbsPath,
    access: Access,
    files: &PolicyFiles,
    facts: &Facts,
) -> Result<PermanentGrant, AllowError> {
    open_for_good(&GrantTarget::Path(path.clone(), access), files, facts)
}

/// As [`allow_permanent`], of hosts as well.
pub fn open_for_good(
    opening: &GrantTarget,
    files: &PolicyFiles,
    facts: &Facts,
) -> Result<PermanentGrant, AllowError> {
    Amendment::by_default(opening, files, facts).write()
}

/// Whether [`open_for_good`] would come to something, as far as can be told without writing.
pub(crate) fn could_open(opening: &GrantTarget, files: &PolicyFiles, facts: &Facts) -> bool {
    Amendment::by_default(opening, files, facts).preview().is_ok()
}

/// Whether a path says what ringfence does, or what commands did.
pub(crate) fn is_own(path: &AbsPath, facts: &Facts) -> bool {
    let settings = of_the_person(facts).parent().unwrap_or_else(AbsPath::root);
    path.is_within(&settings) || path.is_within(&facts.state)
}

/// The thing that one more line of a policy file is to allow.
#[derive(Debug, Clone, Copy)]
pub enum Permitted<'a> {
    /// A path or a host.
    Opening(&'a GrantTarget),
    /// A variable, by its exact name.
    Variable(&'a str),
}

impl Permitted<'_> {
    fn permit(&self, facts: &Facts) -> Result<PolicyEntryEdit, AllowError> {
        match self {
            Permitted::Opening(opening) => opening.permit(facts),
            Permitted::Variable(name) => Ok(PolicyEntryEdit::variable(name)),
        }
    }

    /// The path, if a private cache stands in front of it.
    fn behind_cache(&self, grants: &Grants) -> Option<&AbsPath> {
        match self {
            Permitted::Opening(opening) => opening.behind_cache(grants),
            Permitted::Variable(_) => None,
        }
    }

    /// The rule that allows it; the rule that does not is an error.
    fn opener(&self, grants: &Grants, layers: &[PolicyLayer]) -> Result<Origin, AllowError> {
        match self {
            Permitted::Opening(opening) => opening.opener(grants),
            Permitted::Variable(name) => variable::opener(name, grants, layers),
        }
    }
}

/// One more line in a policy file.
#[derive(Debug, Clone, Copy)]
pub struct Amendment<'a> {
    /// The thing that it allows.
    pub subject: Permitted<'a>,
    /// The file that gets the line: never that of the repository, which cannot allow more.
    pub scope: PolicyScope,
    /// The files that count.
    pub files: &'a PolicyFiles,
    /// The machine, the user and the project.
    pub facts: &'a Facts,
}

impl<'a> Amendment<'a> {
    /// A service's tenants have one policy, and no projects.
    fn by_default(opening: &'a GrantTarget, files: &'a PolicyFiles, facts: &'a Facts) -> Self {
        let scope =
            if files.service.is_some() { PolicyScope::Global } else { PolicyScope::OwnProject };
        Self { subject: Permitted::Opening(opening), scope, files, facts }
    }

    /// Writes it, unless the thing is allowed already.
    pub fn write(&self) -> Result<PermanentGrant, AllowError> {
        // Not even a directory is made for what changes nothing, or cannot be.
        let preview = self.preview()?;
        if !preview.is_new {
            return Ok(preview);
        }
        let place = self.place()?.take()?;
        let (text, origin) = self.outcome(place.read()?.as_deref())?;
        let is_new = text.is_some();
        if let Some(text) = text {
            place.replace(&text)?;
        }
        Ok(PermanentGrant { origin, is_new })
    }

    /// The outcome of [`Amendment::write`], with nothing written.
    pub fn preview(&self) -> Result<PermanentGrant, AllowError> {
        let text = self.place()?.peek()?;
        self.outcome(text.as_deref())
            .map(|(text, origin)| PermanentGrant { origin, is_new: text.is_some() })
    }

    fn file(&self) -> AbsPath {
        policy_file(self.scope, self.facts)
    }

    /// Where it is to be written, if no command could write there.
    fn place(&self) -> Result<PolicyFilePath, AllowError> {
        let before = self.resolve(&layers(self.files, self.facts)?)?;
        let place = PolicyFilePath::find(&self.file())?;
        if before.is_confined() && before.verdict(place.draft(), Access::Write) == Verdict::Allowed
        {
            return Err(AllowError::Exposed { file: place.file().clone() });
        }
        Ok(place)
    }

    /// What holds in a later run, without the flags of this one.
    fn resolve(&self, layers: &[PolicyLayer]) -> Result<Grants, AllowError> {
        Ok(resolve_to_inspect(layers, &Flags::none(self.facts.workspace.clone()), self.facts)?)
    }

    /// The text with the line in it, if the thing is not allowed already, and what allows it then.
    fn outcome(&self, text: Option<&[u8]>) -> Result<(Option<String>, Origin), AllowError> {
        if let Permitted::Opening(GrantTarget::Path(path, Access::Write)) = self.subject
            && let Some(entry) = builtin::git_protect(path)
        {
            return Err(AllowError::Shut {
                path: path.clone(),
                by: Box::new(Origin::new(Source::BuiltIn, entry.text)),
            });
        }
        let file = self.file();
        let permit = self.subject.permit(self.facts)?;
        let mut layers = layers(self.files, self.facts)?;
        let mut before = layers.clone();
        if self.scope == PolicyScope::Global {
            // A path that is open in this project may be shut in the others.
            let own = own_policy_file(self.facts);
            before.retain(|layer| layer.file != own);
        }
        let grants = self.resolve(&before)?;
        let shut = match self.subject.opener(&grants, &before) {
            Ok(origin) => match self.subject.behind_cache(&grants) {
                Some(path) => AllowError::Shut { path: path.clone(), by: Box::new(origin) },
                None => return Ok((None, origin)),
            },
            Err(shut) => shut,
        };
        // What is not text is told by its place.
        let text = text
            .map(|text| {
                parse_bytes(text, &file, Source::User).map(|_| String::from_utf8_lossy(text))
            })
            .transpose()?;
        let text = text.or_else(|| fresh(self.scope, self.facts).map(Cow::Owned));
        let Some(amended) = edit_policy_entry(text.as_deref(), &file, &permit)? else {
            return Err(shut);
        };
        put(
            &mut layers,
            parse_bytes(amended.as_bytes(), &file, Source::User)?,
            self.files,
            self.facts,
        );
        let then = self.subject.opener(&self.resolve(&layers)?, &layers)?;
        Ok((Some(amended), then))
    }
}

/// The text of a file of this scope that is not there yet, where it is not empty.
pub(crate) fn fresh(scope: PolicyScope, facts: &Facts) -> Option<String> {
    (scope == PolicyScope::OwnProject).then(|| new_own_policy(facts))
}

/// Puts a layer where the file of the same name was read, or where it would have been.
pub(crate) fn put(
    layers: &mut Vec<PolicyLayer>,
    layer: PolicyLayer,
    files: &PolicyFiles,
    facts: &Facts,
) {
    match layers.iter_mut().find(|known| known.file == layer.file && known.source == layer.source) {
        Some(known) => *known = layer,
        None => {
            let weaker: Vec<AbsPath> =
                places(files, facts).into_iter().take_while(|place| *place != layer.file).collect();
            let behind = layers
                .iter()
                .rposition(|known| weaker.contains(&known.file))
                .map_or(0, |last| last + 1);
            layers.insert(behind, layer);
        }
    }
}
