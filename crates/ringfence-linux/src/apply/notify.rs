//! The notify handler: executes the syscalls that create names, for the sandboxed processes.
//!
//! A name that must not be created cannot be masked while it is absent, so the syscalls that could
//! create it raise a seccomp user notification. The notify handler reads the path once, resolves
//! the directory itself, checks the last component against the policy, and *executes* the syscall.
//! The kernel never continues a syscall after the check, so no second thread can change the path in
//! between.
//!
//! It acts from inside the sandbox's own mounts, as the same user, without any capability: it
//! cannot do for a caller what the caller could not do itself.
//!
//! Syscalls that change or remove existing files raise a notification only to be reported, and the
//! kernel continues them.
//!
//! In this module, the *caller* is the sandboxed process that made the syscall.

mod caller;
mod change;
mod config_lock;
mod connect;
mod created;
mod creation_rules;
mod disk_space;
mod excepted;
mod execute;
mod fd_cache;
mod gate;
mod hard_links;
mod observe;
mod open_flags;
mod poll_check;
mod predict;
mod proc_links;
mod project_lock;
mod refs;
mod report;
mod resolve;
mod settings;
mod sockets;
mod terminal;
mod tracked;
mod undelivered;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::fuse::CpuContention;
use crate::open::open_at;
use ringfence_plan::seccomp::calls::{Arch, Call};
use ringfence_plan::seccomp::{
    EXECUTE_BITS, find_refusal, is_notified_for_close_only, is_only_reported, opens_for_writing,
};
use ringfence_sys::seccomp::{self, Notification};
use ringfence_sys::{namespace, privilege, process};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::time::Timespec;
use tracing::{debug, error, trace_span};

use super::fd_passing::{receive_bytes_with_fds, send_message_with_fds};
use super::supervisor::CpuPinning;
use super::{LaunchSpec, SandboxMessage};
use caller::{CallerMemory, NotifyCaller};
use creation_rules::CreationRules;
use fd_cache::FdCache;
pub(super) use gate::OwnParts;
use observe::{AccessRecorder, ObservedCall};
use predict::{MountCache, predict_denial};
use project_lock::ProjectLock;
use undelivered::UndeliveredReplies;

/// The reply to a notification.
enum NotifyReply {
    /// The syscall succeeded with this value.
    Value(i64),
    /// The syscall failed with this errno.
    Error(i32),
    /// A new fd for the caller, and its flags.
    Descriptor(OwnedFd, u32),
    /// The kernel continues the syscall: for syscalls whose arguments are all in registers, or
    /// about which the notify handler decides nothing.
    Continue,
    /// Another component replies later.
    Later,
}

impl fmt::Display for NotifyReply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotifyReply::Value(value) => write!(out, "{value}"),
            NotifyReply::Error(number) => {
                write!(out, "{}", std::io::Error::from_raw_os_error(*number))
            }
            NotifyReply::Descriptor(..) => out.write_str("fd"),
            NotifyReply::Continue => out.write_str("continued"),
            NotifyReply::Later => out.write_str("waits"),
        }
    }
}

impl<T: Into<Errno>> From<T> for NotifyReply {
    fn from(error: T) -> Self {
        NotifyReply::Error(error.into().raw_os_error())
    }
}

/// Facts about the sandbox that are known before init reports.
pub(super) struct NotifySetup<'a> {
    /// The pid of init.
    pub(super) init: i32,
    /// The tripwire's fd, if there is a tripwire.
    pub(super) wire: Option<OwnedFd>,
    /// Set for a sandbox without mounts.
    pub(super) parts: Option<OwnParts>,
    pub(super) pinning: &'a CpuPinning,
}

/// Reporting level, sent to the notify handler with its fds, before it reads the policy: every
/// access.
pub(super) const ALL: u8 = b'a';
/// Denials and connections.
pub(super) const CONNECTIONS: u8 = b'c';
/// Denials only.
pub(super) const DENIALS: u8 = b'd';

/// Order of init to report everything served so far. The notify handler answers with the same byte.
const FLUSH: u8 = b'f';

/// Waits until the notify handler has reported every syscall that it served. It handles the order
/// between two syscalls, after the reports of the first. Returns at once if it is gone.
pub(super) fn flush_reports(handler: &OwnedFd) {
    if rustix::io::write(handler, &[FLUSH]).is_ok() {
        let _ = rustix::io::retry_on_intr(|| rustix::io::read(handler, &mut [0; 1]));
    }
}

