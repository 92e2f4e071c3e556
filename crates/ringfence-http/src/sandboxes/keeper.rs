//! The life of a sandbox, on the thread that made it: the kernel ends it with that.

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

/// How often somebody looks whether the policy was changed, and whether it is over.
const LOOK: Duration = Duration::from_secs(1);

/// Makes one, if there is room.
pub(crate) fn make(house: &SharedState, wanted: SandboxRequest) -> ApiResult<Arc<ServiceSandbox>> {
    let most = house.tenants.quotas(&wanted.user).sandboxes as usize;
    let place = house.sandboxes.place(&wanted.user, most)?;
    house.settle(&wanted.user).map_err(|error| ApiError::ours(&error))?;
    let id = session_id();
    let workspace = directory(house, &wanted.user, &id).map_err(|error| ApiError::ours(&error))?;
    let (made, hears) = mpsc::channel();
    let (leaves, left) = mpsc::channel();
    let keeper = SandboxKeeper { house: house.clone(), id, workspace, place };
    let keep = move || match keeper.open(wanted, leaves) {
        Ok(sandbox) => {
            keeper.house.sandboxes.add(&sandbox);
            keeper.begun(&sandbox);
            let _ = made.send(Ok(sandbox.clone()));
            let why = stay(&sandbox, &left);
            keeper.close(&sandbox, why);
        }
        Err(fault) => {
            keeper.clear();
            let _ = made.send(Err(fault));
        }
    };
    if let Err(error) = thread::Builder::new().name("sandbox".into()).spawn(keep) {
        let full = ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no-thread",
            format!("no thread can be started: {error}"),
        );
        return Err(full.hint("the machine is full: try again").after(1));
    }
    let lost = |error| ApiError::ours(&error);
    hears.recv().map_err(lost)?
}

fn directory(house: &SharedState, user: &SkillName, id: &str) -> std::io::Result<AbsPath> {
    let of_user = house.data.join("sandboxes").join(user.as_ref());
    make_directory(house.data.join("sandboxes").as_path())?;
    make_directory(of_user.as_path())?;
    let workspace = of_user.join(id);
    make_directory(workspace.as_path())?;
    Ok(workspace)
}

/// Stays until somebody ends it, or its time is over.
fn stay(sandbox: &ServiceSandbox, left: &Receiver<StopSignal>) -> &'static str {
    loop {
        let remaining = Duration::from_millis(sandbox.expires_ms().saturating_sub(now_ms()));
        if remaining.is_zero() {
            return "expired";
        }
        match left.recv_timeout(remaining.min(LOOK)) {
            Err(RecvTimeoutError::Timeout) => sandbox.opened.follow(),
            Ok(StopSignal) | Err(RecvTimeoutError::Disconnected) => return "deleted",
        }
    }
}

/// Whoever keeps one.
struct SandboxKeeper {
    house: SharedState,
    id: String,
    workspace: AbsPath,
    place: CountSlot,
}

impl SandboxKeeper {
    fn open(
        &self,
        wanted: SandboxRequest,
        leaves: Sender<StopSignal>,
    ) -> ApiResult<Arc<ServiceSandbox>> {
        let house = &self.house;
        let policy = resolved(house, &wanted, &self.workspace)?;
        let ceiling = house.sandbox_policy(&wanted.user, &self.workspace)?.grants;
        let desk = || {
            let (user, about, workspace) =
                (wanted.user.clone(), self.id.clone(), self.workspace.clone());
            Arc::new(TenantAsker {
                asks: house.asks.clone(),
                user,
                about,
                data: house.data.clone(),
                workspace,
                ceiling,
            })
        };
        let cwd =
            begins_in(&self.workspace, &wanted.cwd).map_err(|error| ApiError::ours(&error))?;
        let asked = RunRequest {
            command: Vec::new(),
            cwd,
            flags: Flags::none(self.workspace.clone()),
            files: house.sandbox_files(),
            stdio: StdioMode::Capture { limit: 0 },
            asker: wanted.asks.then(|| desk() as Arc<dyn Asker>),
            agent: Some(format!("{}/sandbox", wanted.user)),
            session: self.id.clone(),
        };
        let resolve = {
            let (house, wanted, workspace) =
                (Arc::downgrade(house), wanted.clone(), self.workspace.clone());
            move |_: &ResolvedPolicy| {
                let ended = || EngineError::Surroundings {
                    what: "the service",
                    source: std::io::ErrorKind::NotFound.into(),
                };
                resolved(&house.upgrade().ok_or_else(ended)?, &wanted, &workspace)
            }
        };
        let opened = Session::open_with(
            (house.place)(),
            asked,
            policy,
            "/bin/bash".into(),
            Box::new(resolve),
        )?;
        let created_ms = now_ms();
        Ok(Arc::new(ServiceSandbox {
            id: self.id.clone(),
            workspace: self.workspace.clone(),
            created_ms,
            opened: Arc::new(opened),
            expires_ms: AtomicU64::new(created_ms.saturating_add(wanted.ttl.as_millis() as u64)),
            wanted,
            tools: Mutex::default(),
            queue: Arc::default(),
            waiting: AtomicUsize::new(0),
            running: Mutex::new(Weak::new()),
            terminals: Arc::default(),
            beside: Arc::default(),
            brought: AtomicU64::new(0),
            granted: Mutex::default(),
            stands: Mutex::new(true),
            leaves,
            ended: watch::channel(false).0,
        }))
    }

