//! Guarded tools for agents that call tools rather than a shell: `read`, `write`, `edit`, `list`
//! and `search`, in process.
//!
//! What may be done is decided by the very [`Grants`] that a sandbox is made of, and about what
//! the kernel has really opened, never about a path that somebody could change meanwhile. Each
//! call is on record before it has an effect, each refusal is a [`Denial`](ringfence_api::Denial)
//! like any other.
//!
//! [`Router`] hands calls on by the tool's name: to these five, to extensions by their prefix, and
//! whatever is left to the session.

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
pub use write::{PutParams, Source, WriteOutput, WriteParams};

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{Denial, Operation};
use ringfence_audit::RecordSubject;
use ringfence_policy::{
    AbsPath, Access, DecidingRule, Decision, Effect, Grants, Tool, ToolRule, Verdict,
};

use drop_caps::CapabilitiesDropped;
use error::ToolStep;
use journal::ToolRecorder;
use opened_path::{OpenedPath, PathLookupError};
use policy_snapshot::PolicySnapshot;

/// The tools of one agent, under one policy.
///
/// Any number of threads may call them at once.
pub struct FileTools {
    holds: Box<PolicySource>,
    /// What was found on the host, for the grants that held by then.
    known: Mutex<Option<(Arc<Grants>, Arc<PolicySnapshot>)>>,
    journal: ToolRecorder,
    cwd: AbsPath,
    /// Nothing is found but here, if somebody said so.
    within: Option<AbsPath>,
}

/// Says which policy holds; asked at each call, so that one that was changed holds from the next
/// one on. The same value must be the same `Arc`, or the host is looked at anew for each call.
pub type PolicySource = dyn Fn() -> Result<Arc<Grants>, Box<dyn Error + Send + Sync>> + Send + Sync;

/// A call on its way: which tool, for what, and what was recorded of it.
struct ToolCall<'a> {
    tools: &'a FileTools,
    tool: &'static str,
    recorded: Option<(Operation, Decision)>,
    /// Until then it is tried again if somebody changes what it is about.
    deadline: Instant,
}

/// So long a call is tried again when somebody changes what it is about.
const PATIENCE: Duration = Duration::from_secs(2);

impl FileTools {
    /// Opens the tools for `who`, under one policy; relative paths begin at `cwd`. `tell` hears
    /// what could not be recorded where the policy lets calls go unrecorded.
    pub fn open(
        grants: Grants,
        who: RecordSubject,
        cwd: AbsPath,
        tell: Box<OnUnrecorded>,
    ) -> Result<FileTools, ToolError> {
        let grants = Arc::new(grants);
        Self::open_with(Box::new(move || Ok(grants.clone())), who, cwd, tell)
    }

    /// The same under a policy that may change.
    pub fn open_with(
        holds: Box<PolicySource>,
        who: RecordSubject,
        cwd: AbsPath,
        tell: Box<OnUnrecorded>,
    ) -> Result<FileTools, ToolError> {
        let grants = holds().map_err(|source| ToolError::Policy { source })?;
        let journal = ToolRecorder::open(&grants.audit, who, tell)?;
        Ok(FileTools { holds, known: Mutex::new(None), journal, cwd, within: None })
    }

    /// The same for nothing but what is below a directory, whatever else the policy opens: no path
    /// and no link leads out of it.
    pub fn within(self, directory: AbsPath) -> FileTools {
        FileTools { within: Some(directory), ..self }
    }

    /// Whether a path is where these tools work, or on the way there.
    fn reaches(&self, path: &AbsPath) -> bool {
        self.within.as_ref().is_none_or(|within| path.is_within(within) || within.is_within(path))
    }

    fn grants(&self) -> Result<Arc<Grants>, ToolError> {
        (self.holds)().map_err(|source| ToolError::Policy { source })
    }

