//! A command is blocked, the user is asked, and the agent continues.
//!
//! The user's answer is the second argument: `allow_once`, `allow_session`, `allow_permanent` or
//! `deny`; without one the user is asked on the terminal.
//!
//! Here the answer comes after the command has failed: the sandbox is restarted with the grant, and
//! the command is run again. A program that can ask at any moment gives the manager an asker
//! (`SandboxManager::with_asker`): then the access itself waits for the answer and succeeds in
//! place, and the shell keeps its state.
//!
//! ```console
//! $ cargo run -p ringfence --example permission -- ~/notes.txt allow_session
//! ```

use std::error::Error;
use std::io;

use ringfence::{AskAnswer, Permission, SandboxConfig, SandboxManager};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    let mut words = std::env::args().skip(1);
    let file = words.next().ok_or("name a file that the sandbox denies")?;
    // Permits the user to run a command outside of the sandbox.
    let config = SandboxConfig { allow_unsandboxed_commands: true, ..SandboxConfig::default() };
    let manager = SandboxManager::new(config)?;
    let call = format!("cat -- '{}'", file.replace('\'', r"'\''"));

    let result = manager.execute_blocking(".", call.as_str())?;
    let Some(permission) = manager.requires_permission(&result) else {
        println!("not blocked: {}", result.stdout);
        return Ok(());
    };
    println!("{}", serde_json::to_string(&permission.clone().into_response())?);
    let answer = choose(&permission, words.next())?;
    manager.answer(".", &result, answer)?;
    let again = match answer {
        AskAnswer::Deny => {
            println!("the agent gets: {}", permission.reason);
            return Ok(());
        }
        AskAnswer::AllowOnce => ringfence::block_on(manager.execute_outside(".", call.as_str()))?,
        AskAnswer::AllowSession | AskAnswer::AllowPermanent => {
            manager.execute_blocking(".", call.as_str())?
        }
    };
    println!("{answer}: status {}, {}", again.exit_code, again.stdout);
    ringfence::block_on(manager.shutdown())?;
    Ok(())
}

/// The option that the user names.
fn choose(permission: &Permission, said: Option<String>) -> Result<AskAnswer, Box<dyn Error>> {
    let said = match said {
        Some(said) => said,
        None => {
            let options: Vec<String> = permission.options.iter().map(ToString::to_string).collect();
            eprintln!("{}. {}?", permission.reason, options.join(", "));
            let mut line = String::new();
            io::stdin().read_line(&mut line)?;
            line.trim().to_owned()
        }
    };
    // Any other text, or none, means deny.
    Ok(permission
        .options
        .iter()
        .copied()
        .find(|option| option.to_string() == said)
        .unwrap_or(AskAnswer::Deny))
}