    fn begun(&self, sandbox: &ServiceSandbox) {
        let about = json!({ "id": sandbox.id, "expiresMs": sandbox.expires_ms(), "ask": sandbox.wanted.asks });
        note(&self.house, sandbox.user(), &self.id, "a sandbox was made");
        self.house.events.tell("sandbox-begun", sandbox.user(), about);
    }

    /// Ends everything in it, whatever runs there, and takes its directory away.
    fn close(self, sandbox: &Arc<ServiceSandbox>, why: &str) {
        *lock(&sandbox.stands) = false;
        self.house.asks.withdraw(&self.id);
        // What it says of what it moved away is on record.
        let _ = sandbox.opened.end();
        sandbox.interrupt();
        // Whoever had the shell is done when it is ours; those who wait find that it has ended.
        // One that was about to begin may have raised the sandbox anew.
        let shell = sandbox.queue.blocking_lock();
        let _ = sandbox.opened.end();
        drop(shell);
        *lock(&sandbox.tools) = None;
        self.clear();
        self.house.sandboxes.forget(&self.id);
        note(&self.house, sandbox.user(), &self.id, &format!("a sandbox was ended: {why}"));
        let about =
            json!({ "id": self.id, "why": why, "commands": sandbox.opened.standings().commands });
        self.house.events.tell("sandbox-ended", sandbox.user(), about);
        // Whoever hears of it may have another.
        drop(self.place);
        sandbox.ended.send_replace(true);
    }

    fn clear(&self) {
        if let Err(error) = cleanup::remove(&self.workspace) {
            crate::server::log::failed(&error);
        }
    }
}

/// The directory in which commands begin, made if it is missing: nothing else is in a new sandbox.
fn begins_in(workspace: &AbsPath, cwd: &std::path::Path) -> std::io::Result<AbsPath> {
    if cwd.as_os_str().is_empty() {
        return Ok(workspace.clone());
    }
    let directory = workspace.join(cwd);
    std::fs::create_dir_all(directory.as_path())?;
    Ok(directory)
}

/// The tenant's policy, and of it what was asked for.
fn resolved(
    house: &SharedState,
    wanted: &SandboxRequest,
    workspace: &AbsPath,
) -> Result<ResolvedPolicy, EngineError> {
    let mut resolved = house.sandbox_policy(&wanted.user, workspace)?;
    // It was read when the sandbox was asked for.
    let unread = |fault: ApiError| {
        let source = std::io::Error::other(fault.problem.message);
        EngineError::Surroundings { what: "what the sandbox needs", source }
    };
    narrow(&mut resolved.grants, &wanted.needs, "sandbox").map_err(unread)?;
    resolved.grants.environment.set.extend(wanted.env.clone());
    if wanted.asks {
        resolved.grants.network.for_asking();
    }
    Ok(resolved)
}

/// Puts on record what became of a sandbox itself.
pub(super) fn note(house: &SharedState, user: &SkillName, id: &str, what: &str) {
    house.record(user, |_| Record {
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