    /// What holds now; `is_stale` says whether what is known may be believed.
    fn ground(
        &self,
        is_stale: impl Fn(&PolicySnapshot) -> bool,
    ) -> Result<Arc<PolicySnapshot>, ToolError> {
        let grants = self.grants()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, ground)) = &*known
            && Arc::ptr_eq(of, &grants)
            && !is_stale(ground)
        {
            return Ok(ground.clone());
        }
        let ground = Arc::new(PolicySnapshot::survey(&grants));
        *known = Some((grants, ground.clone()));
        Ok(ground)
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        self.cwd.as_path().join(path)
    }

    /// Begins a call, unless the tool was taken away.
    fn errand(&self, tool: Tool) -> Result<ToolCall<'_>, ToolError> {
        self.must_be_allowed(tool.word())?;
        Ok(ToolCall {
            tools: self,
            tool: tool.word(),
            recorded: None,
            deadline: Instant::now() + PATIENCE,
        })
    }

    /// Whether the tool of this name may be used at all, for whoever serves others beside the five;
    /// a refusal is recorded.
    pub fn must_be_allowed(&self, tool: &str) -> Result<(), ToolError> {
        let against = self.grants()?.tools.against(tool).cloned();
        match against {
            None => Ok(()),
            Some(ToolRule { name, origin }) => Err(self.journal.refuse_since(
                tool,
                Operation::Call,
                tool.to_owned(),
                (name, origin.to_string(), true),
            )),
        }
    }
}

