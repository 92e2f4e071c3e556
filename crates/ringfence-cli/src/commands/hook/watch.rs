//! A watch over the process that answers.
//!
//! A process that runs out of stack or memory says nothing any more, and both agents let a call
//! through whose hook ends so, or takes too long. So one that does nothing else waits for it, and
//! not for ever.

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{BLOCKED, HookAgent, say};

/// Less than the time limit that `ringfence init` writes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Has another process answer, and returns its status or the one that blocks.
pub(super) fn watch(agent: HookAgent) -> u8 {
    let why = match answered(agent) {
        Ok(status) => return status,
        Err(why) => why,
    };
    say(&format!("the hook failed, so the call is blocked: {why}"));
    BLOCKED
}

fn answered(agent: HookAgent) -> Result<u8, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut child = Command::new("/proc/self/exe")
        .args(["hook", agent.word(), "--watched"])
        .spawn()
        .map_err(told)?;
    let pid = Pid::from_child(&child);
    let (sender, ended) = mpsc::channel();
    thread::Builder::new().spawn(move || sender.send(child.wait())).map_err(told)?;
    let Ok(status) = ended.recv_timeout(PATIENCE) else {
        let _ = kill_process(pid, Signal::KILL);
        return Err(format!("there was no answer within {} seconds", PATIENCE.as_secs()));
    };
    let status = status.map_err(told)?;
    let known =
        status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code <= BLOCKED);
    known.ok_or_else(|| format!("it ended by {status}"))
}
