//! Provider conformance of `process`: it runs commands and shells like any other provider, and
//! confines nothing.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use ringfence_linux::ProcessProvider;
use ringfence_policy::AbsPath;
use ringfence_provider::conformance::{
    CheckTopic, ConformanceCheck, ConformanceFixture, INPUT, VARIABLE, checks,
};
use ringfence_testkit::ProcessPerTest;

/// Checks of confinement that also accept a gap.
const ACCEPTS_GAP: [&str; 2] = ["limit_holds_or_is_a_gap", "host_list_holds_or_is_a_gap"];
/// A check whose result depends on the fds that the test runner leaves open: an unconfined command
/// inherits them.
const DEPENDS_ON_RUNNER: &str = "writing_to_every_fd_fakes_no_exit_status";
/// A name of the test that runs all checks of confinement.
const UNCONFINED: &str = "every_confinement_check_without_a_gap_fails";

fn main() -> ExitCode {
    let held = checks().filter(|check| is_claimed(check)).map(|check| check.name);
    let names = held.chain([UNCONFINED]).map(String::from).collect();
    ProcessPerTest { names, input: INPUT, variable: VARIABLE, body }.main()
}

/// True if the provider claims to pass the check.
fn is_claimed(check: &ConformanceCheck) -> bool {
    check.name != DEPENDS_ON_RUNNER
        && (check.about != CheckTopic::Confinement || ACCEPTS_GAP.contains(&check.name))
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let try_check = |check: &ConformanceCheck, directory: &Path| {
        let base = AbsPath::new(directory).ok_or("the directory is not absolute")?;
        let fixture = ConformanceFixture::prepare(&base)?;
        Ok::<_, Box<dyn Error>>(check.run(&ProcessProvider, &fixture))
    };
    if name != UNCONFINED {
        let check = checks().find(|check| check.name == name).ok_or("no such check")?;
        return Ok(try_check(check, directory)??);
    }
    let others = checks().filter(|check| !is_claimed(check) && check.name != DEPENDS_ON_RUNNER);
    for check in others {
        let base = directory.join(check.name);
        std::fs::create_dir(&base)?;
        if try_check(check, &base)?.is_ok() {
            return Err(format!("{} passes without confinement", check.name).into());
        }
    }
    Ok(())
}
