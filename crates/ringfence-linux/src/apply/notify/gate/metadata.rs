//! Changes of modes, owners, times and attributes by path, which Landlock does not restrict.

use std::os::fd::{AsRawFd, OwnedFd};

use ringfence_api::Operation;
use ringfence_plan::seccomp::calls::{Arch, Call};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::{CWD, Gate, GateAccess, GatedCall};
use crate::apply::notify::NotifyReply;
use crate::apply::notify::resolve::FinalSymlink;

const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// Executes a syscall that changes metadata; other syscalls are allowed here.
pub(super) fn change(gate: &mut Gate<'_, '_>, call: Call) -> Result<GatedCall, Errno> {
    let int = |number| gate.caller.int_arg(number);
    let raw = |number| gate.caller.raw_arg(number);
    let done = match call {
        Call::Chmod => gate.change_mode((CWD, 0, 0), raw(1)),
        Call::Fchmodat => gate.change_mode((int(0), 1, 0), raw(2)),
        Call::Fchmodat2 => gate.change_mode((int(0), 1, int(3)), raw(2)),
        Call::Fchmod => gate.change_open_mode(int(0), raw(1)),
        Call::Fchown => gate.change_open_owner(int(0), raw(1), raw(2)),
        Call::Utimensat if raw(1) == 0 => gate.change_open_times(int(0), raw(2)),
        Call::Chown => gate.change_owner((CWD, 0, 0), raw(1), raw(2)),
        Call::Lchown => gate.change_owner((CWD, 0, NOFOLLOW), raw(1), raw(2)),
        Call::Fchownat => gate.change_owner((int(0), 1, int(4)), raw(2), raw(3)),
        Call::Utime => gate.change_times((CWD, 0, 0), raw(1), TimeForm::Seconds),
        Call::Utimes => gate.change_times((CWD, 0, 0), raw(1), TimeForm::Microseconds),
        Call::Futimesat => gate.change_times((int(0), 1, 0), raw(2), TimeForm::Microseconds),
        Call::Utimensat => gate.change_times((int(0), 1, int(3)), raw(2), TimeForm::Nanoseconds),
        // Old 32-bit programs.
        Call::Utimensat64 | Call::Chown16 | Call::Lchown16 => Err(Errno::NOSYS),
        Call::Setxattr | Call::Lsetxattr | Call::Removexattr | Call::Lremovexattr => {
            Err(Errno::OPNOTSUPP)
        }
        Call::Ioctl => Err(Errno::OPNOTSUPP),
        _ => return Ok(GatedCall::Allowed),
    };
    done.map(|()| GatedCall::Answered(NotifyReply::Value(0)))
}

/// The unit of the times in a caller's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeForm {
    Seconds,
    Microseconds,
    Nanoseconds,
}

impl Gate<'_, '_> {
    /// The file that an `…at` syscall changes, if the policy lets the command write it.
    fn changed_file(
        &mut self,
        (directory, path, flags): (i32, usize, i32),
    ) -> Result<OwnedFd, Errno> {
        if flags & !(NOFOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Err(Errno::INVAL);
        }
        let is_empty =
            flags & libc::AT_EMPTY_PATH != 0 && self.caller.string_arg(path)?.to_bytes().is_empty();
        let file = if is_empty {
            self.caller.open_start(directory)?
        } else {
            let is_kept = flags & NOFOLLOW != 0;
            let last = if is_kept { FinalSymlink::Keep } else { FinalSymlink::Follow };
            self.target(directory, path, last)?
        };
        self.rules.check_mediated_file(self.caller, &file, GateAccess::Change, Operation::Write)?;
        Ok(file)
    }

