//! The place called `local`: this machine, confined by its own kernel.

#![forbid(unsafe_code)]

mod allowances;
mod asks;
mod attend;
mod bare;
mod beside;
mod connections;
mod cradle;
mod crew;
mod deadline;
mod denials;
mod egress;
mod git_config;
mod guess;
mod live;
mod lookups;
mod optional;
mod orphans;
mod room;
mod runs;
mod shell;
mod stand;
mod steward;
mod stores;
mod sweep;
mod watch;

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_api::{Asker, Denial, Gap, Outcome, Output, Quarantined, Request, Stdio};
use ringfence_egress::dial::Outer;
use ringfence_enforce::apply::{self, Ahead, Birth, Launch, MemoryCounter};
use ringfence_enforce::{Known, Network, Person, Plan, Step, plan, scene, survey_beside, vendored};
use ringfence_policy::{AbsPath, Grants};
use ringfence_provider::{Provider, ProviderError, Session, Standing};
use ringfence_sys::signal::{self, Set};
use rustix::fs::CWD;

use attend::Masked;
use cradle::Cradle;
pub use egress::own_addresses;
use egress::{Gate, Reserved, Seal};
use git_config::KnownConfigs;
use guess::Guess;
use live::LookingOut;
use orphans::Farewell;
pub use orphans::reap_children;
use room::Files;
use runs::{Listed, Mark, Runs};
use sweep::{Ground, Look, Moment};
use watch::Watch;

/// This machine's own sandbox.
#[derive(Debug, Default)]
pub struct Local {
    farewell: Farewell,
    ahead: RefCell<Option<Ahead>>,
    files: Files,
    cradle: Cradle,
}

impl Local {
    /// For a program that runs one command and ends with it: what every sandbox needs is
    /// begun at once, while the policy is still being read, and nobody waits for the
    /// kernel to take the sandbox down.
    ///
    /// To be called before the program starts threads.
    pub fn for_one_command() -> Self {
        // The mask of this moment is the one the command is to start with. What fails
        // here fails again, and is told, when the command is run.
        let ahead = signal::block(&Set::of(&[]))
            .ok()
            .and_then(|mask| Ahead::start_early(Network::Own, &mask).ok());
        Self {
            farewell: Farewell::Leave,
            ahead: RefCell::new(ahead),
            files: Files::ours(),
            cradle: Cradle::default(),
        }
    }

    /// For a program that is there for a sandbox and for nothing else: where hosts may be reached,
    /// its limit of open files is raised, since every connection that is carried takes two. What
    /// runs inside has the limit that the program had.
    pub fn for_one_sandbox() -> Self {
        Self { files: Files::ours(), ..Self::default() }
    }
}

/// For a program that has very many sandboxes at the same time: makes the places of all of them.
/// Its limit of open files is raised now; what runs inside has the limit that the program had.
pub fn places() -> impl Fn() -> Local {
    let files = Files::ours();
    files.raise();
    let cradle = Cradle::shared();
    crew::keep();
    steward::share_cpus();
    move || Local { files: files.clone(), cradle: cradle.clone(), ..Local::default() }
}

impl Provider for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn open(&self, grants: &Grants, person: &Person) -> Result<Box<dyn Session>, ProviderError> {
        if !grants.is_confined() {
            return Ok(Box::new(bare::Bare::new(grants)));
        }
        let mut person = person.clone();
        let seal = Seal::of(grants, &mut person)?;
        let outer = egress::outer(grants, &person)?;
        let grants = Arc::new(grants.clone());
        let Planned { plan, held, begun, listed } = planned(&grants, &person);
        Ok(Box::new(Confined {
            plan,
            looked: Some(Instant::now()),
            begun,
            listed,
            grants,
            held,
            person,
            seal,
            outer,
            farewell: self.farewell,
            ahead: self.ahead.take(),
            files: self.files.clone(),
            cradle: self.cradle.clone(),
            asker: None,
            refused: (Vec::new(), 0),
        }))
    }
}

