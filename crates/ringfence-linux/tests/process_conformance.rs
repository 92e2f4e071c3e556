//! Provider conformance of `process`: it runs commands and shells like any other provider, and
//! confines nothing.
//!
//! It does not claim `Unix`: an unconfined command inherits the fds that the test runner leaves
//! open.

use std::process::ExitCode;

use ringfence_conformance::CheckTier;
use ringfence_linux::ProcessProvider;

fn main() -> ExitCode {
    ringfence_conformance::main(&[CheckTier::Core, CheckTier::Shells], || ProcessProvider)
}