impl ToolCall<'_> {
    /// Does something on the host as the sandbox would: where anything is confined, the superuser
    /// is nobody special.
    fn plainly<T, E: From<ToolError>>(
        &self,
        ground: &PolicySnapshot,
        act: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if !ground.grants().is_confined() {
            return act();
        }
        let plain =
            CapabilitiesDropped::become_so().during("give up rights over", &self.tools.cwd)?;
        let done = act();
        drop(plain);
        done
    }

    /// The place of a path, and what holds there.
    fn find(
        &self,
        path: &Path,
    ) -> Result<(Arc<PolicySnapshot>, Result<OpenedPath, PathLookupError>), ToolError> {
        let path = self.tools.absolute(path);
        let find = |ground: &PolicySnapshot| {
            self.plainly(ground, || {
                OpenedPath::find(&path, &|path| ground.shows(path) && self.tools.reaches(path))
            })
        };
        let mut ground = self.tools.ground(PolicySnapshot::is_stale)?;
        loop {
            let found = find(&ground);
            // A file that got another name since the last look may have got a denied one.
            let node = found.as_ref().ok().and_then(|place| place.there.as_ref());
            if !node.is_some_and(|node| ground.is_stale_for(node)) {
                return Ok((ground, found));
            }
            self.must_be_in_time(&path)?;
            ground =
                self.tools.ground(|known| Arc::as_ptr(&ground) == std::ptr::from_ref(known))?;
        }
    }

    /// The same for whoever makes nothing on the way.
    fn found(
        &self,
        path: &Path,
        operation: Operation,
    ) -> Result<(Arc<PolicySnapshot>, OpenedPath), ToolError> {
        let (ground, found) = self.find(path)?;
        match found {
            Ok(place) => Ok((ground, place)),
            Err(lost) => Err(self.lost(&ground, lost, operation)),
        }
    }

    /// Nobody keeps a call waiting by changing things without end.
    pub(crate) fn must_be_in_time(&self, path: &Path) -> Result<(), ToolError> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(ToolError::Unsettled {
            path: AbsPath::new(path).unwrap_or_else(|| self.tools.cwd.clone()),
        })
    }

    /// What is said to whoever asked for a path that leads nowhere.
    fn lost(
        &self,
        ground: &PolicySnapshot,
        lost: PathLookupError,
        operation: Operation,
    ) -> ToolError {
        match lost {
            PathLookupError::Broken(error) => error,
            PathLookupError::Missing { place } => ToolError::NotFound { path: place.path },
            PathLookupError::Shut { path } if !self.tools.reaches(&path) => {
                self.beyond(&path, operation)
            }
            PathLookupError::Shut { path } => {
                let wanted =
                    if operation == Operation::Read { Access::Read } else { Access::Write };
                self.tools.journal.refuse(self.tool, operation, &ground.decide(&path, wanted))
            }
        }
    }

    /// It lies elsewhere than these tools work.
    fn beyond(&self, path: &AbsPath, operation: Operation) -> ToolError {
        let because = (BEYOND.to_owned(), "built in".to_owned(), true);
        self.tools.journal.refuse_since(
            self.tool,
            operation,
            path.to_string_lossy().into_owned(),
            because,
        )
    }

    /// Decides about a place; a refusal is recorded.
    fn judge(
        &self,
        ground: &PolicySnapshot,
        place: &OpenedPath,
        operation: Operation,
    ) -> Result<Decision, ToolError> {
        let path = &place.path;
        // One that ended at a directory on the way.
        if self.tools.within.as_ref().is_some_and(|within| !path.is_within(within)) {
            return Err(self.beyond(path, operation));
        }
        let wanted = if operation == Operation::Read { Access::Read } else { Access::Write };
        let decision = ground.decide_at(place, wanted);
        if decision.verdict != Verdict::Allowed {
            return Err(self.tools.journal.refuse(self.tool, operation, &decision));
        }
        let is_made = operation == Operation::Create && is_of_git(path);
        let is_gits = wanted == Access::Write
            && ground.grants().is_confined()
            && (is_made || is_state_of_git(path));
        let why = match (is_private(&decision), is_gits) {
            (true, _) => PRIVATE,
            (_, true) => Denial::GIT_WOULD_OBEY,
            _ => return Ok(decision),
        };
        let because = (why.to_owned(), "built in".to_owned(), true);
        Err(self.tools.journal.refuse_since(
            self.tool,
            operation,
            path.to_string_lossy().into_owned(),
            because,
        ))
    }

    /// Refuses to make a file from which an agent or editor would start programs. A command that
    /// makes one loses it when it ends; a tool call is not looked through afterwards.
    fn must_not_start_programs(
        &self,
        ground: &PolicySnapshot,
        path: &AbsPath,
    ) -> Result<(), ToolError> {
        if !ground.is_planted(path) {
            return Ok(());
        }
        let because = (STARTS_PROGRAMS.to_owned(), "built in".to_owned(), true);
        Err(self.tools.journal.refuse_since(
            self.tool,
            Operation::Create,
            path.to_string_lossy().into_owned(),
            because,
        ))
    }

    /// Records that what was decided is about to be done, once.
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

    /// Tries until nobody is in the way; what was recorded and not done is recorded, too.
    fn carry_out<T>(
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

/// The rule where tools are for one directory.
const BEYOND: &str = "these tools are for one directory, and it lies elsewhere";

/// The rule where a sandbox has files of its own: those are seen by its commands alone.
const PRIVATE: &str = "it is private to the sandbox, where only commands see it";

/// The rule where a new file would be obeyed by an agent or editor that is started beside it.
const STARTS_PROGRAMS: &str = "an agent or editor that is started there would run what it names: the user has to make it, or to open it by name";

/// Whether a path is the sandbox's own. What the host has beneath a cache can be read there, and
/// here, but for what commands have put over it.
fn is_private(decision: &Decision) -> bool {
    let Some(DecidingRule::Rule(rule)) = &decision.rule else { return false };
    // Its processes are; of the host's there is nothing to be seen.
    if decision.path.as_path().starts_with("/proc") {
        return true;
    }
    match rule.effect {
        Effect::Private { host_beneath, .. } => !host_beneath || decision.access == Access::Write,
        _ => false,
    }
}

/// Names by which git takes a directory for a repository. What commands make of them is looked
/// through when they have ended, and nobody would look here.
fn is_of_git(path: &AbsPath) -> bool {
    path.name()
        .is_some_and(|name| [".git", "HEAD"].iter().any(|of_git| name.eq_ignore_ascii_case(of_git)))
}

/// Names of files that say how git continues an unfinished operation: they name programs to run,
/// files to copy and changes to apply; packed refs, which can stand for them; and the index, whose
/// paths git follows. What commands write of them is looked through when they have ended.
fn is_state_of_git(path: &AbsPath) -> bool {
    const ANYWHERE: [&str; 3] = ["MERGE_RR", "MERGE_AUTOSTASH", "packed-refs"];
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
        |names: &[&str], name: &OsStr| names.iter().any(|of_git| name.eq_ignore_ascii_case(of_git));
    let is_shared_index =
        |name: &OsStr| name.to_string_lossy().to_ascii_lowercase().starts_with("sharedindex.");
    let is_state = |at: &AbsPath| {
        at.name().is_some_and(|name| is_one(&IN_GIT, name) || is_shared_index(name))
            && at.ancestors().skip(1).any(|at| is_git(&at))
    };
    path.name().is_some_and(|name| is_one(&ANYWHERE, name))
        || path.ancestors().any(|at| is_state(&at))
}

/// Whether git takes a directory for one of its own: by its name, or by what is in it.
fn is_git(directory: &AbsPath) -> bool {
    let has = |name: &str| directory.as_path().join(name).symlink_metadata().is_ok();
    directory.name().is_some_and(|name| name.eq_ignore_ascii_case(".git"))
        || (has("HEAD") && (has("objects") || has("commondir")))
}
