//! The life of a command, from the words of a door to an outcome.
//!
//! Gathers what the policy has to know, resolves it, opens a place, refuses what cannot be
//! enforced, runs. Prints nothing and knows no operating system by name.

#![forbid(unsafe_code)]

mod error;
mod facts;
mod files;
mod gitconfig;

pub use error::EngineError;
pub use facts::{Surroundings, gather};
pub use files::{Files, layers, layers_of};

use std::ffi::OsString;
use std::time::Duration;

use ringfence_api::{Outcome, Request, Stdio};
use ringfence_enforce::Plan;
use ringfence_policy::{AbsPath, Flags, Grants, OnGap, resolve};
use ringfence_provider::{Provider, Session};

/// What a door asks for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Program and arguments; never empty.
    pub command: Vec<OsString>,
    /// Where the person stands.
    pub cwd: AbsPath,
    /// The flags of this run.
    pub flags: Flags,
    /// Which policy files count.
    pub files: Files,
    /// Where input and output go.
    pub stdio: Stdio,
}

/// A policy as it stands for one command.
#[derive(Debug)]
pub struct Resolved {
    /// What the policy means here.
    pub grants: Grants,
    /// The machine, the user, the project.
    pub surroundings: Surroundings,
}

/// Reads the policy files and resolves them for `cwd`.
pub fn resolve_for(cwd: &AbsPath, flags: &Flags, files: &Files) -> Result<Resolved, EngineError> {
    let surroundings = gather(cwd)?;
    let layers = layers(files, &surroundings.facts)?;
    let mut grants = resolve(&layers, flags, &surroundings.facts)?;
    if let Some(owner) = facts::foreign_owner(&surroundings.facts.workspace) {
        grants.warnings.push(format!(
            "the project belongs to user {owner}, and root in a sandbox has no power over other people's files: run ringfence as that user"
        ));
    }
    Ok(Resolved { grants, surroundings })
}

/// What would be enforced.
pub fn plan(provider: &dyn Provider, resolved: &Resolved) -> Result<Plan, EngineError> {
    Ok(open(provider, resolved)?.plan().clone())
}

fn open(provider: &dyn Provider, resolved: &Resolved) -> Result<Box<dyn Session>, EngineError> {
    Ok(provider.open(&resolved.grants, &resolved.surroundings.person(&resolved.grants))?)
}

/// The whole life of one command.
pub fn run(provider: &dyn Provider, asked: &Asked, resolved: &Resolved) -> Result<Outcome, EngineError> {
    let grants = &resolved.grants;
    let mut session = open(provider, resolved)?;
    let gaps = &session.plan().gaps;
    if !gaps.is_empty() && grants.on_gap == OnGap::Refuse {
        return Err(EngineError::Gaps { gaps: gaps.clone() });
    }
    let request = Request {
        command: asked.command.clone(),
        cwd: asked.cwd.clone(),
        variables: variables(grants, &asked.cwd, resolved),
        stdio: asked.stdio,
        deadline: grants.limits.wall_ms.map(Duration::from_millis),
    };
    Ok(session.run(&request)?)
}

/// The variables that pass, and those that say where things are inside.
fn variables(grants: &Grants, cwd: &AbsPath, resolved: &Resolved) -> Vec<(OsString, OsString)> {
    if !grants.is_confined() {
        return resolved.surroundings.variables.clone();
    }
    let mut variables = grants.environment.filter(resolved.surroundings.variables.iter().cloned());
    let mut set = |name: &str, value: OsString| {
        variables.retain(|(known, _)| known != name);
        variables.push((name.into(), value));
    };
    set("PWD", cwd.as_path().into());
    set("HOME", grants.home.as_path().into());
    if !grants.environment.clean {
        set("TMPDIR", "/tmp".into());
        set("RINGFENCE", "1".into());
    }
    variables
}
