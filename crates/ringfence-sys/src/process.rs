//! Processes: making, replacing and awaiting them.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::signal::SignalSet;
use crate::trace::{self, TraceHold};

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// The new process.
    Child,
    /// The old one, with the child's id.
    Parent(i32),
}

/// `fork(2)`. To be called by single-threaded programs only: the helper is one.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: in a single-threaded process the child may do what the parent may.
    match super::check(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|s| s.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
}

/// `posix_spawn(3)`: starts `program` with exactly these arguments, variables, signal
/// mask, and with each `(ours, theirs)` descriptor in place. It shares memory with the
/// caller until the program runs, so that a large caller pays nothing for its size.
///
/// A descriptor that is to keep its number must be passed under another one first.
pub fn spawn(
    program: &CStr,
    arguments: &[CString],
    variables: &[CString],
    descriptors: &[(BorrowedFd<'_>, RawFd)],
    mask: &SignalSet,
) -> io::Result<i32> {
    spawn_as(
        program,
        arguments,
        variables,
        &SpawnOptions { company: SpawnIsolation::Ours, descriptors, ceilings: &[], mask },
    )
}

/// What is special about a new process.
#[derive(Clone, Copy)]
pub struct SpawnOptions<'a> {
    /// With whom it is.
    pub company: SpawnIsolation,
    /// The descriptors it has beside ours, each `(ours, theirs)`.
    pub descriptors: &'a [(BorrowedFd<'a>, RawFd)],
    /// What it may use only so much of, beyond which nobody in it can go.
    pub ceilings: &'a [ResourceLimit],
    /// Its signal mask.
    pub mask: &'a SignalSet,
}

/// So much, and no more, of something that the kernel counts for each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// What.
    pub of: LimitedResource,
    /// How much.
    pub most: u64,
}

impl ResourceLimit {
    fn numbers(&self) -> (libc::__rlimit_resource_t, libc::rlimit) {
        (self.of.number(), libc::rlimit { rlim_cur: self.most, rlim_max: self.most })
    }

    /// `setrlimit(2)`: puts it over this process, for good.
    pub fn put(&self) -> io::Result<()> {
        let (what, most) = self.numbers();
        // SAFETY: the pointer is to a live value.
        super::check(unsafe { libc::setrlimit(what, &most) }).map(drop)
    }
}

/// Something that the kernel counts for each process, or each user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedResource {
    /// Numbers of open files: one more than the highest.
    OpenFiles,
    /// Bytes of a file that is written.
    FileSize,
    /// Processes and threads of the user in its user namespace.
    Processes,
}

impl LimitedResource {
    fn number(self) -> libc::__rlimit_resource_t {
        match self {
            LimitedResource::OpenFiles => libc::RLIMIT_NOFILE,
            LimitedResource::FileSize => libc::RLIMIT_FSIZE,
            LimitedResource::Processes => libc::RLIMIT_NPROC,
        }
    }
}

/// With whom a new process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnIsolation {
    /// In our own session and process group.
    Ours,
    /// In a session of its own.
    Own,
    /// In a session of its own, and the parent of all that come from it and have no other.
    Head,
    /// The same, and none of those can look into it, or into a copy of it that is no other
    /// program yet: not at its memory, and not at its descriptors. (Where the host lets nobody
    /// trace, as `kernel.yama.ptrace_scope` from 2 on says, they can.)
    Recluse,
}

