//! Provider conformance of the example `bwrap` with the project at another path in the sandbox, as
//! in a container.

#[path = "../examples/bwrap/provider.rs"]
mod provider;

use std::process::ExitCode;

use provider::BwrapProvider;
use ringfence_conformance::CheckTier::{Core, Files, Network, Processes};
use ringfence_policy::AbsPath;

fn main() -> ExitCode {
    if !ringfence_testkit::needs(&["bwrap"]) {
        return ExitCode::SUCCESS;
    }
    ringfence_conformance::main(&[Core, Files, Network, Processes], || BwrapProvider {
        workspace: AbsPath::new("/mnt/project/app"),
    })
}
