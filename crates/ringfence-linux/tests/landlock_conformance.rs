//! Provider conformance of `local` with the engine `landlock`, with a notify handler and without
//! one: each check passes, or is listed here with the gap or limit that explains it, and then it
//! fails.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use ringfence_conformance::{CheckTier, checks, find_check, run_each};
use ringfence_linux::LocalProvider;
use ringfence_policy::ProviderSpec;
use ringfence_sys::privilege;
use ringfence_sys::seccomp::{self, BpfInsn};

const MEDIATED: &str = "mediated";
const PLAIN: &str = "plain";

/// Checks that fail, and the reason.
const NOT_HELD: &[(&str, &str)] = &[
    ("environment_is_exactly_the_given_one", "TMPDIR and GIT_CONFIG_GLOBAL name own files"),
    ("paths_outside_the_policy_are_invisible", "the gap filesystem.metadata"),
    ("temporary_files_are_private", "/tmp is closed, and TMPDIR is another directory"),
    ("caches_are_private_and_last", "caches are read-only"),
    ("loopback_works_inside", "the network is the host's, so no program can make a socket"),
];

/// Checks that fail only without a notify handler.
const NOT_HELD_PLAIN: &[(&str, &str)] = &[
    ("deadline_ends_all_started_processes", CREATE),
    ("nothing_outlives_the_command", CREATE),
    ("inherited_streams_are_not_captured", CREATE),
    ("workspace_is_readable_and_writable", CREATE),
    ("protected_name_cannot_be_created", CREATE),
    ("denied_name_cannot_be_created", CREATE),
    ("uid_and_gid_are_the_same_inside", CREATE),
    ("prepared_sandbox_runs_several_commands", CREATE),
    ("two_sandboxes_are_independent", CREATE),
    ("limit_holds_or_is_a_gap", CREATE),
    ("user_has_the_given_name", "/etc/passwd is the host's"),
];
/// The project has denied files, and the checks create files beside them.
const CREATE: &str = "no name can be created beside a denied or protected one";

fn main() -> ExitCode {
    // The helpers of `local` are this program, executed anew.
    ringfence_linux::enter_if_helper();
    let tried = checks().filter(|check| {
        let tiers = [CheckTier::Shells, CheckTier::Reports];
        !check.tiers.iter().any(|tier| tiers.contains(tier))
    });
    let names =
        tried.flat_map(|check| [MEDIATED, PLAIN].map(|mode| format!("{mode}::{}", check.name)));
    run_each(names.collect(), |name, directory| {
        let (mode, name) = name.split_once("::").ok_or("a name has two parts")?;
        let _listener = (mode == PLAIN).then(forbid_handlers).transpose()?;
        let spec: ProviderSpec = "local:engine=landlock".parse()?;
        let provider = LocalProvider::default().with_options(&spec.options)?;
        let result = find_check(name)?.run(&provider, directory);
        let plain = if mode == PLAIN { NOT_HELD_PLAIN } else { &[] };
        let mut known = NOT_HELD.iter().chain(plain);
        match (result, known.find(|(known, _)| *known == name)) {
            (Ok(()), None) | (Err(_), Some(_)) => Ok(()),
            (Err(failure), None) => Err(failure.into()),
            (Ok(()), Some((_, reason))) => Err(format!("it holds, but is listed: {reason}").into()),
        }
    })
}

/// Gives this process a seccomp listener: its descendants cannot have another until it is closed.
fn forbid_handlers() -> std::io::Result<OwnedFd> {
    let allow_all = BpfInsn { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 };
    privilege::set_no_new_privs()?;
    seccomp::install(&[allow_all])
}
