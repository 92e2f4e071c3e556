//! File tools for agents that call tools instead of a shell: `read`, `write`, `edit`, `list` and
//! `search`, in process.
//!
//! The same [`Grants`] decide as for a sandbox. They decide about the file that the kernel has
//! opened, never about a path that can change meanwhile. Each call is recorded before it takes
//! effect, and each denial is a normal [`Denial`].
//!
//! [`ToolRouter`] routes calls by the tool's name: to these five, to extensions by their prefix,
//! and all others to the session.

#![forbid(unsafe_code)]

mod atomic_write;
mod drop_caps;
mod edit;
mod error;
mod journal;
mod judge;
mod list;
mod opened_path;
mod policy_snapshot;
mod read;
mod remove;
mod router;
mod search;
mod text;
mod write;

pub use edit::{EditParams, EditResult};
pub use error::ToolError;
pub use journal::OnUnrecorded;
pub use list::{ListEntry, ListEntryKind, ListParams, ListResult};
pub use read::{ReadParams, ReadResultBody, WholeFile};
pub use router::{RoutedCall, ToolHandler, ToolRouter};
pub use search::{SearchMatch, SearchParams, SearchResult};
pub use write::{PutParams, WriteOutput, WriteParams, WriteSource};

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{Denial, Operation};
use ringfence_audit::RecordSubject;
use ringfence_engine::EngineError;
use ringfence_engine::session::Session;
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, Effect, Grants, Tool, ToolRule, Verdict,
};

use drop_caps::CapabilitiesDropped;
use error::ToolStep;
use journal::ToolRecorder;
use opened_path::{OpenedPath, PathLookupError};
use policy_snapshot::PolicySnapshot;

/// The tools of one agent, under one policy. Any number of threads may call them at once.
pub struct FileTools {
    policy_source: Box<PolicySource>,
    /// The survey of the host, for the grants in force at that time.
    known: Mutex<Option<(Arc<Grants>, Arc<PolicySnapshot>)>>,
    journal: ToolRecorder,
    cwd: AbsPath,
    /// The only accessible directory, if set.
    within: Option<AbsPath>,
}

/// Returns the policy in force. It is called for each tool call, so a change applies to the next
/// call. An unchanged policy must be the same `Arc`, else every call surveys the host again.
pub type PolicySource = dyn Fn() -> Result<Arc<Grants>, Box<dyn Error + Send + Sync>> + Send + Sync;

/// A running call: the tool and its audit record.
struct ToolCall<'a> {
    tools: &'a FileTools,
    tool: &'static str,
    recorded: Option<(Operation, Decision)>,
    /// The end of retries after concurrent changes.
    deadline: Instant,
}

/// The time limit of retries after concurrent changes.
const RETRY_TIME: Duration = Duration::from_secs(2);

impl FileTools {
    /// Opens the tools for `subject`, under one policy; relative paths begin at `cwd`.
    /// `on_unrecorded` receives audit errors if the policy allows unrecorded calls.
    pub fn open(
        grants: Grants,
        subject: RecordSubject,
        cwd: AbsPath,
        on_unrecorded: Box<OnUnrecorded>,
    ) -> Result<FileTools, ToolError> {
        let grants = Arc::new(grants);
        Self::open_with(Box::new(move || Ok(grants.clone())), subject, cwd, on_unrecorded)
    }

    /// As [`FileTools::open`], with a policy that may change.
    pub fn open_with(
        policy_source: Box<PolicySource>,
        subject: RecordSubject,
        cwd: AbsPath,
        on_unrecorded: Box<OnUnrecorded>,
    ) -> Result<FileTools, ToolError> {
        let grants = policy_source().map_err(|source| ToolError::Policy { source })?;
        let journal = ToolRecorder::open(&grants.audit, subject, on_unrecorded)
            .map_err(|source| ToolError::Audit { source })?;
        Ok(FileTools { policy_source, known: Mutex::new(None), journal, cwd, within: None })
    }

