//! Sandboxes that stand: each has a shell that lives on, a directory of its own, and an end.

mod background;
mod cleanup;
mod keeper;
mod queue;
mod quota;
mod turns;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc};
use std::time::Duration;

use axum::http::StatusCode;
use ringfence_api::AskAnswer as Said;
use ringfence_audit::now_ms;
use ringfence_engine::session::{Session, SessionProcess};
use ringfence_policy::AbsPath;
use ringfence_provider::{ProcessStdio, TerminalSize};
use ringfence_skills::{SkillName, SkillNeeds};
use ringfence_tools::FileTools;
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch as news;
use utoipa::ToSchema;

pub(crate) use background::begin_background;
pub(crate) use cleanup::recover;
pub(crate) use keeper::make;
pub(crate) use queue::{QueuedLine, SandboxCommand, begin};
use quota::{CountLimit, CountSlot, SandboxCounts};
pub(crate) use turns::Turns;
pub(crate) use watch::{DirChanges, below};

use crate::error::{ApiError, ApiResult};
use crate::executions::Listed;
use crate::tenants::lock;

/// How long one stands if nobody says, and at most, in seconds.
pub(crate) const USUAL: u64 = 600;
pub(crate) const LONGEST: u64 = 24 * 60 * 60;
/// So many of all tenants stand at the same time.
const MOST: usize = 1000;
/// So many programs at terminals a sandbox has at the same time.
const TERMINALS: usize = 8;
/// So much of what was granted is remembered.
const REMEMBERED: usize = 1000;

/// What somebody wants to have.
#[derive(Debug, Clone)]
pub(crate) struct SandboxRequest {
    pub(crate) user: SkillName,
    pub(crate) ttl: Duration,
    /// Whether somebody is asked about what is refused.
    pub(crate) asks: bool,
    /// Less than the tenant may.
    pub(crate) needs: SkillNeeds,
    /// Variables of every command.
    pub(crate) env: BTreeMap<String, String>,
    /// Where commands begin, from the sandbox's directory on.
    pub(crate) cwd: PathBuf,
    /// Words of the caller's own.
    pub(crate) labels: BTreeMap<String, String>,
}

/// Something that was opened while it stands.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SandboxGrant)]
pub(crate) struct SandboxGrantRecord {
    pub(crate) access: &'static str,
    pub(crate) resource: String,
    #[schema(value_type = String)]
    pub(crate) answer: Said,
    pub(crate) time_ms: u64,
    /// The token's id.
    pub(crate) by: String,
}

/// A sandbox.
pub(crate) struct ServiceSandbox {
    pub(crate) id: String,
    pub(crate) workspace: AbsPath,
    pub(crate) wanted: SandboxRequest,
    pub(crate) created_ms: u64,
    pub(crate) opened: Arc<Session>,
    expires_ms: AtomicU64,
    tools: Mutex<Option<Arc<FileTools>>>,
    /// Those who want the shell, first come, first served, and how many they are.
    queue: Arc<tokio::sync::Mutex<()>>,
    waiting: AtomicUsize,
    /// Whoever has the shell, or had it last.
    running: Mutex<Weak<SandboxCommand>>,
    terminals: Arc<AtomicUsize>,
    /// Commands beside the shell.
    beside: Arc<AtomicUsize>,
    /// What was put into files from outside.
    brought: AtomicU64,
    granted: Mutex<Vec<SandboxGrantRecord>>,
    /// Whether it stands. Held by whoever starts something that would raise it anew.
    stands: Mutex<bool>,
    leaves: mpsc::Sender<StopSignal>,
    ended: news::Sender<bool>,
}

/// That it is to end.
#[derive(Debug)]
pub(crate) struct StopSignal;

impl ServiceSandbox {
    pub(crate) fn user(&self) -> &SkillName {
        &self.wanted.user
    }

    pub(crate) fn expires_ms(&self) -> u64 {
        self.expires_ms.load(Ordering::SeqCst)
    }

    /// Lets it stand so much longer, from now on.
    pub(crate) fn extend(&self, ttl: Duration) {
        self.expires_ms.store(now_ms().saturating_add(ttl.as_millis() as u64), Ordering::SeqCst);
    }

