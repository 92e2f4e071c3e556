//! While a command runs: what appears in its trees is covered there as well.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use ringfence_api::{Gap, Loss};
use ringfence_enforce::apply::{Birth, FOREIGN, Inside, Lookout, OWN, Reins, Shortage, Sighting};
use ringfence_enforce::{Kind, Plan, Step};
use ringfence_provider::ProviderError;
use ringfence_tripwire::{PropKind, Scene};
use rustix::event::{EventfdFlags, PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::crew::{self, Hand};
use crate::orphans::{self, Farewell};
use crate::watch::Own;

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

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lookout of one command, from this side.
#[derive(Debug)]
pub(crate) struct Live {
    told: Arc<Mutex<Told>>,
    changed: Arc<Condvar>,
    bell: Arc<Bell>,
    thread: Hand,
}

/// What wakes the thread.
#[derive(Debug)]
struct Bell {
    event: OwnedFd,
    is_over: AtomicBool,
}

impl Bell {
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
pub(crate) struct Renewal(Arc<Bell>);

impl Renewal {
    pub(crate) fn wanted(&self) {
        self.0.ring();
    }
}

/// What was heard of it.
#[derive(Debug, Default)]
struct Told {
    /// How many directories are looked through again and again, and for want of what.
    unwatched: Option<(usize, Shortage)>,
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

impl Told {
    /// What is not done as it should be.
    fn gaps(&self) -> Vec<Gap> {
        let gap = |(count, shortage): (usize, Shortage)| Gap {
            what: "filesystem.deny".into(),
            why: format!(
                "{count} directories could not be watched, and were looked through again and again instead"
            ),
            hint: format!("sudo sysctl {}", shortage.setting()),
            loss: Loss::Enforcement,
        };
        self.unwatched.map(gap).into_iter().collect()
    }
}

/// What a lookout needs of the tripwire.
#[derive(Debug, Clone)]
pub(crate) struct Props {
    /// Where its covers come from.
    pub(crate) scene: Arc<RwLock<Scene>>,
    /// Whom not to tell of.
    pub(crate) own: Arc<Own>,
}

/// Whether somebody looks out.
#[derive(Debug, Default)]
pub(crate) enum LookingOut {
    /// Nobody need.
    #[default]
    Not,
    /// As soon as there is something to look at. Knows what earlier commands made of git's.
    Wanted(HashSet<Birth>),
    Begun(Live),
}

impl LookingOut {
    /// As the plan says, where earlier commands `made` names of git's.
    pub(crate) fn over(plan: &Plan, made: &HashSet<Birth>) -> Self {
        let is_wanted = plan.steps.iter().any(|step| matches!(step, Step::Lookout { .. }));
        if is_wanted { LookingOut::Wanted(made.clone()) } else { LookingOut::Not }
    }

    /// The command made a name of git's.
    pub(crate) fn made(&self, birth: Option<Birth>) {
        if let (LookingOut::Begun(live), Some(birth)) = (self, birth) {
            let made = &mut lock(&live.told).made;
            if made.len() < MANY {
                made.insert(birth);
            }
        }
    }

    /// Names of git's that came from outside, once all that the command made was told. None if one of
    /// them proved to be the command's since, or that cannot be known: what it made is looked through.
    pub(crate) fn foreign(&self) -> HashSet<Birth> {
        let LookingOut::Begun(live) = self else { return HashSet::new() };
        let told = lock(&live.told);
        if told.made.len() >= MANY || !told.made.is_disjoint(&told.foreign) {
            return HashSet::new();
        }
        told.foreign.clone()
    }

    /// All that was made before somebody asked has been told.
    pub(crate) fn settled(&self) {
        if let LookingOut::Begun(live) = self {
            lock(&live.told).settled += 1;
            live.changed.notify_all();
        }
    }

    /// Nobody goes on.
    pub(crate) fn paused(&self) {
        if let LookingOut::Begun(live) = self {
            lock(&live.told).is_paused = true;
            live.changed.notify_all();
        }
    }

    /// What it cannot do as it should.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        if let LookingOut::Begun(live) = self { lock(&live.told).gaps() } else { Vec::new() }
    }

    /// Ends it. Answers what it could not do as it should.
    pub(crate) fn end(self, farewell: Farewell) -> Result<Vec<Gap>, ProviderError> {
        match self {
            LookingOut::Begun(live) => live.end(farewell),
            LookingOut::Not | LookingOut::Wanted(_) => Ok(Vec::new()),
        }
    }
}

impl Live {
    /// Begins, on a thread of its own.
    pub(crate) fn begin(
        inside: Arc<Inside>,
        props: Option<Props>,
        reins: Reins,
        made: HashSet<Birth>,
    ) -> std::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bell = Arc::new(Bell { event, is_over: AtomicBool::new(false) });
        let told = Arc::new(Mutex::new(Told { made, ..Told::default() }));
        let changed = Arc::new(Condvar::new());
        let post = Post {
            inside,
            props,
            reins,
            told: told.clone(),
            changed: changed.clone(),
            bell: bell.clone(),
        };
        let thread = crew::lend("lookout", None, move || post.keep())?;
        Ok(Self { told, changed, bell, thread })
    }

    pub(crate) fn renewal(&self) -> Renewal {
        Renewal(self.bell.clone())
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

struct Post {
    inside: Arc<Inside>,
    props: Option<Props>,
    reins: Reins,
    told: Arc<Mutex<Told>>,
    changed: Arc<Condvar>,
    bell: Arc<Bell>,
}

/// What there is to do next.
enum Next {
    Listen,
    Renew,
    Wait,
    Stop,
}

impl Post {
    fn keep(self) {
        if !matches!(self.wait(None, Some(A_MOMENT)), Next::Wait) {
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
                Next::Stop => return Ok(()),
                Next::Wait => continue,
                Next::Renew => {
                    self.bell.hush();
                    lookout = self.start()?;
                    if std::mem::take(&mut is_paused) {
                        self.resume();
                    }
                    continue;
                }
                Next::Listen => {}
            }
            match lookout.next() {
                Some(Sighting::Wanted(question, count, kind)) => {
                    let kind = if kind == Kind::Directory {
                        PropKind::DeniedDirectory
                    } else {
                        PropKind::DeniedFile
                    };
                    lookout.answer(question, self.scene()?.spare_covers(count, &kind));
                }
                Some(Sighting::Appeared(number, path)) => self.scene()?.name_cover(number, path),
                Some(Sighting::Repository(question, birth)) => {
                    lookout.answer(question, if self.is_own(birth) { OWN } else { FOREIGN })
                }
                Some(Sighting::Overrun(question)) => {
                    self.pause();
                    is_paused = true;
                    lookout.answer(question, OWN);
                }
                Some(Sighting::Caught) if is_paused => {
                    self.resume();
                    is_paused = false;
                }
                Some(Sighting::Caught) => {}
                Some(Sighting::Unwatched(count, shortage)) => {
                    lock(&self.told).unwatched = Some((count, shortage))
                }
                // It ends by itself only when the sandbox is gone, or something went wrong.
                None if matches!(self.wait(None, Some(PATIENCE)), Next::Stop) => return Ok(()),
                None => return Err(std::io::Error::other("the lookout ended")),
            }
        }
    }

    fn start(&self) -> std::io::Result<Lookout> {
        let lookout = Lookout::start(&self.inside).map_err(std::io::Error::other)?;
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
        let is_waiting = |told: &mut Told| told.settled < asked && !told.made.contains(&birth);
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

    fn scene(&self) -> std::io::Result<RwLockWriteGuard<'_, Scene>> {
        let props = self
            .props
            .as_ref()
            .ok_or_else(|| std::io::Error::other("there is no tripwire to cover it with"))?;
        Ok(props.scene.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Until there is something to do. Without a lookout there is none to take over from:
    /// only an end is waited for.
    fn wait(&self, lookout: Option<&Lookout>, limit: Option<Duration>) -> Next {
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
                return Next::Wait;
            }
            match (
                ends.iter().map(|end| !end.revents().is_empty()).collect::<Vec<_>>().as_slice(),
                lookout,
            ) {
                _ if self.bell.is_over() => return Next::Stop,
                ([true, ..], None) => self.bell.hush(),
                ([true, ..], Some(_)) => return Next::Renew,
                ([_, true], _) => return Next::Listen,
                _ => return Next::Wait,
            }
        }
    }
}