    /// Opens the tools for the agent of a session, under the policy in force in its sandbox. Like
    /// commands, they refuse to work while a narrowing is pending. They end with the session.
    pub fn for_session(
        session: &Arc<Session>,
        on_unrecorded: Box<OnUnrecorded>,
    ) -> Result<FileTools, EngineError> {
        let grants_source = session.grants_source();
        let rules = &grants_source()?.audit;
        let journal = ToolRecorder::open(rules, session.record_subject(), on_unrecorded)
            .map_err(|source| EngineError::Audit { source })?;
        Ok(FileTools {
            policy_source: Box::new(move || Ok(grants_source()?)),
            known: Mutex::new(None),
            journal,
            cwd: session.cwd().clone(),
            within: None,
        })
    }

    /// Limits the tools to one directory, whatever else the policy allows: no path and no link
    /// leads out of it.
    pub fn limited_to(self, directory: AbsPath) -> FileTools {
        FileTools { within: Some(directory), ..self }
    }

    /// True if a path is in the accessible directory, or a parent of it.
    fn is_in_bounds(&self, path: &AbsPath) -> bool {
        self.within.as_ref().is_none_or(|within| path.is_within(within) || within.is_within(path))
    }

    fn grants(&self) -> Result<Arc<Grants>, ToolError> {
        (self.policy_source)().map_err(|source| ToolError::Policy { source })
    }

    /// The snapshot in force; `is_stale` decides about the cached one.
    fn snapshot(
        &self,
        is_stale: impl Fn(&PolicySnapshot) -> bool,
    ) -> Result<Arc<PolicySnapshot>, ToolError> {
        let grants = self.grants()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, snapshot)) = &*known
            && Arc::ptr_eq(of, &grants)
            && !is_stale(snapshot)
        {
            return Ok(snapshot.clone());
        }
        let snapshot = Arc::new(PolicySnapshot::survey(&grants));
        *known = Some((grants, snapshot.clone()));
        Ok(snapshot)
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        self.cwd.as_path().join(path)
    }

    /// Begins a call, unless the policy removes the tool.
    fn begin_call(&self, tool: Tool) -> Result<ToolCall<'_>, ToolError> {
        self.check_tool_allowed(tool.word())?;
        Ok(ToolCall {
            tools: self,
            tool: tool.word(),
            recorded: None,
            deadline: Instant::now() + RETRY_TIME,
        })
    }

    /// Refuses and records a tool that the policy removes. For callers that serve more tools than
    /// the five.
    pub fn check_tool_allowed(&self, tool: &str) -> Result<(), ToolError> {
        let against = self.grants()?.tools.rule_against(tool).cloned();
        match against {
            None => Ok(()),
            Some(ToolRule { name, origin }) => Err(self.journal.refuse_with_reason(
                tool,
                Operation::Call,
                tool.to_owned(),
                (name, origin.to_string(), true),
            )),
        }
    }
}

