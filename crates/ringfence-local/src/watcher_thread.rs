//! While a command runs: what appears in its trees is covered there as well.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use ringfence_api::{Gap, GapKind};
use ringfence_enforce::apply::{
    Birth, FOREIGN, InotifyShortage, OWN, Reins, SandboxFds, WatcherMessage, WatcherProcess,
};
use ringfence_enforce::{FileKind, Plan, Step};
use ringfence_provider::ProviderError;
use ringfence_tripwire::{NodeKind, NodeTree};
use rustix::event::{EventfdFlags, PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::orphans::{self, Farewell};
use crate::thread_pool::{self, PoolHandle};
use crate::tripwire_server::OwnPids;

/// Most commands end sooner: they need nobody who looks out.
const A_MOMENT: Duration = Duration::from_millis(25);

/// More names of git's than a command makes: what is not known to be its own is protected.
const MANY: usize = 100_000;

/// So long everybody has to stop.
const PAUSE: Duration = Duration::from_millis(400);

/// So long the usher is waited for.
const PATIENCE: Duration = Duration::from_millis(15);

/// So long, what was told before is waited for: where much else runs, that takes its time, and
/// a repository of the command's own must not be taken for another.
const SETTLED: Duration = Duration::from_millis(90);

fn lock(told: &Mutex<WatcherState>) -> MutexGuard<'_, WatcherState> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lookout of one command, from this side.
#[derive(Debug)]
pub(crate) struct WatcherThread {
    told: Arc<Mutex<WatcherState>>,
    changed: Arc<Condvar>,
    bell: Arc<WatcherWake>,
    thread: PoolHandle,
}

/// What wakes the thread.
#[derive(Debug)]
struct WatcherWake {
    event: OwnedFd,
    is_over: AtomicBool,
}

impl WatcherWake {
    fn ring(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn hush(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

/// Lets another lookout take over, which knows of what was opened since.
#[derive(Debug, Clone)]
pub(crate) struct WatcherRestart(Arc<WatcherWake>);

impl WatcherRestart {
    pub(crate) fn wanted(&self) {
        self.0.ring();
    }
}

/// What was heard of it.
#[derive(Debug, Default)]
struct WatcherState {
    /// How many directories are looked through again and again, and for want of what.
    unwatched: Option<(usize, InotifyShortage)>,
    /// Names of git's that this command or an earlier one made.
    made: HashSet<Birth>,
    /// Names of git's that were taken for the user's.
    foreign: HashSet<Birth>,
    /// Whether nobody goes on.
    is_paused: bool,
    /// How often it was asked for that all be told.
    asked: u64,
    /// How often all was told.
    settled: u64,
    failed: Option<std::io::Error>,
}

impl WatcherState {
    /// What is not done as it should be.
    fn gaps(&self) -> Vec<Gap> {
        let gap = |(count, shortage): (usize, InotifyShortage)| Gap {
            what: "filesystem.deny".into(),
            why: format!(
                "{count} directories could not be watched, and were looked through again and again instead"
            ),
            hint: format!("sudo sysctl {}", shortage.setting()),
            loss: GapKind::Enforcement,
        };
        self.unwatched.map(gap).into_iter().collect()
    }
}

/// What a lookout needs of the tripwire.
#[derive(Debug, Clone)]
pub(crate) struct WatcherNodes {
    /// Where its covers come from.
    pub(crate) scene: Arc<RwLock<NodeTree>>,
    /// Whom not to tell of.
    pub(crate) own: Arc<OwnPids>,
}

/// Whether somebody looks out.
#[derive(Debug, Default)]
pub(crate) enum WatcherStage {
    /// Nobody need.
    #[default]
    Not,
    /// As soon as there is something to look at. Knows what earlier commands made of git's.
    Wanted(HashSet<Birth>),
    Begun(WatcherThread),
}

impl WatcherStage {
    /// As the plan says, where earlier commands `made` names of git's.
    pub(crate) fn over(plan: &Plan, made: &HashSet<Birth>) -> Self {
        let is_wanted = plan.steps.iter().any(|step| matches!(step, Step::Lookout { .. }));
        if is_wanted { WatcherStage::Wanted(made.clone()) } else { WatcherStage::Not }
    }

    /// The command made a name of git's.
    pub(crate) fn made(&self, birth: Option<Birth>) {
        if let (WatcherStage::Begun(live), Some(birth)) = (self, birth) {
            let made = &mut lock(&live.told).made;
            if made.len() < MANY {
                made.insert(birth);
            }
        }
    }

    /// Names of git's that came from outside, once all that the command made was told. None if one
    /// of them proved to be the command's since, or that cannot be known: what it made is looked
    /// through.
    pub(crate) fn foreign(&self) -> HashSet<Birth> {
        let WatcherStage::Begun(live) = self else { return HashSet::new() };
        let told = lock(&live.told);
        if told.made.len() >= MANY || !told.made.is_disjoint(&told.foreign) {
            return HashSet::new();
        }
        told.foreign.clone()
    }

    /// All that was made before somebody asked has been told.
    pub(crate) fn settled(&self) {
        if let WatcherStage::Begun(live) = self {
            lock(&live.told).settled += 1;
            live.changed.notify_all();
        }
    }

    /// Nobody goes on.
    pub(crate) fn paused(&self) {
        if let WatcherStage::Begun(live) = self {
            lock(&live.told).is_paused = true;
            live.changed.notify_all();
        }
    }

    /// What it cannot do as it should.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        if let WatcherStage::Begun(live) = self { lock(&live.told).gaps() } else { Vec::new() }
    }

    /// Ends it. Answers what it could not do as it should.
    pub(crate) fn end(self, farewell: Farewell) -> Result<Vec<Gap>, ProviderError> {
        match self {
            WatcherStage::Begun(live) => live.end(farewell),
            WatcherStage::Not | WatcherStage::Wanted(_) => Ok(Vec::new()),
        }
    }
}

impl WatcherThread {
    /// Begins, on a thread of its own.
    pub(crate) fn begin(
        inside: Arc<SandboxFds>,
        props: Option<WatcherNodes>,
        reins: Reins,
        made: HashSet<Birth>,
    ) -> std::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(WatcherWake { event, is_over: AtomicBool::new(false) });
        let told = Arc::new(Mutex::new(WatcherState { made, ..WatcherState::default() }));
        let changed = Arc::new(Condvar::new());
        let post = WatcherLoop {
            inside,
            props,
            reins,
            told: told.clone(),
            changed: changed.clone(),
            bell: bell.clone(),
        };
        let thread = thread_pool::lend("lookout", None, move || post.keep())?;
        Ok(Self { told, changed, bell, thread })
    }

    pub(crate) fn renewal(&self) -> WatcherRestart {
        WatcherRestart(self.bell.clone())
    }

    fn end(self, farewell: Farewell) -> Result<Vec<Gap>, ProviderError> {
        match farewell {
            Farewell::Wait => {
                self.bell.end();
                self.thread.join();
            }
            Farewell::Leave if !orphans::are_reaped() => self.bell.end(),
            // The caller ends now, and with it the lookout. It may take the kernel long to
            // let go of all that was watched.
            Farewell::Leave => {}
        }
        let mut told = lock(&self.told);
        if let Some(source) = told.failed.take() {
            return Err(ProviderError::System {
                what: "look out for what appears, so the command was ended",
                source,
            });
        }
        Ok(told.gaps())
    }
}

struct WatcherLoop {
    inside: Arc<SandboxFds>,
    props: Option<WatcherNodes>,
    reins: Reins,
    told: Arc<Mutex<WatcherState>>,
    changed: Arc<Condvar>,
    bell: Arc<WatcherWake>,
}

/// What there is to do next.
enum WatcherStep {
    Listen,
    Renew,
    Wait,
    Stop,
}

impl WatcherLoop {
    fn keep(self) {
        if !matches!(self.wait(None, Some(A_MOMENT)), WatcherStep::Wait) {
            return;
        }
        if let Err(error) = self.listen() {
            // What is denied and appears would be open from now on.
            lock(&self.told).failed = Some(error);
            self.reins.end();
        }
    }

    /// Speaks with the lookout until it is to end.
    fn listen(&self) -> std::io::Result<()> {
        let mut lookout = self.start()?;
        let mut is_paused = false;
        loop {
            match self.wait(Some(&lookout), None) {
                WatcherStep::Stop => return Ok(()),
                WatcherStep::Wait => continue,
                WatcherStep::Renew => {
                    self.bell.hush();
                    lookout = self.start()?;
                    if std::mem::take(&mut is_paused) {
                        self.resume();
                    }
                    continue;
                }
                WatcherStep::Listen => {}
            }
            match lookout.next() {
                Some(WatcherMessage::Wanted(question, count, kind)) => {
                    let kind = if kind == FileKind::Directory {
                        NodeKind::DeniedDirectory
                    } else {
                        NodeKind::DeniedFile
                    };
                    lookout.answer(question, self.scene()?.spare_covers(count, &kind));
                }
                Some(WatcherMessage::Appeared(number, path)) => {
                    self.scene()?.name_cover(number, path)
                }
                Some(WatcherMessage::Repository(question, birth)) => {
                    lookout.answer(question, if self.is_own(birth) { OWN } else { FOREIGN })
                }
                Some(WatcherMessage::Overrun(question)) => {
                    self.pause();
                    is_paused = true;
                    lookout.answer(question, OWN);
                }
                Some(WatcherMessage::Caught) if is_paused => {
                    self.resume();
                    is_paused = false;
                }
                Some(WatcherMessage::Caught) => {}
                Some(WatcherMessage::Unwatched(count, shortage)) => {
                    lock(&self.told).unwatched = Some((count, shortage))
                }
                // It ends by itself only when the sandbox is gone, or something went wrong.
                None if matches!(self.wait(None, Some(PATIENCE)), WatcherStep::Stop) => {
                    return Ok(());
                }
                None => return Err(std::io::Error::other("the lookout ended")),
            }
        }
    }

    fn start(&self) -> std::io::Result<WatcherProcess> {
        let lookout = WatcherProcess::start(&self.inside).map_err(std::io::Error::other)?;
        if let Some(props) = &self.props {
            props.own.add(lookout.pid());
        }
        Ok(lookout)
    }

    fn resume(&self) {
        lock(&self.told).is_paused = false;
        self.reins.resume();
    }

    /// Whether the command made a name of git's. The usher may be about to say so: it is
    /// waited for, but only once as long as it does not answer. The command can keep it busy,
    /// and what is not known to be the command's own is protected.
    fn is_own(&self, birth: Birth) -> bool {
        let mut told = lock(&self.told);
        if told.made.contains(&birth) {
            return true;
        }
        told.asked += 1;
        let asked = told.asked;
        self.reins.settle();
        let is_waiting =
            |told: &mut WatcherState| told.settled < asked && !told.made.contains(&birth);
        let waited = self.changed.wait_timeout_while(told, SETTLED, is_waiting);
        let (mut told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_own = told.made.contains(&birth);
        if !is_own && told.foreign.len() < MANY {
            told.foreign.insert(birth);
        }
        is_own
    }

    /// Lets nobody go on, and waits until nobody does.
    fn pause(&self) {
        let mut told = lock(&self.told);
        // Somebody else may have had it paused, and let go on again.
        told.is_paused = false;
        self.reins.pause();
        let _ = self.changed.wait_timeout_while(told, PAUSE, |told| !told.is_paused);
    }

    fn scene(&self) -> std::io::Result<RwLockWriteGuard<'_, NodeTree>> {
        let props = self
            .props
            .as_ref()
            .ok_or_else(|| std::io::Error::other("there is no tripwire to cover it with"))?;
        Ok(props.scene.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Until there is something to do. Without a lookout there is none to take over from:
    /// only an end is waited for.
    fn wait(&self, lookout: Option<&WatcherProcess>, limit: Option<Duration>) -> WatcherStep {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            let mut ends = vec![PollFd::new(&self.bell.event, PollFlags::IN)];
            ends.extend(
                lookout
                    .map(|lookout| PollFd::from_borrowed_fd(lookout.descriptor(), PollFlags::IN)),
            );
            if poll(&mut ends, left.as_ref()).is_err() {
                return WatcherStep::Wait;
            }
            match (
                ends.iter().map(|end| !end.revents().is_empty()).collect::<Vec<_>>().as_slice(),
                lookout,
            ) {
                _ if self.bell.is_over() => return WatcherStep::Stop,
                ([true, ..], None) => self.bell.hush(),
                ([true, ..], Some(_)) => return WatcherStep::Renew,
                ([_, true], _) => return WatcherStep::Listen,
                _ => return WatcherStep::Wait,
            }
        }
    }
}