/// The same as it is asked for.
pub fn spawn_as(
    program: &CStr,
    arguments: &[CString],
    variables: &[CString],
    how: &SpawnOptions<'_>,
) -> io::Result<i32> {
    let (argv, envp) = (pointers(arguments), pointers(variables));
    let SpawnOptions { company, descriptors, ceilings, mask } = *how;
    if matches!(company, SpawnIsolation::Head | SpawnIsolation::Recluse) || !ceilings.is_empty() {
        return spawn_copy(program, &argv, &envp, how);
    }
    // Rust's own start ignores it; a command that writes to a pipe nobody reads must end.
    let pipe = SignalSet::of(&[libc::SIGPIPE]);
    let mut pid = 0;
    let ok =
        |error: i32| if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) };
    // SAFETY: both are opaque data that the init calls below fill in.
    let (mut actions, mut attributes) = unsafe {
        std::mem::zeroed::<(libc::posix_spawn_file_actions_t, libc::posix_spawnattr_t)>()
    };
    // SAFETY: every pointer is to a live value; argv and envp end with a null pointer and
    // their strings live in `arguments` and `variables`; what is initialised is destroyed.
    unsafe {
        ok(libc::posix_spawn_file_actions_init(&mut actions))?;
        ok(libc::posix_spawnattr_init(&mut attributes))?;
        let own = if company == SpawnIsolation::Ours { 0 } else { libc::POSIX_SPAWN_SETSID as i32 };
        let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF | own;
        let mut result = ok(libc::posix_spawnattr_setsigmask(&mut attributes, mask.as_ptr()))
            .and_then(|()| ok(libc::posix_spawnattr_setsigdefault(&mut attributes, pipe.as_ptr())))
            .and_then(|()| {
                ok(libc::posix_spawnattr_setflags(&mut attributes, flags as libc::c_short))
            });
        for (ours, theirs) in descriptors {
            result = result.and_then(|()| {
                ok(libc::posix_spawn_file_actions_adddup2(&mut actions, ours.as_raw_fd(), *theirs))
            });
        }
        result = result.and_then(|()| {
            ok(libc::posix_spawn(
                &mut pid,
                program.as_ptr(),
                &actions,
                &attributes,
                argv.as_ptr(),
                envp.as_ptr(),
            ))
        });
        libc::posix_spawn_file_actions_destroy(&mut actions);
        libc::posix_spawnattr_destroy(&mut attributes);
        result.map(|()| pid)
    }
}

/// The same by a copy of this process: `posix_spawn(3)` cannot do all of it.
fn spawn_copy(
    program: &CStr,
    argv: &[*mut libc::c_char],
    envp: &[*mut libc::c_char],
    how: &SpawnOptions<'_>,
) -> io::Result<i32> {
    /// Behind every number that it may want.
    const AWAY: RawFd = 512;
    /// No error's number.
    static NOT_HELD: i32 = 0;
    let SpawnOptions { company, descriptors, ceilings, mask } = *how;
    let is_head = matches!(company, SpawnIsolation::Head | SpawnIsolation::Recluse);
    let ceilings: Vec<_> = ceilings.iter().map(ResourceLimit::numbers).collect();
    let (failure, low) = io::pipe()?;
    // SAFETY: takes no pointer; the descriptor is new and owned by nobody else.
    let told = unsafe {
        OwnedFd::from_raw_fd(super::check(libc::fcntl(
            low.as_raw_fd(),
            libc::F_DUPFD_CLOEXEC,
            AWAY,
        ))?)
    };
    drop(low);
    // SAFETY: what the child does until it is another program are system calls only, on
    // values that were made before: there may be other threads, of which it has none.
    let pid = super::check(unsafe { libc::fork() })?;
    if pid == 0 {
        // SAFETY: as above; both lists end with a null pointer, and their strings live.
        unsafe {
            let is_placed = (company == SpawnIsolation::Ours || libc::setsid() >= 0)
                && descriptors
                    .iter()
                    .all(|(ours, theirs)| libc::dup2(ours.as_raw_fd(), *theirs) >= 0)
                && (!is_head || libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
                && ceilings.iter().all(|(what, most)| libc::setrlimit(*what, most) == 0)
                && libc::signal(libc::SIGPIPE, libc::SIG_DFL) != libc::SIG_ERR
                && libc::sigprocmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut()) == 0;
            if is_placed {
                if company == SpawnIsolation::Recluse && trace::be_held() == TraceHold::No {
                    libc::write(told.as_raw_fd(), (&raw const NOT_HELD).cast(), size_of::<i32>());
                }
                libc::execve(program.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast());
            }
            let error = *libc::__errno_location();
            libc::write(told.as_raw_fd(), (&raw const error).cast(), size_of::<i32>());
            libc::_exit(127)
        }
    }
    drop(told);
    let mut failure = failure;
    let mut next = || {
        let mut word = [0; size_of::<i32>()];
        io::Read::read_exact(&mut failure, &mut word).ok().map(|()| i32::from_ne_bytes(word))
    };
    let first = next();
    let is_held = company == SpawnIsolation::Recluse && first != Some(NOT_HELD);
    match if first == Some(NOT_HELD) { next() } else { first } {
        Some(error) => {
            let _ = wait(pid, Wait::Block);
            Err(io::Error::from_raw_os_error(error))
        }
        // It is another program by now.
        None if is_held => trace::hide_and_let_go(pid).map(|()| pid),
        None => Ok(pid),
    }
}

