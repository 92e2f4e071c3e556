//! State of a sandbox that the launcher keeps: handles its events, and collects its reports.

mod config;
mod own_files;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::apply::{
    ConfigChange, CreatedName, FileIdentity, NameKind, NetnsListeners, PendingConnect,
    PendingWrite, SandboxEvent, SandboxFds, SandboxMessage,
};
use crate::inode::InodeId;
use crate::launcher::system_step::SystemStep;
use ringfence_api::{ConnectionRecord, Denial, GrantedAccess, Operation};
use ringfence_plan::Plan;
use ringfence_policy::{AbsPath, Limits};
use ringfence_provider::ProviderError;
use ringfence_survey::RememberedFiles;
use tracing::debug;

use crate::launcher::allowance_log::AllowanceLog;
use crate::launcher::asks::LivePolicy;
use crate::launcher::command_loop::SupervisedCommand;
use crate::launcher::denial_log::DenialLog;
use crate::launcher::egress::{
    EgressCaller, EgressGate, EgressGuard, EgressServer, ReservedPorts, host_port_denial,
};
use crate::launcher::git_config::KnownConfigs;
use crate::launcher::git_sweep::identity;
use crate::launcher::limit_monitor::LimitMonitor;
use crate::launcher::lookups::Lookups;
use crate::launcher::optional::mark_optional;
use crate::launcher::tripwire_server::TripwireServer;
use crate::launcher::watcher_thread::{WatcherStage, WatcherThread};

/// Observations about a command, kept also if it ended in an error of ours.
#[derive(Debug, Default)]
pub(crate) struct SandboxMonitor {
    /// Git markers that the command created.
    pub(crate) made: Vec<CreatedName>,
    /// Files with a denied name that the command created or wrote: git tracks them, or made them.
    pub(crate) own_files: HashMap<AbsPath, FileIdentity>,
    /// Their contents when the last command of a session ended, until the next one begins.
    pub(crate) left_contents: Option<RememberedFiles>,
    /// Directories of further markers, by identity: not all of very many are held open.
    pub(crate) more: HashSet<InodeId>,
    /// Set when there are further markers without an identity.
    pub(crate) has_unknown: bool,
    /// Set once the command was started.
    pub(crate) is_started: bool,
    /// Decides which hosts the command reaches, if it reaches any.
    pub(crate) gate: Option<Arc<EgressGate>>,
    /// Ports of the host that lead into the sandbox, until they are opened.
    pub(crate) ports: ReservedPorts,
    /// The egress server, while it runs.
    pub(crate) egress: Option<EgressGuard>,
    /// The tripwire server, if there is a tripwire.
    pub(crate) tripwire: Option<TripwireServer>,
    /// The policy in force, if it can change.
    pub(crate) policy: Option<Arc<LivePolicy>>,
    /// Fds that reach into the sandbox.
    pub(crate) inside: Option<Arc<SandboxFds>>,
    /// State of the watcher for paths that appear.
    pub(crate) watcher: WatcherStage,
    /// Git markers that came from outside while the command ran, once it has ended.
    pub(crate) foreign: HashSet<FileIdentity>,
    /// Set once the tripwire is mounted.
    pub(crate) is_wired: bool,
    /// Allowed accesses, if they are reported.
    pub(crate) observed: AllowanceLog,
    /// Denials, except those that the tripwire server knows.
    pub(crate) denials: DenialLog,
    /// DNS responder for programs that look up names by themselves.
    pub(crate) lookups: Lookups,
    /// Resource limits of the command.
    pub(crate) limits: Limits,
    /// The limit monitor, if one is needed.
    pub(crate) limit_monitor: Option<LimitMonitor>,
    /// True if denied reads are guessed from standard error, because nothing reports them.
    pub(crate) is_guessed: bool,
    /// The user's settings in git configs that the command changes.
    pub(crate) configs: KnownConfigs,
}

impl SandboxMonitor {
    /// Removes the tripwire from a plan if it could not be mounted.
    pub(crate) fn correct_plan(&self, plan: &mut Plan) {
        if self.is_started && !self.is_wired {
            plan.replace_tripwire_by_gap();
        }
    }

    /// Starts the limit monitor, as soon as a process exists that can use resources.
    pub(crate) fn start_limit_monitor(&mut self, subject: &dyn SupervisedCommand) {
        if let ((Some(supervisor), _), Some(control)) = (subject.supervisor(), subject.control()) {
            self.limit_monitor =
                LimitMonitor::new(&self.limits, supervisor, control, subject.group());
        }
    }

    /// Prepares for a command that is about to run.
    pub(crate) fn begin_command(&mut self) -> Result<(), ProviderError> {
        self.limit_monitor.as_mut().map_or(Ok(()), LimitMonitor::start)
    }

