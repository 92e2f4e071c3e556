//! What an agent should know when it begins.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ringfence_policy::{AbsPath, HookSession, Mode, NetworkMode};

use super::answer::HookReply;
use super::call::HookCall;
use super::rewrite::link;

pub(super) fn answer(scene: &HookCall) -> HookReply {
    sweep(&scene.resolved.surroundings.facts.state);
    let grants = scene.grants();
    if !grants.is_confined() {
        let text =
            "ringfence: the policy confines nothing: commands can do whatever you can".to_owned();
        return HookReply::Message { text };
    }
    let written = match grants.mode {
        Mode::ReadOnly => "nothing can be written but /tmp".to_owned(),
        _ => format!("{} can be written, and /tmp", grants.workspace),
    };
    let shared = match grants.sandbox.hook_session {
        HookSession::Conversation => {
            "they share one shell, /tmp and loopback for this conversation"
        }
        HookSession::Call => "each has a sandbox, a /tmp and a loopback of its own",
    };
    let hosts: Vec<String> =
        grants.network.allow.iter().take(20).map(|listed| listed.rule.to_string()).collect();
    let network = match grants.network.mode {
        NetworkMode::Full => "open".to_owned(),
        NetworkMode::AllowList if !hosts.is_empty() => {
            format!("these hosts alone: {}", hosts.join(", "))
        }
        _ => "shut".to_owned(),
    };
    let text = format!(
        "Bash commands run in ringfence's sandbox; {shared}. Files: {written}; secrets such as .env and ~/.ssh cannot be read; other projects are not there. Network: {network}. The same rules hold for your file tools and WebFetch. What is refused is not a fault of the command and does not go away by trying again: say what is needed and why, so that the person can open it."
    );
    HookReply::Context { event: "SessionStart", text }
}

/// Takes away links that nobody follows any more: a run that was killed left them.
fn sweep(state: &AbsPath) {
    const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
    let Some(directory) = link(state, "x").parent().map(Path::to_owned) else { return };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let age =
            entry.metadata().ok().and_then(|metadata| metadata.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age > KEPT) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