/// `execve(2)`: answers only if it fails.
pub fn execute(program: &CStr, arguments: &[CString], variables: &[CString]) -> io::Error {
    let (argv, envp) = (pointers(arguments), pointers(variables));
    // SAFETY: both end with a null pointer, and their strings live in `arguments` and
    // `variables`.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast()) };
    io::Error::last_os_error()
}

/// Ends this process at once, without running anything of ours.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: takes no pointer and does not return.
    unsafe { libc::_exit(status) }
}

/// Overwrites the variables that this process has, where they stand, and has none from then on:
/// a copy of a process has those of the one it was copied from, and memory outlives its purpose.
///
/// To be called by a process with one thread.
pub fn forget_variables() {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: the C library keeps a list of pointers to strings there, with a null pointer behind
    // the last, or none at all. With one thread nobody else reads it, and every string is ours to
    // write to: it came with the process or was made by `setenv`.
    unsafe {
        let mut variable = environ;
        while !variable.is_null() && !(*variable).is_null() {
            let length = libc::strlen(*variable);
            std::ptr::write_bytes(*variable, 0, length);
            variable = variable.add(1);
        }
        environ = std::ptr::null_mut();
    }
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointer. Whoever owns one of these descriptors must not use it
    // again: the callers are about to execute another program.
    super::check_long(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) })
        .map(drop)
}

/// Puts `kept` at descriptor 3, to be closed when a program is executed, and closes every
/// other one behind the standard streams.
///
/// For a new process that inherited more than it needs; whatever else owned a descriptor
/// in it must not be used or dropped again.
pub fn keep_only(kept: OwnedFd) -> io::Result<OwnedFd> {
    const PLACE: RawFd = 3;
    if kept.as_raw_fd() != PLACE {
        // SAFETY: takes no pointer; what was at the place is not to be used again.
        super::check(unsafe { libc::dup3(kept.as_raw_fd(), PLACE, libc::O_CLOEXEC) })?;
    }
    std::mem::forget(kept);
    close_from(PLACE + 1)?;
    // SAFETY: it was put there just now, and its former owner was forgotten.
    Ok(unsafe { OwnedFd::from_raw_fd(PLACE) })
}

/// Takes over a descriptor this process was started with.
///
/// Answers an error where none of that number is open, or it was taken before.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let flags = super::check(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: takes no pointer.
    super::check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, it came from outside this program, and the flag set just now
    // keeps a second call from taking it again.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// What became of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildStatus {
    /// It ended with this status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// This signal stopped it.
    Stopped(i32),
    /// It goes on.
    Continued,
}

/// What a process used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChildUsage {
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub system_us: u64,
    /// The most memory it had at once, in kilobytes.
    pub max_rss_kb: u64,
}

/// Whether a wait blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until something happens.
    Block,
    /// Answers `None` at once where nothing has happened.
    Poll,
}

