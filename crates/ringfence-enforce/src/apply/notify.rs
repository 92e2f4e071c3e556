//! The usher: carries out, for the sandbox, the calls that make names.
//!
//! A name that must not be made cannot be covered while it is absent, so the calls that
//! could make it wait here. The usher reads the path once, resolves the directory itself,
//! judges the last component, and *does* the call: nothing is let through to the kernel
//! after having been judged, so no second thread can change the path in between.
//!
//! It does so from inside the sandbox's own mounts, as the same user, without any
//! capability: what the caller could not do, the usher cannot do for it.
//!
//! Calls that change or take away what is there come by to be told of, and go through.

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

use std::os::fd::{AsFd, OwnedFd};

use ringfence_sys::seccomp::{self, Notification};
use ringfence_sys::{namespace, privilege, process};
use ringfence_tripwire::CpuContention;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::helper::{CpuPinning, all_handed_over_with, tell_with};
use super::{LaunchSpec, SandboxMessage, parked};
use crate::seccomp::calls::{Arch, Call};
use crate::seccomp::{EXECUTE, is_only_awaited, is_only_told, is_writing, refusal};
use caller::{CallerMemory, NotifyCaller};
use creation_rules::CreationRules;
use fd_cache::FdCache;
use observe::{AccessRecorder, ObservedCall};
use predict::{MountCache, foresee};
use project_lock::ProjectLock;
use undelivered::UndeliveredReplies;

/// What the caller is told.
enum NotifyReply {
    /// The call succeeded with this value.
    Value(i64),
    /// The call failed with this error number.
    Error(i32),
    /// A new descriptor, and its flags.
    Descriptor(OwnedFd, u32),
    /// The kernel carries the call out: for calls whose arguments are all in registers, or
    /// of which nothing is decided here.
    Through,
    /// Somebody else will answer.
    Later,
}

impl<T: Into<Errno>> From<T> for NotifyReply {
    fn from(error: T) -> Self {
        NotifyReply::Error(error.into().raw_os_error())
    }
}

/// What is known of a sandbox before it tells of itself.
pub(super) struct NotifySetup<'a> {
    /// The number of its first process.
    pub(super) init: i32,
    /// The tripwire, where there is one.
    pub(super) wire: Option<OwnedFd>,
    pub(super) stay: &'a CpuPinning,
}

/// With what the usher needs it is told what is told of, before it knows the policy: everything.
pub(super) const ALL: u8 = b'a';
/// What is refused, and who connects.
pub(super) const CONNECTIONS: u8 = b'c';
/// Only what is refused.
pub(super) const DENIALS: u8 = b'd';

