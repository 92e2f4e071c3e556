//! One policy file as a layer.

use std::collections::BTreeMap;

use crate::error::{PolicyError, SourcePosition};
use crate::foreign::{ForeignTool, is_tool_name};
use crate::grants::{Origin, Source};
use crate::network::HostRule;
use crate::path::AbsPath;
use crate::policy::Policy;

/// A policy with its file and the position of each entry.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyLayer {
    /// The parsed policy.
    pub policy: Policy,
    /// The layer of the file.
    pub source: Source,
    /// The file.
    pub file: AbsPath,
    /// The directory of the user's own policy for a directory around the project.
    pub(crate) enclosing: Option<AbsPath>,
    /// The tool, if the file is not a policy file but another tool's settings.
    pub tool: Option<ForeignTool>,
    /// The base directory of relative entries in another tool's settings.
    pub(crate) anchor: Option<AbsPath>,
    /// Warnings about the file as a whole.
    pub warnings: Vec<String>,
    /// Line and column by key: `mode`, `filesystem.deny.2`.
    pub(crate) places: BTreeMap<String, (u32, u32)>,
}

impl PolicyLayer {
    /// A layer for a policy that was not parsed from text: it has no positions.
    pub fn new(policy: Policy, file: AbsPath, source: Source) -> Self {
        Self {
            policy,
            source,
            file,
            enclosing: None,
            tool: None,
            anchor: None,
            warnings: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// The same layer as the user's own policy for `directory`, which is around the project: its
    /// relative entries refer to `directory`, and its settings with one value cannot widen.
    #[must_use]
    pub fn for_enclosing(self, directory: &AbsPath) -> Self {
        Self { enclosing: Some(directory.clone()), ..self }
    }

    /// The directory around the project that the policy is for, if it is for one.
    pub fn enclosing_directory(&self) -> Option<&AbsPath> {
        self.enclosing.as_ref()
    }

    /// True for the user's own policy for a directory around the project.
    pub fn is_of_enclosing(&self) -> bool {
        self.enclosing.is_some()
    }

    /// The files that this file extends, as written, with their lines.
    ///
    /// The caller reads them relative to the directory of this file, and puts their layers before
    /// this one with the same source.
    pub fn extends(&self) -> Vec<(String, Option<u32>)> {
        let with_line = |(i, file): (usize, &String)| {
            (file.clone(), self.position(&format!("extends.{i}")).line)
        };
        let is_file = |(_, entry): &(usize, &String)| !is_tool_name(entry);
        self.policy.extends.iter().enumerate().filter(is_file).map(with_line).collect()
    }

    /// The tools whose settings this file extends, with the positions of their names.
    pub fn extended_tools(&self) -> Vec<(ForeignTool, SourcePosition)> {
        let entries = self.policy.extends.iter().enumerate();
        let with_position = |(i, entry): (usize, &String)| {
            Some((ForeignTool::from_name(entry)?, self.position(&format!("extends.{i}"))))
        };
        entries.filter_map(with_position).collect()
    }

    /// The base directory of relative entries.
    ///
    /// `.ringfence/policy.toml` is relative to the directory that contains `.ringfence`; the files
    /// of the user and the administrator are relative to the current project, and the user's own
    /// policy for a directory around it to that directory.
    pub fn base_directory<'a>(&'a self, workspace: &'a AbsPath) -> AbsPath {
        if let Some(anchor) = &self.anchor {
            return anchor.clone();
        }
        let directory = self.file.parent().unwrap_or_else(AbsPath::root);
        match (&self.source, directory.name(), directory.parent()) {
            (Source::Project, Some(name), Some(project)) if name == ".ringfence" => project,
            (Source::Project, Some(name), Some(around))
                if name == "agents" && is_of_agents(&around) =>
            {
                around.parent().unwrap_or_else(AbsPath::root)
            }
            (Source::Project, ..) => directory,
            _ => self.enclosing.as_ref().unwrap_or(workspace).clone(),
        }
    }

    /// Position of `key`.
    pub(crate) fn position(&self, key: &str) -> SourcePosition {
        let at = self.places.get(key);
        SourcePosition {
            file: Some(self.file.clone()),
            line: at.map(|at| at.0),
            column: at.map(|at| at.1),
        }
    }

    /// Parses the host rule at `key`; an error points into the text.
    pub(crate) fn host_rule(&self, key: &str, text: &str) -> Result<HostRule, PolicyError> {
        HostRule::parse(text).map_err(|problem| {
            let mut at = self.position(key);
            if let Some(before) = problem.position().and_then(|position| text.get(..position)) {
                // Skips the opening quote.
                let inside = u32::try_from(before.chars().count() + 1).unwrap_or(0);
                at.column = at.column.map(|column| column + inside);
            }
            PolicyError::BadHost { at, entry: text.to_owned(), problem }
        })
    }

    /// The origin of the rule at `key`.
    pub fn origin(&self, key: &str, text: &str) -> Origin {
        let line = self.position(key).line;
        Origin { file: Some(self.file.clone()), line, ..Origin::new(self.source.clone(), text) }
    }
}

/// True if a directory is an `agents` directory for agent definitions.
fn is_of_agents(directory: &AbsPath) -> bool {
    directory.name().is_some_and(|name| name == ".ringfence" || name == ".claude")
}

/// Fails if reading `next` while the files on `stack` are being read would be a cycle.
pub fn check_cycle(stack: &[AbsPath], next: &AbsPath) -> Result<(), PolicyError> {
    match stack.iter().position(|file| file == next) {
        None => Ok(()),
        Some(start) => {
            let files = stack[start..].iter().chain([next]).cloned().collect();
            Err(PolicyError::ExtendsCycle { files })
        }
    }
}