impl ToolCall<'_> {
    /// Runs `act` with the permissions of the sandbox: in a confined run, root has no special file
    /// access.
    fn without_capabilities<T, E: From<ToolError>>(
        &self,
        snapshot: &PolicySnapshot,
        act: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if !snapshot.grants().is_confined() {
            return act();
        }
        let plain =
            CapabilitiesDropped::drop_now().during("drop capabilities for", &self.tools.cwd)?;
        let done = act();
        drop(plain);
        done
    }

    /// The opened path, and the snapshot that decides about it.
    fn find(
        &self,
        path: &Path,
    ) -> Result<(Arc<PolicySnapshot>, Result<OpenedPath, PathLookupError>), ToolError> {
        let path = self.tools.absolute(path);
        let find = |snapshot: &PolicySnapshot| {
            self.without_capabilities(snapshot, || {
                OpenedPath::find(&path, &|path| {
                    snapshot.is_visible(path) && self.tools.is_in_bounds(path)
                })
            })
        };
        let mut snapshot = self.tools.snapshot(PolicySnapshot::is_stale)?;
        loop {
            let found = find(&snapshot);
            // A file with a new hard link since the survey may now have a denied name.
            let node = found.as_ref().ok().and_then(|place| place.target.as_ref());
            if !node.is_some_and(|node| snapshot.is_stale_for(node)) {
                return Ok((snapshot, found));
            }
            self.check_deadline(&path)?;
            snapshot =
                self.tools.snapshot(|known| Arc::as_ptr(&snapshot) == std::ptr::from_ref(known))?;
        }
    }

    /// As [`ToolCall::find`], for calls that create no directories.
    fn find_existing(
        &self,
        path: &Path,
        operation: Operation,
    ) -> Result<(Arc<PolicySnapshot>, OpenedPath), ToolError> {
        let (snapshot, found) = self.find(path)?;
        match found {
            Ok(place) => Ok((snapshot, place)),
            Err(lost) => Err(self.lookup_error(&snapshot, lost, operation)),
        }
    }

    /// Ends the retries at the deadline.
    pub(crate) fn check_deadline(&self, path: &Path) -> Result<(), ToolError> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(ToolError::Unsettled {
            path: AbsPath::new(path).unwrap_or_else(|| self.tools.cwd.clone()),
        })
    }

    /// The error for a failed lookup.
    fn lookup_error(
        &self,
        snapshot: &PolicySnapshot,
        lost: PathLookupError,
        operation: Operation,
    ) -> ToolError {
        match lost {
            PathLookupError::Broken(error) => error,
            PathLookupError::Missing { place } => ToolError::NotFound { path: place.path },
            PathLookupError::Shut { path } if !self.tools.is_in_bounds(&path) => {
                self.outside_error(&path, operation)
            }
            PathLookupError::Shut { path } => {
                let access =
                    if operation == Operation::Read { Access::Read } else { Access::Write };
                self.tools.journal.refuse(self.tool, operation, &snapshot.decide(&path, access))
            }
        }
    }

    /// The denial of a path outside the accessible directory.
    fn outside_error(&self, path: &AbsPath, operation: Operation) -> ToolError {
        let because = (OUTSIDE_DIRECTORY.to_owned(), "built in".to_owned(), true);
        self.tools.journal.refuse_with_reason(
            self.tool,
            operation,
            path.to_string_lossy().into_owned(),
            because,
        )
    }

    /// Decides about a path; records a denial.
    fn judge(
        &self,
        snapshot: &PolicySnapshot,
        place: &OpenedPath,
        operation: Operation,
    ) -> Result<Decision, ToolError> {
        let path = &place.path;
        // The lookup ended at a parent directory.
        if self.tools.within.as_ref().is_some_and(|within| !path.is_within(within)) {
            return Err(self.outside_error(path, operation));
        }
        let access = if operation == Operation::Read { Access::Read } else { Access::Write };
        let decision = snapshot.decide_at(place, access);
        if decision.verdict != Verdict::Allowed {
            return Err(self.tools.journal.refuse(self.tool, operation, &decision));
        }
        let is_made = operation == Operation::Create && is_git_name(path);
        let is_gits = access == Access::Write
            && snapshot.grants().is_confined()
            && (is_made || is_git_state(path));
        let why = match (is_private(&decision), is_gits) {
            (true, _) => PRIVATE,
            (_, true) => Denial::GIT_RESERVED_NAME,
            _ => return Ok(decision),
        };
        let because = (why.to_owned(), "built in".to_owned(), true);
        Err(self.tools.journal.refuse_with_reason(
            self.tool,
            operation,
            path.to_string_lossy().into_owned(),
            because,
        ))
    }

    /// Refuses to create a file from which an agent or editor would start programs. For a command,
    /// such a file is quarantined at its end; a tool call has no such check.
    fn must_not_start_programs(
        &self,
        snapshot: &PolicySnapshot,
        path: &AbsPath,
    ) -> Result<(), ToolError> {
        if !snapshot.is_planted(path) {
            return Ok(());
        }
        let because = (STARTS_PROGRAMS.to_owned(), "built in".to_owned(), true);
        Err(self.tools.journal.refuse_with_reason(
            self.tool,
            Operation::Create,
            path.to_string_lossy().into_owned(),
            because,
        ))
    }

    /// Records the decision before the call takes effect, once.
    fn record(&mut self, operation: Operation, decision: Decision) -> Result<(), ToolError> {
        let is_new = self
            .recorded
            .as_ref()
            .is_none_or(|(known, before)| *known != operation || before.path != decision.path);
        if is_new {
            self.tools.journal.allow(self.tool, operation, &decision)?;
            self.recorded = Some((operation, decision));
        }
        Ok(())
    }

    /// Retries after concurrent changes. Records a failure after an allowed decision.
    fn run_attempts<T>(
        mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        let mut result = attempt(&mut self);
        while matches!(result, Err(ToolError::Unsettled { .. })) && Instant::now() < self.deadline {
            result = attempt(&mut self);
        }
        if let (Err(error), Some((operation, decision))) = (&result, &self.recorded)
            && !matches!(error, ToolError::Denied { .. } | ToolError::Audit { .. })
        {
            self.tools.journal.failed(self.tool, *operation, decision, error);
        }
        result
    }
}

