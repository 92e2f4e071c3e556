//! Detects the capabilities of this host by trying them.

use std::fs;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use crate::open::open;

use ringfence_plan::{FuseSupport, HostSupport, PidAllocation, ProcAccounting};
use ringfence_sys::mount::{self, MountRecursion};
use ringfence_sys::process::{self, ChildStatus, Fork, Wait};
use ringfence_sys::seccomp::{self, BpfInsn};
use ringfence_sys::{landlock, namespace, privilege};
use rustix::fs::{CWD, FileType, OFlags};

use super::cgroup;

/// Facts that cost nothing to detect. The run itself finds out if namespaces work.
pub(crate) fn support() -> HostSupport {
    let (uid, gid) = process::ids();
    let KernelSupport { landlock, accounts, numbers } = *kernel();
    HostSupport { uid, gid, landlock, fuse: fuse(), accounts, numbers }
}

/// Facts that do not change while a program runs.
struct KernelSupport {
    landlock: u32,
    accounts: ProcAccounting,
    numbers: PidAllocation,
}

fn kernel() -> &'static KernelSupport {
    static KERNEL: OnceLock<KernelSupport> = OnceLock::new();
    KERNEL.get_or_init(|| KernelSupport {
        landlock: landlock::abi().unwrap_or(0),
        accounts: detect_accounting(),
        numbers: detect_pid_allocation(),
    })
}

/// The pid allocation of sandboxes on this kernel.
pub(super) fn pid_allocation() -> PidAllocation {
    kernel().numbers
}

/// Kernels can be built without these files.
fn detect_accounting() -> ProcAccounting {
    let exists = |name: &str| std::path::Path::new(name).exists();
    match (exists("/proc/thread-self/children"), exists("/proc/self/io")) {
        (true, true) => ProcAccounting::Full,
        (true, false) => ProcAccounting::WithoutDisk,
        (false, _) => ProcAccounting::Nothing,
    }
}

fn detect_pid_allocation() -> PidAllocation {
    if has_pid_max_per_namespace() {
        return PidAllocation::Own;
    }
    // Only root needs it.
    if process::ids().0 == 0 && cgroup::can_limit_processes() {
        PidAllocation::Grouped
    } else {
        PidAllocation::Shared
    }
}

/// Decided by version: trying it would change the limit for the whole host where it is shared.
pub(super) fn has_pid_max_per_namespace() -> bool {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts =
        version.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(14))
}

/// Tests by opening it: a container may show the device with all permissions, and forbid its use.
pub(super) fn fuse() -> FuseSupport {
    const DEVICE: &str = "/dev/fuse";
    let Ok(status) = rustix::fs::stat(DEVICE) else { return FuseSupport::Absent };
    let is_device = FileType::from_raw_mode(status.st_mode).is_char_device();
    let opens = || open(DEVICE, OFlags::RDWR).is_ok();
    if is_device && opens() { FuseSupport::Opens } else { FuseSupport::Shut }
}

/// The reason namespaces are not available, and a fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsernsObstacle {
    /// The syscall that failed, and its error.
    pub symptom: String,
    /// The probable cause.
    pub cause: String,
    /// One command that fixes it.
    pub fix: String,
}

/// Tries in a child what a sandbox needs; `None` if all of it works.
///
/// Forks: call it only from a single-threaded process.
pub fn probe() -> Option<UsernsObstacle> {
    let wanted = namespace::USER
        | namespace::MOUNT
        | namespace::PID
        | namespace::IPC
        | namespace::UTS
        | namespace::CGROUP
        | namespace::NETWORK;
    let errno = match process::fork() {
        Ok(Fork::Child) => {
            let unshared = namespace::unshare(wanted)
                .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
            process::exit_now(match unshared {
                Ok(()) if lacks_mount_setattr() => TOO_OLD,
                Ok(()) => 0,
                Err(errno) => errno,
            })
        }
        Ok(Fork::Parent(pid)) => match process::wait(pid, Wait::Block) {
            Ok(Some((_, ChildStatus::Exited(status), _))) => status,
            _ => libc::EIO,
        },
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    match errno {
        0 => None,
        TOO_OLD => Some(old_kernel()),
        errno => Some(obstacle(errno, &read)),
    }
}

/// True if a process may have a notify handler: tried in a child. A filter with a listener exists
/// once per process.
pub(crate) fn can_mediate() -> bool {
    // Allows every syscall.
    let filter = [BpfInsn { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 }];
    match process::fork() {
        Ok(Fork::Child) => {
            let installed = privilege::set_no_new_privs().and_then(|()| seccomp::install(&filter));
            process::exit_now(i32::from(installed.is_err()))
        }
        Ok(Fork::Parent(pid)) => {
            matches!(process::wait(pid, Wait::Block), Ok(Some((_, ChildStatus::Exited(0), _))))
        }
        Err(_) => false,
    }
}

/// Exit status of the child if the namespaces are available and `mount_setattr` is not; no errno
/// has this number.
const TOO_OLD: i32 = 255;

/// True if the kernel lacks the newest syscall that every sandbox needs.
///
/// Changes the working directory's mount if the kernel has it: call it in a private mount
/// namespace.
fn lacks_mount_setattr() -> bool {
    let tried = mount::set_attributes(CWD.as_fd(), c"", MountRecursion::One, 0);
    tried.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS))
}

