//! The test program of a provider.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use ringfence_provider::{Provider, Support};
use ringfence_testkit::ProcessPerTest;

use crate::{CheckTier, ConformanceCheck, checks};

/// The standard input of the process that runs a check.
pub(crate) const INPUT: &[u8] = b"first line\n\x00\xff not text\nno end of line";

/// An environment variable of the process that runs a check; no command may see it.
pub(crate) const VARIABLE: (&str, &str) = ("CONFORMANCE_TOKEN", "plugh-never-to-be-seen");

/// The test of a provider without confinement.
const UNCONFINED: &str = "every_confinement_check_fails";

/// The result of a test.
pub type SuiteResult = Result<(), Box<dyn Error>>;

/// The `main` of a provider's test, which has `harness = false`: runs the checks of the `tiers`
/// that the provider claims.
///
/// If [`Provider::capabilities`] says that the provider does not confine, another test shows that
/// it fails every confinement check.
pub fn main<P: Provider>(tiers: &[CheckTier], make: impl Fn() -> P) -> ExitCode {
    let names = checks().filter(|check| check.is_claimed_by(tiers)).map(|check| check.name);
    let is_confined = make().capabilities().confinement == Support::Yes;
    let unconfined = (!is_confined).then_some(UNCONFINED);
    run_each(names.chain(unconfined).map(String::from).collect(), |name, directory| {
        if name == UNCONFINED {
            return all_fail(&make, directory);
        }
        Ok(find_check(name)?.run(&make(), directory)?)
    })
}

/// The `main` of a test whose tests run checks. Each runs in a process of its own, as root and as
/// an ordinary user, in an empty directory of that user.
pub fn run_each(names: Vec<String>, body: impl Fn(&str, &Path) -> SuiteResult) -> ExitCode {
    ProcessPerTest { names, input: INPUT, variable: VARIABLE, body }.main()
}

/// The check with this name.
pub fn find_check(name: &str) -> Result<&'static ConformanceCheck, String> {
    checks().find(|check| check.name == name).ok_or_else(|| format!("no check `{name}`"))
}

fn all_fail<P: Provider>(make: &impl Fn() -> P, directory: &Path) -> SuiteResult {
    for check in checks().filter(|check| check.is_confinement()) {
        let base = directory.join(check.name);
        std::fs::create_dir(&base)?;
        if check.run(&make(), &base).is_ok() {
            return Err(format!("{} passes without confinement", check.name).into());
        }
    }
    Ok(())
}
