//! Allowing something for good: one more line in the person's own policy file.

mod place;
#[cfg(test)]
mod tests;

use std::io;

use ringfence_policy::{
    AbsPath, Access, Decision, Facts, Flags, Grants, Layer, Origin, Permit, PolicyError, Source, Verdict, amend, parse_bytes, resolve,
};

use crate::EngineError;
use crate::files::{Files, layers, of_the_person};
use place::Place;

/// What was allowed for good.
#[derive(Debug, Clone, PartialEq)]
pub struct Allowed {
    /// What is allowed now, and by which line.
    pub decision: Decision,
    /// Whether that line is new.
    pub is_new: bool,
}

impl Allowed {
    /// Where the rule stands: `FILE:LINE`.
    pub fn place(&self) -> String {
        self.decision.rule.as_ref().map_or_else(String::new, |because| because.origin().place())
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
    /// Commands can write where the file is.
    #[error("{file} lies where commands can write")]
    Exposed {
        /// The file that would be written.
        file: AbsPath,
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
            AllowError::Shut { .. } => "allow-shut",
            AllowError::Exposed { .. } => "allow-exposed",
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
            AllowError::Exposed { .. } => Some("move the file out of the project, or add the line by hand".into()),
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
    let wish = Wish { path, access, files, facts };
    let named = of_the_person(facts);
    let before = wish.before()?;
    let place = Place::find(&named)?;
    if before.is_confined() && before.verdict(place.draft(), Access::Write) == Verdict::Allowed {
        return Err(AllowError::Exposed { file: place.file().clone() });
    }
    let place = place.take()?;
    let text = place.read()?;
    let (text, decision) = wish.outcome(text.as_deref())?;
    let is_new = text.is_some();
    if let Some(text) = text {
        place.replace(&text)?;
    }
    Ok(Allowed { decision, is_new })
}

/// Whether [`allow_permanent`] would come to something, as far as can be told without writing.
pub(crate) fn could_allow(path: &AbsPath, access: Access, files: &Files, facts: &Facts) -> bool {
    let wish = Wish { path, access, files, facts };
    let attempt = || {
        let before = wish.before()?;
        let place = Place::find(&of_the_person(facts))?;
        let is_exposed = before.is_confined() && before.verdict(place.draft(), Access::Write) == Verdict::Allowed;
        let text = place.peek()?;
        wish.outcome(text.as_deref())?;
        Ok::<bool, AllowError>(!is_exposed)
    };
    attempt().unwrap_or(false)
}

/// Whether a path says what ringfence does, or what commands did.
pub(crate) fn is_own(path: &AbsPath, facts: &Facts) -> bool {
    let settings = of_the_person(facts).parent().unwrap_or_else(AbsPath::root);
    path.is_within(&settings) || path.is_within(&facts.state)
}

struct Wish<'a> {
    path: &'a AbsPath,
    access: Access,
    files: &'a Files,
    facts: &'a Facts,
}

impl Wish<'_> {
    /// What holds in a later run, without the flags of this one.
    fn resolve(&self, layers: &[Layer]) -> Result<Grants, AllowError> {
        Ok(resolve(layers, &Flags::none(self.facts.workspace.clone()), self.facts)?)
    }

    fn before(&self) -> Result<Grants, AllowError> {
        self.resolve(&layers(self.files, self.facts)?)
    }

    /// The text with the grant in it, if it is not open already, and what that comes to.
    fn outcome(&self, text: Option<&[u8]>) -> Result<(Option<String>, Decision), AllowError> {
        let named = of_the_person(self.facts);
        if is_own(self.path, self.facts) {
            return Err(AllowError::Own { path: self.path.clone() });
        }
        let permit = Permit::new(self.path, self.access, self.facts).ok_or_else(|| AllowError::Unnamed { path: self.path.clone() })?;
        let mut layers = layers(self.files, self.facts)?;
        let now = self.resolve(&layers)?.decide(self.path, self.access);
        if now.verdict == Verdict::Allowed && now.rule.is_some() {
            return Ok((None, now));
        }
        // What is not text is told by its place.
        let text = text.map(|text| parse_bytes(text, &named, Source::User).map(|_| String::from_utf8_lossy(text))).transpose()?;
        let Some(amended) = amend(text.as_deref(), &named, &permit)? else { return Err(self.shut(&now)) };
        put(&mut layers, parse_bytes(amended.as_bytes(), &named, Source::User)?);
        let then = self.resolve(&layers)?.decide(self.path, self.access);
        if then.verdict != Verdict::Allowed {
            return Err(self.shut(&then));
        }
        Ok((Some(amended), then))
    }

    fn shut(&self, decision: &Decision) -> AllowError {
        let unknown = || Origin::new(Source::Mode, "the mode");
        let by = decision.rule.as_ref().map_or_else(unknown, |because| because.origin().clone());
        AllowError::Shut { path: self.path.clone(), by: Box::new(by) }
    }
}

/// Puts a layer where the file of the same name was read, or where it would have been.
fn put(layers: &mut Vec<Layer>, layer: Layer) {
    match layers.iter_mut().find(|known| known.file == layer.file && known.source == layer.source) {
        Some(known) => *known = layer,
        None => {
            let behind = layers.iter().take_while(|known| known.source == Source::Managed).count();
            layers.insert(behind, layer);
        }
    }
}
