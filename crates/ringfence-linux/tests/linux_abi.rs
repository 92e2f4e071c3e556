//! Numbers of the Linux ABI in `ringfence-plan` and `ringfence-api`, which also build without the
//! `libc` crate's Linux part, compared with `libc`.

#![cfg(target_os = "linux")]

use ringfence_api::{Signal, host_limits};
use ringfence_plan::abi;
use ringfence_plan::seccomp::calls::{Arch, Call};
use ringfence_plan::seccomp::ioctls;

/// Compares constants of the same name.
macro_rules! check_abi {
    ($numbers:ident: $($name:ident)*) => {
        $(assert_eq!(i64::from($numbers::$name), i64::from(libc::$name), stringify!($name));)*
    };
}

#[test]
fn abi_numbers_match_libc() {
    check_abi!(host_limits: EAGAIN ENOMEM ENFILE EMFILE ENOSPC EUSERS);
    check_abi!(abi: EPERM EXDEV ENOTTY ENOSYS EOPNOTSUPP);
    check_abi!(abi: EAFNOSUPPORT);
    check_abi!(abi: O_WRONLY O_RDWR O_CREAT O_TRUNC O_DIRECTORY O_TMPFILE);
    check_abi!(abi: MSG_EOR MSG_NOSIGNAL MSG_FASTOPEN S_ISUID S_ISGID);
}

#[test]
fn signal_numbers_match_libc() {
    for (signal, number) in [
        (Signal::Hangup, libc::SIGHUP),
        (Signal::Interrupt, libc::SIGINT),
        (Signal::Quit, libc::SIGQUIT),
        (Signal::Kill, libc::SIGKILL),
        (Signal::User1, libc::SIGUSR1),
        (Signal::User2, libc::SIGUSR2),
        (Signal::Terminate, libc::SIGTERM),
        (Signal::Continue, libc::SIGCONT),
        (Signal::Stop, libc::SIGSTOP),
        (Signal::WindowChange, libc::SIGWINCH),
        (Signal::BadSyscall, libc::SIGSYS),
    ] {
        assert_eq!(signal.linux_number(), number, "{signal:?}");
    }
}

#[track_caller]
fn check_syscall(call: Call, expect: libc::c_long) {
    let arch = Arch::NATIVE_FIRST[0];
    assert_eq!(call.number(arch), Some(expect as u32), "{call:?}");
    assert_eq!(Call::from_number(arch, expect as u32), Some(call));
}