/// Serves notifications until the sandbox has ended. `socket` leads to init.
pub(super) fn serve(
    socket: OwnedFd,
    host_proc: OwnedFd,
    control: &OwnedFd,
    NotifySetup { init, wire, parts, pinning }: NotifySetup<'_>,
) {
    let _stage = trace_span!(target: "stage", "serve").entered();
    let mut reporting = [DENIALS];
    let received = receive_bytes_with_fds(&socket, &mut reporting, RecvFlags::empty());
    let Ok((_, given)) = received else { return };
    let mut given = given.into_iter();
    let (Some(listener), Some(plan)) = (given.next(), given.next()) else { return };
    let mut fds = FdCache::default();
    let inside = if parts.is_some() {
        exit_on_error(fds.enter());
        None
    } else {
        let (Some(user), Some(mount)) = (given.next(), given.next()) else { return };
        Some([user, mount])
    };
    pinning.release();
    if let Some([_, mount]) = &inside {
        send_entry_fds(control, &host_proc, [&listener, mount, &plan], wire);
    }
    // Linux 6.6; an optimisation only.
    let _ = seccomp::wake_in_place(listener.as_fd());
    let mut handler = NotifyHandler {
        plan,
        lock: given.next(),
        added: 0,
        rules: None,
        umasks: caller::UmaskCache::default(),
        mounts: MountCache::default(),
        undelivered: UndeliveredReplies::default(),
        fds,
        parts: parts.map(Arc::new),
        observer: AccessRecorder::default(),
        cpu_contention: CpuContention::from_proc(host_proc.as_fd()),
        host_proc,
        listener,
        control,
        socket,
        inside,
        init: init as u32,
        reporting: reporting[0],
    };
    while handler.serve_next() {}
}

/// Ends the sandbox on an error. A notify handler that is half inside, or without a policy, could
/// execute a syscall that the policy denies.
fn exit_on_error(done: std::io::Result<()>) {
    if let Err(error) = done {
        error!(target: "notify", %error, "cannot enter the sandbox or read its policy");
        process::exit_now(125);
    }
}

/// Sends the launcher the fds with which it can later enter the sandbox, while the notify handler
/// is still outside.
fn send_entry_fds(
    control: &OwnedFd,
    host_proc: &OwnedFd,
    [listener, mount, plan]: [&OwnedFd; 3],
    wire: Option<OwnedFd>,
) {
    let Ok(user) = open_at(host_proc, "self/ns/user", OFlags::RDONLY) else {
        return;
    };
    let mut descriptors = vec![listener.as_fd(), user.as_fd(), mount.as_fd(), plan.as_fd()];
    descriptors.extend(wire.as_ref().map(AsFd::as_fd));
    send_message_with_fds(control, &SandboxMessage::EntryFds, &descriptors);
}

struct NotifyHandler<'a> {
    plan: OwnedFd,
    /// The project's lock, until `CreationRules` owns it.
    lock: Option<OwnedFd>,
    /// Bytes of the plan file that were read so far.
    added: u64,
    /// Built at the first syscall that needs it: many commands make none.
    rules: Option<CreationRules>,
    umasks: caller::UmaskCache,
    mounts: MountCache,
    undelivered: UndeliveredReplies,
    fds: FdCache,
    observer: AccessRecorder,
    cpu_contention: Option<CpuContention>,
    host_proc: OwnedFd,
    listener: OwnedFd,
    control: &'a OwnedFd,
    /// Orders of init.
    socket: OwnedFd,
    /// The sandbox's user and mount namespaces, until the notify handler has entered them.
    inside: Option<[OwnedFd; 2]>,
    /// Set for a sandbox without mounts.
    parts: Option<Arc<OwnParts>>,
    init: u32,
    /// Reporting level. Valid before the policy is read.
    reporting: u8,
}

