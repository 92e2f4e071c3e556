//! Gaps: requested protections that this version cannot enforce. A gap refuses the run unless the
//! policy accepts it.

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{Grants, Limit, NetworkMode, PortSelection};

use crate::support::{FuseSupport, HostSupport, PidAllocation, ProcAccounting};
use crate::survey::{CaseFolding, Survey};

/// All gaps of `grants` on this host.
pub(crate) fn find_gaps(grants: &Grants, survey: &Survey, support: &HostSupport) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut gap = |what: &str, why: &str, hint: &str| {
        gaps.push(Gap {
            what: what.into(),
            why: why.into(),
            hint: hint.into(),
            kind: GapKind::Enforcement,
        });
    };
    if survey.folding == CaseFolding::Hidden {
        gap(
            "filesystem.case",
            "this file system treats `.env` and `.ENV` as one file, but a mask covers only one spelling",
            "move the project to a Linux file system, or accept the gap with `--on-gap run`",
        );
    }
    let network = &grants.network;
    if network.mode == NetworkMode::Full && !network.deny.is_empty() {
        gap(
            "network.deny",
            "single hosts cannot be denied on the host's own network: every host is reachable",
            "use `--net none` or remove `deny` from [network]",
        );
    }
    if network.bind.entries.iter().any(|entry| entry.ports == PortSelection::All)
        && network.mode != NetworkMode::Full
    {
        gap(
            "network.bind",
            "only listed ports can be published",
            "list them: `bind = [3000]`, or use `--net full`",
        );
    }
    if network.mode == NetworkMode::Full && network.secrets.iter().any(|secret| secret.is_set) {
        gap(
            "secrets",
            "on the host's own network ringfence cannot insert secrets into requests",
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
    for (limit, _) in grants.limits.set_limits() {
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

/// Reason why a limit cannot be enforced, if it cannot.
fn uncounted(limit: Limit, support: &HostSupport) -> Option<&'static str> {
    match (limit, support.accounts) {
        (Limit::Cpu | Limit::Memory | Limit::Processes | Limit::Disk, ProcAccounting::Nothing) => {
            Some(
                "this kernel does not list child processes (it was built without CONFIG_PROC_CHILDREN)",
            )
        }
        (Limit::Disk, ProcAccounting::WithoutDisk) => Some(
            "this kernel does not count bytes written per process (it was built without CONFIG_TASK_IO_ACCOUNTING)",
        ),
        (Limit::Processes, _) if support.uid == 0 && support.numbers == PidAllocation::Shared => {
            Some("before Linux 6.14, root can start processes faster than ringfence can count them")
        }
        _ => None,
    }
}

/// The gap without a tripwire: enforcement is the same, but denied reads are not reported.
pub(crate) fn missing_tripwire(fuse: FuseSupport) -> Gap {
    let (state, hint) = match fuse {
        FuseSupport::Opens => (
            "the kernel does not allow a FUSE mount here",
            "`ringfence doctor` shows what this host can do",
        ),
        FuseSupport::Shut => ("/dev/fuse cannot be opened", "sudo chmod 666 /dev/fuse"),
        FuseSupport::Absent => {
            ("there is no /dev/fuse", "sudo modprobe fuse, or for a container `--device /dev/fuse`")
        }
    };
    let lost = "everything is enforced, but denied reads are only guessed from the standard error of a failed command, and not if that is a terminal";
    Gap {
        what: "denials".into(),
        why: format!("{state}: {lost}"),
        hint: hint.into(),
        kind: GapKind::Reporting,
    }
}

/// The gap without a tripwire for hidden names: they are denied with EACCES instead of looking
/// absent or empty.
pub(crate) fn missing_hide(grants: &Grants) -> Option<Gap> {
    grants.disguises.has_any().then(|| Gap {
        what: "filesystem.hide".into(),
        why: "without /dev/fuse, hidden names are denied: programs that read them get EACCES"
            .into(),
        hint: "`ringfence doctor` shows what this host can do".into(),
        kind: GapKind::Reporting,
    })
}
