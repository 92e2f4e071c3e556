//! The sandbox without namespaces: init, which confines each command by Landlock, and its parent, the
//! notify handler, if there is one.
//!
//! Landlock restricts no file access of these two. They are outside the domain of the command, so no
//! command can send them a signal or trace them. Init ends every process of the sandbox when the
//! command or the launcher ends.

use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use ringfence_plan::landlock::Mediation;
use ringfence_plan::seccomp::{
    FileOwner, GroupSignals, HostNetwork, PlainFilterOptions, Truncation, plain_filter,
};
use ringfence_plan::{NetworkNamespace, Plan, Step};
use ringfence_policy::AbsPath;
use ringfence_sys::process::{self, Fork};
use ringfence_sys::seccomp::{self, BpfInsn};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{landlock, privilege};
use rustix::fs::OFlags;
use tracing::{debug, error, info, trace_span};

use super::fd_passing::{is_peer_gone, relay_log, send_bytes_with_fds, send_message};
use super::helper_process::message_sockets;
use super::init;
use super::process_scope::ProcessScope;
use super::supervisor::{COMMAND_SIGNALS, CpuPinning};
use super::{LaunchSpec, SandboxMessage, SetupError, SetupStep, landlock_rules, notify};
use crate::open::open;

/// The argument that starts the helper.
pub(super) const RESTRICTED: &str = "--restricted";

/// Runs the helper. Returns its exit status. `mask` is the signal mask of the command.
pub(super) fn main(control: OwnedFd, mask: &SignalSet) -> i32 {
    let Ok(control) = process::close_all_but(control) else { return 125 };
    relay_log(&control, SandboxMessage::Log);
    match run(&control, mask) {
        Ok(()) => 0,
        Err(fault) => {
            error!(target: "init", errno = fault.errno, "cannot {}", fault.what);
            send_message(&control, &SandboxMessage::Failed(fault.what, fault.errno));
            125
        }
    }
}

fn run(control: &OwnedFd, mask: &SignalSet) -> Result<(), SetupError> {
    let _stage = trace_span!(target: "stage", "run").entered();
    signal::block(&SignalSet::from_signals(COMMAND_SIGNALS)).during("pthread_sigmask")?;
    // Not by a signal at the parent's end: init must still end the processes of the command.
    if is_peer_gone(control) {
        return Ok(());
    }
    let host_proc = open("/proc", OFlags::PATH).during("open /proc")?;
    let Some((launch, held)) = init::receive_launch(control)? else { return Ok(()) };
    let (ours, theirs) = message_sockets().during("socketpair")?;
    let helper = RestrictedInit { launch: &launch, held, control, handler: theirs, mask };
    if !launch.plan.is_mediated() {
        drop(ours);
        return helper.run();
    }
    match process::fork().during("fork")? {
        Fork::Child => {
            drop((ours, host_proc));
            if let Err(fault) = helper.run() {
                error!(target: "init", errno = fault.errno, "cannot {}", fault.what);
                send_message(control, &SandboxMessage::Failed(fault.what, fault.errno));
            }
            process::exit_now(0)
        }
        Fork::Parent(pid) => {
            drop(helper);
            drop_privileges()?;
            // The kernel reaps the notify handler's children that wait at FIFOs.
            let _ = signal::set_disposition(libc::SIGCHLD, signal::SignalDisposition::Ignore);
            let parts = Some(notify::OwnParts::new(pid, &launch.plan));
            let pinning = &CpuPinning::Unpinned;
            let setup = notify::NotifySetup { init: pid, wire: None, parts, pinning };
            notify::serve(ours, host_proc, control, setup);
            process::await_end(pid);
            Ok(())
        }
    }
}

/// The first process of the sandbox.
struct RestrictedInit<'a> {
    launch: &'a LaunchSpec,
    /// The fds for the notify handler: the plan file, and the project's lock if there is one.
    held: Vec<OwnedFd>,
    control: &'a OwnedFd,
    /// Leads to the notify handler; closed at the other end if there is none.
    handler: OwnedFd,
    mask: &'a SignalSet,
}

impl RestrictedInit<'_> {
    fn run(self) -> Result<(), SetupError> {
        let Self { launch, held, control, handler, mask } = self;
        signal::set_disposition(libc::SIGCHLD, signal::SignalDisposition::Default)
            .during("sigaction(SIGCHLD)")?;
        process::become_subreaper().during("prctl(PR_SET_CHILD_SUBREAPER)")?;
        // Removed after every process of the command has ended.
        let _scratch = CommandScratch::create(&launch.plan)?;
        if let Some(files) = launch.open_files {
            init::limit_files(files)?;
        }
        let rlimits = init::rlimits(&launch.plan);
        let rules = landlock_rules::create(&launch.plan)?;
        drop_privileges()?;
        let scope = ProcessScope::enter_domain(launch.plan.steps.contains(&Step::Landlock))?;
        install_filter(&launch.plan, &handler, &held)?;
        // The lock must end with the notify handler, so no other process may keep it open.
        drop(held);
        debug!(target: "init", "created the Landlock rules and installed the filter");
        let children = SignalSet::from_signals(&[libc::SIGCHLD]);
        signal::block(&children).during("pthread_sigmask")?;
        let sigchld_fd = signal::signalfd(&children).during("signalfd")?;
        let rules = Some(rules.as_fd());
        let Some(command) = init::start(launch, control, mask, &rlimits, rules)? else {
            return Ok(());
        };
        info!(target: "init", command, "started the command");
        let jobs = init::ExecTable::new(control, mask, rlimits, rules);
        let served = init::serve(Some(command), jobs, &handler, &sigchld_fd, None, scope);
        scope.end_all();
        served
    }
}