    /// A copy of the caller's fd of a file that the policy lets the command change.
    fn changed_fd(&mut self, number: i32) -> Result<OwnedFd, Errno> {
        let file = self.caller.copy_fd(number)?;
        let flags = rustix::fs::fcntl_getfl(&file)?;
        if flags.contains(OFlags::PATH) {
            return Err(Errno::BADF);
        }
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if kind.is_char_device() || kind.is_block_device() {
            return Err(Errno::PERM);
        }
        // An fd for writing was opened by the handler, or was given to the command.
        if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            self.rules.check_mediated_file(
                self.caller,
                &file,
                GateAccess::Change,
                Operation::Write,
            )?;
        }
        Ok(file)
    }

    fn change_open_mode(&mut self, number: i32, mode: u64) -> Result<(), Errno> {
        let file = self.changed_fd(number)?;
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode as u32 & 0o7777))
    }

    fn change_open_owner(&mut self, number: i32, owner: u64, group: u64) -> Result<(), Errno> {
        let file = self.changed_fd(number)?;
        keep_owner(&file, owner, group)
    }

    fn change_open_times(&mut self, number: i32, address: u64) -> Result<(), Errno> {
        let times = self.read_times(address, TimeForm::Nanoseconds)?;
        let file = self.changed_fd(number)?;
        rustix::fs::futimens(file, &times)
    }

    fn change_mode(&mut self, file: (i32, usize, i32), mode: u64) -> Result<(), Errno> {
        let file = self.changed_file(file)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if kind.is_symlink() {
            return Err(Errno::OPNOTSUPP);
        }
        rustix::fs::chmodat(
            self.caller.host_proc,
            fd_name(&file),
            Mode::from_raw_mode(mode as u32 & 0o7777),
            AtFlags::empty(),
        )
    }

    fn change_owner(
        &mut self,
        file: (i32, usize, i32),
        owner: u64,
        group: u64,
    ) -> Result<(), Errno> {
        let file = self.changed_file(file)?;
        keep_owner(&file, owner, group)
    }

    fn change_times(
        &mut self,
        file: (i32, usize, i32),
        address: u64,
        form: TimeForm,
    ) -> Result<(), Errno> {
        let times = self.read_times(address, form)?;
        let (directory, path, flags) = file;
        if flags == NOFOLLOW {
            let place = self.place(directory, path)?;
            self.rules.check_mediated_place(
                self.caller,
                &place,
                GateAccess::Change,
                Operation::Write,
            )?;
            let (directory, flags) = (&place.directory, AtFlags::SYMLINK_NOFOLLOW);
            return rustix::fs::utimensat(directory, place.name.as_os_str(), &times, flags);
        }
        let file = self.changed_file(file)?;
        rustix::fs::utimensat(self.caller.host_proc, fd_name(&file), &times, AtFlags::empty())
    }

    /// The access and modification time in the caller's memory; a null pointer is now.
    fn read_times(&self, address: u64, form: TimeForm) -> Result<Timestamps, Errno> {
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        if address == 0 {
            return Ok(Timestamps { last_access: now, last_modification: now });
        }
        let arch = Arch::from_audit_arch(self.caller.notification.arch);
        let width = if arch == Some(Arch::X86) { 4 } else { 8 };
        let count = if form == TimeForm::Seconds { 2 } else { 4 };
        let bytes = self.caller.read_bytes(address, count * width)?;
        let words: Vec<i64> = bytes
            .chunks_exact(width)
            .map(|word| match <[u8; 8]>::try_from(word) {
                Ok(word) => i64::from_ne_bytes(word),
                Err(_) => i32::from_ne_bytes([word[0], word[1], word[2], word[3]]).into(),
            })
            .collect();
        let time = |seconds: i64, part: i64| match form {
            TimeForm::Seconds => Ok(Timespec { tv_sec: seconds, tv_nsec: 0 }),
            TimeForm::Microseconds if (0..1_000_000).contains(&part) => {
                Ok(Timespec { tv_sec: seconds, tv_nsec: part * 1000 })
            }
            TimeForm::Microseconds => Err(Errno::INVAL),
            TimeForm::Nanoseconds => Ok(Timespec { tv_sec: seconds, tv_nsec: part }),
        };
        let (access, modification) = match form {
            TimeForm::Seconds => ((words[0], 0), (words[1], 0)),
            _ => ((words[0], words[1]), (words[2], words[3])),
        };
        Ok(Timestamps {
            last_access: time(access.0, access.1)?,
            last_modification: time(modification.0, modification.1)?,
        })
    }
}

/// Changes nothing: the owner and group of a file can only be set to what they are.
fn keep_owner(file: &OwnedFd, owner: u64, group: u64) -> Result<(), Errno> {
    let status = rustix::fs::fstat(file)?;
    let keeps = |wanted: u64, is: u32| wanted as u32 == u32::MAX || wanted as u32 == is;
    if keeps(owner, status.st_uid) && keeps(group, status.st_gid) {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// The name of an fd of the handler in `/proc`.
fn fd_name(file: &OwnedFd) -> String {
    format!("self/fd/{}", file.as_raw_fd())
}
