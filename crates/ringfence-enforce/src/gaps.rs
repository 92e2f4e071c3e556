//! What a policy may ask for that this version cannot enforce. Asked and not had is a gap,
//! and a gap refuses unless the policy accepts it.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{Grants, Limit, NetworkMode, PortSelection};

use crate::support::{FuseSupport, HostSupport, PidAllocation, ProcAccounting};
use crate::survey::{CaseFolding, Survey};

/// Everything in `grants` that would not hold.
pub(crate) fn gaps(grants: &Grants, survey: &Survey, support: &HostSupport) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut gap = |what: &str, why: &str, hint: &str| {
        gaps.push(Gap {
            what: what.into(),
            why: why.into(),
            hint: hint.into(),
            loss: GapKind::Enforcement,
        });
    };
    if survey.folding == CaseFolding::Hidden {
        gap(
            "filesystem.case",
            "this file system takes `.env` and `.ENV` for one file, and a cover holds for one spelling",
            "keep the project on a file system of Linux, or accept with `--on-gap run`",
        );
    }
    let network = &grants.network;
    if network.mode == NetworkMode::Full && !network.deny.is_empty() {
        gap(
            "network.deny",
            "hosts cannot be told apart yet: with the host's own network all of them are reachable",
            "use `--net none` or remove `deny` from [network]",
        );
    }
    if network.bind.entries.iter().any(|entry| entry.ports == PortSelection::All)
        && network.mode != NetworkMode::Full
    {
        gap(
            "network.bind",
            "only ports that are listed can be published",
            "list them: `bind = [3000]`, or use `--net full`",
        );
    }
    if network.mode == NetworkMode::Full && network.secrets.iter().any(|secret| secret.is_set) {
        gap(
            "secrets",
            "on the host's own network nobody stands on the way to put values into requests",
            "use `--net allow-list`, or remove [[secrets]] from the policy",
        );
    }
    if network.mode == NetworkMode::Full && support.landlock < 6 {
        gap(
            "network.full.abstract-sockets",
            "with the host's network, abstract sockets of the host are reachable on kernels without Landlock ABI 6",
            "use a kernel from 6.12 on, or `--net none`",
        );
    }
    for (limit, _) in grants.limits.asked() {
        if let Some(why) = uncounted(limit, support) {
            gap(
                &format!("limits.{limit}"),
                why,
                "remove it from [limits] or accept with `--on-gap run`",
            );
        }
    }
    gaps
}

/// Why a limit cannot be held, if it cannot.
fn uncounted(limit: Limit, support: &HostSupport) -> Option<&'static str> {
    match (limit, support.accounts) {
        (Limit::Cpu | Limit::Memory | Limit::Processes | Limit::Disk, ProcAccounting::Nothing) => {
            Some(
                "this kernel does not tell which processes there are (it was built without CONFIG_PROC_CHILDREN)",
            )
        }
        (Limit::Disk, ProcAccounting::WithoutDisk) => Some(
            "this kernel does not tell what a process writes (it was built without CONFIG_TASK_IO_ACCOUNTING)",
        ),
        (Limit::Processes, _) if support.uid == 0 && support.numbers == PidAllocation::Shared => {
            Some(
                "root may have any number of processes on kernels before 6.14, faster than they can be counted",
            )
        }
        _ => None,
    }
}

/// Without a tripwire the same is shut, and nobody hears who tried.
pub(crate) fn untold(fuse: FuseSupport) -> Gap {
    let (state, hint) = match fuse {
        FuseSupport::Opens => (
            "the kernel lets nobody serve a file system here",
            "`ringfence doctor` shows what this host can do",
        ),
        FuseSupport::Shut => ("/dev/fuse cannot be opened", "sudo chmod 666 /dev/fuse"),
        FuseSupport::Absent => {
            ("there is no /dev/fuse", "sudo modprobe fuse, or for a container `--device /dev/fuse`")
        }
    };
    let lost = "all is enforced, but refused reads are guessed from what a failed command writes to standard error, unless that is a terminal";
    Gap {
        what: "denials".into(),
        why: format!("{state}: {lost}"),
        hint: hint.into(),
        loss: GapKind::Telling,
    }
}

/// Without a tripwire a denied name cannot look absent or empty: it is refused with EACCES.
pub(crate) fn undisguised(grants: &Grants) -> Option<Gap> {
    grants.disguises.is_any().then(|| Gap {
        what: "filesystem.hide".into(),
        why: "without /dev/fuse, hidden names are denied: programs that read them get EACCES"
            .into(),
        hint: "`ringfence doctor` shows what this host can do".into(),
        loss: GapKind::Telling,
    })
}