impl NotifyHandler<'_> {
    /// Serves the next notification or order; `false` if none will come.
    fn serve_next(&mut self) -> bool {
        // Once the command is idle, prepare, so that its first new name does not wait.
        const IDLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let limit = self.rules.is_none().then_some(&IDLE);
        let mut ends = [&self.socket, &self.listener].map(|end| PollFd::new(end, PollFlags::IN));
        let ready = poll(&mut ends, limit);
        match (ready, ends.map(|end| end.revents().contains(PollFlags::IN))) {
            (Err(Errno::INTR), _) => true,
            (Ok(0), _) => {
                exit_on_error(self.enter().and_then(|()| self.load_policy()));
                debug!(target: "notify", "loaded the policy while the command was idle");
                true
            }
            (Ok(_), [true, _]) => self.flush(),
            (Ok(_), [_, true]) => match seccomp::receive(self.listener.as_fd()) {
                Ok(notification) => {
                    self.handle(&notification);
                    true
                }
                Err(error) => matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)),
            },
            _ => false,
        }
    }

    /// Obeys a [`FLUSH`] order: denials and created names are reported with their syscall, so only
    /// the recorded accesses are left. False if init has ended.
    fn flush(&mut self) -> bool {
        if !matches!(rustix::io::read(&self.socket, &mut [0; 1]), Ok(1..)) {
            return false;
        }
        self.observer.report(self.control.as_fd());
        rustix::io::write(&self.socket, &[FLUSH]).is_ok()
    }

    /// Answers syscalls that most programs start with and that need no policy: opening `/dev/null`,
    /// opening a terminal where there is none, connecting to an absent user database service
    /// (nscd). True if it replied.
    fn answer_without_policy(&self, notification: &Notification, read: &CallerMemory) -> bool {
        let caller = self.caller(notification, read);
        let is_let_through = self.reporting == DENIALS
            && called(notification) == Some(Call::Connect)
            && sockets::is_connect_to_absent(&caller);
        let reply = if is_let_through {
            Some(NotifyReply::Continue)
        } else {
            execute::open_without_policy(&caller)
        };
        let Some(reply) = reply else { return false };
        // A caller that a signal interrupted repeats the syscall.
        let _ = self.send(notification, &reply);
        true
    }

    /// Hands an executable file to the caller in two steps, before the caller resumes: `execve`
    /// fails with ETXTBSY while any process has the file open for writing. For other files the
    /// notify handler closes its fd after the reply, which is cheaper; a `chmod` that makes them
    /// executable raises a notification first.
    fn deliver_executable(&self, notification: &Notification, reply: NotifyReply) -> NotifyReply {
        match reply {
            NotifyReply::Descriptor(file, flags) if is_executable(&file) => {
                match seccomp::add_fd(self.listener.as_fd(), notification.id, file.as_fd(), flags) {
                    Ok(number) => NotifyReply::Value(number.into()),
                    Err(error) if undelivered::is_gone(&error) => {
                        NotifyReply::Descriptor(file, flags)
                    }
                    Err(error) => NotifyReply::Error(error.raw_os_error().unwrap_or(libc::EMFILE)),
                }
            }
            reply => reply,
        }
    }

    fn handle(&mut self, notification: &Notification) {
        // Init is ringfence's own code, and no process inside can read or change its memory.
        if notification.pid == self.init {
            let _ = self.send(notification, &NotifyReply::Continue);
            return;
        }
        exit_on_error(self.enter());
        let read = CallerMemory::default();
        let notification = &sockets::unpacked(&self.caller(notification, &read));
        if !self.observes() && self.answer_without_policy(notification, &read) {
            return;
        }
        exit_on_error(self.load_policy());
        let observed = self.observed(notification);
        let is_recording_only = observed.as_ref().is_some_and(ObservedCall::is_recording_only);
        let reply = if is_recording_only {
            NotifyReply::Continue
        } else {
            self.answer(notification, &read)
        };
        if let Some(observed) = &observed {
            self.observe(notification, observed, &reply);
        }
        debug!(
            target: "notify",
            caller = notification.pid,
            syscall = called(notification).map(Call::name),
            reply = %reply,
            "served"
        );
        let reply = self.deliver_executable(notification, reply);
        if let Err(error) = self.send(notification, &reply) {
            self.undelivered.keep(notification, read, reply, &error);
        }
    }

    /// Sends a reply. An error means that the caller died or was interrupted by a signal.
    fn send(&self, notification: &Notification, reply: &NotifyReply) -> std::io::Result<()> {
        let (id, listener) = (notification.id, self.listener.as_fd());
        match reply {
            NotifyReply::Value(value) => seccomp::answer(listener, id, Ok(*value)),
            NotifyReply::Error(number) => seccomp::answer(listener, id, Err(*number)),
            NotifyReply::Continue => seccomp::continue_syscall(listener, id),
            NotifyReply::Later => Ok(()),
            NotifyReply::Descriptor(descriptor, flags) => {
                // The kernel wakes the caller on this CPU, but not when the reply carries an fd.
                let give = || seccomp::answer_with_fd(listener, id, descriptor.as_fd(), *flags);
                let given = self.cpu_contention.as_ref().map_or_else(give, |cpu_contention| {
                    cpu_contention.wake(notification.pid as i32, give)
                });
                given.or_else(|error| {
                    // The caller's fd table is full: the caller gets the error.
                    seccomp::answer(listener, id, Err(error.raw_os_error().unwrap_or(libc::EMFILE)))
                })
            }
        }
    }

    fn caller<'b>(
        &'b self,
        notification: &'b Notification,
        read: &'b CallerMemory,
    ) -> NotifyCaller<'b> {
        NotifyCaller {
            notification,
            host_proc: self.host_proc.as_fd(),
            listener: self.listener.as_fd(),
            fds: &self.fds,
            read,
        }
    }

    fn observes(&self) -> bool {
        self.rules.as_ref().is_some_and(CreationRules::reports_allowed)
    }

    /// Describes the call, if accesses are reported.
    fn observed(&self, notification: &Notification) -> Option<ObservedCall> {
        // With an egress server, the launcher reports connections.
        let is_reported_elsewhere = self.rules.as_ref().is_some_and(CreationRules::has_egress)
            && called(notification) == Some(Call::Connect);
        if self.observes() && !is_reported_elsewhere {
            ObservedCall::from_caller(&self.caller(notification, &CallerMemory::default()))
        } else {
            None
        }
    }

    fn observe(
        &mut self,
        notification: &Notification,
        observed: &ObservedCall,
        reply: &NotifyReply,
    ) {
        let read = CallerMemory::default();
        let caller = NotifyCaller {
            notification,
            host_proc: self.host_proc.as_fd(),
            listener: self.listener.as_fd(),
            fds: &self.fds,
            read: &read,
        };
        let Some(rules) = &mut self.rules else { return };
        self.observer.note(&caller, observed, reply, rules);
        rules.report(self.control);
    }

    /// Enters the sandbox's namespaces and drops all capabilities. Done at the first syscall, since
    /// many commands make none.
    fn enter(&mut self) -> std::io::Result<()> {
        let Some([user, mount]) = self.inside.take() else { return Ok(()) };
        namespace::enter(user.as_fd(), namespace::USER)?;
        namespace::enter(mount.as_fd(), namespace::MOUNT)?;
        self.fds.enter()?;
        // CAP_SYS_PTRACE stays in the permitted set: `with_ptrace` makes it effective for single
        // accesses to callers that are not dumpable.
        privilege::set_capabilities(0, 1 << privilege::CAP_SYS_PTRACE)?;
        privilege::set_no_new_privs()?;
        privilege::set_not_dumpable()
    }

    /// Reads the policy: at the first syscall that needs it, or earlier if the command is idle.
    fn load_policy(&mut self) -> std::io::Result<()> {
        if self.rules.is_none() {
            let (launch, length) =
                LaunchSpec::read_with_length(&self.plan).ok_or(std::io::ErrorKind::InvalidData)?;
            self.added = length;
            let lock = ProjectLock::new(self.lock.take());
            self.rules = Some(
                CreationRules::new(&launch, lock, self.parts.clone())
                    .ok_or(std::io::ErrorKind::InvalidData)?,
            );
        }
        Ok(())
    }

    /// Computes the reply. `read` collects the caller memory on which it depends.
    fn answer(&mut self, notification: &Notification, read: &CallerMemory) -> NotifyReply {
        if let Some(rules) = &mut self.rules {
            self.added = rules.apply_updates(&self.plan, self.added);
        }
        let caller = NotifyCaller {
            notification,
            host_proc: self.host_proc.as_fd(),
            listener: self.listener.as_fd(),
            fds: &self.fds,
            read,
        };
        let reply = match self.undelivered.take(&caller) {
            Some(reply) => reply,
            None => handle_call(
                &caller,
                &mut self.umasks,
                &mut self.mounts,
                self.rules.as_mut(),
                self.control,
                self.parts.as_deref(),
            ),
        };
        if matches!(reply, NotifyReply::Value(_) | NotifyReply::Descriptor(..)) {
            self.undelivered.wait_for_signal(&caller);
        }
        reply
    }
}