/// Serves until the sandbox has ended.
pub(super) fn serve(
    socket: &OwnedFd,
    host_proc: OwnedFd,
    control: &OwnedFd,
    NotifySetup { init, wire, stay }: NotifySetup<'_>,
) {
    let Some((told, given)) = all_handed_over_with(socket) else { return };
    let mut given = given.into_iter();
    let (Some(listener), Some(user), Some(mount), Some(plan)) =
        (given.next(), given.next(), given.next(), given.next())
    else {
        return;
    };
    stay.end();
    let_in(control, &host_proc, [&listener, &mount, &plan], wire);
    let in_place = seccomp::wake_in_place(listener.as_fd()).is_ok();
    let mut usher = NotifyHandler {
        plan,
        lock: given.next(),
        added: 0,
        judge: None,
        masks: caller::UmaskCache::new(init as u32),
        mounts: MountCache::default(),
        undelivered: UndeliveredReplies::default(),
        at_hand: FdCache::default(),
        observer: AccessRecorder::default(),
        company: CpuContention::of(host_proc.as_fd()),
        host_proc,
        listener,
        control,
        inside: Some([user, mount]),
        init: init as u32,
        told,
    };
    loop {
        // Whoever makes no name for a moment may do so later: by then all is ready.
        if usher.judge.is_none() && usher.is_quiet() {
            or_end(usher.enter().and_then(|()| usher.learn()));
        }
        // Before 6.6 a receiver is not woken when the last caller ends; poll is.
        if !in_place && !usher.wait() {
            break;
        }
        match seccomp::receive(usher.listener.as_fd()) {
            Ok(notification) => usher.attend(&notification),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {
                if !usher.wait() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
}

/// Half inside, or without a policy, a call could be carried out that must not be: the sandbox
/// ends with us.
fn or_end(done: std::io::Result<()>) {
    if done.is_err() {
        process::exit_now(125);
    }
}

/// Gives the caller what it needs to reach into the sandbox later, while we are still
/// outside of it.
fn let_in(
    control: &OwnedFd,
    host_proc: &OwnedFd,
    [listener, mount, plan]: [&OwnedFd; 3],
    wire: Option<OwnedFd>,
) {
    let Ok(user) = rustix::fs::openat(
        host_proc,
        "self/ns/user",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return;
    };
    let mut descriptors = vec![listener.as_fd(), user.as_fd(), mount.as_fd(), plan.as_fd()];
    descriptors.extend(wire.as_ref().map(AsFd::as_fd));
    tell_with(control, &SandboxMessage::Inside, &descriptors);
}

struct NotifyHandler<'a> {
    plan: OwnedFd,
    /// The project's lock, until the judge has it.
    lock: Option<OwnedFd>,
    /// How much of the plan's file is known.
    added: u64,
    /// Made at the first call, since many commands make none.
    judge: Option<CreationRules>,
    masks: caller::UmaskCache,
    mounts: MountCache,
    undelivered: UndeliveredReplies,
    at_hand: FdCache,
    observer: AccessRecorder,
    company: Option<CpuContention>,
    host_proc: OwnedFd,
    listener: OwnedFd,
    control: &'a OwnedFd,
    /// The sandbox's user and mount namespaces, until we are in them.
    inside: Option<[OwnedFd; 2]>,
    init: u32,
    /// What is told of, as long as that is all that is known.
    told: u8,
}

impl NotifyHandler<'_> {
    /// Until a call waits; `false` if none will.
    fn wait(&self) -> bool {
        let mut ends = [PollFd::new(&self.listener, PollFlags::IN)];
        loop {
            match poll(&mut ends, None) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => return ends[0].revents().contains(PollFlags::IN),
            }
        }
    }

    /// Whether a call was about the mask of new files and is let through: nothing is decided
    /// by it, and every command ends with one.
    fn is_mask(&mut self, notification: &Notification) -> bool {
        if called(notification) != Some(Call::Umask) {
            return false;
        }
        self.masks.changed(notification.pid, notification.arguments[0]);
        // A caller that died meanwhile needs no answer.
        let _ = self.send(notification, &NotifyReply::Through);
        true
    }

    /// Whether a call is one that programs begin with, for which no policy need be known, and is
    /// answered: opening `/dev/null`, or a terminal where there is none, or looking for a service
    /// that knows of users.
    fn is_for_nothing(&self, notification: &Notification, read: &CallerMemory) -> bool {
        let caller = self.caller(notification, read);
        let is_let_through = self.told == DENIALS
            && called(notification) == Some(Call::Connect)
            && sockets::is_vain_connect(&caller);
        let reply = if is_let_through {
            Some(NotifyReply::Through)
        } else {
            execute::open_nothing(&caller)
        };
        let Some(reply) = reply else { return false };
        // A caller that a signal took away calls again.
        let _ = self.send(notification, &reply);
        true
    }

    /// Whether nobody calls for a moment.
    fn is_quiet(&self) -> bool {
        let moment = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&moment)) == Ok(0)
    }

    /// Whether a call was the first process's own and is let through: it is ours, does what it
    /// is told from outside, and nobody inside can read or change what it has in memory. Only
    /// by the mask it says something to us.
    fn is_ours(&self, notification: &Notification) -> bool {
        if notification.pid != self.init || called(notification) == Some(Call::Umask) {
            return false;
        }
        let _ = self.send(notification, &NotifyReply::Through);
        true
    }

    /// Gives a file that can be executed to the caller alone, before it goes on: the kernel
    /// executes nothing that anybody has open to be written. Of others we let go a moment later,
    /// which is cheaper; before they can be executed we hear of it.
    fn part_with(&self, notification: &Notification, reply: NotifyReply) -> NotifyReply {
        match reply {
            NotifyReply::Descriptor(file, flags) if is_executable(&file) => {
                match seccomp::add(self.listener.as_fd(), notification.id, file.as_fd(), flags) {
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

    fn attend(&mut self, notification: &Notification) {
        if self.is_ours(notification) {
            return;
        }
        if self.judge.is_none() && self.is_mask(notification) {
            return;
        }
        or_end(self.enter());
        let read = CallerMemory::default();
        let notification = &unpacked(&self.caller(notification, &read));
        if !self.observes() && self.is_for_nothing(notification, &read) {
            return;
        }
        or_end(self.learn());
        let look = self.look(notification);
        let is_all = look.as_ref().is_some_and(ObservedCall::is_all);
        let reply = if is_all { NotifyReply::Through } else { self.answer(notification, &read) };
        if let Some(look) = &look {
            self.observe(notification, look, &reply);
        }
        let reply = self.part_with(notification, reply);
        if let Err(error) = self.send(notification, &reply) {
            self.undelivered.keep(notification, read, reply, &error);
        }
    }

    /// An error means that the caller died meanwhile, or was taken away by a signal.
    fn send(&self, notification: &Notification, reply: &NotifyReply) -> std::io::Result<()> {
        let (id, listener) = (notification.id, self.listener.as_fd());
        match reply {
            NotifyReply::Value(value) => seccomp::answer(listener, id, Ok(*value)),
            NotifyReply::Error(number) => seccomp::answer(listener, id, Err(*number)),
            NotifyReply::Through => seccomp::let_through(listener, id),
            NotifyReply::Later => Ok(()),
            NotifyReply::Descriptor(descriptor, flags) => {
                // The kernel wakes the caller where we are, but not with a descriptor.
                let give = || seccomp::answer_with(listener, id, descriptor.as_fd(), *flags);
                let given = self
                    .company
                    .as_ref()
                    .map_or_else(give, |company| company.wake(notification.pid as i32, give));
                given.or_else(|error| {
                    // The caller's table is full: that is its error, not ours.
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
            at_hand: &self.at_hand,
            read,
        }
    }

    fn observes(&self) -> bool {
        self.judge.as_ref().is_some_and(CreationRules::observes)
    }

    /// What a call is about, where that is told of.
    fn look(&self, notification: &Notification) -> Option<ObservedCall> {
        // Who connects where some hosts can be reached is known to those who connect for it.
        let is_told_elsewhere = self.judge.as_ref().is_some_and(CreationRules::is_listed)
            && called(notification) == Some(Call::Connect);
        if self.observes() && !is_told_elsewhere {
            ObservedCall::at(&self.caller(notification, &CallerMemory::default()))
        } else {
            None
        }
    }

    fn observe(&mut self, notification: &Notification, look: &ObservedCall, reply: &NotifyReply) {
        let read = CallerMemory::default();
        let caller = NotifyCaller {
            notification,
            host_proc: self.host_proc.as_fd(),
            listener: self.listener.as_fd(),
            at_hand: &self.at_hand,
            read: &read,
        };
        let Some(judge) = &mut self.judge else { return };
        self.observer.note(&caller, look, reply, judge);
        judge.report(self.control);
        if look.is_end() {
            self.observer.report(self.control.as_fd());
        }
    }

    /// Into the sandbox's namespaces, without capabilities: at the first call, since many
    /// commands make none.
    fn enter(&mut self) -> std::io::Result<()> {
        let Some([user, mount]) = self.inside.take() else { return Ok(()) };
        namespace::enter(user.as_fd(), namespace::USER)?;
        namespace::enter(mount.as_fd(), namespace::MOUNT)?;
        self.at_hand.enter()?;
        // Kept for callers that hide their memory, and taken up only to read it.
        privilege::set_capabilities(0, 1 << privilege::CAP_SYS_PTRACE)?;
        privilege::no_new_privileges()?;
        privilege::not_dumpable()
    }

    /// Knows the policy: from the first call that needs it, or sooner if there is time.
    fn learn(&mut self) -> std::io::Result<()> {
        if self.judge.is_none() {
            let (launch, length) =
                LaunchSpec::read_with_length(&self.plan).ok_or(std::io::ErrorKind::InvalidData)?;
            self.added = length;
            let lock = ProjectLock::new(self.lock.take());
            self.judge =
                Some(CreationRules::new(&launch, lock).ok_or(std::io::ErrorKind::InvalidData)?);
        }
        Ok(())
    }

    /// The reply, which rests on what is `read` of the caller's memory.
    fn answer(&mut self, notification: &Notification, read: &CallerMemory) -> NotifyReply {
        if let Some(judge) = &mut self.judge {
            self.added = judge.add_from(&self.plan, self.added);
        }
        let caller = NotifyCaller {
            notification,
            host_proc: self.host_proc.as_fd(),
            listener: self.listener.as_fd(),
            at_hand: &self.at_hand,
            read,
        };
        let reply = match self.undelivered.take(&caller) {
            Some(reply) => reply,
            None => judged(
                &caller,
                &mut self.masks,
                &mut self.mounts,
                self.judge.as_mut(),
                self.control,
            ),
        };
        if matches!(reply, NotifyReply::Value(_) | NotifyReply::Descriptor(..)) {
            self.undelivered.let_go(&caller);
        }
        reply
    }
}

/// Whether it is a file that somebody may execute.
fn is_executable(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            && found.st_mode & EXECUTE != 0
    })
}

fn called(notification: &Notification) -> Option<Call> {
    Call::from_number(Arch::from_audit(notification.arch)?, notification.call as u32)
}

/// The call itself, where it comes as one that stands for several: `connect`, `sendto` and
/// `sendmmsg` of 32-bit programs have their arguments in memory.
fn unpacked(caller: &NotifyCaller<'_>) -> Notification {
    const WORD: usize = 4;
    let packed = *caller.notification;
    if called(&packed) != Some(Call::Socketcall) {
        return packed;
    }
    let (call, count) = match caller.int(0) {
        3 => (Call::Connect, 3),
        11 => (Call::Sendto, 6),
        20 => (Call::Sendmmsg, 4),
        _ => return packed,
    };
    // What cannot be read is answered as such later.
    let (Some(number), Ok(words)) =
        (call.number(Arch::X86), caller.bytes(caller.raw(1), count * WORD))
    else {
        return packed;
    };
    let mut arguments = [0; 6];
    for (argument, word) in arguments.iter_mut().zip(words.chunks_exact(WORD)) {
        *argument = word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    }
    let mut call = packed;
    (call.call, call.arguments) = (number as i32, arguments);
    call
}

/// The reply to a call that reaches for a socket.
fn reached(
    call: Call,
    caller: &NotifyCaller<'_>,
    judge: &mut CreationRules,
    control: &OwnedFd,
) -> NotifyReply {
    let names_path = matches!(call, Call::Connect | Call::Sendto);
    let target = if names_path { judge.unix_target(call, caller) } else { Ok(None) };
    let is_carried_out = judge.is_listed() && matches!(call, Call::Connect | Call::Listen);
    let reply = match target {
        // What is not there fails by itself.
        Err(error) if error != Errno::NOENT || is_carried_out => NotifyReply::from(error),
        Ok(target) if is_carried_out => {
            judge.report(control);
            let done = if call == Call::Connect {
                connect::connect(caller, target, control)
            } else {
                connect::listen(caller)
            };
            return done.unwrap_or_else(NotifyReply::from);
        }
        _ => match connect::answer_queries(call, caller, judge, control) {
            Some(reply) => reply,
            None => {
                connect::tell_of(call, caller, judge, control);
                NotifyReply::Through
            }
        },
    };
    judge.report(control);
    reply
}

fn judged(
    caller: &NotifyCaller<'_>,
    masks: &mut caller::UmaskCache,
    mounts: &mut MountCache,
    judge: Option<&mut CreationRules>,
    control: &OwnedFd,
) -> NotifyReply {
    let notification = caller.notification;
    let Some(arch) = Arch::from_audit(notification.arch) else {
        return NotifyReply::Error(libc::ENOSYS);
    };
    let Some(call) = Call::from_number(arch, notification.call as u32) else {
        return NotifyReply::Error(libc::ENOSYS);
    };
    if call == Call::Umask {
        masks.changed(notification.pid, notification.arguments[0]);
        return NotifyReply::Through;
    }
    let Some(judge) = judge else { return NotifyReply::Error(libc::EPERM) };
    let refused = refusal(call, &notification.arguments, judge.owner());
    let is_only_told = refused.is_none() && is_only_told(call, &notification.arguments);
    let foreseen = if is_only_told { foresee(call, caller, mounts) } else { None };
    if let Some((number, why)) = refused {
        judge.refuse_call(caller, call, why);
        judge.report(control);
        return NotifyReply::Error(number);
    }
    if is_only_awaited(call) {
        // What can be executed from now on we have let go of by now.
        return NotifyReply::Through;
    }
    if let Some(foreseen) = foreseen {
        judge.foreseen(caller, &foreseen);
    }
    if matches!(call, Call::Connect | Call::Listen | Call::Sendto | Call::Sendmsg | Call::Sendmmsg)
    {
        return reached(call, caller, judge, control);
    }
    if let Some((number, on_execute)) = proc_links::takes(call, caller) {
        let told = parked::NotificationInfo {
            id: notification.id,
            pid: notification.pid,
            errno: libc::ENOENT,
        };
        let is_told = tell_with(control, &SandboxMessage::Takes(number, on_execute, told), &[]);
        return if is_told { NotifyReply::Later } else { NotifyReply::Error(libc::ENOENT) };
    }
    let began = sockets::now();
    let is_let_through = is_only_told
        && !judge.decides(call, &notification.arguments)
        && !is_writing(call, &notification.arguments);
    let reply = if is_let_through {
        NotifyReply::Through
    } else {
        execute::act(call, caller, masks, judge).unwrap_or_else(NotifyReply::from)
    };
    if let Some(handed) = judge.handed.take() {
        judge.report(control);
        return handed.report(control);
    }
    let is_bound = matches!((call, &reply), (Call::Bind | Call::Socketcall, NotifyReply::Value(0)));
    if is_bound && judge.sockets.note(call, caller, began) {
        judge.took_name();
    }
    let reply = match reply {
        NotifyReply::Error(number) if judge.could_plead() => {
            let waits = execute::deed(call, caller, masks)
                .is_some_and(|deed| judge.plead(caller, deed, number, control));
            if waits { NotifyReply::Later } else { NotifyReply::Error(number) }
        }
        reply => reply,
    };
    judge.report(control);
    reply
}