#[test]
fn native_syscall_numbers_match_libc() {
    check_syscall(Call::Openat, libc::SYS_openat);
    check_syscall(Call::Openat2, libc::SYS_openat2);
    check_syscall(Call::Mkdirat, libc::SYS_mkdirat);
    check_syscall(Call::Mknodat, libc::SYS_mknodat);
    check_syscall(Call::Symlinkat, libc::SYS_symlinkat);
    check_syscall(Call::Linkat, libc::SYS_linkat);
    check_syscall(Call::Renameat2, libc::SYS_renameat2);
    check_syscall(Call::Bind, libc::SYS_bind);
    check_syscall(Call::Connect, libc::SYS_connect);
    check_syscall(Call::Execve, libc::SYS_execve);
    check_syscall(Call::Execveat, libc::SYS_execveat);
    check_syscall(Call::Umask, libc::SYS_umask);
    check_syscall(Call::Unlinkat, libc::SYS_unlinkat);
    check_syscall(Call::Fchmod, libc::SYS_fchmod);
    check_syscall(Call::Fchmodat, libc::SYS_fchmodat);
    check_syscall(Call::Fchmodat2, libc::SYS_fchmodat2);
    check_syscall(Call::Setpriority, libc::SYS_setpriority);
    check_syscall(Call::IoprioSet, libc::SYS_ioprio_set);
    check_syscall(Call::Seccomp, libc::SYS_seccomp);
    check_syscall(Call::LandlockCreate, libc::SYS_landlock_create_ruleset);
    check_syscall(Call::Socket, libc::SYS_socket);
    check_syscall(Call::Clone, libc::SYS_clone);
    check_syscall(Call::Clone3, libc::SYS_clone3);
    check_syscall(Call::Unshare, libc::SYS_unshare);
    check_syscall(Call::Setns, libc::SYS_setns);
    check_syscall(Call::Mount, libc::SYS_mount);
    check_syscall(Call::Umount2, libc::SYS_umount2);
    check_syscall(Call::PivotRoot, libc::SYS_pivot_root);
    check_syscall(Call::OpenTree, libc::SYS_open_tree);
    check_syscall(Call::MountSetattr, libc::SYS_mount_setattr);
    check_syscall(Call::Keyctl, libc::SYS_keyctl);
    check_syscall(Call::Bpf, libc::SYS_bpf);
    check_syscall(Call::PerfEventOpen, libc::SYS_perf_event_open);
    check_syscall(Call::Userfaultfd, libc::SYS_userfaultfd);
    check_syscall(Call::IoUringSetup, libc::SYS_io_uring_setup);
    check_syscall(Call::KexecLoad, libc::SYS_kexec_load);
    check_syscall(Call::OpenByHandleAt, libc::SYS_open_by_handle_at);
    check_syscall(Call::NameToHandleAt, libc::SYS_name_to_handle_at);
    check_syscall(Call::FanotifyInit, libc::SYS_fanotify_init);
    check_syscall(Call::Syslog, libc::SYS_syslog);
    check_syscall(Call::Ioctl, libc::SYS_ioctl);
    check_syscall(Call::Kill, libc::SYS_kill);
    check_syscall(Call::Quotactl, libc::SYS_quotactl);
    check_syscall(Call::Reboot, libc::SYS_reboot);
    check_syscall(Call::Truncate, libc::SYS_truncate);
    check_syscall(Call::Fchownat, libc::SYS_fchownat);
    check_syscall(Call::Utimensat, libc::SYS_utimensat);
    check_syscall(Call::Setxattr, libc::SYS_setxattr);
    check_syscall(Call::Lsetxattr, libc::SYS_lsetxattr);
    check_syscall(Call::Fsetxattr, libc::SYS_fsetxattr);
    check_syscall(Call::Removexattr, libc::SYS_removexattr);
    check_syscall(Call::Lremovexattr, libc::SYS_lremovexattr);
}

/// The filter allows exactly the listed commands: `only_listed_ioctls_are_allowed`.
#[test]
fn everyday_ioctls_are_allowed() {
    for command in [
        libc::TCGETS,
        libc::TCSETS,
        libc::TCSETSW,
        libc::TCSETSF,
        libc::TIOCSCTTY,
        libc::TIOCGPGRP,
        libc::TIOCSPGRP,
        libc::TIOCOUTQ,
        libc::TIOCGWINSZ,
        libc::TIOCSWINSZ,
        libc::FIONREAD,
        libc::FIONBIO,
        libc::TIOCNOTTY,
        libc::TIOCGPTN,
        libc::TIOCSPTLCK,
        libc::TIOCGPTPEER,
        libc::FIOCLEX,
        libc::FIONCLEX,
        libc::FIOASYNC,
        libc::FICLONE,
        libc::FICLONERANGE,
        libc::FS_IOC_GETFLAGS,
        libc::SIOCGIFCONF,
        libc::SIOCGIFADDR,
        libc::SIOCGIFINDEX,
        libc::SIOCGIFHWADDR,
        libc::SIOCGIFMTU,
        libc::TIOCGSID,
    ] {
        assert!(ioctls::is_allowed(ioctls::ALLOWED, command as u32), "{command:#x}");
    }
    assert_eq!(ioctls::SET_FLAGS, libc::FS_IOC_SETFLAGS as u32);
}
