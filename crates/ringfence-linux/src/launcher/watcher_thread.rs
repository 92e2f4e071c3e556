//! Watcher thread: masks paths that appear while a command runs.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use crate::apply::{
    FOREIGN, FileIdentity, InotifyShortage, OWN, PAUSED, SandboxControl, SandboxFds,
    WatcherMessage, WatcherProcess,
};
use crate::clock::timespec;
use crate::fuse::{NodeKind, NodeTree};
use crate::locks::{lock, write_lock};
use ringfence_api::{Gap, GapKind};
use ringfence_plan::{FileKind, Plan, Step};
use ringfence_provider::ProviderError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, poll};

use crate::launcher::orphans::{self, TeardownMode};
use crate::launcher::thread_pool::{self, PoolHandle};
use crate::launcher::tripwire_server::OwnPids;

/// Delay before the watcher starts: most commands end sooner.
const START_DELAY: Duration = Duration::from_millis(25);

/// More reported files than a command creates: beyond it, a file counts as the user's.
const MAX_MARKERS: usize = 100_000;

/// Longest wait for a pause of all processes.
const PAUSE_LIMIT: Duration = Duration::from_millis(400);

/// Longest wait for the end of the sandbox after the watcher ended.
const END_LIMIT: Duration = Duration::from_millis(15);

/// Longest wait for pending reports of the notify handler: it takes long on a busy host, and a
/// repository of the command must not be taken for the user's.
const FLUSH_LIMIT: Duration = Duration::from_millis(90);

/// The watcher of one command, from this side.
#[derive(Debug)]
pub(crate) struct WatcherThread {
    state: Arc<Mutex<WatcherState>>,
    changed: Arc<Condvar>,
    wake: Arc<WatcherWake>,
    thread: PoolHandle,
}

/// Wakes the thread.
#[derive(Debug)]
struct WatcherWake {
    event: OwnedFd,
    is_over: AtomicBool,
}

