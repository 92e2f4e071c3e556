//! The caller: its memory, its directories, its mask.

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

const PAGE: u64 = 4096;

/// A thread of the sandbox that waits for us.
pub(super) struct NotifyCaller<'a> {
    pub(super) notification: &'a Notification,
    /// The host's `/proc`, in which the caller has the number we know.
    pub(super) host_proc: BorrowedFd<'a>,
    pub(super) listener: BorrowedFd<'a>,
    pub(super) at_hand: &'a FdCache,
    pub(super) read: &'a CallerMemory,
}

/// What was read of a caller's memory: where, and what stood there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CallerMemory {
    texts: RefCell<Vec<(u64, CString)>>,
    bytes: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl NotifyCaller<'_> {
    /// Whether the same stands where `memory` was read; reads all of it again.
    pub(super) fn has(&self, memory: &CallerMemory) -> bool {
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

    /// An argument as the kernel would take it: an `int`.
    pub(super) fn int(&self, number: usize) -> i32 {
        self.notification.arguments[number] as i32
    }

    pub(super) fn raw(&self, number: usize) -> u64 {
        self.notification.arguments[number]
    }

    /// Whether what was read belongs to the caller: its number may be another's by now.
    pub(super) fn still_waits(&self) -> Result<(), Errno> {
        if seccomp::is_waiting(self.listener, self.notification.id) {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }

    /// The text at an argument.
    pub(super) fn text(&self, number: usize) -> Result<CString, Errno> {
        self.text_at(self.raw(number))
    }

    /// The text at an address: ends with NUL, at most `PATH_MAX` long. Read once: whatever
    /// stands there later, this is what the call is about.
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
            // Within a page, so that a page that is missing behind the text does no harm;
            // few names are long, so the first look is a short one.
            let left = (PAGE - address % PAGE) as usize;
            let want = if text.is_empty() { left.min(256) } else { left };
            let got = self.look(address, &mut buffer[..want])?;
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

    /// Bytes at an address. Read once, as [`Caller::text_at`].
    pub(super) fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
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
        if self.look(address, &mut bytes)? < length {
            return Err(Errno::FAULT);
        }
        Ok(bytes)
    }

    fn look(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let again = memory::read_process(self.pid(), address, buffer);
        again
            .or_else(|_| raised(|| memory::read_process(self.pid(), address, buffer)))
            .map_err(|_| Errno::FAULT)
    }

    /// The directory that a path of the caller begins at.
    pub(super) fn directory(&self, number: i32) -> Result<OwnedFd, Errno> {
        let name = if number == libc::AT_FDCWD {
            format!("{}/cwd", self.pid())
        } else {
            format!("{}/fd/{number}", self.pid())
        };
        let open = || {
            rustix::fs::openat(
                self.host_proc,
                name.as_str(),
                OFlags::PATH | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        match open() {
            Err(Errno::NOENT) => Err(Errno::BADF),
            Err(Errno::ACCESS | Errno::PERM) => {
                raised(|| open().map_err(std::io::Error::from)).map_err(|_| Errno::ACCESS)
            }
            other => other,
        }
    }

    /// The same for what is only walked from: what the caller itself has open there, if it can be
    /// had.
    pub(super) fn ground(&self, number: i32) -> Result<OwnedFd, Errno> {
        if number < 0 {
            return self.directory(number);
        }
        match self.at_hand.descriptor(self.pid(), number) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => Err(Errno::BADF),
            // A kernel that knows no threads by handles, or a process that hides.
            Err(_) => self.directory(number),
            Ok(directory) => Ok(directory),
        }
    }

    /// A copy of one of the caller's descriptors. It is the thread's own: the first thread of its
    /// process may have ended, or have others. Before Linux 6.9 only that one can be asked.
    pub(super) fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        let leader = || process::pidfd(self.ids().map(|ids| ids.leader).unwrap_or(self.pid()));
        let open = || match process::pidfd_of_thread(self.pid()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => leader(),
            opened => opened,
        };
        let copy = || {
            open()
                .and_then(|pidfd| process::descriptor_of(std::os::fd::AsFd::as_fd(&pidfd), number))
        };
        copy()
            .or_else(|_| raised(copy))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::BADF))
    }

    /// Whether the caller's next program gets one of its descriptors as well.
    pub(super) fn on_execute(&self, number: i32) -> CloseOnExec {
        let name = format!("{}/fdinfo/{number}", self.pid());
        let read = || {
            let file = rustix::fs::openat(
                self.host_proc,
                name.as_str(),
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            let mut text = vec![0; 1024];
            let length = rustix::io::read(&file, &mut text)?;
            text.truncate(length);
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&text).into_owned())
        };
        let text = read().or_else(|_| raised(read)).unwrap_or_default();
        let flags = text
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        flags.map_or(CloseOnExec::Close, CloseOnExec::of)
    }

    /// The program the caller runs.
    pub(super) fn program(&self) -> String {
        let read = || {
            rustix::fs::readlinkat(self.host_proc, format!("{}/exe", self.pid()), Vec::new())
                .map_err(std::io::Error::from)
        };
        read()
            .or_else(|_| raised(read))
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// What the caller is called, outside and inside.
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
        let name = format!("{}/status", self.pid());
        let file = rustix::fs::openat(
            self.host_proc,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        let mut text = vec![0; 8192];
        let length = rustix::io::read(&file, &mut text).ok()?;
        text.truncate(length);
        // It may have called itself what is no text.
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Whether a signal waits for the caller that it wants to handle, and whose it is.
    pub(super) fn signal(&self) -> Option<SignalRecipient> {
        signal_for(&self.status()?)
    }

    /// The session of a process and the device number of its terminal; zero means us.
    pub(super) fn terminal(&self, pid: i32) -> Option<(i32, u64)> {
        let name = if pid == 0 { "self/stat".to_owned() } else { format!("{pid}/stat") };
        let file = rustix::fs::openat(
            self.host_proc,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        let mut text = [0; 1024];
        let length = rustix::io::read(&file, &mut text[..]).ok()?;
        // Behind the name, which may hold anything: state, parent, group, session, terminal.
        let text = std::str::from_utf8(
            &text[..length][text[..length].iter().rposition(|byte| *byte == b')')? + 1..],
        )
        .ok()?;
        let mut fields = text.split_whitespace().skip(3);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    }

    /// How large the caller may make a file; `None` is no limit.
    pub(super) fn largest_file(&self) -> Option<u64> {
        let name = format!("{}/limits", self.pid());
        let file = rustix::fs::openat(
            self.host_proc,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        let mut text = vec![0; 4096];
        let length = rustix::io::read(&file, &mut text).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Max file size"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    fn mask(&self) -> Option<u32> {
        let status = self.status()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
        u32::from_str_radix(line.trim(), 8).ok()
    }
}

/// What a thread and its process are called.
pub(super) struct TaskIds {
    pub(super) leader: i32,
    pub(super) leader_inside: String,
    pub(super) thread_inside: String,
}

/// With the one capability that reads processes which hide from their own user.
pub(super) fn raised<T>(act: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    let bit = 1 << privilege::CAP_SYS_PTRACE;
    privilege::set_capabilities(bit, bit)?;
    let result = act();
    privilege::set_capabilities(0, bit)?;
    result
}

/// File mode masks of callers. Asking the kernel each time would cost more than the call.
pub(super) struct UmaskCache {
    /// The number of the sandbox's first process.
    init: u32,
    common: InitialUmask,
    known: HashMap<u32, (u32, Instant)>,
    /// When somebody was let through who set one: it may not be so yet.
    set: Option<Instant>,
    current: Option<u32>,
}

/// The mask that the sandbox began with. Masks are handed down and we hear of each that is set, so
/// it is everybody's until then.
enum InitialUmask {
    Unknown,
    Known(u32),
    /// Somebody has set another.
    Nobodys,
}

impl UmaskCache {
    /// How long an answer is believed: numbers of processes are used again, and threads
    /// share their mask.
    const BELIEVED: Duration = Duration::from_millis(50);
    const MANY: usize = 4096;

    pub(super) fn new(init: u32) -> Self {
        Self {
            init,
            common: InitialUmask::Unknown,
            known: HashMap::new(),
            set: None,
            current: None,
        }
    }

    /// The caller sets its mask now.
    pub(super) fn changed(&mut self, pid: u32, mask: u64) {
        // The first process makes nothing meanwhile, and takes its own again.
        if pid == self.init {
            return;
        }
        self.common = InitialUmask::Nobodys;
        self.set = Some(Instant::now());
        self.known.clear();
        self.known.insert(pid, (mask as u32 & 0o777, Instant::now()));
    }

    /// The caller's mask.
    pub(super) fn of(&mut self, caller: &NotifyCaller<'_>) -> u32 {
        if let InitialUmask::Unknown = self.common
            && let Some(mask) = caller.mask()
            && caller.still_waits().is_ok()
        {
            self.common = InitialUmask::Known(mask);
        }
        match self.common {
            InitialUmask::Known(mask) => mask,
            InitialUmask::Unknown | InitialUmask::Nobodys => self.own_of(caller),
        }
    }

    fn own_of(&mut self, caller: &NotifyCaller<'_>) -> u32 {
        let pid = caller.notification.pid;
        match self.known.get(&pid) {
            Some((mask, since)) if since.elapsed() < Self::BELIEVED => *mask,
            _ => {
                if self.known.len() > Self::MANY {
                    self.known.clear();
                }
                // Without an answer, what is made is the owner's alone.
                let mask = caller.mask().unwrap_or(0o077);
                if self.set.is_none_or(|set| set.elapsed() >= Self::BELIEVED) {
                    self.known.insert(pid, (mask, Instant::now()));
                }
                mask
            }
        }
    }

    /// Takes over the caller's mask for what is made next.
    pub(super) fn put_on(&mut self, caller: &NotifyCaller<'_>) {
        let mask = self.of(caller);
        if self.current != Some(mask) {
            rustix::process::umask(Mode::from_raw_mode(mask));
            self.current = Some(mask);
        }
    }
}