/// A plan, the grants it holds by, and a moment before the host was looked at for it.
struct Planned {
    plan: Plan,
    held: Arc<Grants>,
    begun: Moment,
    /// What commands had made.
    listed: Listed,
}

/// The plan for the host as it is now.
fn planned(grants: &Arc<Grants>, person: &Person) -> Planned {
    let begun = Moment::now();
    let listed = Runs::open(&person.quarantine).map(|runs| runs.listed(grants)).unwrap_or_default();
    let is_made = |path: &AbsPath| {
        Birth::of(CWD, path.as_path()).is_some_and(|birth| listed.made().contains(&birth))
    };
    let found = survey_beside(grants, &Known { is_made: &is_made, ..Known::default() });
    let mut held = grants.clone();
    if !found.tracked.is_empty() {
        Arc::make_mut(&mut held).tracked.extend(found.tracked.clone());
    }
    if !found.rules.is_empty() {
        Arc::make_mut(&mut held).rules.extend(found.rules.iter().cloned());
    }
    Planned { plan: plan(&held, &found, &apply::support(), person), held, begun, listed }
}

/// Dies as a command dies that was interrupted at the terminal, so that a script around it
/// stops too; a status of 130 alone would let it go on. Returns only if that is impossible.
pub fn die_of_interrupt() {
    use ringfence_sys::signal::{self, Disposition};
    let _ = signal::set_disposition(libc::SIGINT, Disposition::Default);
    let _ = signal::raise(libc::SIGINT);
}

/// A sandbox made of namespaces.
struct Confined {
    plan: Plan,
    /// When the host was looked at for `plan`, if no command has run since.
    looked: Option<Instant>,
    begun: Moment,
    listed: Listed,
    grants: Arc<Grants>,
    /// The same with what the host's own settings add.
    held: Arc<Grants>,
    person: Person,
    seal: Option<Arc<Seal>>,
    /// The proxy by which hosts are reached, where that takes one.
    outer: Outer,
    farewell: Farewell,
    ahead: Option<Ahead>,
    files: Files,
    cradle: Cradle,
    asker: Option<Arc<dyn Asker>>,
    /// What was refused to a command that ended in an error.
    refused: (Vec<Denial>, u64),
}

/// For so long the host is taken to be as it was when it was looked at.
const FRESH: Duration = Duration::from_millis(50);

impl Session for Confined {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn ask(&mut self, asker: Arc<dyn Asker>) {
        self.asker = Some(asker);
    }

    fn run(&mut self, request: &Request) -> Result<Outcome, ProviderError> {
        refuse_directories()?;
        let ports = self.ports()?;
        // Until what was planted is moved away.
        let masked = Masked::begin()?;
        let command = request.command.iter().map(|word| word.as_bytes().to_vec()).collect();
        let (mut launch, campaign) =
            self.prepare(command, packed(&request.variables), &request.cwd);
        ports.tell(&mut launch.plan.gaps);
        let network = launch.plan.network();
        let mut ahead = self.ahead.take().filter(|ahead| ahead.network() == network);
        let mut seen = self.seen(&launch.plan, ports, &campaign);
        seen.is_guessed = Guess::is_needed(&launch.plan, &self.held);
        let attended = attend::run(request, self.farewell, &mut seen, &masked, |streams, mask| {
            let ahead = ahead.take().map_or_else(
                || {
                    self.cradle
                        .start(&launch.plan, &self.person.quarantine, mask)
                        .map(|(ahead, _)| ahead)
                },
                Ok,
            )?;
            let lock = campaign.lock();
            ahead
                .launch(&launch, streams, lock.as_ref().map(AsFd::as_fd))
                .map(|running| Box::new(running) as Box<dyn attend::Subject>)
        });
        self.plan = launch.plan;
        seen.foreign = seen.live.foreign();
        let unseen = std::mem::take(&mut seen.live).end(self.farewell);
        seen.own_up(&mut self.plan);
        if attended.is_err() {
            self.refused = seen.refused();
        }
        let observed = self
            .plan
            .steps
            .contains(&Step::Observe)
            .then(|| std::mem::take(&mut seen.observed).finish());
        // Also after an error: by then the command may have made what it wanted.
        let quarantined = campaign.conclude(&mut seen, attended.is_ok());
        drop(masked);
        Ok(Outcome { quarantined, observed, ..self.told(request, attended?, unseen?) })
    }