fn old_kernel() -> UsernsObstacle {
    UsernsObstacle {
        symptom: "mount_setattr failed: Function not implemented".into(),
        cause: "the kernel is too old, or a sandbox around this process blocks newer syscalls"
            .into(),
        fix: "use Linux 5.14 or later".into(),
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The most specific cause that the host's settings show.
fn obstacle(errno: i32, read: &dyn Fn(&str) -> Option<String>) -> UsernsObstacle {
    let symptom =
        format!("unshare(CLONE_NEWUSER|…) failed: {}", std::io::Error::from_raw_os_error(errno));
    let setting = |name: &str| read(&format!("/proc/sys/{name}"));
    let is_forbidden = matches!(errno, libc::EPERM | libc::EACCES);
    // ENOSPC means that a limit is reached, but not which one.
    if let libc::ENOSPC | libc::EUSERS = errno {
        let (cause, fix) = namespace_limit(&setting);
        return UsernsObstacle { symptom, cause, fix };
    }
    let (cause, fix) = if errno == libc::EAGAIN {
        (
            "the limit of this user's processes is reached (`ulimit -u`)",
            "ulimit -u unlimited, or end some of this user's processes",
        )
    } else if errno == libc::ENOMEM {
        (
            "the machine or the container around ringfence is out of memory",
            "end other programs, or raise the container's memory limit",
        )
    } else if is_forbidden && setting("user/max_user_namespaces").as_deref() == Some("0") {
        (
            "user namespaces are switched off (user.max_user_namespaces = 0)",
            "sudo sysctl -w user.max_user_namespaces=15000",
        )
    } else if is_forbidden && setting("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        (
            "unprivileged user namespaces are switched off (kernel.unprivileged_userns_clone = 0)",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        )
    } else if is_forbidden
        && setting("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1")
    {
        (
            "AppArmor restricts user namespaces to programs with a profile (Ubuntu 23.10 and later)",
            "ringfence doctor --apparmor | sudo tee /etc/apparmor.d/ringfence && sudo apparmor_parser -r /etc/apparmor.d/ringfence",
        )
    } else if errno == libc::EINVAL {
        (
            "the kernel was built without one of the namespaces",
            "use a kernel with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS and CONFIG_UTS_NS",
        )
    } else if read("/.dockerenv").is_some() || read("/run/.containerenv").is_some() {
        (
            "a container's seccomp profile forbids unshare",
            "docker run --security-opt seccomp=unconfined …",
        )
    } else {
        (
            "a seccomp filter or security module around this process forbids unshare",
            "run ringfence outside of the sandbox or service that started it",
        )
    };
    UsernsObstacle { symptom, cause: cause.into(), fix: fix.into() }
}

/// The namespace limit that is reached: one that is 0, or else the lowest.
fn namespace_limit(setting: &dyn Fn(&str) -> Option<String>) -> (String, String) {
    const KINDS: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let limit = |kind: &'static str| {
        Some((setting(&format!("user/max_{kind}_namespaces"))?.parse::<u64>().ok()?, kind))
    };
    let lowest = KINDS.into_iter().filter_map(limit).min_by_key(|(limit, _)| *limit);
    let (limit, kind) = lowest.unwrap_or((0, "user"));
    let cause = match (lowest, limit) {
        (Some(_), 0) => {
            format!("{kind} namespaces are switched off (user.max_{kind}_namespaces = 0)")
        }
        (Some(_), limit) => {
            format!(
                "a limit of namespaces is reached (the lowest is user.max_{kind}_namespaces = {limit}), or they are nested too deep"
            )
        }
        (None, _) => "a limit of namespaces is reached, or they are nested too deep".to_owned(),
    };
    (cause, format!("sudo sysctl -w user.max_{kind}_namespaces=15000"))
}

#[cfg(test)]
mod tests {
    use super::obstacle;

    #[track_caller]
    fn check(errno: i32, settings: &[(&str, &str)], expect: &str) {
        let read = |path: &str| {
            settings.iter().find(|(name, _)| *name == path).map(|(_, value)| (*value).to_owned())
        };
        let found = obstacle(errno, &read);
        assert!(found.cause.contains(expect), "{found:?}");
        assert!(!found.fix.is_empty());
    }

    #[test]
    fn obstacle_names_the_cause() {
        check(
            libc::ENOSPC,
            &[("/proc/sys/user/max_user_namespaces", "0")],
            "max_user_namespaces = 0",
        );
        check(
            libc::EPERM,
            &[("/proc/sys/kernel/unprivileged_userns_clone", "0")],
            "unprivileged_userns_clone = 0",
        );
        check(
            libc::EPERM,
            &[("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")],
            "AppArmor",
        );
        check(libc::EPERM, &[("/.dockerenv", "")], "container");
        check(libc::EPERM, &[], "seccomp filter");
        check(libc::EINVAL, &[], "built without");
        check(libc::ENOSPC, &[("/proc/sys/user/max_user_namespaces", "100")], "limit");
    }

    #[test]
    fn obstacle_names_only_the_reached_limit() {
        let user = ("/proc/sys/user/max_user_namespaces", "15000");
        let apparmor = ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1");
        check(
            libc::ENOSPC,
            &[user, ("/proc/sys/user/max_net_namespaces", "0")],
            "net namespaces are switched off",
        );
        check(
            libc::ENOSPC,
            &[user, ("/proc/sys/user/max_mnt_namespaces", "7")],
            "user.max_mnt_namespaces = 7",
        );
        check(libc::ENOSPC, &[user, apparmor], "user.max_user_namespaces = 15000");
        check(libc::EAGAIN, &[user, apparmor], "ulimit -u");
        check(libc::ENOMEM, &[user], "out of memory");
    }
}
