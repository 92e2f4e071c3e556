//! The sandbox without namespaces: one helper process, which confines each command by Landlock.
//!
//! The helper is not confined by Landlock itself, so that no command can send it a signal or trace
//! it. It ends every process of the sandbox when the command or the launcher ends.

use std::fs::{self, DirBuilder};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;

use ringfence_plan::seccomp::{
    FileOwner, GroupSignals, HostNetwork, PlainFilterOptions, Truncation, plain_filter,
};
use ringfence_plan::{NetworkNamespace, Plan, Step};
use ringfence_policy::AbsPath;
use ringfence_sys::process;
use ringfence_sys::seccomp::{self, BpfInsn};
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::{landlock, privilege};
use tracing::{debug, error, info, trace_span};

use super::fd_passing::{is_peer_gone, relay_log, send_message};
use super::helper_process::message_sockets;
use super::init::{self, ProcessScope};
use super::supervisor::COMMAND_SIGNALS;
use super::{LaunchSpec, SandboxMessage, SetupError, SetupStep, landlock_rules};

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
    signal::set_disposition(libc::SIGCHLD, signal::SignalDisposition::Default)
        .during("sigaction(SIGCHLD)")?;
    process::become_subreaper().during("prctl(PR_SET_CHILD_SUBREAPER)")?;
    // Not by a signal at the parent's end: this process must still end those of the command.
    if is_peer_gone(control) {
        return Ok(());
    }
    let Some((launch, held)) = init::receive_launch(control)? else { return Ok(()) };
    // The other end is closed: there is no notify handler to flush.
    let handler = message_sockets().during("socketpair")?.0;
    let scratch = ScratchDir::create(&launch.plan)?;
    let done = run_command(&launch, control, &handler, mask);
    drop(scratch);
    drop(held);
    done
}

fn run_command(
    launch: &LaunchSpec,
    control: &OwnedFd,
    handler: &OwnedFd,
    mask: &SignalSet,
) -> Result<(), SetupError> {
    if let Some(files) = launch.open_files {
        init::limit_files(files)?;
    }
    let rlimits = init::rlimits(&launch.plan);
    let rules = landlock_rules::create(&launch.plan)?;
    drop_privileges()?;
    install_filter(&launch.plan)?;
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
    let scope = ProcessScope::Descendants;
    let served = init::serve(Some(command), jobs, handler, &sigchld_fd, None, scope);
    scope.end_all();
    served
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

fn install_filter(plan: &Plan) -> Result<(), SetupError> {
    let abi = landlock::abi().during("read the version of Landlock")?;
    let is_open = plan.steps.contains(&Step::Namespaces { network: NetworkNamespace::Host });
    let is_scoped = plan.steps.contains(&Step::Landlock);
    let filter = plain_filter(PlainFilterOptions {
        group_signals: if is_scoped { GroupSignals::Scoped } else { GroupSignals::Refused },
        owner: FileOwner::from_uid(Some(process::ids().0)),
        network: if is_open { HostNetwork::Open } else { HostNetwork::Closed },
        truncation: if abi < 3 { Truncation::Refused } else { Truncation::Landlock },
    });
    let filter: Vec<_> = filter
        .into_iter()
        .map(|insn| BpfInsn { code: insn.code, jt: insn.jt, jf: insn.jf, k: insn.k })
        .collect();
    seccomp::install_plain(&filter).during("seccomp(SECCOMP_SET_MODE_FILTER)")
}

/// The command's directory for temporary files, removed when dropped.
struct ScratchDir(Option<AbsPath>);

impl ScratchDir {
    fn create(plan: &Plan) -> Result<Self, SetupError> {
        let found = plan.steps.iter().find_map(|step| match step {
            Step::Scratch { path } => Some(path.clone()),
            _ => None,
        });
        let Some(path) = found else { return Ok(Self(None)) };
        DirBuilder::new().mode(0o700).create(path.as_path()).during(|| format!("create {path}"))?;
        for step in &plan.steps {
            if let Step::File { path, content } = step {
                fs::write(path.as_path(), content).during(|| format!("write {path}"))?;
            }
        }
        Ok(Self(Some(path)))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = fs::remove_dir_all(path.as_path())
        {
            error!(target: "init", %error, "cannot remove {path}");
        }
    }
}