/// The rule for tools limited to one directory.
const OUTSIDE_DIRECTORY: &str = "it is outside the one directory that these tools may access";

/// The rule for the sandbox's own files, which only its commands see.
const PRIVATE: &str = "it is private to the sandbox: only commands can see it";

/// The rule for a new file that an agent or editor started in that directory would obey.
const STARTS_PROGRAMS: &str = "an agent or editor started there would run the programs it names: the user must create it, or allow it by name";

/// True if a path is private to the sandbox. The host's files below a cache are readable, without
/// the changes that commands made.
fn is_private(decision: &Decision) -> bool {
    let Some(DecidingRule::Rule(rule)) = &decision.rule else { return false };
    // `/proc` shows the sandbox's own processes, never the host's.
    if decision.path.as_path().starts_with("/proc") {
        return true;
    }
    match rule.effect {
        Effect::Private { host_beneath, .. } => !host_beneath || decision.access == Access::Write,
        _ => false,
    }
}

/// True for names that make git treat a directory as a repository. For commands these are checked
/// at their end; a tool call has no such check.
fn is_git_name(path: &AbsPath) -> bool {
    path.name()
        .is_some_and(|name| [".git", "HEAD"].iter().any(|known| name.eq_ignore_ascii_case(known)))
}

/// True for files that control how git continues an unfinished operation (they name programs to
/// run, files to copy and changes to apply), for packed refs, which can replace them, and for the
/// index, whose paths git follows. For commands these are checked at their end.
fn is_git_state(path: &AbsPath) -> bool {
    const ANY_DIRECTORY: [&str; 3] = ["MERGE_RR", "MERGE_AUTOSTASH", "packed-refs"];
    const IN_GIT: [&str; 8] = [
        "rebase-merge",
        "rebase-apply",
        "sequencer",
        "BISECT_NAMES",
        "BISECT_START",
        "BISECT_LOG",
        "index",
        "replace",
    ];
    let is_one =
        |names: &[&str], name: &OsStr| names.iter().any(|known| name.eq_ignore_ascii_case(known));
    let is_shared_index =
        |name: &OsStr| name.to_string_lossy().to_ascii_lowercase().starts_with("sharedindex.");
    let is_state = |at: &AbsPath| {
        at.name().is_some_and(|name| is_one(&IN_GIT, name) || is_shared_index(name))
            && at.ancestors().skip(1).any(|at| is_git(&at))
    };
    path.name().is_some_and(|name| is_one(&ANY_DIRECTORY, name))
        || path.ancestors().any(|at| is_state(&at))
}

/// True if git treats a directory as its own: by its name, or by its content.
fn is_git(directory: &AbsPath) -> bool {
    let has = |name: &str| directory.as_path().join(name).symlink_metadata().is_ok();
    directory.name().is_some_and(|name| name.eq_ignore_ascii_case(".git"))
        || (has("HEAD") && (has("objects") || has("commondir")))
}