    fn raise(&mut self, cwd: &AbsPath) -> Result<Box<dyn Standing>, ProviderError> {
        Ok(Box::new(stand::Sandbox::raise(self, cwd)?))
    }

    fn refused(&mut self) -> (Vec<Denial>, u64) {
        std::mem::take(&mut self.refused)
    }
}

impl Confined {
    /// What to launch, with the host as it is now, and what is to be done about it later.
    fn prepare(
        &mut self,
        command: Vec<Vec<u8>>,
        variables: Vec<Vec<u8>>,
        cwd: &AbsPath,
    ) -> (Launch, Campaign) {
        // What a killed run planted must not be found by the survey: it would be protected.
        let runs = Runs::make(&self.person.quarantine);
        let left_over = runs.as_ref().and_then(Runs::sweep_for_the_killed);
        // A secret that appeared since is covered like those that stood there before.
        let looked = self.looked.take().filter(|_| left_over.is_none());
        if looked.is_none_or(|looked| looked.elapsed() > FRESH) {
            Planned { plan: self.plan, held: self.held, begun: self.begun, listed: self.listed } =
                planned(&self.grants, &self.person);
        }
        let stores = stores::make(&mut self.plan);
        let plan = std::mem::take(&mut self.plan);
        let ground = Ground::of(&plan, self.begun, self.listed.heads(), vendored(&self.held))
            .beside(self.listed.made());
        let mark = runs.as_ref().and_then(|runs| runs.mark(&ground).ok());
        let listed = std::mem::take(&mut self.listed);
        let campaign = Campaign {
            runs,
            left_over,
            mark,
            ground,
            listed,
            quarantine: self.person.quarantine.clone(),
            stores,
        };
        let asker =
            if self.asker.is_some() { apply::Asker::Somebody } else { apply::Asker::Nobody };
        let open_files = plan.steps.contains(&Step::Egress).then(|| self.files.raise()).flatten();
        (
            Launch {
                plan,
                grants: apply::pack(&self.held),
                command,
                variables,
                cwd: cwd.clone(),
                asker,
                open_files,
                memory: MemoryCounter::Complete,
            },
            campaign,
        )
    }

    /// The host's ports that are to lead into the sandbox, as long as this one has them.
    fn ports(&self) -> Result<Reserved, ProviderError> {
        let network = &self.grants.network;
        if network.has_a_border() { Reserved::of(&network.bind) } else { Ok(Reserved::default()) }
    }

    fn seen(&self, plan: &Plan, ports: Reserved, campaign: &Campaign) -> attend::Seen {
        let ground =
            Arc::new(asks::Ground::new(self.held.clone(), plan.is_wired().then(|| scene(plan))));
        let watch = Watch::over(plan, &ground, self.asker.as_ref());
        let gate = plan.steps.contains(&Step::Egress).then(|| {
            let asks = watch.as_ref().and_then(Watch::asks);
            Arc::new(Gate::new(ground.clone(), asks, self.seal.clone(), self.outer.clone()))
        });
        attend::Seen {
            limits: self.grants.limits,
            watch,
            gate,
            ports,
            ground: Some(ground),
            live: LookingOut::over(plan, campaign.listed.made()),
            configs: KnownConfigs::at_start(
                plan,
                campaign.runs.as_ref().map(|_| campaign.quarantine.clone()),
            ),
            ..attend::Seen::default()
        }
    }

