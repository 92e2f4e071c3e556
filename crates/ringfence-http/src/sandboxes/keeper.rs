//! The keeper thread of a sandbox: it creates the sandbox, and the kernel ends the sandbox with it.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use axum::http::StatusCode;
use ringfence_api::{Asker, StdioMode};
use ringfence_audit::{Record, RecordAction, RecordDetails, RecordResult, now_ms, session_id};
use ringfence_engine::session::Session;
use ringfence_engine::{EngineError, ResolvedPolicy, RunRequest};
use ringfence_policy::{AbsPath, Flags};
use ringfence_skills::SkillName;
use serde_json::json;
use tokio::sync::watch;

use super::{CountSlot, SandboxRequest, ServiceSandbox, StopSignal, cleanup};
use crate::SharedState;
use crate::asks::TenantAsker;
use crate::error::{ApiError, ApiResult};
use crate::skills::narrow;
use crate::state::make_directory;
use crate::tenants::lock;

/// Interval at which the keeper checks the policy and the lifetime.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Creates a sandbox, if the quota permits.
pub(crate) fn create_sandbox(
    app: &SharedState,
    wanted: SandboxRequest,
) -> ApiResult<Arc<ServiceSandbox>> {
    let most = app.tenants.quotas(&wanted.user).sandboxes as usize;
    let slot = app.sandboxes.take_slot(&wanted.user, most)?;
    app.create_tenant_dirs(&wanted.user).map_err(|error| ApiError::internal(&error))?;
    let id = session_id();
    let workspace =
        directory(app, &wanted.user, &id).map_err(|error| ApiError::internal(&error))?;
    let (created, receiver) = mpsc::channel();
    let (stop_tx, stop_rx) = mpsc::channel();
    let keeper = SandboxKeeper { app: app.clone(), id, workspace, slot };
    let keep = move || match keeper.open(wanted, stop_tx) {
        Ok(sandbox) => {
            keeper.app.sandboxes.add(&sandbox);
            keeper.record_start(&sandbox);
            let _ = created.send(Ok(sandbox.clone()));
            let why = wait_for_end(&sandbox, &stop_rx);
            keeper.close(&sandbox, why);
        }
        Err(fault) => {
            keeper.remove_directory();
            let _ = created.send(Err(fault));
        }
    };
    if let Err(error) = thread::Builder::new().name("sandbox".into()).spawn(keep) {
        let full = ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no-thread",
            format!("cannot start a thread: {error}"),
        );
        return Err(full.hint("the machine is overloaded: try again").retry_after(1));
    }
    let lost = |error| ApiError::internal(&error);
    receiver.recv().map_err(lost)?
}

fn directory(app: &SharedState, user: &SkillName, id: &str) -> std::io::Result<AbsPath> {
    let tenant_directory = app.data.join("sandboxes").join(user.as_ref());
    make_directory(app.data.join("sandboxes").as_path())?;
    make_directory(tenant_directory.as_path())?;
    let workspace = tenant_directory.join(id);
    make_directory(workspace.as_path())?;
    Ok(workspace)
}

/// Waits until the sandbox is deleted or its lifetime is over.
fn wait_for_end(sandbox: &ServiceSandbox, stop_rx: &Receiver<StopSignal>) -> &'static str {
    loop {
        let remaining = Duration::from_millis(sandbox.expires_ms().saturating_sub(now_ms()));
        if remaining.is_zero() {
            return "expired";
        }
        match stop_rx.recv_timeout(remaining.min(POLL_INTERVAL)) {
            Err(RecvTimeoutError::Timeout) => sandbox.session.follow_policy(),
            Ok(StopSignal) | Err(RecvTimeoutError::Disconnected) => return "deleted",
        }
    }
}

/// The state of a keeper thread.
struct SandboxKeeper {
    app: SharedState,
    id: String,
    workspace: AbsPath,
    slot: CountSlot,
}

