//! Allowing something for good: one more line in the person's own policy file.

mod opening;
mod place;
#[cfg(test)]
mod tests;

use std::io;

use ringfence_policy::{
    AbsPath, Access, Facts, Flags, Grants, HostRule, Layer, Origin, PolicyError, Source, Verdict, amend, parse_bytes, resolve_to_inspect,
};

use crate::EngineError;
use crate::files::{Files, layers, of_the_person};
pub use opening::Opening;
pub(crate) use place::Place;

/// What was allowed for good.
#[derive(Debug, Clone, PartialEq)]
pub struct Allowed {
    /// By what.
    pub origin: Origin,
    /// Whether that line is new.
    pub is_new: bool,
}

impl Allowed {
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
            AllowError::Shut { .. } | AllowError::Unreachable { .. } => "allow-shut",
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
            AllowError::Shut { path, .. } => Some(format!("ringfence explain read {path}")),
            AllowError::Unreachable { host, .. } => Some(format!("ringfence explain connect {host}")),
            AllowError::Exposed { .. } => Some("move the file out of the project, or add the line by hand".into()),
            AllowError::Ignored { key, .. } => Some(format!("ringfence configure --global set {key} …")),
            AllowError::File { .. } => Some("add the line by hand".into()),
        }
    }
}

/// Opens `path`, and what is below it, in every later sandbox: writes it into the person's own
/// policy file, unless it is open already.
///
/// The file keeps its comments, its order, its mode and its owner, and is replaced as a whole
/// or not at all. Of several who do so at once, each finds what the others wrote. Where the file is a
/// link, what it leads to is replaced and the link stays. A file with a mistake in it is not touched.
pub fn allow_permanent(path: &AbsPath, access: Access, files: &Files, facts: &Facts) -> Result<Allowed, AllowError> {
    Wish { opening: &Opening::Path(path.clone(), access), files, facts }.grant()
}

/// As [`allow_permanent`], of hosts as well.
pub fn open_for_good(opening: &Opening, files: &Files, facts: &Facts) -> Result<Allowed, AllowError> {
    Wish { opening, files, facts }.grant()
}

/// Whether [`open_for_good`] would come to something, as far as can be told without writing.
pub(crate) fn could_open(opening: &Opening, files: &Files, facts: &Facts) -> bool {
    Wish { opening, files, facts }.could_be_granted().unwrap_or(false)
}

/// Whether a path says what ringfence does, or what commands did.
pub(crate) fn is_own(path: &AbsPath, facts: &Facts) -> bool {
    let settings = of_the_person(facts).parent().unwrap_or_else(AbsPath::root);
    path.is_within(&settings) || path.is_within(&facts.state)
}

struct Wish<'a> {
    opening: &'a Opening,
    files: &'a Files,
    facts: &'a Facts,
}

impl Wish<'_> {
    fn grant(&self) -> Result<Allowed, AllowError> {
        let place = self.place()?.take()?;
        let text = place.read()?;
        let (text, origin) = self.outcome(text.as_deref())?;
        let is_new = text.is_some();
        if let Some(text) = text {
            place.replace(&text)?;
        }
        Ok(Allowed { origin, is_new })
    }

    fn could_be_granted(&self) -> Result<bool, AllowError> {
        let text = self.place()?.peek()?;
        self.outcome(text.as_deref()).map(|_| true)
    }

    /// Where it is to be written, if no command could write there.
    fn place(&self) -> Result<Place, AllowError> {
        let before = self.resolve(&layers(self.files, self.facts)?)?;
        let place = Place::find(&of_the_person(self.facts))?;
        if before.is_confined() && before.verdict(place.draft(), Access::Write) == Verdict::Allowed {
            return Err(AllowError::Exposed { file: place.file().clone() });
        }
        Ok(place)
    }

    /// What holds in a later run, without the flags of this one.
    fn resolve(&self, layers: &[Layer]) -> Result<Grants, AllowError> {
        Ok(resolve_to_inspect(layers, &Flags::none(self.facts.workspace.clone()), self.facts)?)
    }

    /// The text with the grant in it, if it is not open already, and what opens it then.
    fn outcome(&self, text: Option<&[u8]>) -> Result<(Option<String>, Origin), AllowError> {
        let named = of_the_person(self.facts);
        let permit = self.opening.permit(self.facts)?;
        let mut layers = layers(self.files, self.facts)?;
        let shut = match self.opening.opener(&self.resolve(&layers)?) {
            Ok(origin) => return Ok((None, origin)),
            Err(shut) => shut,
        };
        // What is not text is told by its place.
        let text = text.map(|text| parse_bytes(text, &named, Source::User).map(|_| String::from_utf8_lossy(text))).transpose()?;
        let Some(amended) = amend(text.as_deref(), &named, &permit)? else { return Err(shut) };
        put(&mut layers, parse_bytes(amended.as_bytes(), &named, Source::User)?);
        let then = self.opening.opener(&self.resolve(&layers)?)?;
        Ok((Some(amended), then))
    }
}

/// Puts a layer where the file of the same name was read, or where it would have been.
pub(crate) fn put(layers: &mut Vec<Layer>, layer: Layer) {
    match layers.iter_mut().find(|known| known.file == layer.file && known.source == layer.source) {
        Some(known) => *known = layer,
        None if layer.source == Source::Project => layers.push(layer),
        None => {
            let behind = layers.iter().take_while(|known| known.source == Source::Managed).count();
            layers.insert(behind, layer);
        }
    }
}
