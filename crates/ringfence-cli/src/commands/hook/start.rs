//! The context for an agent when its conversation begins.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ringfence_policy::{AbsPath, HookSession, Mode, NetworkMode};

use super::answer::HookReply;
use super::call::HookCall;
use super::rewrite::cwd_link_path;

pub(super) fn answer(hook_call: &HookCall) -> HookReply {
    remove_old_links(&hook_call.resolved.surroundings.facts.state);
    let grants = hook_call.grants();
    if !grants.is_confined() {
        let text =
            "ringfence: the policy confines nothing: commands have all your permissions".to_owned();
        return HookReply::Message { text };
    }
    let written = match grants.mode {
        Mode::ReadOnly => "only /tmp is writable".to_owned(),
        _ => format!("{} and /tmp are writable", grants.workspace),
    };
    let shared = match grants.sandbox.hook_session {
        HookSession::Conversation => {
            "they share one shell, /tmp and loopback for this conversation"
        }
        HookSession::Call => "each has its own sandbox, /tmp and loopback",
    };
    let hosts: Vec<String> =
        grants.network.allow.iter().take(20).map(|listed| listed.rule.to_string()).collect();
    let network = match grants.network.mode {
        NetworkMode::Full => "unrestricted".to_owned(),
        NetworkMode::AllowList if !hosts.is_empty() => {
            format!("only these hosts: {}", hosts.join(", "))
        }
        _ => "none".to_owned(),
    };
    let text = format!(
        "Bash commands run in the ringfence sandbox; {shared}. Files: {written}; secrets such as .env and ~/.ssh cannot be read; other projects are not visible. Network: {network}. The same rules apply to your file tools and WebFetch. A denial is not a fault of the command, and retrying does not help: say what you need and why, so that the user can allow it."
    );
    HookReply::Context { event: "SessionStart", text }
}

/// Removes old links, left behind by runs that were killed.
fn remove_old_links(state: &AbsPath) {
    const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
    let Some(directory) = cwd_link_path(state, "x").parent().map(Path::to_owned) else { return };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let age =
            entry.metadata().ok().and_then(|metadata| metadata.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age > KEPT) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
