//! Decisions about tool calls that another program makes.

use std::path::Path;

use ringfence_api::Operation;
use ringfence_plan::FileKind;
use ringfence_policy::{AbsPath, Access, Tool, Verdict};

use crate::error::{ToolError, ToolStep};
use crate::list::compile_glob;
use crate::opened_path::PathLookupError;
use crate::policy_snapshot::PolicySnapshot;
use crate::{FileTools, ToolCall};

impl FileTools {
    /// Decides and records a call that another program is about to make, as if it were made here. A
    /// read of a missing path is allowed: it shows nothing.
    ///
    /// The path may change between this answer and the call. Callers that need a stronger guarantee
    /// use these tools to make the call.
    pub fn check_call(&self, tool: Tool, path: &Path, access: Access) -> Result<(), ToolError> {
        let mut call = self.begin_call(tool)?;
        let (snapshot, found) = call.find(path)?;
        let (place, is_whole) = match found {
            Ok(place) => (place, true),
            Err(PathLookupError::Missing { place }) if access == Access::Write => (*place, false),
            Err(PathLookupError::Missing { .. }) => return Ok(()),
            Err(lost) => return Err(call.lookup_error(&snapshot, lost, operation(access, true))),
        };
        if place.target.is_none() && access == Access::Read {
            return Ok(());
        }
        let operation = operation(access, place.target.is_some());
        let decision = call.judge(&snapshot, &place, operation)?;
        if !is_whole {
            // Parent directories do not exist yet, so no link can redirect the path.
            call.must_be_open(&snapshot, &self.absolute(path))?;
        } else if operation == Operation::Create {
            call.must_not_start_programs(&snapshot, &place.path)?;
        }
        call.record(operation, decision)
    }

    /// The denied paths below a directory that match a glob, or the file itself, for callers that
    /// read whole trees. At most 100.
    pub fn denied_below(&self, path: &Path, glob: Option<&str>) -> Result<Vec<AbsPath>, ToolError> {
        const MAX_PATHS: usize = 100;
        let glob = glob.map(compile_glob).transpose()?;
        let requested = AbsPath::new(self.absolute(path)).unwrap_or_else(|| self.cwd.clone());
        let real = std::fs::canonicalize(requested.as_path()).during("stat", &requested)?;
        let root = AbsPath::new(real).unwrap_or(requested);
        let is_selected = |(path, kind): &(&AbsPath, FileKind)| {
            // The content of a denied directory is unknown, so the glob may match it.
            let is_left_out = |below: &Path| {
                *kind == FileKind::File
                    && glob.as_ref().is_some_and(|glob| !glob.matches(&AbsPath::root().join(below)))
            };
            path.relative_to(&root).is_some_and(|below| !is_left_out(below))
        };
        let snapshot = self.snapshot(PolicySnapshot::is_stale)?;
        Ok(snapshot
            .denied_paths()
            .filter(is_selected)
            .take(MAX_PATHS)
            .map(|(path, _)| path.clone())
            .collect())
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
    fn must_be_open(&self, snapshot: &PolicySnapshot, path: &Path) -> Result<(), ToolError> {
        let path = AbsPath::new(path).ok_or_else(|| ToolError::Input {
            what: format!("{} is not a valid path", path.display()),
        })?;
        let decision = snapshot.decide(&path, Access::Write);
        if decision.verdict != Verdict::Allowed {
            return Err(self.tools.journal.refuse(self.tool, Operation::Create, &decision));
        }
        self.must_not_start_programs(snapshot, &path)
    }
}
