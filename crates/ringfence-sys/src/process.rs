//! Processes: creating, replacing and awaiting them.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::signal::SignalSet;
use crate::trace::{self, TraceHold};

/// Result of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// In the new process.
    Child,
    /// In the old process, with the child's pid.
    Parent(i32),
}

/// `fork(2)`. Only for single-threaded programs, such as the supervisor.
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

/// `posix_spawn(3)`: starts `program` with exactly these arguments, environment variables, signal
/// mask, and with each `(ours, theirs)` fd in place. It shares memory with the caller until the
/// program runs, so the size of the caller does not matter.
///
/// An fd that is to keep its number must be passed under another one first.
pub fn spawn(
    program: &CStr,
    arguments: &[CString],
    variables: &[CString],
    descriptors: &[(BorrowedFd<'_>, RawFd)],
    mask: &SignalSet,
) -> io::Result<i32> {
    spawn_with(
        program,
        arguments,
        variables,
        &SpawnOptions {
            isolation: SpawnIsolation::SameSession,
            descriptors,
            rlimits: &[],
            mask,
            landlock: None,
        },
    )
}

/// Options for a new process.
#[derive(Clone, Copy)]
pub struct SpawnOptions<'a> {
    /// Its session and visibility.
    pub isolation: SpawnIsolation,
    /// Additional fds, each `(ours, theirs)`.
    pub descriptors: &'a [(BorrowedFd<'a>, RawFd)],
    /// Hard resource limits.
    pub rlimits: &'a [ResourceLimit],
    /// Its signal mask.
    pub mask: &'a SignalSet,
    /// The Landlock rule set that confines it. Needs `no_new_privs`.
    pub landlock: Option<BorrowedFd<'a>>,
}

/// A hard limit of a resource that the kernel counts per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The resource.
    pub resource: LimitedResource,
    /// The limit.
    pub limit: u64,
}

impl ResourceLimit {
    fn as_rlimit(&self) -> (libc::__rlimit_resource_t, libc::rlimit) {
        (self.resource.as_raw(), libc::rlimit { rlim_cur: self.limit, rlim_max: self.limit })
    }

    /// `setrlimit(2)`: applies the limit to this process, for good.
    pub fn apply(&self) -> io::Result<()> {
        let (what, most) = self.as_rlimit();
        // SAFETY: the pointer is to a live value.
        super::check(unsafe { libc::setrlimit(what, &most) }).map(drop)
    }
}

/// A resource that the kernel counts per process or per user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedResource {
    /// Highest fd number plus one.
    OpenFiles,
    /// Bytes of a written file.
    FileSize,
    /// Processes and threads of the user in its user namespace.
    Processes,
}

impl LimitedResource {
    fn as_raw(self) -> libc::__rlimit_resource_t {
        match self {
            LimitedResource::OpenFiles => libc::RLIMIT_NOFILE,
            LimitedResource::FileSize => libc::RLIMIT_FSIZE,
            LimitedResource::Processes => libc::RLIMIT_NPROC,
        }
    }
}

/// Session and visibility of a new process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnIsolation {
    /// In our own session and process group.
    SameSession,
    /// In a session of its own.
    NewSession,
    /// In a session of its own, and the subreaper of its descendants.
    Subreaper,
    /// The same, and its descendants cannot ptrace it, nor a fork of it before `execve`: they see
    /// neither its memory nor its fds. (They can if the host forbids all tracing, with
    /// `kernel.yama.ptrace_scope` 2 or higher.)
    HiddenSubreaper,
}