    /// Takes all denials so far.
    pub(crate) fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        let own = std::mem::take(&mut self.denials);
        let others = self
            .tripwire
            .as_ref()
            .map(TripwireServer::take_denials)
            .into_iter()
            .chain(self.gate.as_ref().map(|gate| gate.take_denials()));
        let others = others.chain([self.lookups.take_denials()]);
        others.fold(own, DenialLog::merge).into_parts()
    }

    /// Takes the connections since the last call.
    pub(crate) fn take_connections(&self) -> (Vec<ConnectionRecord>, u64) {
        self.gate.as_ref().map(|gate| gate.take_connections().into_parts()).unwrap_or_default()
    }

    /// Handles events about the sandbox; returns an event about a process.
    pub(crate) fn handle_event(
        &mut self,
        event: SandboxEvent,
        subject: &dyn SupervisedCommand,
    ) -> Result<Option<SandboxEvent>, ProviderError> {
        let SandboxEvent { message, mut fds, waiting } = event;
        let sandbox = subject.supervisor().0;
        match message {
            SandboxMessage::Denied(denial) if is_missing(&denial) => {}
            SandboxMessage::Denied(denial) => self.note_denial(*denial),
            SandboxMessage::PendingWrite(info) if is_missing(&info.denial) => drop(waiting),
            SandboxMessage::PendingWrite(info) => match (&self.tripwire, waiting) {
                (Some(tripwire), Some(waiting)) => {
                    tripwire.ask_write(PendingWrite::new(info, waiting))
                }
                _ => self.denials.record(info.denial),
            },
            SandboxMessage::ConfigChange(info) => {
                let change = ConfigChange::new(info, fds, waiting);
                change.into_iter().for_each(|change| self.replace_config(change))
            }
            SandboxMessage::Allowed(allowance) => self.observed.note(*allowance),
            SandboxMessage::Unlisted(more) => self.observed.add_unlisted(more),
            SandboxMessage::NameCreated(path, what, birth) => {
                self.watcher.record_created(birth);
                match (what, birth) {
                    (NameKind::DeniedFile, Some(birth)) => self.note_own_file(path, birth),
                    (NameKind::DeniedFile, None) => {}
                    _ => self.note(CreatedName { directory: fds.pop(), path, what }),
                }
            }
            SandboxMessage::Settled => self.watcher.record_flush(),
            SandboxMessage::Usage(account) => {
                self.limit_monitor.iter().for_each(|monitor| monitor.set_init_usage(account))
            }
            SandboxMessage::SpaceTaken(taken) => {
                self.limit_monitor.iter().for_each(|monitor| monitor.set_space_taken(taken))
            }
            SandboxMessage::Paused => self.watcher.record_pause(),
            SandboxMessage::EntryFds => {
                let Some(inside) = SandboxFds::from_fds(fds, sandbox.map(i32::cast_unsigned))
                else {
                    return Ok(Some(SandboxMessage::Closed.into()));
                };
                debug!(target: "launcher", sandbox, "the notify handler serves the sandbox");
                self.start_watcher(inside, subject)?
            }
            SandboxMessage::TripwireMounted(init) => {
                let Some(device) = fds.pop() else {
                    return Ok(Some(SandboxMessage::Closed.into()));
                };
                debug!(target: "launcher", sandbox, init, "serves the tripwire");
                self.is_wired = true;
                if let Some(tripwire) = &self.tripwire {
                    let (supervisor, processor) = subject.supervisor();
                    tripwire.serve(device, [supervisor.unwrap_or_default(), init], processor);
                }
            }
            message => {
                let event = SandboxEvent { message, fds, waiting };
                return self.handle_network_event(event, subject);
            }
        }
        Ok(None)
    }

    /// Handles events about sockets and names; returns an event about a process.
    fn handle_network_event(
        &mut self,
        event: SandboxEvent,
        subject: &dyn SupervisedCommand,
    ) -> Result<Option<SandboxEvent>, ProviderError> {
        let SandboxEvent { message, mut fds, waiting } = event;
        match message {
            SandboxMessage::Listeners(more) => {
                let Some(listeners) = NetnsListeners::from_fds(fds, more) else {
                    return Ok(Some(SandboxMessage::Closed.into()));
                };
                let Some(gate) = &self.gate else { return Ok(None) };
                let Some(control) = subject.control() else { return Ok(None) };
                // A program may connect before the sandbox is reported as built.
                self.tripwire.iter().for_each(TripwireServer::start_asking);
                self.egress = Some(EgressServer::open(
                    listeners,
                    gate.clone(),
                    std::mem::take(&mut self.ports),
                    control,
                )?);
            }
            SandboxMessage::Socket => {
                if let (Some(egress), Some(socket)) = (&self.egress, fds.pop()) {
                    egress.handle_socket(socket);
                }
            }
            SandboxMessage::PendingConnect(info) => {
                let program = PendingConnect::new(info, fds.pop(), waiting);
                if let (Some(egress), Some(program)) = (&self.egress, program) {
                    egress.handle_connect(program);
                }
            }
            SandboxMessage::DatagramSent(to, pid, program) => {
                self.gate.iter().for_each(|gate| gate.record_datagrams(to, pid, program.clone()))
            }
            SandboxMessage::UnservedPort(port, pid, program) => {
                let caller = EgressCaller::new(pid, program);
                let denial = self.policy.as_ref().and_then(|policy| {
                    policy.network(None, |rules| host_port_denial(rules, port, &caller))
                });
                denial.into_iter().for_each(|denial| self.note_denial(denial));
            }
            SandboxMessage::DnsLookup(name, pid, program) => {
                self.gate.iter().for_each(|gate| gate.record_lookup(&name, pid, &program))
            }
            SandboxMessage::DnsQueries(pid, program) => {
                if let Some(socket) = fds.pop() {
                    let policy = self.policy.clone();
                    self.lookups.serve_socket(socket.into(), (pid, program), policy)
                }
            }
            message => return Ok(Some(SandboxEvent { message, fds, waiting })),
        }
        Ok(None)
    }

    /// Takes the accesses that an answer granted since the last call.
    pub(crate) fn take_granted(&self) -> Vec<GrantedAccess> {
        self.tripwire.as_ref().map(TripwireServer::take_granted).unwrap_or_default()
    }

    /// Records a denial.
    fn note_denial(&mut self, denial: Denial) {
        let denial = self.policy.as_ref().map_or_else(
            || denial.clone(),
            |policy| policy.read(|grants| mark_optional(denial.clone(), grants)),
        );
        self.denials.record(denial);
    }

    fn start_watcher(
        &mut self,
        inside: SandboxFds,
        subject: &dyn SupervisedCommand,
    ) -> Result<(), ProviderError> {
        let watcher_nodes = self.tripwire.as_ref().and_then(TripwireServer::watcher_nodes);
        let inside =
            Arc::new(if watcher_nodes.is_some() { inside } else { inside.without_tripwire() });
        self.tripwire.iter().for_each(TripwireServer::start_asking);
        if let Some(policy) = &self.policy {
            policy.set_sandbox_fds(&inside);
        }
        self.inside = Some(inside.clone());
        let WatcherStage::Wanted(made) = &mut self.watcher else { return Ok(()) };
        let made = std::mem::take(made);
        let begun = subject.control().ok_or_else(|| std::io::ErrorKind::Unsupported.into());
        let begun =
            begun.and_then(|control| WatcherThread::start(inside, watcher_nodes, control, made));
        let watcher = begun.during("start the watcher")?;
        if let Some(policy) = &self.policy {
            policy.set_watcher_restart(watcher.restart_handle());
        }
        self.watcher = WatcherStage::Begun(watcher);
        Ok(())
    }

    fn note(&mut self, made: CreatedName) {
        const MAX_KEPT: usize = 256;
        match made.directory.as_ref().and_then(identity) {
            Some(place)
                if self.made.iter().any(|known| {
                    known.what == made.what
                        && known.directory.as_ref().and_then(identity) == Some(place)
                }) => {}
            Some(_) if self.made.len() < MAX_KEPT => self.made.push(made),
            // Its contents would have to be searched for everywhere.
            Some(_) if made.what == NameKind::Tree => self.has_unknown = true,
            Some(identity) => {
                self.more.insert(identity);
            }
            None => self.has_unknown = true,
        }
    }
}

/// True if the target does not exist on the host either, or was to be created in a directory that
/// does not exist.
fn is_missing(denial: &Denial) -> bool {
    let target = std::path::Path::new(&denial.target);
    let is_absent = |path: &std::path::Path| std::fs::symlink_metadata(path).is_err();
    match denial.operation {
        Operation::Create | Operation::Rename => {
            denial.rule == Denial::NO_RULE_ALLOWS && target.parent().is_some_and(is_absent)
        }
        // The notify handler had it open when it denied the write: a command may have removed it
        // since.
        Operation::Write if Denial::SANDBOX_RULES.contains(&denial.rule.as_str()) => false,
        Operation::Read | Operation::Write | Operation::Execute => is_absent(target),
        Operation::Connect | Operation::Call | Operation::Command => false,
    }
}