    /// With what held, what did not, and what was refused and nobody told of.
    fn told(&self, request: &Request, mut outcome: Outcome, unseen: Vec<Gap>) -> Outcome {
        outcome.enforced = self.plan.steps.iter().map(ToString::to_string).collect();
        outcome.gaps = self.plan.gaps.iter().cloned().chain(unseen).collect();
        if Guess::is_needed(&self.plan, &self.held) && outcome.exit_code() != 0 {
            let guess = Guess::new(&self.plan, &self.held, &request.cwd);
            outcome.denials.extend(guess.at(&outcome.stderr, &outcome.denials));
        }
        if request.stdio == Stdio::Inherit {
            // The caller has it.
            outcome.stderr = Output::default();
        }
        outcome
    }
}

/// What is to be done when a sandbox has ended.
struct Campaign {
    runs: Option<Runs>,
    left_over: Option<Vec<Quarantined>>,
    mark: Option<Mark>,
    ground: Ground,
    listed: Listed,
    quarantine: AbsPath,
    /// Held until the sandbox has ended.
    stores: stores::Locks,
}

impl Campaign {
    /// The project's lock for a sandbox. It ends with that sandbox, so that the caller must not keep it.
    fn lock(&self) -> Option<OwnedFd> {
        self.runs.as_ref().and_then(Runs::lock)
    }

    /// Moves away what was planted. Unless `is_known`, more may have been made than was told.
    fn conclude(self, seen: &mut attend::Seen, is_known: bool) -> Vec<Quarantined> {
        let Self { runs, left_over, mark, mut ground, listed, quarantine, stores } = self;
        drop(stores);
        let is_all_known = is_known && !seen.has_unknown;
        if is_all_known {
            ground.foreign = std::mem::take(&mut seen.foreign);
        }
        // Also what other commands made, now or before: unless the survey found it, this one
        // could write to it.
        let (mut others, moved) = runs.as_ref().map(|runs| runs.made(&listed)).unwrap_or_default();
        others.retain(|made| !ground.is_covered(made));
        ground.forget_foreign(&others);
        let are_others = runs.as_ref().is_some_and(|runs| runs.others_go_on(mark.as_ref()));
        let mut made = std::mem::take(&mut seen.made);
        let mut more = std::mem::take(&mut seen.more);
        made.extend(others);
        more.extend(moved);
        let look = match (is_all_known || !seen.is_started, more.is_empty()) {
            (false, _) => Look::Everywhere,
            (true, false) => Look::Known(more),
            (true, true) => Look::Made,
        };
        // Somebody impatient would leave the rest unseen; the work is bounded.
        let masked = Masked::begin();
        let mut quarantined = left_over.unwrap_or_default();
        let swept = sweep::sweep(made, look, &ground, &quarantine);
        quarantined.extend(swept.moved);
        if let Some(runs) = runs {
            runs.note(swept.spotted, &listed, mark.as_ref());
            if !seen.own_files.is_empty() {
                runs.remember(&std::mem::take(&mut seen.own_files), seen.left_contents.as_ref());
            }
            if are_others {
                // One that ended before this was told may have written to it after it was swept.
                let (mut again, _) = runs.made(&listed);
                again.retain(|made| !ground.is_covered(made));
                ground.forget_foreign(&again);
                let swept = sweep::sweep(again, Look::Made, &ground, &quarantine);
                if !swept.moved.is_empty() {
                    runs.note(swept.spotted, &listed, mark.as_ref());
                }
                quarantined.extend(swept.moved);
            }
        }
        if let Some(mark) = mark {
            mark.remove();
        }
        drop(masked);
        quarantined
    }
}

/// Variables as the helper takes them.
fn packed(variables: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    variables
        .iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// A directory handed over as a standard stream leads out: `openat(0, "..")`.
fn refuse_directories() -> Result<(), ProviderError> {
    let streams = [
        ("input", rustix::stdio::stdin()),
        ("output", rustix::stdio::stdout()),
        ("error", rustix::stdio::stderr()),
    ];
    for (stream, descriptor) in streams {
        let status = rustix::fs::fstat(descriptor.as_fd());
        if status.is_ok_and(|status| rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir()) {
            return Err(ProviderError::StreamIsDirectory { stream });
        }
    }
    Ok(())
}
