//! ringfence for programs that embed it: open a sandbox, execute, look at what became of it,
//! ask the user, go on.
//!
//! # The first line of `main`
//!
//! ```no_run
//! ringfence::init();
//! // … whatever your program does
//! ```
//!
//! A sandbox is built by a process of one thread, and your program has several. So your own
//! binary is started anew as the sandbox's helper, under another name; [`init`] is where it
//! finds out that it is the helper, does the helper's work and never returns. In your program
//! itself it returns at once. Until it was called, no sandbox is made:
//! [`SandboxError::InitMissing`]. (Tests that open sandboxes need it as well: give them a
//! `main` of their own with `harness = false`.)
//!
//! # A tour
//!
//! ```no_run
//! use ringfence::{Answer, Command, SandboxConfig, SandboxManager};
//!
//! # async fn tour() -> Result<(), ringfence::SandboxError> {
//! let manager = SandboxManager::new(SandboxConfig::default())?;
//! // Nothing is made before it is needed; the shell lives on from one command to the next.
//! manager.execute(".", "cd src && export DEBUG=1").await?;
//! let result = manager.execute(".", Command::new("make test").timeout_ms(60_000)).await?;
//! println!("{} {}", result.exit_code, result.stdout);
//! if let Some(permission) = manager.requires_permission(&result) {
//!     // Show it to a person, who chooses one of the options.
//!     println!("{}: {:?}", permission.reason, permission.options);
//!     manager.answer(".", &result, Answer::AllowSession)?;
//! }
//! manager.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`SandboxManager`] is what most programs want: it makes sandboxes when they are needed, one
//!   for each directory, and again when they died.
//! - [`SandboxProvider`] and [`SandboxBackend`] are the protocol beneath it, for other places
//!   than this machine; [`SandboxProviderRegistry`] knows them by name.
//! - [`ExecuteResult`] is one object in camelCase for every wire.
//!
//! # Tools
//!
//! Agents that call tools rather than a shell read, write, edit, list and search through
//! [`tools`], in process and under the sandbox's policy; [`router`] serves their calls by the
//! tool's name, and runs commands in the sandbox:
//!
//! ```no_run
//! use ringfence::tools::{Call, Read};
//! use ringfence::{SandboxConfig, SandboxManager, block_on, router};
//! use serde_json::json;
//!
//! ringfence::init();
//! let mut config = SandboxConfig::default();
//! config.provider_options.insert("disallowedTools".into(), json!(["Write", "Edit"]));
//! let manager = SandboxManager::new(config)?;
//! let sandbox = block_on(manager.get_sandbox("."))?;
//!
//! println!("{:?}", sandbox.tools()?.read(&Read::new("README.md"))?.text);
//!
//! let router = router(sandbox)?;
//! let answer = router.call(&Call { tool: "Bash".into(), input: json!({ "command": "make test" }) })?;
//! println!("{}", answer["exitCode"]);
//! // By no tool, and by nothing that a command starts.
//! assert!(router.call(&Call { tool: "write".into(), input: json!({ "path": "x", "content": "" }) }).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A loop
//!
//! [`AgentRunner`] takes one call after the other to where it belongs and answers an
//! [`AgentStep`]: what came of it, that it was refused, or that a person has to say something
//! first ([`AgentStep::RequiresPermission`]). With their answer the same call goes on. The example
//! `agent` is a whole agent around it.
//!
//! # Async and not
//!
//! Futures here need no particular runtime: each sandbox has a thread of its own that wakes
//! whoever waits. Programs without any use [`block_on`], or
//! [`SandboxBackend::execute_blocking`] and [`SandboxManager::execute_blocking`].
//!
//! Dropping the future of a command interrupts that command, as Ctrl-C would, and firmly if it
//! does not mind. The shell and what it holds live on. A command whose turn has not come is
//! not begun.
//!
//! # What holds
//!
//! The policy files of the administrator, the user and the project hold as on the command line,
//! and everything that is built in: a [`SandboxConfig`] comes on top of them.

#![forbid(unsafe_code)]

mod agent;
mod command;
mod config;
mod error;
mod local;
mod manager;
mod oneshot;
mod permission;
mod protocol;
mod registry;
mod result;
mod routing;

pub use agent::{AgentRunner, AgentStep};
pub use command::Command;
pub use config::{FilesystemLists, NetworkSwitch, SandboxConfig, SandboxPolicy};
pub use error::SandboxError;
pub use local::{LocalOptions, LocalSandboxProvider};
pub use manager::SandboxManager;
pub use oneshot::block_on;
pub use protocol::{
    BoxFuture, Confinement, GrantAccess, SandboxBackend, SandboxCreateOptions, SandboxGrant,
    SandboxInfo, SandboxProvider, SandboxStatus,
};
pub use registry::SandboxProviderRegistry;
pub use result::{CapturedOutput, ExecuteResult};
pub use routing::router;

/// Denials as a block in a command's standard error, for agents, and without it again, for people.
pub use ringfence_api::violations;
pub use ringfence_api::{
    Ask, AskAnswer, Asker, CommandRefusal, Denial, DenialEvidence, ExitStatus, Gap, GapKind,
    GrantedAccess, LimitBreach, Operation, Outcome, OutputStream, Permission, QuarantinedFile,
    RequiresPermission, ResourceUsage, ShellState,
};
pub use ringfence_policy::Mode;
pub use ringfence_policy::command::{
    Platform, RunConsent, SandboxAbility, SandboxChoice, SandboxQuery, SandboxSettings,
    SandboxWish, UnsandboxedReason, should_use_sandbox,
};
/// Tools in process, for agents that call tools rather than a shell; see [`router`].
pub use ringfence_tools as tools;

use std::sync::atomic::{AtomicBool, Ordering};

static IS_READY: AtomicBool = AtomicBool::new(false);

/// To be called on the first line of `main`: a process that was started as the helper of a
/// sandbox does the helper's work here and does not return.
pub fn init() {
    ringfence_enforce::apply::helper::enter_if_helper();
    IS_READY.store(true, Ordering::SeqCst);
}

fn is_ready() -> bool {
    IS_READY.load(Ordering::SeqCst)
}
