//! Shells without confinement.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::apply::{ExecId, ExecSpec, exit_status, resource_usage};
use crate::launcher::system_step::SystemStep;
use crate::locks::lock;
use crate::open::open;
use ringfence_api::{
    Denial, Enforcement, ExitStatus, Gap, GrantedAccess, PathMap, QuarantinedFile, ResourceUsage,
};
use ringfence_policy::Grants;
use ringfence_provider::{
    PolicyRevision, ProcessSpec, ProcessStdio, ProviderError, Sandbox, SandboxShell,
    SandboxedProcess, ShellSpec,
};
use ringfence_shell::RUNNER_TEXT;
use ringfence_sys::process::{self, SpawnOptions, Wait};
use ringfence_sys::signal::{self, SignalSet};
use rustix::fs::{MemfdFlags, OFlags, SealFlags};

use super::find_gaps;
use crate::launcher::process::SandboxProcess;
use crate::launcher::shell::{PersistentShell, ShellHost, StartedProcess};

/// Fd of the file that every command of a shell goes through.
const RUNNER: i32 = 60;

/// No sandbox, for many commands.
pub(super) struct UnconfinedSandbox {
    gaps: Vec<Gap>,
    paths: PathMap,
    shared: Arc<UnconfinedShared>,
}

struct UnconfinedShared {
    runner: OwnedFd,
    at: String,
    shells: Mutex<HashMap<ExecId, i32>>,
    next: AtomicU64,
}

impl UnconfinedSandbox {
    pub(super) fn new(gaps: Vec<Gap>) -> Result<Self, ProviderError> {
        let what = "create a memfd";
        let runner =
            rustix::fs::memfd_create("shell", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .during(what)?;
        rustix::io::write(&runner, RUNNER_TEXT.as_bytes()).during(what)?;
        // Sealed: every command has it open.
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&runner, seals).during(what)?;
        let shared = UnconfinedShared {
            runner,
            at: format!("/dev/fd/{RUNNER}"),
            shells: Mutex::default(),
            next: AtomicU64::new(1),
        };
        Ok(Self { gaps, paths: PathMap::identity(), shared: Arc::new(shared) })
    }
}

impl Sandbox for UnconfinedSandbox {
    fn enforced(&self) -> &[Enforcement] {
        &[]
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn paths(&self) -> &PathMap {
        &self.paths
    }

    fn is_confined(&self) -> bool {
        false
    }

    fn start_shell(&self, start: &ShellSpec) -> Result<Box<dyn SandboxShell>, ProviderError> {
        Ok(Box::new(PersistentShell::start(self.shared.clone(), start)?))
    }

    fn start_process(
        &self,
        start: &ProcessSpec,
    ) -> Result<Box<dyn SandboxedProcess>, ProviderError> {
        if matches!(start.streams, ProcessStdio::Terminal(_)) {
            // Nothing is confined: the user's own terminal is enough.
            return Err(ProviderError::TerminalNeedsSandbox);
        }
        Ok(Box::new(SandboxProcess::start(self.shared.clone(), start)?))
    }

    fn apply_policy(&self, grants: &Grants) -> Result<PolicyRevision, ProviderError> {
        // Nothing is enforced under any rules. The gaps tell the caller.
        Ok(PolicyRevision { gaps: find_gaps(grants), ..PolicyRevision::default() })
    }

    fn end(self: Box<Self>) -> Result<Vec<QuarantinedFile>, ProviderError> {
        Ok(Vec::new())
    }
}

impl Drop for UnconfinedSandbox {
    /// Kills the shells; their background processes keep running.
    fn drop(&mut self) {
        let shells = std::mem::take(&mut *lock(&self.shared.shells));
        for pid in shells.into_values() {
            let _ = signal::kill(-pid, libc::SIGKILL);
            let _ = process::wait(pid, Wait::Block);
        }
    }
}

impl ShellHost for UnconfinedShared {
    fn runner(&self) -> &str {
        &self.at
    }

    fn start(
        &self,
        start: &ExecSpec,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(ExecId, StartedProcess), ProviderError> {
        /// Above every fd number that a shell wants.
        const MIN_FD: i32 = 512;
        let above = |one: BorrowedFd<'_>| {
            rustix::io::fcntl_dupfd_cloexec(one, MIN_FD).during("duplicate an fd")
        };
        let null = open("/dev/null", OFlags::RDONLY);
        let null = null.during("open /dev/null")?;
        // Later entries override earlier ones.
        let all = [self.runner.as_fd(), null.as_fd()]
            .into_iter()
            .chain(descriptors.iter().copied())
            .map(above)
            .collect::<Result<Vec<_>, _>>()?;
        let numbers = [RUNNER, 0].into_iter().chain(start.numbers.iter().copied());
        let placed: Vec<_> = all.iter().map(AsFd::as_fd).zip(numbers).collect();
        let text = |bytes: &[u8]| {
            CString::new(bytes)
                .map_err(|_| std::io::ErrorKind::InvalidInput)
                .during("read the command")
        };
        // `chdir` here would affect every thread.
        let words: [&[u8]; 5] = [
            b"sh",
            b"-c",
            b"cd -- \"$1\" && shift && exec \"$@\"",
            b"sh",
            start.cwd.as_path().as_os_str().as_bytes(),
        ];
        let arguments = words
            .into_iter()
            .chain(start.command.iter().map(Vec::as_slice))
            .map(text)
            .collect::<Result<Vec<_>, _>>()?;
        let variables =
            start.variables.iter().map(|variable| text(variable)).collect::<Result<Vec<_>, _>>()?;
        let mask = signal::block(&SignalSet::from_signals(&[])).during("read the signal mask")?;
        let options = SpawnOptions {
            isolation: start.orphans.isolation(),
            descriptors: &placed,
            rlimits: &[],
            mask: &mask,
            landlock: None,
        };
        let pid = process::spawn_with(c"/bin/sh", &arguments, &variables, &options)
            .during("start a shell")?;
        let job = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.shells).insert(job, pid);
        let pidfd = process::pidfd(pid).during("watch a shell")?;
        Ok((job, StartedProcess { pidfd, terminal: None }))
    }

    fn ended(&self, job: ExecId) -> Option<(ExitStatus, ResourceUsage)> {
        let pid = lock(&self.shells).remove(&job)?;
        let (_, change, usage) = process::wait(pid, Wait::Block).ok()??;
        Some((exit_status(change)?, resource_usage(&usage)))
    }

    fn forget(&self, job: ExecId) {
        // Its script has ended, and the shell exits.
        let pid = lock(&self.shells).remove(&job);
        if let Some(pid) = pid {
            let _ = signal::kill(pid, libc::SIGKILL);
            let _ = process::wait(pid, Wait::Block);
        }
    }

    fn take_denials(&self) -> (Vec<Denial>, u64) {
        (Vec::new(), 0)
    }

    fn take_granted(&self) -> Vec<GrantedAccess> {
        Vec::new()
    }
}
