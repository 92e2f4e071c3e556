//! Long-lived sandboxes: each has a persistent shell, a directory of its own, and a lifetime.

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
use ringfence_api::{AskAnswer, TerminalSize};
use ringfence_audit::now_ms;
use ringfence_engine::session::{Session, SessionProcess};
use ringfence_policy::AbsPath;
use ringfence_provider::ProcessStdio;
use ringfence_skills::{SkillName, SkillNeeds};
use ringfence_tools::FileTools;
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch as news;
use utoipa::ToSchema;

pub(crate) use background::start_background;
pub(crate) use cleanup::recover;
pub(crate) use keeper::create_sandbox;
pub(crate) use queue::{KEPT, SandboxCommand, queue_command};
use quota::{CountLimit, CountSlot, SandboxCounts};
pub(crate) use turns::Turns;
pub(crate) use watch::{DirChanges, relative_path};

use crate::error::{ApiError, ApiResult};
use crate::executions::Listed;
use crate::tenants::lock;

/// The default and the longest lifetime, in seconds.
pub(crate) const DEFAULT_TTL: u64 = 600;
pub(crate) const MAX_TTL: u64 = 24 * 60 * 60;
/// Live sandboxes of all tenants.
const MOST: usize = 1000;
/// Terminals of a sandbox at once.
const TERMINALS: usize = 8;
/// Grants remembered per sandbox.
const REMEMBERED: usize = 1000;

/// A request for a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct SandboxRequest {
    pub(crate) user: SkillName,
    pub(crate) ttl: Duration,
    /// True if the user is asked about denials.
    pub(crate) asks: bool,
    /// Narrows the tenant's policy.
    pub(crate) needs: SkillNeeds,
    /// Environment variables of every command.
    pub(crate) env: BTreeMap<String, String>,
    /// The first directory of commands, relative to the sandbox's directory.
    pub(crate) cwd: PathBuf,
    /// The caller's labels.
    pub(crate) labels: BTreeMap<String, String>,
}

/// A grant made to a live sandbox.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SandboxGrant)]
pub(crate) struct SandboxGrantRecord {
    pub(crate) access: &'static str,
    pub(crate) resource: String,
    #[schema(value_type = String)]
    pub(crate) answer: AskAnswer,
    pub(crate) time_ms: u64,
    /// The token's id.
    pub(crate) by: String,
}

/// A live sandbox.
pub(crate) struct ServiceSandbox {
    pub(crate) id: String,
    pub(crate) workspace: AbsPath,
    pub(crate) wanted: SandboxRequest,
    pub(crate) created_ms: u64,
    pub(crate) session: Arc<Session>,
    expires_ms: AtomicU64,
    tools: Mutex<Option<Arc<FileTools>>>,
    /// Serializes access to the shell in order of arrival; `waiting` counts its holder and the
    /// queue.
    queue: Arc<tokio::sync::Mutex<()>>,
    waiting: AtomicUsize,
    /// The command that uses the shell, or used it last.
    running: Mutex<Weak<SandboxCommand>>,
    terminals: Arc<AtomicUsize>,
    /// Commands outside the shell.
    background: Arc<AtomicUsize>,
    /// Bytes written to files through the API.
    uploaded: AtomicU64,
    granted: Mutex<Vec<SandboxGrantRecord>>,
    /// False after the end. The lock is held while something starts that would recreate the
    /// sandbox.
    is_live: Mutex<bool>,
    stop_tx: mpsc::Sender<StopSignal>,
    ended: news::Sender<bool>,
}

/// Asks the keeper thread to end the sandbox.
#[derive(Debug)]
pub(crate) struct StopSignal;

impl ServiceSandbox {
    pub(crate) fn user(&self) -> &SkillName {
        &self.wanted.user
    }

    pub(crate) fn expires_ms(&self) -> u64 {
        self.expires_ms.load(Ordering::SeqCst)
    }

    /// Sets the remaining lifetime.
    pub(crate) fn extend(&self, ttl: Duration) {
        self.expires_ms.store(now_ms().saturating_add(ttl.as_millis() as u64), Ordering::SeqCst);
    }