    /// Held for as long as nothing may end it.
    pub(crate) fn standing(&self) -> ApiResult<MutexGuard<'_, bool>> {
        let stands = lock(&self.stands);
        if *stands { Ok(stands) } else { Err(gone()) }
    }

    /// Tools for its own directory and nothing else.
    pub(crate) fn tools(&self) -> ApiResult<Arc<FileTools>> {
        let _stands = self.standing()?;
        let mut tools = lock(&self.tools);
        if let Some(tools) = &*tools {
            return Ok(tools.clone());
        }
        let opened = self.opened.tools(Box::new(|error| crate::server::log::failed(error)))?;
        Ok(tools.insert(Arc::new(opened.within(self.workspace.clone()))).clone())
    }

    /// Counts what is brought from outside: a sandbox's disk is not filled past its limit from
    /// there either. What is taken away again counts as well, as it does for commands.
    pub(crate) fn brings(&self, bytes: u64) -> ApiResult<()> {
        let most = self.opened.policy().grants.limits.disk.unwrap_or(u64::MAX);
        let add = |before: u64| before.checked_add(bytes).filter(|sum| *sum <= most);
        if self.brought.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok() {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "disk",
            format!("more than {most} bytes would have been put into this sandbox"),
        )
        .hint("the limit `disk` of the policy says how much; another sandbox begins anew"))
    }

    /// Interrupts the command that has the shell. Answers whether there was one.
    pub(crate) fn interrupt(&self) -> bool {
        let running = lock(&self.running).upgrade().filter(|turn| !turn.is_over());
        running.is_some_and(|turn| {
            turn.course.cancel();
            true
        })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// A shell of its own at a terminal.
    pub(crate) fn attach(&self, size: TerminalSize) -> ApiResult<(SessionProcess, TerminalSlot)> {
        let before = self.terminals.fetch_add(1, Ordering::SeqCst);
        let seat = TerminalSlot(self.terminals.clone());
        if before >= TERMINALS {
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "terminals",
                format!("this sandbox has {TERMINALS} terminals already"),
            )
            .hint("close one"));
        }
        let _stands = self.standing()?;
        let command: Vec<OsString> = vec!["/bin/bash".into(), "-i".into()];
        let beside =
            self.opened.start(command, ProcessStdio::Terminal(size), None, &mut |error| {
                crate::server::log::failed(error)
            })?;
        if let Some(refusal) = beside.refused().and_then(|outcome| outcome.refusal.as_ref()) {
            return Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "command-refused",
                refusal.reason.clone(),
            ));
        }
        Ok((beside, seat))
    }

    pub(crate) fn grants(&self, granted: SandboxGrantRecord) {
        let mut all = lock(&self.granted);
        if all.len() < REMEMBERED {
            all.push(granted);
        }
    }

    pub(crate) fn granted(&self) -> Vec<SandboxGrantRecord> {
        lock(&self.granted).clone()
    }

    /// Ends it and everything in it. It takes a moment; [`Sandbox::ended`] waits for it.
    pub(crate) fn end(&self) {
        // The keeper may have ended by itself.
        let _ = self.leaves.send(StopSignal);
    }

    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

/// One of the terminals of a sandbox.
pub(crate) struct TerminalSlot(Arc<AtomicUsize>);

impl Drop for TerminalSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A descriptor that can be waited for.
#[expect(
    deprecated,
    reason = "what takes its place wants a promise that every `OwnedFd` keeps, as unsafe code"
)]
pub(crate) fn awaited(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}

pub(crate) fn gone() -> ApiError {
    ApiError::new(StatusCode::GONE, "gone", "the sandbox has ended")
        .hint("POST /v1/sandboxes makes another")
}

/// All that stand.
#[derive(Default)]
pub(crate) struct SandboxRegistry {
    /// Ids begin with the time, so that they are in order.
    known: Mutex<BTreeMap<String, Arc<ServiceSandbox>>>,
    /// Commands of all of them.
    pub(crate) turns: Turns,
    /// How many each tenant has, with those that are being made or ended.
    places: SandboxCounts,
    /// Number of commands that each tenant has in the background, in all its sandboxes.
    background: SandboxCounts,
    /// Those who watch directories: the kernel gives a person few of what that takes.
    watchers: SandboxCounts,
}

impl SandboxRegistry {
    pub(crate) fn find(&self, id: &str) -> Option<Arc<ServiceSandbox>> {
        lock(&self.known).get(id).cloned()
    }

    /// Newest first.
    pub(crate) fn list(&self) -> Vec<Arc<ServiceSandbox>> {
        lock(&self.known).values().rev().cloned().collect()
    }

    /// Room for one more.
    fn place(&self, user: &SkillName, most: usize) -> ApiResult<CountSlot> {
        self.places.take(user, most, MOST).map_err(|full| match full {
            CountLimit::Own => ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "quota",
                format!("`{user}` may have {most} sandboxes, and has them"),
            )
            .hint("DELETE one, or ask whoever runs the service for a larger quota `sandboxes`")
            .after(1),
            CountLimit::All => ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "full",
                format!("{MOST} sandboxes stand"),
            )
            .hint("try again later")
            .after(10),
        })
    }

    fn add(&self, sandbox: &Arc<ServiceSandbox>) {
        lock(&self.known).insert(sandbox.id.clone(), sandbox.clone());
    }

    fn forget(&self, id: &str) {
        lock(&self.known).remove(id);
    }

    /// How many have a command in their shell.
    pub(crate) fn busy(&self) -> usize {
        self.list().iter().filter(|sandbox| sandbox.is_busy()).count()
    }

    /// Ends all of them; more than those are not made by then.
    pub(crate) fn end_all(&self) {
        self.list().iter().for_each(|sandbox| sandbox.end());
    }
}