impl SandboxKeeper {
    fn open(
        &self,
        wanted: SandboxRequest,
        stop_tx: Sender<StopSignal>,
    ) -> ApiResult<Arc<ServiceSandbox>> {
        let app = &self.app;
        let policy = resolved(app, &wanted, &self.workspace)?;
        let ceiling = app.sandbox_policy(&wanted.user, &self.workspace)?.grants;
        let make_asker = || {
            Arc::new(TenantAsker {
                asks: app.asks.clone(),
                user: wanted.user.clone(),
                about: self.id.clone(),
                data: app.data.clone(),
                workspace: self.workspace.clone(),
                ceiling,
            })
        };
        let cwd = start_directory(&self.workspace, &wanted.cwd)
            .map_err(|error| ApiError::internal(&error))?;
        let run_request = RunRequest {
            command: Vec::new(),
            cwd,
            flags: Flags::none(self.workspace.clone()),
            files: app.sandbox_policy_files(),
            stdio: StdioMode::Capture { limit: 0 },
            asker: wanted.asks.then(|| make_asker() as Arc<dyn Asker>),
            agent: Some(format!("{}/sandbox", wanted.user)),
            session: self.id.clone(),
        };
        let resolve = {
            let (app, wanted, workspace) =
                (Arc::downgrade(app), wanted.clone(), self.workspace.clone());
            move |_: &ResolvedPolicy| {
                let ended = || EngineError::Surroundings {
                    what: "the service",
                    source: std::io::ErrorKind::NotFound.into(),
                };
                resolved(&app.upgrade().ok_or_else(ended)?, &wanted, &workspace)
            }
        };
        let session = Session::open_with(
            (app.new_provider)(),
            run_request,
            policy,
            "/bin/bash".into(),
            Box::new(resolve),
        )?;
        let created_ms = now_ms();
        Ok(Arc::new(ServiceSandbox {
            id: self.id.clone(),
            workspace: self.workspace.clone(),
            created_ms,
            session: Arc::new(session),
            expires_ms: AtomicU64::new(created_ms.saturating_add(wanted.ttl.as_millis() as u64)),
            wanted,
            tools: Mutex::default(),
            queue: Arc::default(),
            waiting: AtomicUsize::new(0),
            running: Mutex::new(Weak::new()),
            terminals: Arc::default(),
            background: Arc::default(),
            uploaded: AtomicU64::new(0),
            granted: Mutex::default(),
            is_live: Mutex::new(true),
            stop_tx,
            ended: watch::channel(false).0,
        }))
    }

    fn record_start(&self, sandbox: &ServiceSandbox) {
        let about = json!({ "id": sandbox.id, "expiresMs": sandbox.expires_ms(), "ask": sandbox.wanted.asks });
        note(&self.app, sandbox.user(), &self.id, "a sandbox was made");
        self.app.events.publish("sandbox-begun", sandbox.user(), about);
    }

    /// Ends everything in the sandbox and removes its directory.
    fn close(self, sandbox: &Arc<ServiceSandbox>, why: &str) {
        *lock(&sandbox.is_live) = false;
        self.app.asks.deny_all(&self.id);
        // The audit log has the quarantined files.
        let _ = sandbox.session.end();
        sandbox.interrupt();
        // The lock is free when the running command is done; queued commands find the sandbox
        // ended. A command that was about to start may have recreated the sandbox, so it is ended
        // again.
        let shell = sandbox.queue.blocking_lock();
        let _ = sandbox.session.end();
        drop(shell);
        *lock(&sandbox.tools) = None;
        self.remove_directory();
        self.app.sandboxes.forget(&self.id);
        note(&self.app, sandbox.user(), &self.id, &format!("a sandbox was ended: {why}"));
        let about =
            json!({ "id": self.id, "why": why, "commands": sandbox.session.status().commands });
        self.app.events.publish("sandbox-ended", sandbox.user(), about);
        // Freed first: a caller that sees the end may create another sandbox.
        drop(self.slot);
        sandbox.ended.send_replace(true);
    }

    fn remove_directory(&self) {
        if let Err(error) = cleanup::remove(&self.workspace) {
            crate::server::log::log_failure(&error);
        }
    }
}

/// The first directory of commands, created if missing: a new sandbox is otherwise empty.
fn start_directory(workspace: &AbsPath, cwd: &std::path::Path) -> std::io::Result<AbsPath> {
    if cwd.as_os_str().is_empty() {
        return Ok(workspace.clone());
    }
    let directory = workspace.join(cwd);
    std::fs::create_dir_all(directory.as_path())?;
    Ok(directory)
}

/// The tenant's policy, narrowed to the request.
fn resolved(
    app: &SharedState,
    wanted: &SandboxRequest,
    workspace: &AbsPath,
) -> Result<ResolvedPolicy, EngineError> {
    let mut resolved = app.sandbox_policy(&wanted.user, workspace)?;
    // The request was validated when the sandbox was created.
    let unread = |fault: ApiError| {
        let source = std::io::Error::other(fault.problem.message);
        EngineError::Surroundings { what: "the sandbox's request", source }
    };
    narrow(&mut resolved.grants, &wanted.needs, "sandbox").map_err(unread)?;
    resolved.grants.environment.set.extend(wanted.env.clone());
    if wanted.asks {
        resolved.grants.network.prepare_for_prompts();
    }
    Ok(resolved)
}

/// Records the creation or the end of a sandbox.
pub(super) fn note(app: &SharedState, user: &SkillName, id: &str, what: &str) {
    app.record(user, |_| Record {
        timestamp: now_ms(),
        agent: Some(format!("{user}/sandbox")),
        session: id.to_owned(),
        operation: RecordAction::Manage,
        target: format!("sandbox {id}"),
        result: RecordResult::Allowed,
        policy: "service".into(),
        reason: Some(what.to_owned()),
        details: RecordDetails::None {},
    });
}
