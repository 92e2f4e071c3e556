//! Files of `/proc` and `/dev`, which the kernel makes.

use std::os::unix::fs::MetadataExt;

use ringfence_plan::landlock::MACHINE_FILES;
use ringfence_policy::AbsPath;

use super::access::{GateAccess, OwnParts};
use crate::apply::descendants;
use crate::apply::landlock_rules::DEVICES;
use crate::apply::notify::caller::NotifyCaller;

/// True if a command may open a file of the kernel; `None` if it is no such file.
pub(super) fn is_open(
    path: &AbsPath,
    wanted: GateAccess,
    caller: &NotifyCaller<'_>,
    parts: &OwnParts,
) -> Option<bool> {
    let names = || path.as_path().components().skip(1);
    // `/proc/PID/net` and `/proc/PID/task/TID/net`: the network is the host's.
    let is_network = || names().skip(2).any(|name| name.as_os_str() == "net");
    let mut names = names();
    let mut next = || names.next().and_then(|name| name.as_os_str().to_str());
    match (next(), next()) {
        (Some("proc" | "dev"), _) if wanted == GateAccess::Change => Some(false),
        (Some("proc"), None) => Some(wanted == GateAccess::Read),
        (Some("proc"), Some(name)) => {
            let is_shown = match name.parse() {
                Ok(pid) => !is_network() && descendants::is_descendant(pid, parts.init),
                Err(_) => MACHINE_FILES.contains(&name),
            };
            Some(is_shown && wanted == GateAccess::Read)
        }
        (Some("dev"), None) => Some(wanted == GateAccess::Read),
        (Some("dev"), Some("pts")) => Some(is_own_terminal(path, caller)),
        (Some("dev"), Some(name)) => Some(DEVICES.contains(&name)),
        _ => None,
    }
}

/// True for the terminal of the caller's session.
fn is_own_terminal(path: &AbsPath, caller: &NotifyCaller<'_>) -> bool {
    let terminal = caller.terminal(caller.pid()).map(|(_, terminal)| terminal);
    let device = std::fs::metadata(path.as_path()).ok().map(|found| found.rdev());
    // `/proc/PID/stat` has the number in the kernel's old form: the minor in two parts.
    let old = |device: u64| {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        u64::from(minor & 0xff | major << 8 | (minor & !0xff) << 12)
    };
    device.map(old).is_some_and(|device| device != 0 && terminal == Some(device))
}