/// Gives up every privilege for good. An ordinary user has none that the bounding set could limit.
fn drop_privileges() -> Result<(), SetupError> {
    match privilege::join_new_session_keyring() {
        Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => {
            Err(error).during("keyctl(KEYCTL_JOIN_SESSION_KEYRING)")?
        }
        _ => {}
    }
    if process::ids().0 == 0 && init::drop_capabilities(0).is_err() {
        // Root in a container without CAP_SETPCAP: `no_new_privs` keeps `execve` from giving back
        // what is dropped here.
        debug!(target: "init", "the bounding set cannot be changed");
    }
    privilege::set_all_capabilities(0, 0, 0).during("capset")?;
    privilege::set_no_new_privs().during("prctl(PR_SET_NO_NEW_PRIVS)")?;
    privilege::set_not_dumpable().during("prctl(PR_SET_DUMPABLE)")
}

/// Installs the filter in init, so that every later process inherits it.
fn install_filter(plan: &Plan, handler: &OwnedFd, held: &[OwnedFd]) -> Result<(), SetupError> {
    let abi = landlock::abi().during("read the version of Landlock")?;
    let is_open = plan.steps.contains(&Step::Namespaces { network: NetworkNamespace::Host });
    let is_scoped = plan.steps.contains(&Step::Landlock);
    let is_mediated = plan.is_mediated();
    let is_truncation_refused = abi < 3 && !is_mediated;
    let filter = plain_filter(PlainFilterOptions {
        group_signals: if is_scoped { GroupSignals::Scoped } else { GroupSignals::Refused },
        owner: FileOwner::from_uid(Some(process::ids().0)),
        network: if is_open { HostNetwork::Open } else { HostNetwork::Closed },
        truncation: if is_truncation_refused { Truncation::Refused } else { Truncation::Landlock },
        mediation: if is_mediated { Mediation::Handler } else { Mediation::None },
    });
    let filter: Vec<_> = filter
        .into_iter()
        .map(|insn| BpfInsn { code: insn.code, jt: insn.jt, jf: insn.jf, k: insn.k })
        .collect();
    let what = "seccomp(SECCOMP_SET_MODE_FILTER)";
    if !is_mediated {
        return seccomp::install_plain(&filter).during(what);
    }
    let listener = seccomp::install(&filter).during(what)?;
    let held = held.iter().map(AsFd::as_fd);
    let descriptors: Vec<_> = [listener.as_fd()].into_iter().chain(held).collect();
    send_bytes_with_fds(handler, &[notify::DENIALS], &descriptors)
        .during("send the listener to the notify handler")
}

fn scratch_path(plan: &Plan) -> Option<AbsPath> {
    plan.steps.iter().find_map(|step| match step {
        Step::Scratch { path } => Some(path.clone()),
        _ => None,
    })
}

/// The command's directory for temporary files, removed when dropped.
struct CommandScratch(Option<AbsPath>);

impl CommandScratch {
    fn create(plan: &Plan) -> Result<Self, SetupError> {
        let Some(scratch) = scratch_path(plan) else { return Ok(Self(None)) };
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder.create(scratch.as_path()).during(|| format!("create {scratch}"))?;
        for step in &plan.steps {
            if let Step::File { path, content } = step
                && path.is_within(&scratch)
            {
                fs::write(path.as_path(), content).during(|| format!("write {path}"))?;
            }
        }
        Ok(Self(Some(scratch)))
    }
}

impl Drop for CommandScratch {
    fn drop(&mut self) {
        self.0.iter().for_each(remove_scratch);
    }
}

/// Removes a command's directory for temporary files, if it is still there. Without a notify
/// handler, init cannot open directories that the command has closed; the launcher can.
pub(crate) fn remove_scratch(path: &AbsPath) {
    let removed = fs::remove_dir_all(path.as_path()).or_else(|error| {
        if error.kind() == ErrorKind::NotFound {
            return Ok(());
        }
        open_directories(path.as_path());
        fs::remove_dir_all(path.as_path())
    });
    if let Err(error) = removed {
        error!(target: "init", %error, "cannot remove {path}");
    }
}

/// Gives the owner all rights on each directory, which the command may have closed.
fn open_directories(path: &Path) {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    if !is_directory || fs::set_permissions(path, Permissions::from_mode(0o700)).is_err() {
        return;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.for_each(|entry| open_directories(&entry.path()));
}
