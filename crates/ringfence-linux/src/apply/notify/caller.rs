//! The calling thread: its memory, its directories, its umask.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_sys::seccomp::{self, Notification};
use ringfence_sys::{memory, privilege, process};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::fd_cache::FdCache;
use crate::apply::parked::{CloseOnExec, SignalRecipient, signal_for};
use crate::open::open_at;

const PAGE: u64 = 4096;

/// A thread of the sandbox that waits for the notify handler's reply.
pub(super) struct NotifyCaller<'a> {
    pub(super) notification: &'a Notification,
    /// The host's `/proc`, in which the thread has the pid of the notification.
    pub(super) host_proc: BorrowedFd<'a>,
    pub(super) listener: BorrowedFd<'a>,
    pub(super) fds: &'a FdCache,
    pub(super) read: &'a CallerMemory,
}

/// Caller memory that was read: addresses and contents.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CallerMemory {
    texts: RefCell<Vec<(u64, CString)>>,
    bytes: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl NotifyCaller<'_> {
    /// True if the caller's memory still has the content of `memory`. Reads all of it again.
    pub(super) fn memory_is_unchanged(&self, memory: &CallerMemory) -> bool {
        memory
            .texts
            .borrow()
            .iter()
            .all(|(address, text)| self.text_from(*address).as_ref() == Ok(text))
            && memory.bytes.borrow().iter().all(|(address, bytes)| {
                self.bytes_from(*address, bytes.len()).as_ref() == Ok(bytes)
            })
    }

    pub(super) fn pid(&self) -> i32 {
        self.notification.pid as i32
    }

    /// An argument as the kernel takes it: an `int`.
    pub(super) fn int_arg(&self, number: usize) -> i32 {
        self.notification.arguments[number] as i32
    }

    pub(super) fn raw_arg(&self, number: usize) -> u64 {
        self.notification.arguments[number]
    }

    /// Fails if the caller no longer waits: then its pid may belong to another process, and data
    /// read through it must not be used.
    pub(super) fn ensure_waiting(&self) -> Result<(), Errno> {
        if seccomp::is_waiting(self.listener, self.notification.id) {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }

    /// The string at a pointer argument.
    pub(super) fn string_arg(&self, number: usize) -> Result<CString, Errno> {
        self.text_at(self.raw_arg(number))
    }

    /// The NUL-terminated string at an address, at most `PATH_MAX` long. Read once: a later change
    /// does not matter.
    pub(super) fn text_at(&self, address: u64) -> Result<CString, Errno> {
        if let Some((_, text)) =
            self.read.texts.borrow().iter().find(|(known, _)| *known == address)
        {
            return Ok(text.clone());
        }
        let text = self.text_from(address)?;
        self.read.texts.borrow_mut().push((address, text.clone()));
        Ok(text)
    }

    fn text_from(&self, mut address: u64) -> Result<CString, Errno> {
        let mut text = Vec::new();
        let mut buffer = [0; PAGE as usize];
        while text.len() < PAGE as usize {
            // Reads within one page, so that a missing next page does no harm. Most names are
            // short, so the first read is short.
            let left = (PAGE - address % PAGE) as usize;
            let want = if text.is_empty() { left.min(256) } else { left };
            let got = self.read_memory(address, &mut buffer[..want])?;
            if let Some(end) = buffer[..got].iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&buffer[..end]);
                return CString::new(text).map_err(|_| Errno::INVAL);
            }
            if got == 0 {
                return Err(Errno::FAULT);
            }
            text.extend_from_slice(&buffer[..got]);
            address += got as u64;
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Bytes at an address. Read once, as [`NotifyCaller::text_at`].
    pub(super) fn read_bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let is_known =
            |(known, bytes): &&(u64, Vec<u8>)| *known == address && bytes.len() >= length;
        if let Some((_, bytes)) = self.read.bytes.borrow().iter().find(is_known) {
            return Ok(bytes[..length].to_vec());
        }
        let bytes = self.bytes_from(address, length)?;
        self.read.bytes.borrow_mut().push((address, bytes.clone()));
        Ok(bytes)
    }

    fn bytes_from(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; length];
        if self.read_memory(address, &mut bytes)? < length {
            return Err(Errno::FAULT);
        }
        Ok(bytes)
    }

    fn read_memory(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let again = memory::read_process(self.pid(), address, buffer);
        again
            .or_else(|_| with_ptrace(|| memory::read_process(self.pid(), address, buffer)))
            .map_err(|_| Errno::FAULT)
    }

    /// Opens the directory at which a path of the caller begins.
    pub(super) fn open_start(&self, number: i32) -> Result<OwnedFd, Errno> {
        let name = if number == libc::AT_FDCWD {
            format!("{}/cwd", self.pid())
        } else {
            format!("{}/fd/{number}", self.pid())
        };
        let open = || open_at(self.host_proc, name.as_str(), OFlags::PATH);
        match open() {
            Err(Errno::NOENT) => Err(Errno::BADF),
            Err(Errno::ACCESS | Errno::PERM) => {
                with_ptrace(|| open().map_err(std::io::Error::from)).map_err(|_| Errno::ACCESS)
            }
            other => other,
        }
    }

    /// The same for a directory that is only a start: a copy of the caller's own fd, if possible.
    pub(super) fn start_directory(&self, number: i32) -> Result<OwnedFd, Errno> {
        if number < 0 {
            return self.open_start(number);
        }
        match self.fds.descriptor(self.pid(), number) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => Err(Errno::BADF),
            // No pidfds of threads on this kernel, or a process that is not dumpable.
            Err(_) => self.open_start(number),
            Ok(directory) => Ok(directory),
        }
    }

    /// Copies an fd of the calling thread: the leader of its process may have ended, or may have
    /// another fd table. Before Linux 6.9 only the leader has a pidfd.
    pub(super) fn copy_fd(&self, number: i32) -> Result<OwnedFd, Errno> {
        let leader = || process::pidfd(self.ids().map(|ids| ids.leader).unwrap_or(self.pid()));
        let open = || match process::pidfd_of_thread(self.pid()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => leader(),
            opened => opened,
        };
        let copy = || {
            open().and_then(|pidfd| process::pidfd_getfd(std::os::fd::AsFd::as_fd(&pidfd), number))
        };
        copy()
            .or_else(|_| with_ptrace(copy))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::BADF))
    }

    /// The close-on-exec flag of an fd of the caller.
    pub(super) fn close_on_exec(&self, number: i32) -> CloseOnExec {
        let name = format!("{}/fdinfo/{number}", self.pid());
        let read = || Ok(self.read_proc(&name)?);
        let text = read().or_else(|_| with_ptrace(read)).unwrap_or_default();
        let flags = text
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        flags.map_or(CloseOnExec::Close, CloseOnExec::from_flags)
    }

    /// The path of the program that the caller runs.
    pub(super) fn program(&self) -> String {
        let read = || {
            rustix::fs::readlinkat(self.host_proc, format!("{}/exe", self.pid()), Vec::new())
                .map_err(std::io::Error::from)
        };
        read()
            .or_else(|_| with_ptrace(read))
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The caller's ids, outside and inside.
    pub(super) fn ids(&self) -> Option<TaskIds> {
        let status = self.status()?;
        let last = |name: &str| -> Option<String> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().last().map(str::to_owned)
        };
        Some(TaskIds {
            leader: last("Tgid:")?.parse().ok()?,
            leader_inside: last("NStgid:")?,
            thread_inside: last("NSpid:")?,
        })
    }

    fn status(&self) -> Option<String> {
        self.read_proc(&format!("{}/status", self.pid())).ok()
    }

    /// The start of a file of `/proc`. The name of a process may not be UTF-8.
    fn read_proc(&self, name: &str) -> Result<String, Errno> {
        let file = open_at(self.host_proc, name, OFlags::RDONLY)?;
        let mut text = vec![0; 8192];
        let length = rustix::io::read(&file, &mut text)?;
        Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    }

    /// The recipient of a pending signal that the caller handles, if there is one.
    pub(super) fn pending_signal(&self) -> Option<SignalRecipient> {
        signal_for(&self.status()?)
    }

    /// The session of a process and the device number of its terminal; pid zero means the notify
    /// handler.
    pub(super) fn terminal(&self, pid: i32) -> Option<(i32, u64)> {
        let name = if pid == 0 { "self/stat".to_owned() } else { format!("{pid}/stat") };
        let text = self.read_proc(&name).ok()?;
        // Behind the name, which may contain any byte: state, parent, group, session, terminal.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(3);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    }

    /// The caller's RLIMIT_FSIZE; `None` means no limit.
    pub(super) fn largest_file(&self) -> Option<u64> {
        let text = self.read_proc(&format!("{}/limits", self.pid())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Max file size"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    fn umask(&self) -> Option<u32> {
        let status = self.status()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
        u32::from_str_radix(line.trim(), 8).ok()
    }
}

/// Ids of a thread and its process.
pub(super) struct TaskIds {
    pub(super) leader: i32,
    pub(super) leader_inside: String,
    pub(super) thread_inside: String,
}

/// Runs `act` with CAP_SYS_PTRACE, which gives access to processes that are not dumpable.
pub(super) fn with_ptrace<T>(act: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let bit = 1 << privilege::CAP_SYS_PTRACE;
    privilege::set_capabilities(bit, bit)?;
    let result = act();
    privilege::set_capabilities(0, bit)?;
    result
}

/// Umasks of callers. Reading them each time from `/proc` would cost more than the syscall.
#[derive(Default)]
pub(super) struct UmaskCache {
    initial: InitialUmask,
    known: HashMap<u32, (u32, Instant)>,
    /// Time at which a `umask` syscall was last continued: it may not have taken effect yet.
    last_set: Option<Instant>,
    current: Option<u32>,
}

/// The umask with which the sandbox began. Umasks are inherited, and every `umask` raises a
/// notification, so it is valid for all processes until the first one.
#[derive(Default)]
enum InitialUmask {
    #[default]
    Unknown,
    Known(u32),
    /// A process has set another umask.
    Changed,
}

impl UmaskCache {
    /// Validity of an entry: pids are reused, and threads share their umask.
    const VALID_FOR: Duration = Duration::from_millis(50);
    const CAPACITY: usize = 4096;

    /// Notes that the caller sets its umask now.
    pub(super) fn note_change(&mut self, pid: u32, umask: u64) {
        self.initial = InitialUmask::Changed;
        self.last_set = Some(Instant::now());
        self.known.clear();
        self.known.insert(pid, (umask as u32 & 0o777, Instant::now()));
    }

    /// The caller's umask.
    pub(super) fn umask_for(&mut self, caller: &NotifyCaller<'_>) -> u32 {
        if let InitialUmask::Unknown = self.initial
            && let Some(umask) = caller.umask()
            && caller.ensure_waiting().is_ok()
        {
            self.initial = InitialUmask::Known(umask);
        }
        match self.initial {
            InitialUmask::Known(umask) => umask,
            InitialUmask::Unknown | InitialUmask::Changed => self.umask_of_process(caller),
        }
    }

    fn umask_of_process(&mut self, caller: &NotifyCaller<'_>) -> u32 {
        let pid = caller.notification.pid;
        match self.known.get(&pid) {
            Some((umask, since)) if since.elapsed() < Self::VALID_FOR => *umask,
            _ => {
                if self.known.len() > Self::CAPACITY {
                    self.known.clear();
                }
                // If it cannot be read, give access only to the owner.
                let umask = caller.umask().unwrap_or(0o077);
                if self.last_set.is_none_or(|set| set.elapsed() >= Self::VALID_FOR) {
                    self.known.insert(pid, (umask, Instant::now()));
                }
                umask
            }
        }
    }

    /// Sets the notify handler's umask to the caller's, for the next file it creates.
    pub(super) fn adopt(&mut self, caller: &NotifyCaller<'_>) {
        let umask = self.umask_for(caller);
        if self.current != Some(umask) {
            rustix::process::umask(Mode::from_raw_mode(umask));
            self.current = Some(umask);
        }
    }
}
