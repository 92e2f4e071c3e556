//! The place called `local`: this machine, confined by its own kernel.

#![forbid(unsafe_code)]

mod attend;
mod bare;
mod capture;
mod sweep;

use std::cell::RefCell;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;

use ringfence_api::{Outcome, Request};
use ringfence_enforce::apply::{self, Ahead, Launch};
use ringfence_enforce::{Network, Person, Plan, Step, plan, survey};
use ringfence_policy::{AbsPath, Grants};
use ringfence_provider::{Provider, ProviderError, Session};
use ringfence_sys::signal::{self, Set};

use attend::Farewell;

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
        let plan = plan(grants, &found, &apply::support(), person);
        Ok(Box::new(Confined {
            plan,
            grants: grants.clone(),
            quarantine: person.quarantine.clone(),
            farewell: self.farewell,
            ahead: self.ahead.take(),
        }))
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
        let run = std::process::id();
        stores(&mut self.plan, run);
        let launch = Launch {
            plan: self.plan.clone(),
            grants: apply::pack(&self.grants),
            command: request.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            variables: request.variables.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()).collect(),
            cwd: request.cwd.clone(),
            run,
        };
        let network = self.plan.network();
        let mut ahead = self.ahead.take().filter(|ahead| ahead.network() == network);
        let attended = attend::run(request, self.farewell, |streams, mask| {
            let ahead = ahead.take().map_or_else(|| Ahead::start(network, mask), Ok)?;
            ahead.launch(&launch, streams).map(|running| Box::new(running) as Box<dyn attend::Subject>)
        })?;
        let quarantined = sweep::sweep(&attended.made, &self.grants, &self.quarantine);
        Ok(Outcome {
            enforced: self.plan.steps.iter().map(ToString::to_string).collect(),
            gaps: self.plan.gaps.clone(),
            quarantined,
            ..attended.outcome
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

/// Makes the places where private caches are kept. Where that is impossible (a home that
/// is not there, or is read-only), the cache lasts as long as the sandbox.
fn stores(plan: &mut Plan, run: u32) {
    for step in &mut plan.steps {
        let Step::Private { path, store, beneath } = step else { continue };
        let made = match beneath {
            None => make(store),
            Some(_) => {
                remove_old_work(store);
                make(&store.join("upper")).and_then(|()| make(&apply::work_directory(store, run)))
            }
        };
        if made.is_err() {
            *step = Step::Scratch { path: path.clone() };
        }
    }
}

fn make(path: &AbsPath) -> std::io::Result<()> {
    if path.as_path().is_dir() { Ok(()) } else { fs::DirBuilder::new().recursive(true).mode(0o700).create(path.as_path()) }
}

/// Work directories of runs that are over.
fn remove_old_work(store: &AbsPath) {
    for entry in fs::read_dir(store.as_path()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix("work."));
        if run.is_some_and(|run| !std::path::Path::new("/proc").join(run).exists() || run == std::process::id().to_string()) {
            let _ = make_removable(&entry.path()).and_then(|()| fs::remove_dir_all(entry.path()));
        }
    }
}

/// The kernel makes a directory of mode 0 in there.
fn make_removable(work: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match fs::set_permissions(work.join("work"), fs::Permissions::from_mode(0o700)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
