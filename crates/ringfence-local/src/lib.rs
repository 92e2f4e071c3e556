//! The place called `local`: this machine, confined by its own kernel.

#![forbid(unsafe_code)]

mod attend;
mod bare;
mod capture;
mod stores;
mod sweep;

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use ringfence_api::{Outcome, Request};
use ringfence_enforce::apply::{self, Ahead, Launch};
use ringfence_enforce::{Network, Person, Plan, plan, survey};
use ringfence_policy::{AbsPath, Grants};
use ringfence_provider::{Provider, ProviderError, Session};
use ringfence_sys::signal::{self, Set};

use attend::Farewell;
use sweep::Look;

/// This machine's own sandbox.
#[derive(Debug, Default)]
pub struct Local {
    farewell: Farewell,
    ahead: RefCell<Option<Ahead>>,
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
        let ahead = signal::block(&Set::of(&[])).ok().and_then(|mask| Ahead::start(Network::Own, &mask).ok());
        Self { farewell: Farewell::Leave, ahead: RefCell::new(ahead) }
    }
}

impl Provider for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn open(&self, grants: &Grants, person: &Person) -> Result<Box<dyn Session>, ProviderError> {
        if !grants.is_confined() {
            return Ok(Box::new(bare::Bare::new()));
        }
        let found = survey(grants);
        let mut grants = grants.clone();
        grants.rules.extend(found.rules.iter().cloned());
        let plan = plan(&grants, &found, &apply::support(), person);
        Ok(Box::new(Confined { plan, grants, quarantine: person.quarantine.clone(), farewell: self.farewell, ahead: self.ahead.take() }))
    }
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
    grants: Grants,
    quarantine: AbsPath,
    farewell: Farewell,
    ahead: Option<Ahead>,
}

impl Session for Confined {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn run(&mut self, request: &Request) -> Result<Outcome, ProviderError> {
        refuse_directories()?;
        stores::make(&mut self.plan);
        let launch = Launch {
            plan: std::mem::take(&mut self.plan),
            grants: apply::pack(&self.grants),
            command: request.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            variables: request.variables.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()).collect(),
            cwd: request.cwd.clone(),
        };
        let network = launch.plan.network();
        let mut ahead = self.ahead.take().filter(|ahead| ahead.network() == network);
        let mut seen = attend::Seen::default();
        let attended = attend::run(request, self.farewell, &mut seen, |streams, mask| {
            let ahead = ahead.take().map_or_else(|| Ahead::start(network, mask), Ok)?;
            ahead.launch(&launch, streams).map(|running| Box::new(running) as Box<dyn attend::Subject>)
        });
        self.plan = launch.plan;
        // Also after an error: by then the command may have made what it wanted.
        let is_all_known = attended.is_ok() && seen.made.iter().all(|made| made.directory.is_some());
        let look = if is_all_known || !seen.is_started { Look::Made } else { Look::Everywhere };
        let quarantined = sweep::sweep(seen.made, look, &self.plan, &self.grants, &self.quarantine);
        Ok(Outcome {
            enforced: self.plan.steps.iter().map(ToString::to_string).collect(),
            gaps: self.plan.gaps.clone(),
            quarantined,
            ..attended?
        })
    }
}

/// A directory handed over as a standard stream leads out: `openat(0, "..")`.
fn refuse_directories() -> Result<(), ProviderError> {
    let streams = [("input", rustix::stdio::stdin()), ("output", rustix::stdio::stdout()), ("error", rustix::stdio::stderr())];
    for (stream, descriptor) in streams {
        let status = rustix::fs::fstat(descriptor.as_fd());
        if status.is_ok_and(|status| rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir()) {
            return Err(ProviderError::StreamIsDirectory { stream });
        }
    }
    Ok(())
}