/// True if `file` is a regular file with any execute bit.
fn is_executable(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && found.st_mode & EXECUTE_BITS != 0
    })
}

fn called(notification: &Notification) -> Option<Call> {
    Call::from_number(Arch::from_audit_arch(notification.arch)?, notification.call as u32)
}

fn handle_call(
    caller: &NotifyCaller<'_>,
    umasks: &mut caller::UmaskCache,
    mounts: &mut MountCache,
    rules: Option<&mut CreationRules>,
    control: &OwnedFd,
    parts: Option<&OwnParts>,
) -> NotifyReply {
    let notification = caller.notification;
    let Some(call) = called(notification) else { return NotifyReply::Error(libc::ENOSYS) };
    if call == Call::Umask {
        umasks.note_change(notification.pid, notification.arguments[0]);
        return NotifyReply::Continue;
    }
    let Some(rules) = rules else { return NotifyReply::Error(libc::EPERM) };
    let arguments = &notification.arguments;
    let refused = find_refusal(call, arguments, rules.owner());
    let is_only_told = refused.is_none() && parts.is_none() && is_only_reported(call, arguments);
    let predicted = if is_only_told { predict_denial(call, caller, mounts) } else { None };
    if let Some((number, why)) = refused {
        rules.refuse_call(caller, call, why);
        rules.report(control);
        return NotifyReply::Error(number);
    }
    if parts.is_none() && is_notified_for_close_only(call) {
        // The file may become executable now; the notify handler has closed its fd by now.
        return NotifyReply::Continue;
    }
    if let Some(predicted) = predicted {
        rules.report_predicted(caller, &predicted);
    }
    if matches!(call, Call::Connect | Call::Listen | Call::Sendto | Call::Sendmsg | Call::Sendmmsg)
    {
        return connect::handle(call, caller, rules, control);
    }
    // Only the launcher of a session with mounts answers.
    let offered = if parts.is_none() { proc_links::offered_stream(call, caller) } else { None };
    if let Some((number, on_execute)) = offered {
        return proc_links::request_stream(caller, number, on_execute, control);
    }
    let began = sockets::now();
    if let Some(reply) = parts.and_then(|parts| gate::reply(call, caller, rules, parts)) {
        rules.report(control);
        return reply;
    }
    let is_let_through = is_only_told
        && !rules.is_decided_here(call, arguments)
        && !opens_for_writing(call, arguments);
    let reply = if is_let_through {
        NotifyReply::Continue
    } else {
        execute::execute(call, caller, umasks, rules).unwrap_or_else(NotifyReply::from)
    };
    if let Some(deferred) = rules.deferred_config.take() {
        rules.report(control);
        // Without mounts, the launcher cannot replace a config.
        return if parts.is_none() { deferred.report(control) } else { Errno::ACCESS.into() };
    }
    let is_bound = matches!((call, &reply), (Call::Bind | Call::Socketcall, NotifyReply::Value(0)));
    if is_bound && rules.sockets.note(call, caller, began) {
        rules.count_name();
    }
    let reply = ask_about(reply, call, caller, umasks, rules, control);
    rules.report(control);
    reply
}

/// Lets a denied syscall wait for the user's answer, if the user can be asked about it.
fn ask_about(
    reply: NotifyReply,
    call: Call,
    caller: &NotifyCaller<'_>,
    umasks: &mut caller::UmaskCache,
    rules: &mut CreationRules,
    control: &OwnedFd,
) -> NotifyReply {
    match reply {
        NotifyReply::Error(number) if rules.can_ask() => {
            let waits = execute::write_intent(call, caller, umasks)
                .is_some_and(|intent| rules.ask_user(caller, intent, number, control));
            if waits { NotifyReply::Later } else { NotifyReply::Error(number) }
        }
        reply => reply,
    }
}
