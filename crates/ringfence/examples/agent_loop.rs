//! An agent's shell tool: each line of standard input is a tool call, each line of standard output
//! its JSON result. Without input a few built-in calls are used.
//!
//! ```console
//! $ cargo run -p ringfence --example agent_loop
//! $ printf 'cd src\npwd\n' | cargo run -p ringfence --example agent_loop
//! ```

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use ringfence::{Command, OutputStream, SandboxConfig, SandboxManager};

/// The shell state persists between calls, and a secret stays unreadable.
const CALLS: &[&str] =
    &["cd /tmp && export GREETING=hello", "echo $GREETING from $(pwd)", "cat ~/.ssh/id_rsa"];

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    let stdin = io::stdin();
    let calls: Vec<String> = match stdin.is_terminal() {
        true => Vec::new(),
        false => stdin.lines().collect::<Result<_, _>>()?,
    };
    let calls =
        if calls.is_empty() { CALLS.iter().map(ToString::to_string).collect() } else { calls };

    let manager = SandboxManager::new(SandboxConfig::default())?;
    for call in calls {
        // The user can follow the output while the model waits for the result.
        let watched = |stream: OutputStream, bytes: &[u8]| {
            let _ = io::stderr()
                .write_all(if stream == OutputStream::Out { b"| " } else { b"! " })
                .and(io::stderr().write_all(bytes));
        };
        let command = Command::new(call).timeout_ms(60_000).on_output(watched);
        let mut result = ringfence::block_on(manager.execute(".", command))?;
        // The same for every command, and long.
        result.enforced.clear();
        println!("{}", serde_json::to_string(&result)?);
    }
    ringfence::block_on(manager.shutdown())?;
    Ok(())
}