/// `wait4(2)` for any child (`-1`) or one; also tells stops and continuations.
pub fn wait(pid: i32, how: Wait) -> io::Result<Option<(i32, ChildStatus, ChildUsage)>> {
    let mut status = 0;
    // SAFETY: `rusage` is plain data for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let options =
        libc::WUNTRACED | libc::WCONTINUED | if how == Wait::Poll { libc::WNOHANG } else { 0 };
    // SAFETY: both pointers are to live values.
    let pid = super::check(unsafe { libc::wait4(pid, &mut status, options, &mut usage) })?;
    if pid == 0 {
        return Ok(None);
    }
    let change = if libc::WIFEXITED(status) {
        ChildStatus::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        ChildStatus::Killed(libc::WTERMSIG(status))
    } else if libc::WIFSTOPPED(status) {
        ChildStatus::Stopped(libc::WSTOPSIG(status))
    } else {
        ChildStatus::Continued
    };
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    let usage = ChildUsage {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        max_rss_kb: usage.ru_maxrss as u64,
    };
    Ok(Some((pid, change, usage)))
}

/// Waits until a child has ended, and answers how; `None` if it is no child.
pub fn await_end(pid: i32) -> Option<ChildStatus> {
    loop {
        let (_, change, _) = wait(pid, Wait::Block).ok()??;
        if matches!(change, ChildStatus::Exited(_) | ChildStatus::Killed(_)) {
            return Some(change);
        }
    }
}

/// `getrusage(2)`: bytes that those have written to disks whom this process has waited for, and
/// those whom they have.
pub fn written_by_children() -> io::Result<u64> {
    /// What the kernel counts in.
    const BLOCK: u64 = 512;
    // SAFETY: all zeroes is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live value.
    super::check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) })?;
    Ok(usage.ru_oublock as u64 * BLOCK)
}

/// `pidfd_open(2)`.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = super::check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `pidfd_open(2)` of one thread (Linux 6.9; `EINVAL` before).
pub fn pidfd_of_thread(thread: i32) -> io::Result<OwnedFd> {
    /// `PIDFD_THREAD`, which the kernel defines so.
    const THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: takes no pointer.
    let fd = super::check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, thread, THREAD) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `pidfd_send_signal(2)`.
pub fn signal_by(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: no information is passed along, and no other pointer is taken.
    super::check_long(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}

/// `pidfd_getfd(2)`: a copy of another process's descriptor.
pub fn descriptor_of(pidfd: BorrowedFd<'_>, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = super::check_long(unsafe {
        libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0)
    })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What `/proc` tells of a process or thread. It may have called itself what is no text.
pub fn status(pid: u32) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/status"))?).into_owned())
}

/// Effective user and group id.
pub fn ids() -> (u32, u32) {
    // SAFETY: neither call takes an argument or can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// `sched_setattr(2)`: asks for turns of so many nanoseconds, at this niceness. Whoever asks
/// for short ones is woken sooner (Linux 6.12; before, the length is ignored).
pub fn set_turn(nanoseconds: u64, niceness: i32) -> io::Result<()> {
    /// `struct sched_attr` in its first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let size = size_of::<Attributes>() as u32;
    let policy = libc::SCHED_OTHER as u32;
    let attributes = Attributes {
        size,
        policy,
        flags: 0,
        nice: niceness,
        priority: 0,
        runtime: nanoseconds,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the pointer is to a live value of the size that it names.
    super::check_long(unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0)
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_is_told_of_whatever_it_calls_itself() {
        let told = std::thread::spawn(|| {
            std::fs::write("/proc/thread-self/comm", b"w\xff").expect("a thread names itself");
            let itself = std::fs::read_link("/proc/thread-self").expect("it is there");
            let number =
                itself.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
            super::status(number).expect("it is told of")
        });
        let told = told.join().expect("it ends");
        assert!(told.starts_with("Name:\tw") && told.contains("\nState:"), "{told}");
    }
}
