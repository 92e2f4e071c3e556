//! Calls of tools that somebody else carries out: they are decided about and recorded, and
//! nothing is done.

use std::path::Path;

use ringfence_api::Operation;
use ringfence_enforce::FileKind;
use ringfence_policy::{AbsPath, Access, Tool, Verdict};

use crate::error::{ToolError, ToolStep};
use crate::list::compiled;
use crate::opened_path::PathLookupError;
use crate::policy_snapshot::PolicySnapshot;
use crate::{FileTools, ToolCall};

impl FileTools {
    /// Decides about a call that another program is about to make by itself, as if it were made
    /// here, and records it. What is not there can be asked for: it opens nothing.
    ///
    /// Between this answer and the call, names may come to mean something else. Whoever needs
    /// more than that lets us make the call.
    pub fn judge(&self, tool: Tool, path: &Path, access: Access) -> Result<(), ToolError> {
        let mut errand = self.errand(tool)?;
        let (ground, found) = errand.find(path)?;
        let (place, is_whole) = match found {
            Ok(place) => (place, true),
            Err(PathLookupError::Missing { place }) if access == Access::Write => (*place, false),
            Err(PathLookupError::Missing { .. }) => return Ok(()),
            Err(lost) => return Err(errand.lost(&ground, lost, operation(access, true))),
        };
        if place.there.is_none() && access == Access::Read {
            return Ok(());
        }
        let operation = operation(access, place.there.is_some());
        let decision = errand.judge(&ground, &place, operation)?;
        if !is_whole {
            // Directories on the way are yet to be made, so that no link can lead elsewhere.
            errand.must_be_open(&ground, &self.absolute(path))?;
        } else if operation == Operation::Create {
            errand.must_not_start_programs(&ground, &place.path)?;
        }
        errand.record(operation, decision)
    }

    /// What is denied below a directory, or is the file itself, and what a glob does not leave out:
    /// whoever reads whole trees would read it. Some of it, if there is much.
    pub fn denied_below(&self, path: &Path, glob: Option<&str>) -> Result<Vec<AbsPath>, ToolError> {
        const TOLD: usize = 100;
        let glob = glob.map(compiled).transpose()?;
        let asked = AbsPath::new(self.absolute(path)).unwrap_or_else(|| self.cwd.clone());
        let real = std::fs::canonicalize(asked.as_path()).during("look at", &asked)?;
        let root = AbsPath::new(real).unwrap_or(asked);
        let is_meant = |(path, kind): &(&AbsPath, FileKind)| {
            // What lies in a denied directory is not known, so the glob may mean it.
            let is_left_out = |below: &Path| {
                *kind == FileKind::File
                    && glob.as_ref().is_some_and(|glob| !glob.matches(&AbsPath::root().join(below)))
            };
            path.relative_to(&root).is_some_and(|below| !is_left_out(below))
        };
        let ground = self.ground(PolicySnapshot::is_stale)?;
        Ok(ground.denied().filter(is_meant).take(TOLD).map(|(path, _)| path.clone()).collect())
    }
}

fn operation(access: Access, is_there: bool) -> Operation {
    match access {
        Access::Write if !is_there => Operation::Create,
        Access::Write => Operation::Write,
        Access::Read | Access::Execute => Operation::Read,
    }
}

impl ToolCall<'_> {
    fn must_be_open(&self, ground: &PolicySnapshot, path: &Path) -> Result<(), ToolError> {
        let path = AbsPath::new(path)
            .ok_or_else(|| ToolError::Input { what: format!("{} is no path", path.display()) })?;
        let decision = ground.decide(&path, Access::Write);
        if decision.verdict != Verdict::Allowed {
            return Err(self.tools.journal.refuse(self.tool, Operation::Create, &decision));
        }
        self.must_not_start_programs(ground, &path)
    }
}
