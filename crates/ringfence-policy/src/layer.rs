//! One policy file with its place among the others.

use std::collections::BTreeMap;

use crate::error::{PolicyError, SourcePosition};
use crate::grants::{Origin, Source};
use crate::network::HostRule;
use crate::path::AbsPath;
use crate::policy::Policy;

/// A policy with the file it stands in and the line of each of its entries.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyLayer {
    /// What is written.
    pub policy: Policy,
    /// Whose file it is.
    pub source: Source,
    /// The file.
    pub file: AbsPath,
    /// Line and column by key: `mode`, `filesystem.deny.2`.
    pub(crate) places: BTreeMap<String, (u32, u32)>,
}

impl PolicyLayer {
    /// A layer out of a policy that was not parsed from text: it has no lines.
    pub fn new(policy: Policy, file: AbsPath, source: Source) -> Self {
        Self { policy, source, file, places: BTreeMap::new() }
    }

    /// The files that lie beneath this one, as written, each with its line.
    ///
    /// Whoever has a file system reads them, relative to the directory of this file, and
    /// puts their layers in front of this one with the same source.
    pub fn extends(&self) -> Vec<(String, Option<u32>)> {
        let with_line =
            |(i, file): (usize, &String)| (file.clone(), self.place(&format!("extends.{i}")).line);
        self.policy.extends.iter().enumerate().map(with_line).collect()
    }

    /// The directory that relative entries are relative to.
    ///
    /// `.ringfence/policy.toml` speaks of the directory that holds `.ringfence`; the files
    /// of the user and the administrator speak of whatever is worked on.
    pub fn project<'a>(&'a self, workspace: &'a AbsPath) -> AbsPath {
        let directory = self.file.parent().unwrap_or_else(AbsPath::root);
        match (&self.source, directory.name(), directory.parent()) {
            (Source::Project, Some(name), Some(project)) if name == ".ringfence" => project,
            (Source::Project, Some(name), Some(around))
                if name == "agents" && is_of_agents(&around) =>
            {
                around.parent().unwrap_or_else(AbsPath::root)
            }
            (Source::Project, ..) => directory,
            _ => workspace.clone(),
        }
    }

    /// Where `key` was written.
    pub(crate) fn place(&self, key: &str) -> SourcePosition {
        let at = self.places.get(key);
        SourcePosition {
            file: Some(self.file.clone()),
            line: at.map(|at| at.0),
            column: at.map(|at| at.1),
        }
    }

    /// The rule on hosts that stands at `key`; an error points into the text.
    pub(crate) fn host_rule(&self, key: &str, text: &str) -> Result<HostRule, PolicyError> {
        HostRule::parse(text).map_err(|problem| {
            let mut at = self.place(key);
            if let Some(before) = problem.position().and_then(|position| text.get(..position)) {
                // The quotation mark comes first.
                let inside = u32::try_from(before.chars().count() + 1).unwrap_or(0);
                at.column = at.column.map(|column| column + inside);
            }
            PolicyError::BadHost { at, entry: text.to_owned(), problem }
        })
    }

    /// The origin of a rule that stands at `key`.
    pub fn origin(&self, key: &str, text: &str) -> Origin {
        let line = self.place(key).line;
        Origin { file: Some(self.file.clone()), line, ..Origin::new(self.source.clone(), text) }
    }
}

/// Whether definitions of agents stand in `agents` of a directory.
fn is_of_agents(directory: &AbsPath) -> bool {
    directory.name().is_some_and(|name| name == ".ringfence" || name == ".claude")
}

/// Whether `next` may be read while the files on `stack` are being read.
pub fn check_cycle(stack: &[AbsPath], next: &AbsPath) -> Result<(), PolicyError> {
    match stack.iter().position(|file| file == next) {
        None => Ok(()),
        Some(start) => {
            let files = stack[start..].iter().chain([next]).cloned().collect();
            Err(PolicyError::ExtendsCycle { files })
        }
    }
}