impl WatcherWake {
    fn notify(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.notify();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

/// Restarts the watcher, so that it knows the paths opened since.
#[derive(Debug, Clone)]
pub(crate) struct WatcherRestart(Arc<WatcherWake>);

impl WatcherRestart {
    pub(crate) fn request(&self) {
        self.0.notify();
    }
}

/// Reports of the watcher.
#[derive(Debug, Default)]
struct WatcherState {
    /// Number of directories that are polled instead of watched, and the exhausted resource.
    unwatched: Option<(usize, InotifyShortage)>,
    /// Files that this command or an earlier one created or wrote.
    made: HashSet<FileIdentity>,
    /// Files attributed to the user.
    foreign: HashSet<FileIdentity>,
    /// Set while all processes are paused.
    is_paused: bool,
    /// Number of flush requests to the notify handler.
    flushes_requested: u64,
    /// Number of finished flushes.
    flushes_done: u64,
    failed: Option<std::io::Error>,
}

impl WatcherState {
    /// Enforcement gaps of the watcher.
    fn gaps(&self) -> Vec<Gap> {
        let gap = |(count, shortage): (usize, InotifyShortage)| Gap {
            what: "filesystem.deny".into(),
            why: format!(
                "{count} directories could not be watched with inotify, and were polled instead"
            ),
            hint: format!("sudo sysctl {}", shortage.sysctl()),
            kind: GapKind::Enforcement,
        };
        self.unwatched.map(gap).into_iter().collect()
    }
}

/// Parts of the tripwire that the watcher needs.
#[derive(Debug, Clone)]
pub(crate) struct WatcherNodes {
    /// Source of the mask nodes.
    pub(crate) tree: Arc<RwLock<NodeTree>>,
    /// Pids that are not reported.
    pub(crate) own: Arc<OwnPids>,
}

/// State of the watcher.
#[derive(Debug, Default)]
pub(crate) enum WatcherStage {
    /// Not needed.
    #[default]
    Not,
    /// Starts once the sandbox is up. Holds the files of earlier commands.
    Wanted(HashSet<FileIdentity>),
    Begun(WatcherThread),
}

impl WatcherStage {
    /// The stage for a plan; `made` are the files that earlier commands created or wrote.
    pub(crate) fn new(plan: &Plan, made: &HashSet<FileIdentity>) -> Self {
        let is_wanted = plan.steps.iter().any(|step| matches!(step, Step::Watcher { .. }));
        if is_wanted { WatcherStage::Wanted(made.clone()) } else { WatcherStage::Not }
    }

    /// Records a file that the command created or wrote.
    pub(crate) fn record_created(&self, identity: Option<FileIdentity>) {
        if let (WatcherStage::Begun(live), Some(identity)) = (self, identity) {
            let made = &mut lock(&live.state).made;
            if made.len() < MAX_MARKERS {
                made.insert(identity);
            }
        }
    }

    /// Files that came from outside, once all reports are in. Empty if one of them proved to
    /// be the command's, or if that is unknown: then all are swept.
    pub(crate) fn foreign_markers(&self) -> HashSet<FileIdentity> {
        let WatcherStage::Begun(live) = self else { return HashSet::new() };
        let state = lock(&live.state);
        if state.made.len() >= MAX_MARKERS || !state.made.is_disjoint(&state.foreign) {
            return HashSet::new();
        }
        state.foreign.clone()
    }

    /// Records a finished flush of the notify handler.
    pub(crate) fn record_flush(&self) {
        if let WatcherStage::Begun(live) = self {
            lock(&live.state).flushes_done += 1;
            live.changed.notify_all();
        }
    }

    /// Records that all processes are paused.
    pub(crate) fn record_pause(&self) {
        if let WatcherStage::Begun(live) = self {
            lock(&live.state).is_paused = true;
            live.changed.notify_all();
        }
    }

    /// Enforcement gaps of the watcher.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        if let WatcherStage::Begun(live) = self { lock(&live.state).gaps() } else { Vec::new() }
    }

    /// Ends the watcher; returns its gaps.
    pub(crate) fn end(self, teardown: TeardownMode) -> Result<Vec<Gap>, ProviderError> {
        match self {
            WatcherStage::Begun(live) => live.stop(teardown),
            WatcherStage::Not | WatcherStage::Wanted(_) => Ok(Vec::new()),
        }
    }
}

impl WatcherThread {
    /// Starts the thread.
    pub(crate) fn start(
        fds: Arc<SandboxFds>,
        nodes: Option<WatcherNodes>,
        control: SandboxControl,
        made: HashSet<FileIdentity>,
    ) -> std::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake = Arc::new(WatcherWake { event, is_over: AtomicBool::new(false) });
        let state = Arc::new(Mutex::new(WatcherState { made, ..WatcherState::default() }));
        let changed = Arc::new(Condvar::new());
        let watcher_loop = WatcherLoop {
            fds,
            nodes,
            control,
            state: state.clone(),
            changed: changed.clone(),
            wake: wake.clone(),
        };
        let thread = thread_pool::run("watcher", None, move || watcher_loop.run())?;
        Ok(Self { state, changed, wake, thread })
    }

    pub(crate) fn restart_handle(&self) -> WatcherRestart {
        WatcherRestart(self.wake.clone())
    }

    fn stop(self, teardown: TeardownMode) -> Result<Vec<Gap>, ProviderError> {
        match teardown {
            TeardownMode::Wait => {
                self.wake.end();
                self.thread.join();
            }
            TeardownMode::Leave if !orphans::does_pid1_reap() => self.wake.end(),
            // The caller exits now, and the watcher with it. The kernel may take long to remove the
            // inotify watches.
            TeardownMode::Leave => {}
        }
        let mut state = lock(&self.state);
        if let Some(source) = state.failed.take() {
            return Err(ProviderError::System {
                what: "watch for new files, so the command was ended",
                source,
            });
        }
        Ok(state.gaps())
    }
}

struct WatcherLoop {
    fds: Arc<SandboxFds>,
    nodes: Option<WatcherNodes>,
    control: SandboxControl,
    state: Arc<Mutex<WatcherState>>,
    changed: Arc<Condvar>,
    wake: Arc<WatcherWake>,
}

/// Next step of the loop.
enum WatcherStep {
    Listen,
    Renew,
    Wait,
    Stop,
}

impl WatcherLoop {
    fn run(self) {
        if !matches!(self.wait(None, Some(START_DELAY)), WatcherStep::Wait) {
            return;
        }
        if let Err(error) = self.listen() {
            // Denied paths that appear would be open from now on.
            lock(&self.state).failed = Some(error);
            self.control.end();
        }
    }

