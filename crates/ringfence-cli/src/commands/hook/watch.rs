//! Supervises the process that replies.
//!
//! A process that runs out of stack or memory prints nothing, and both agents let a call through if
//! its hook ends that way or takes too long. So this process only waits for it, with a time limit.

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{BLOCKED, HookAgent, print_reason};

/// Less than the time limit that `ringfence init` writes.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Lets a child process reply, and returns its status, or the status that blocks.
pub(super) fn watch(agent: HookAgent) -> u8 {
    let why = match run_child(agent) {
        Ok(status) => return status,
        Err(why) => why,
    };
    print_reason(&format!("the hook failed, so the call is blocked: {why}"));
    BLOCKED
}

fn run_child(agent: HookAgent) -> Result<u8, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut child = Command::new("/proc/self/exe")
        .args(["hook", agent.word(), "--watched"])
        .spawn()
        .map_err(text)?;
    let pid = Pid::from_child(&child);
    let (sender, ended) = mpsc::channel();
    thread::Builder::new().spawn(move || sender.send(child.wait())).map_err(text)?;
    let Ok(status) = ended.recv_timeout(REPLY_TIMEOUT) else {
        let _ = kill_process(pid, Signal::KILL);
        return Err(format!("no reply within {} seconds", REPLY_TIMEOUT.as_secs()));
    };
    let status = status.map_err(text)?;
    let known =
        status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code <= BLOCKED);
    known.ok_or_else(|| format!("its process ended with {status}"))
}