/// `posix_spawn(3)` with options.
pub fn spawn_with(
    program: &CStr,
    arguments: &[CString],
    variables: &[CString],
    how: &SpawnOptions<'_>,
) -> io::Result<i32> {
    let (argv, envp) = (pointers(arguments), pointers(variables));
    let SpawnOptions { isolation, descriptors, rlimits, mask, landlock } = *how;
    if matches!(isolation, SpawnIsolation::Subreaper | SpawnIsolation::HiddenSubreaper)
        || !rlimits.is_empty()
        || landlock.is_some()
    {
        return spawn_by_fork(program, &argv, &envp, how);
    }
    // Rust's runtime ignores SIGPIPE; a command that writes to a closed pipe must end.
    let pipe = SignalSet::from_signals(&[libc::SIGPIPE]);
    let mut pid = 0;
    let ok =
        |error: i32| if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) };
    // SAFETY: both are opaque data that the init calls below fill in.
    let (mut actions, mut attributes) = unsafe {
        std::mem::zeroed::<(libc::posix_spawn_file_actions_t, libc::posix_spawnattr_t)>()
    };
    // SAFETY: every pointer is to a live value; argv and envp end with a null pointer and their
    // strings live in `arguments` and `variables`; initialised values are destroyed.
    unsafe {
        ok(libc::posix_spawn_file_actions_init(&mut actions))?;
        ok(libc::posix_spawnattr_init(&mut attributes))?;
        let own = if isolation == SpawnIsolation::SameSession {
            0
        } else {
            libc::POSIX_SPAWN_SETSID as i32
        };
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

/// The same by `fork(2)`: `posix_spawn(3)` does not support all options.
fn spawn_by_fork(
    program: &CStr,
    argv: &[*mut libc::c_char],
    envp: &[*mut libc::c_char],
    how: &SpawnOptions<'_>,
) -> io::Result<i32> {
    /// Above every fd number that the program may want.
    const MIN_FD: RawFd = 512;
    /// Not an errno.
    static NOT_TRACED: i32 = 0;
    let SpawnOptions { isolation, descriptors, rlimits, mask, landlock } = *how;
    let is_subreaper =
        matches!(isolation, SpawnIsolation::Subreaper | SpawnIsolation::HiddenSubreaper);
    let rlimits: Vec<_> = rlimits.iter().map(ResourceLimit::as_rlimit).collect();
    let (failure, low) = io::pipe()?;
    // SAFETY: takes no pointer; the fd is new and has no other owner.
    let report = unsafe {
        OwnedFd::from_raw_fd(super::check(libc::fcntl(
            low.as_raw_fd(),
            libc::F_DUPFD_CLOEXEC,
            MIN_FD,
        ))?)
    };
    drop(low);
    // SAFETY: until `execve` the child only makes system calls, on values made before: the parent
    // may have other threads, which the child does not have.
    let pid = super::check(unsafe { libc::fork() })?;
    if pid == 0 {
        // SAFETY: as above; both lists end with a null pointer, and their strings live.
        unsafe {
            let is_placed = (isolation == SpawnIsolation::SameSession || libc::setsid() >= 0)
                && descriptors
                    .iter()
                    .all(|(ours, theirs)| libc::dup2(ours.as_raw_fd(), *theirs) >= 0)
                && (!is_subreaper || libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
                && rlimits.iter().all(|(what, most)| libc::setrlimit(*what, most) == 0)
                && libc::signal(libc::SIGPIPE, libc::SIG_DFL) != libc::SIG_ERR
                && libc::sigprocmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut()) == 0
                && landlock.is_none_or(|rules| super::landlock::restrict_self(rules).is_ok());
            if is_placed {
                let is_hidden = isolation == SpawnIsolation::HiddenSubreaper;
                if is_hidden && trace::stop_at_exec() == TraceHold::No {
                    let word = (&raw const NOT_TRACED).cast();
                    libc::write(report.as_raw_fd(), word, size_of::<i32>());
                }
                libc::execve(program.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast());
            }
            let error = *libc::__errno_location();
            libc::write(report.as_raw_fd(), (&raw const error).cast(), size_of::<i32>());
            libc::_exit(127)
        }
    }
    drop(report);
    let mut failure = failure;
    let mut next = || {
        let mut word = [0; size_of::<i32>()];
        io::Read::read_exact(&mut failure, &mut word).ok().map(|()| i32::from_ne_bytes(word))
    };
    let first = next();
    let is_traced = isolation == SpawnIsolation::HiddenSubreaper && first != Some(NOT_TRACED);
    match if first == Some(NOT_TRACED) { next() } else { first } {
        Some(error) => {
            let _ = wait(pid, Wait::Block);
            Err(io::Error::from_raw_os_error(error))
        }
        // It runs the new program by now.
        None if is_traced => trace::hide_and_detach(pid).map(|()| pid),
        None => Ok(pid),
    }
}

/// Becomes the parent of every descendant whose own parent ends.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: takes no pointer.
    super::check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// `execve(2)`: returns only if it fails.
pub fn execute(program: &CStr, arguments: &[CString], variables: &[CString]) -> io::Error {
    let (argv, envp) = (pointers(arguments), pointers(variables));
    // SAFETY: both end with a null pointer, and their strings live in `arguments` and `variables`.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast()) };
    io::Error::last_os_error()
}

/// Ends this process at once, without running any cleanup.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: takes no pointer and does not return.
    unsafe { libc::_exit(status) }
}

