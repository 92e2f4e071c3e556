//! Provider conformance of the example `bwrap`.

#[path = "../examples/bwrap/provider.rs"]
mod provider;

use std::process::ExitCode;

use provider::BwrapProvider;
use ringfence_conformance::CheckTier::{Core, Files, Network, Processes};

fn main() -> ExitCode {
    if !ringfence_testkit::needs(&["bwrap"]) {
        return ExitCode::SUCCESS;
    }
    ringfence_conformance::main(&[Core, Files, Network, Processes], BwrapProvider::default)
}