    /// Fails if the sandbox has ended; the guard keeps it from ending.
    pub(crate) fn require_live(&self) -> ApiResult<MutexGuard<'_, bool>> {
        let is_live = lock(&self.is_live);
        if *is_live { Ok(is_live) } else { Err(gone_error()) }
    }

    /// File tools limited to its own directory.
    pub(crate) fn tools(&self) -> ApiResult<Arc<FileTools>> {
        let _live = self.require_live()?;
        let mut tools = lock(&self.tools);
        if let Some(tools) = &*tools {
            return Ok(tools.clone());
        }
        let opened = FileTools::for_session(
            &self.session,
            Box::new(|error| crate::server::log::log_failure(error)),
        )?;
        Ok(tools.insert(Arc::new(opened.limited_to(self.workspace.clone()))).clone())
    }

    /// Counts bytes written through the API against the limit `disk`. Removed files still count, as
    /// they do for commands.
    pub(crate) fn count_upload(&self, bytes: u64) -> ApiResult<()> {
        let most = self.session.policy().grants.limits.disk.unwrap_or(u64::MAX);
        let add = |before: u64| before.checked_add(bytes).filter(|sum| *sum <= most);
        if self.uploaded.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok() {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "disk",
            format!("the sandbox's disk limit of {most} bytes is exceeded"),
        )
        .hint("raise the limit `disk` in the policy, or create another sandbox"))
    }

    /// Interrupts the command that uses the shell; false if there is none.
    pub(crate) fn interrupt(&self) -> bool {
        let running = lock(&self.running).upgrade().filter(|turn| !turn.is_over());
        running.is_some_and(|turn| {
            turn.progress.cancel();
            true
        })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Starts a shell of its own on a terminal.
    pub(crate) fn attach(&self, size: TerminalSize) -> ApiResult<(SessionProcess, TerminalSlot)> {
        let before = self.terminals.fetch_add(1, Ordering::SeqCst);
        let slot = TerminalSlot(self.terminals.clone());
        if before >= TERMINALS {
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "terminals",
                format!("this sandbox already has {TERMINALS} terminals"),
            )
            .hint("close a terminal"));
        }
        let _live = self.require_live()?;
        let command: Vec<OsString> = vec!["/bin/bash".into(), "-i".into()];
        let process = self.session.start(command, ProcessStdio::Terminal(size), None)?;
        if let Some(refusal) = process.refusal().and_then(|outcome| outcome.refusal.as_ref()) {
            return Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "command-refused",
                refusal.reason.clone(),
            ));
        }
        Ok((process, slot))
    }

    pub(crate) fn record_grant(&self, granted: SandboxGrantRecord) {
        let mut all = lock(&self.granted);
        if all.len() < REMEMBERED {
            all.push(granted);
        }
    }

    pub(crate) fn granted(&self) -> Vec<SandboxGrantRecord> {
        lock(&self.granted).clone()
    }

    /// Ends it and everything in it. This takes a moment; [`ServiceSandbox::ended`] waits for it.
    pub(crate) fn end(&self) {
        // The keeper thread may have ended already.
        let _ = self.stop_tx.send(StopSignal);
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

/// An fd that can be awaited.
#[expect(
    deprecated,
    reason = "the replacement requires unsafe code for a guarantee that every `OwnedFd` gives"
)]
pub(crate) fn async_fd(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}

pub(crate) fn gone_error() -> ApiError {
    ApiError::new(StatusCode::GONE, "gone", "the sandbox has ended")
        .hint("POST /v1/sandboxes creates another")
}

/// All live sandboxes.
#[derive(Default)]
pub(crate) struct SandboxRegistry {
    /// Ids start with the creation time, so they sort by age.
    known: Mutex<BTreeMap<String, Arc<ServiceSandbox>>>,
    /// Commands of all sandboxes.
    pub(crate) turns: Turns,
    /// The number of sandboxes per tenant, including those being created or ended.
    counts: SandboxCounts,
    /// The number of background commands per tenant, in all its sandboxes.
    background: SandboxCounts,
    /// The number of directory watches per tenant: the kernel limits inotify instances per user.
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

    /// A slot for one more sandbox.
    fn take_slot(&self, user: &SkillName, most: usize) -> ApiResult<CountSlot> {
        self.counts.take(user, most, MOST).map_err(|full| match full {
            CountLimit::Own => ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "quota",
                format!("too many sandboxes: `{user}` already has {most}"),
            )
            .hint("DELETE one, or ask the operator of the service for a larger quota `sandboxes`")
            .retry_after(1),
            CountLimit::All => ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "full",
                format!("too many sandboxes: the service already has {MOST}"),
            )
            .hint("try again later")
            .retry_after(10),
        })
    }

    fn add(&self, sandbox: &Arc<ServiceSandbox>) {
        lock(&self.known).insert(sandbox.id.clone(), sandbox.clone());
    }

    fn forget(&self, id: &str) {
        lock(&self.known).remove(id);
    }

    /// The number of sandboxes with a command in their shell.
    pub(crate) fn busy(&self) -> usize {
        self.list().iter().filter(|sandbox| sandbox.is_busy()).count()
    }

    /// Ends all sandboxes; no new ones are created at this point.
    pub(crate) fn end_all(&self) {
        self.list().iter().for_each(|sandbox| sandbox.end());
    }
}