/// Overwrites the environment variables of this process in place, and removes them: a fork inherits
/// those of its parent, and the memory would stay readable.
///
/// Only for a process with one thread.
pub fn clear_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: the C library keeps a null-terminated list of pointers to strings there, or none at
    // all. With one thread no other code reads it, and every string is writable: it came with the
    // process or was made by `setenv`.
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

/// Closes every fd from `first` on.
pub fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointer. An owner of one of these fds must not use it again: the callers are
    // about to execute another program.
    super::check_long(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) })
        .map(drop)
}

/// Puts `kept` at fd 3, close-on-exec, and closes every other one above the standard streams.
///
/// For a new process that inherited more than it needs; another owner of an fd in it must not use
/// or drop it again.
pub fn close_all_but(kept: OwnedFd) -> io::Result<OwnedFd> {
    const KEPT_FD: RawFd = 3;
    if kept.as_raw_fd() != KEPT_FD {
        // SAFETY: takes no pointer; the former fd 3 is not used again.
        super::check(unsafe { libc::dup3(kept.as_raw_fd(), KEPT_FD, libc::O_CLOEXEC) })?;
    }
    std::mem::forget(kept);
    close_from(KEPT_FD + 1)?;
    // SAFETY: the fd was put there just now, and its former owner was forgotten.
    Ok(unsafe { OwnedFd::from_raw_fd(KEPT_FD) })
}

/// Takes over an fd that this process was started with.
///
/// Fails if the fd is not open, or was taken before.
pub fn take_inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let flags = super::check(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: takes no pointer.
    super::check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the fd is open, came from outside this program, and the flag set just now keeps a
    // second call from taking it again.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Status change of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildStatus {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// This signal stopped it.
    Stopped(i32),
    /// It continued.
    Continued,
}

/// Resource usage of a child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChildUsage {
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub system_us: u64,
    /// Peak memory, in kilobytes.
    pub max_rss_kb: u64,
}

/// Blocking mode of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Blocks until a change.
    Block,
    /// Returns `None` at once if nothing has changed.
    Poll,
}

/// `wait4(2)` for any child (`-1`) or one; also reports stops and continuations.
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

/// Waits until a child has ended; `None` if it is no child.
pub fn await_end(pid: i32) -> Option<ChildStatus> {
    loop {
        let (_, change, _) = wait(pid, Wait::Block).ok()??;
        if matches!(change, ChildStatus::Exited(_) | ChildStatus::Killed(_)) {
            return Some(change);
        }
    }
}

/// `getrusage(2)`: bytes written to disks by reaped children and their reaped children.
pub fn bytes_written_by_children() -> io::Result<u64> {
    /// Unit of the kernel's counter.
    const BLOCK: u64 = 512;
    // SAFETY: `rusage` is plain data for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live value.
    super::check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) })?;
    Ok(usage.ru_oublock as u64 * BLOCK)
}

/// `pidfd_open(2)`.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = super::check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the fd is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `pidfd_open(2)` of one thread (Linux 6.9; `EINVAL` before).
pub fn pidfd_of_thread(thread: i32) -> io::Result<OwnedFd> {
    /// `PIDFD_THREAD`, which the kernel defines so.
    const THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: takes no pointer.
    let fd = super::check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, thread, THREAD) })?;
    // SAFETY: the fd is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `pidfd_send_signal(2)`.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: the siginfo pointer is null, and no other pointer is taken.
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

/// `pidfd_getfd(2)`: a copy of another process's fd.
pub fn pidfd_getfd(pidfd: BorrowedFd<'_>, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = super::check_long(unsafe {
        libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0)
    })?;
    // SAFETY: the fd is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `/proc/PID/status` of a process or thread. Its name need not be UTF-8.
pub fn status(pid: u32) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/status"))?).into_owned())
}

/// Effective user and group id.
pub fn ids() -> (u32, u32) {
    // SAFETY: neither call takes an argument or can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// `sched_setattr(2)`: sets a time slice in nanoseconds, and a niceness. A process with a short
/// slice is woken sooner (Linux 6.12; before, the slice is ignored).
pub fn set_time_slice(nanoseconds: u64, niceness: i32) -> io::Result<()> {
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
    fn status_of_a_process_with_a_non_utf8_name_is_read() {
        let report = std::thread::spawn(|| {
            std::fs::write("/proc/thread-self/comm", b"w\xff").expect("a thread names itself");
            let itself = std::fs::read_link("/proc/thread-self").expect("thread-self exists");
            let number =
                itself.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
            super::status(number).expect("it has a status")
        });
        let report = report.join().expect("it ends");
        assert!(report.starts_with("Name:\tw") && report.contains("\nState:"), "{report}");
    }
}
