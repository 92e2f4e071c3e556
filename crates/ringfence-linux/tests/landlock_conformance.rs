//! Provider conformance of `local` with the engine `landlock`: each check passes, or is listed here
//! with the gap or limit that explains it, and then it fails.

use std::process::ExitCode;

use ringfence_conformance::{CheckTier, checks, find_check, run_each};
use ringfence_linux::LocalProvider;
use ringfence_policy::ProviderSpec;

/// Checks that fail, and the reason.
const NOT_HELD: &[(&str, &str)] = &[
    ("environment_is_exactly_the_given_one", "TMPDIR and GIT_CONFIG_GLOBAL name own files"),
    ("paths_outside_the_policy_are_invisible", "the gap filesystem.metadata"),
    ("temporary_files_are_private", "/tmp is closed, and TMPDIR is another directory"),
    ("caches_are_private_and_last", "caches are read-only"),
    ("loopback_works_inside", "the gap network.loopback"),
];

fn main() -> ExitCode {
    // The helpers of `local` are this program, executed anew.
    ringfence_linux::enter_if_helper();
    let tried = checks().filter(|check| {
        let tiers = [CheckTier::Shells, CheckTier::Reports];
        !check.tiers.iter().any(|tier| tiers.contains(tier))
    });
    run_each(tried.map(|check| check.name.to_owned()).collect(), |name, directory| {
        let spec: ProviderSpec = "local:engine=landlock".parse()?;
        let provider = LocalProvider::default().with_options(&spec.options)?;
        let result = find_check(name)?.run(&provider, directory);
        let reason = NOT_HELD.iter().find(|(known, _)| *known == name).map(|(_, reason)| reason);
        match (result, reason) {
            (Ok(()), None) => Ok(()),
            (Err(failure), None) => Err(failure.into()),
            (Err(_), Some(_)) => Ok(()),
            (Ok(()), Some(reason)) => Err(format!("it holds, but is listed: {reason}").into()),
        }
    })
}