    /// Handles messages of the watcher until the end.
    fn listen(&self) -> std::io::Result<()> {
        let mut watcher = self.start()?;
        let mut is_paused = false;
        loop {
            match self.wait(Some(&watcher), None) {
                WatcherStep::Stop => return Ok(()),
                WatcherStep::Wait => continue,
                WatcherStep::Renew => {
                    self.wake.clear();
                    watcher = self.start()?;
                    if std::mem::take(&mut is_paused) {
                        self.resume();
                    }
                    continue;
                }
                WatcherStep::Listen => {}
            }
            match watcher.next_message() {
                Some(WatcherMessage::Wanted(question, count, kind)) => {
                    let kind = if kind == FileKind::Directory {
                        NodeKind::DeniedDirectory
                    } else {
                        NodeKind::DeniedFile
                    };
                    watcher.answer(question, self.tree()?.add_spare_masks(count, &kind));
                }
                Some(WatcherMessage::Masked(number, path)) => {
                    self.tree()?.set_mask_path(number, path)
                }
                Some(WatcherMessage::Origin(question, identity)) => {
                    watcher.answer(question, if self.is_own(identity) { OWN } else { FOREIGN })
                }
                Some(WatcherMessage::Overrun(question)) => {
                    self.pause();
                    is_paused = true;
                    watcher.answer(question, PAUSED);
                }
                Some(WatcherMessage::ScanComplete) if is_paused => {
                    self.resume();
                    is_paused = false;
                }
                Some(WatcherMessage::ScanComplete | WatcherMessage::Log(_)) => {}
                Some(WatcherMessage::Unwatched(count, shortage)) => {
                    lock(&self.state).unwatched = Some((count, shortage))
                }
                // It ends by itself only when the sandbox is gone, or on an error.
                None if matches!(self.wait(None, Some(END_LIMIT)), WatcherStep::Stop) => {
                    return Ok(());
                }
                None => return Err(std::io::Error::other("the watcher ended")),
            }
        }
    }

    fn start(&self) -> std::io::Result<WatcherProcess> {
        let watcher = WatcherProcess::start(&self.fds).map_err(std::io::Error::other)?;
        if let Some(nodes) = &self.nodes {
            nodes.own.add(watcher.pid());
        }
        Ok(watcher)
    }

    fn resume(&self) {
        lock(&self.state).is_paused = false;
        self.control.resume();
    }

    /// True if the command made this file. The notify handler may be about to report it, so it is
    /// asked to flush, with a time limit: the command can keep it busy, and an unknown file is
    /// protected.
    fn is_own(&self, identity: FileIdentity) -> bool {
        let mut state = lock(&self.state);
        if state.made.contains(&identity) {
            return true;
        }
        state.flushes_requested += 1;
        let flushes_requested = state.flushes_requested;
        self.control.request_settled();
        let is_waiting = |state: &mut WatcherState| {
            state.flushes_done < flushes_requested && !state.made.contains(&identity)
        };
        let waited = self.changed.wait_timeout_while(state, FLUSH_LIMIT, is_waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_own = state.made.contains(&identity);
        if !is_own && state.foreign.len() < MAX_MARKERS {
            state.foreign.insert(identity);
        }
        is_own
    }

    /// Pauses all processes, and waits until they are paused.
    fn pause(&self) {
        let mut state = lock(&self.state);
        // Another pause may have been resumed meanwhile.
        state.is_paused = false;
        self.control.pause();
        let _ = self.changed.wait_timeout_while(state, PAUSE_LIMIT, |state| !state.is_paused);
    }

    fn tree(&self) -> std::io::Result<RwLockWriteGuard<'_, NodeTree>> {
        let nodes = self
            .nodes
            .as_ref()
            .ok_or_else(|| std::io::Error::other("no tripwire to mask it with"))?;
        Ok(write_lock(&nodes.tree))
    }

    /// Waits for the next step. Without a watcher only an end counts.
    fn wait(&self, watcher: Option<&WatcherProcess>, limit: Option<Duration>) -> WatcherStep {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(timespec);
            let mut ends = vec![PollFd::new(&self.wake.event, PollFlags::IN)];
            ends.extend(
                watcher.map(|watcher| PollFd::from_borrowed_fd(watcher.fd(), PollFlags::IN)),
            );
            if poll(&mut ends, left.as_ref()).is_err() {
                return WatcherStep::Wait;
            }
            match (
                ends.iter().map(|end| !end.revents().is_empty()).collect::<Vec<_>>().as_slice(),
                watcher,
            ) {
                _ if self.wake.is_over() => return WatcherStep::Stop,
                ([true, ..], None) => self.wake.clear(),
                ([true, ..], Some(_)) => return WatcherStep::Renew,
                ([_, true], _) => return WatcherStep::Listen,
                _ => return WatcherStep::Wait,
            }
        }
    }
}
