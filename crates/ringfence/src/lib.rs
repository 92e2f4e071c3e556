//! ringfence for programs that embed it: create a sandbox, execute commands, check the result, ask
//! the user, continue.
//!
//! # The first line of `main`
//!
//! ```no_run
//! ringfence::init();
//! // … the rest of your program
//! ```
//!
//! A sandbox is built by a single-threaded process, and your program has several threads. So
//! ringfence starts your own binary again, under another name, as the sandbox's helper. In the
//! helper, [`init`] does the helper's work and never returns; in your program it returns at once.
//! Without this call no sandbox is created: [`SandboxError::InitMissing`]. (Tests that create
//! sandboxes need it as well: give them a `main` of their own with `harness = false`.)
//!
//! # A tour
//!
//! ```no_run
//! use ringfence::{AskAnswer, Command, SandboxConfig, SandboxManager};
//!
//! # async fn tour() -> Result<(), ringfence::SandboxError> {
//! let manager = SandboxManager::new(SandboxConfig::default())?;
//! // Sandboxes are created on demand; the shell lives on from one command to the next.
//! manager.execute(".", "cd src && export DEBUG=1").await?;
//! let result = manager.execute(".", Command::new("make test").timeout_ms(60_000)).await?;
//! println!("{} {}", result.exit_code, result.stdout);
//! if let Some(permission) = manager.requires_permission(&result) {
//!     // Show it to the user, who chooses one of the options.
//!     println!("{}: {:?}", permission.reason, permission.options);
//!     manager.answer(".", &result, AskAnswer::AllowSession)?;
//! }
//! manager.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`SandboxManager`] is the entry point for most programs: it creates sandboxes on demand, one
//!   for each directory, and again if one died.
//! - [`SandboxProvider`] and [`SandboxBackend`] are the traits below it, for sandboxes on other
//!   machines; [`SandboxProviderRegistry`] holds providers by name.
//! - [`ExecuteResult`] is the result, one camelCase JSON object for all frontends.
//!
//! # Tools
//!
//! Agents that call tools rather than a shell read, write, edit, list and search through [`tools`],
//! in process and under the sandbox's policy. [`router`] dispatches calls by tool name, and runs
//! commands in the sandbox:
//!
//! ```no_run
//! use ringfence::tools::{ReadParams, RoutedCall};
//! use ringfence::{SandboxConfig, SandboxManager, block_on, router};
//! use serde_json::json;
//!
//! ringfence::init();
//! let mut config = SandboxConfig::default();
//! config.provider_options.insert("disallowedTools".into(), json!(["Write", "Edit"]));
//! let manager = SandboxManager::new(config)?;
//! let sandbox = block_on(manager.get_sandbox("."))?;
//!
//! println!("{:?}", sandbox.tools()?.read(&ReadParams::new("README.md"))?.text);
//!
//! let router = router(sandbox)?;
//! let answer = router.call(&RoutedCall { tool: "Bash".into(), input: json!({ "command": "make test" }) })?;
//! println!("{}", answer["exitCode"]);
//! // Denied for the tools and for every command.
//! assert!(router.call(&RoutedCall { tool: "write".into(), input: json!({ "path": "x", "content": "" }) }).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Agent loop
//!
//! [`AgentRunner`] dispatches one call after the other and returns an [`AgentStep`]: the result, a
//! denial, or a permission the user must give first ([`AgentStep::RequiresPermission`]). With the
//! user's answer the same call continues. The example `agent` is a complete agent built on it.
//!
//! # Async and blocking use
//!
//! The futures need no particular runtime: each sandbox has its own thread, which wakes the waiting
//! task. Programs without a runtime use [`block_on`], or [`SandboxBackend::execute_blocking`] and
//! [`SandboxManager::execute_blocking`].
//!
//! Dropping the future of a command interrupts the command, as Ctrl-C would, and kills it if it
//! does not end. The shell and its state live on. A queued command is not started.
//!
//! # Policy
//!
//! The policy files of the administrator, the user and the project apply as on the command line,
//! and so do all built-in rules: a [`SandboxConfig`] adds to them.

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
pub use routing::router;

/// Adds denials as a block to a command's standard error for agents, and removes it for users.
pub use ringfence_api::violations;
pub use ringfence_api::{
    Ask, AskAnswer, Asker, CapturedOutput, CommandRefusal, Denial, DenialEvidence, ExecuteResult,
    ExitStatus, Gap, GapKind, GrantedAccess, LimitBreach, Operation, Outcome, OutputStream,
    Permission, QuarantinedFile, RequiresPermission, ResourceUsage, ShellState,
};
pub use ringfence_cmdline::{
    RunConsent, SandboxAbility, SandboxChoice, SandboxQuery, SandboxSettings, SandboxWish,
    UnsandboxedReason, should_use_sandbox,
};
pub use ringfence_policy::{Mode, Platform};
/// In-process tools, for agents that call tools rather than a shell; see [`router`].
pub use ringfence_tools as tools;

use std::sync::atomic::{AtomicBool, Ordering};

static IS_READY: AtomicBool = AtomicBool::new(false);

/// Call this on the first line of `main`: a process started as a sandbox's helper does the helper's
/// work here and does not return.
pub fn init() {
    ringfence_linux::enter_if_helper();
    IS_READY.store(true, Ordering::SeqCst);
}

fn is_ready() -> bool {
    IS_READY.load(Ordering::SeqCst)
}
