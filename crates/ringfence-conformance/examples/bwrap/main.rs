//! Runs a command in a sandbox of the example provider, with policy, gaps and audit log:
//! `cargo run -p ringfence-conformance --example bwrap -- ls -a`

mod provider;

use std::error::Error;

use provider::BwrapProvider;
use ringfence_api::StdioMode;
use ringfence_engine::{PolicyFiles, ProviderRegistry, RunRequest, resolve_for, run};
use ringfence_policy::{AbsPath, Flags, OnGap};

fn main() -> Result<(), Box<dyn Error>> {
    let mut registry = ProviderRegistry::default();
    registry.register_plain("bwrap", BwrapProvider::default);
    let cwd = AbsPath::new(std::env::current_dir()?).ok_or("no absolute directory")?;
    let mut flags = Flags::none(cwd.clone());
    flags.provider = Some("bwrap".parse()?);
    // Without this line the gaps of the provider refuse every command.
    flags.on_gap = Some(OnGap::Run);
    let files = PolicyFiles::default();
    let resolved = resolve_for(&cwd, &flags, &files)?;
    let request = RunRequest {
        command: std::env::args_os().skip(1).collect(),
        cwd,
        flags,
        files,
        stdio: StdioMode::Inherit,
        asker: None,
        agent: None,
        session: format!("bwrap-{}", std::process::id()),
    };
    if request.command.is_empty() {
        return Err("usage: bwrap COMMAND [ARGUMENT]...".into());
    }
    let outcome = run(&registry, &request, &resolved, &mut |error| eprintln!("{error}"))?;
    outcome.gaps.iter().for_each(|gap| eprintln!("gap: {}: {}", gap.what, gap.why));
    std::process::exit(outcome.exit_code())
}
