//! An agent loop: calls go in, steps come out. If a call needs the user's consent, the loop stops
//! and continues with the answer.

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_api::{AskAnswer, Denial, Permission, causes};
use ringfence_tools::{RoutedCall, ToolError, ToolHandler};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::permission::{exact_grant_for, grant_for};
use crate::routing::{build_router, parse_command};
use crate::{ExecuteResult, SandboxError, SandboxManager, block_on};

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentStep {
    /// The call was executed; the model gets this value. A call that failed by itself counts as
    /// executed: see `exitCode` of a command, `error` of a tool.
    Completed(Value),
    /// The call waits for an answer: show it to the user, and pass the user's choice to
    /// [`AgentRunner::answer`].
    RequiresPermission(Permission),
    /// The call was denied, by a rule or by the user; the model gets the reason.
    Denied {
        /// The reason, in one sentence.
        reason: String,
    },
}

/// `{"status": "completed" | "requires_permission" | "denied", …}`
impl Serialize for AgentStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AgentStep::Completed(result) => {
                json!({ "status": "completed", "result": result }).serialize(serializer)
            }
            AgentStep::RequiresPermission(permission) => {
                permission.clone().into_response().serialize(serializer)
            }
            AgentStep::Denied { reason } => {
                json!({ "status": "denied", "reason": reason }).serialize(serializer)
            }
        }
    }
}

/// Executes the calls of one agent, in the sandbox of one directory.
///
/// The five file tools run in process. `mcp` and `skill` need a registered extension. Every other
/// call with a `command` runs in the sandbox's shell, which lives on from call to call. See
/// [`router`](crate::router).
///
/// ```no_run
/// use ringfence::tools::RoutedCall;
/// use ringfence::{AgentRunner, AgentStep, AskAnswer, SandboxConfig, SandboxManager};
/// use serde_json::json;
///
/// ringfence::init();
/// let manager = SandboxManager::new(SandboxConfig::default())?;
/// let mut runner = AgentRunner::new(manager, ".");
/// let mut step = runner.step(RoutedCall { tool: "Bash".into(), input: json!({ "command": "cat ~/notes.txt" }) })?;
/// while let AgentStep::RequiresPermission(permission) = &step {
///     println!("{}: {:?}", permission.reason, permission.options);
///     step = runner.answer(AskAnswer::AllowSession)?; // the user's choice
/// }
/// println!("{}", serde_json::to_string(&step)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AgentRunner {
    manager: Arc<SandboxManager>,
    cwd: PathBuf,
    extensions: Vec<(String, Arc<dyn ToolHandler>)>,
    pending: Option<PendingCall>,
}

/// A call that waits for an answer.
struct PendingCall {
    call: RoutedCall,
    permission: Permission,
    denial: Denial,
}

/// The result of a call before the user is asked.
enum CallOutcome {
    Through(Value),
    Refused { denial: Box<Denial>, permission: Option<Permission>, result: Option<Value> },
}

impl AgentRunner {
    /// Serves calls in `cwd`; no sandbox is created yet.
    pub fn new(manager: impl Into<Arc<SandboxManager>>, cwd: impl Into<PathBuf>) -> Self {
        Self { manager: manager.into(), cwd: cwd.into(), extensions: Vec::new(), pending: None }
    }

    /// Registers an extension for all tools with `prefix`, such as `mcp` or `skill`.
    pub fn register(&mut self, prefix: &str, extension: Arc<dyn ToolHandler>) {
        self.extensions.push((prefix.to_owned(), extension));
    }

    /// The manager of its sandboxes.
    pub fn manager(&self) -> &SandboxManager {
        &self.manager
    }

    /// Executes a call. A call that still waits for an answer is dropped.
    pub fn step(&mut self, call: RoutedCall) -> Result<AgentStep, SandboxError> {
        self.pending = None;
        let outcome = self.attempt(&self.manager, &call)?;
        Ok(self.make_step(call, outcome, None))
    }

    /// Continues the waiting call with the user's answer.
    ///
    /// - [`AskAnswer::AllowOnce`]: for this call only, in a separate sandbox with the grant; the
    ///   call stays confined, and the shell of other calls is not affected.
    /// - [`AskAnswer::AllowSession`]: for this call and all later ones; the sandbox is restarted.
    /// - [`AskAnswer::AllowPermanent`]: the same, and a line in the user's own policy file.
    /// - [`AskAnswer::Deny`]: the model gets the denial.
    ///
    /// An answer that is not among the options is an error, and the call keeps waiting.
    pub fn answer(&mut self, answer: AskAnswer) -> Result<AgentStep, SandboxError> {
        let not_offered = || SandboxError::NotOffered { what: answer.to_string() };
        let pending = self
            .pending
            .take_if(|pending| pending.permission.options.contains(&answer))
            .ok_or_else(not_offered)?;
        let PendingCall { call, permission, denial } = pending;
        if answer == AskAnswer::Deny {
            return Ok(AgentStep::Denied {
                reason: format!("{}; the user denied it", permission.reason),
            });
        }
        let outcome = if answer == AskAnswer::AllowOnce {
            let once = Arc::new(self.manager.isolated()?);
            once.grant(grant_for(&denial).ok_or_else(not_offered)?);
            let outcome = self.attempt(&once, &call);
            block_on(once.shutdown())?;
            outcome?
        } else {
            self.manager.allow(&self.cwd, &denial, answer)?;
            self.attempt(&self.manager, &call)?
        };
        Ok(self.make_step(call, outcome, Some(&denial)))
    }

    /// Ends all sandboxes.
    pub fn shutdown(&self) -> Result<(), SandboxError> {
        block_on(self.manager.shutdown()).map(drop)
    }

    fn make_step(
        &mut self,
        call: RoutedCall,
        outcome: CallOutcome,
        allowed: Option<&Denial>,
    ) -> AgentStep {
        match outcome {
            CallOutcome::Through(result) => AgentStep::Completed(result),
            // A denial that repeats after the user has allowed it would cause endless questions.
            CallOutcome::Refused { denial, permission: Some(permission), .. }
                if !allowed.is_some_and(|allowed| needs_same_grant(allowed, &denial)) =>
            {
                self.pending =
                    Some(PendingCall { call, permission: permission.clone(), denial: *denial });
                AgentStep::RequiresPermission(permission)
            }
            CallOutcome::Refused { result: Some(result), .. } => AgentStep::Completed(result),
            CallOutcome::Refused { denial, .. } => {
                AgentStep::Denied { reason: denial_text(&denial) }
            }
        }
    }

    /// Executes one call in the sandbox that `manager` has for it.
    fn attempt(
        &self,
        manager: &Arc<SandboxManager>,
        call: &RoutedCall,
    ) -> Result<CallOutcome, SandboxError> {
        let sandbox = block_on(manager.get_sandbox(&self.cwd))?;
        let shell = Arc::new(ShellReply::default());
        let session =
            ShellHandler { manager: manager.clone(), cwd: self.cwd.clone(), shell: shell.clone() };
        let mut router = build_router(sandbox.as_ref(), Arc::new(session))?;
        for (prefix, extension) in &self.extensions {
            router.register(prefix, extension.clone()).map_err(SandboxError::tool)?;
        }
        let called = router.call(call);
        if let Some(ended) = shell.take() {
            let result = ended?;
            let shown = serde_json::to_value(&result).unwrap_or_default();
            let permission = self.offered(result.permission.clone(), result.blocked_by.as_ref());
            return Ok(match result.blocked_by {
                Some(denial) => CallOutcome::Refused {
                    denial: Box::new(denial),
                    permission,
                    result: Some(shown),
                },
                None => CallOutcome::Through(shown),
            });
        }
        match called {
            Ok(result) => Ok(CallOutcome::Through(result)),
            Err(ToolError::Denied { denial }) => {
                let permission = self.offered(sandbox.permission(&denial), Some(&denial));
                Ok(CallOutcome::Refused { denial, permission, result: None })
            }
            Err(error @ ToolError::Audit { .. }) => Err(SandboxError::tool(error)),
            Err(error) => Ok(CallOutcome::Through(json!({ "error": error_json(&error) }))),
        }
    }

    /// The permission to ask for, if a grant can allow it.
    fn offered(
        &self,
        permission: Option<Permission>,
        denial: Option<&Denial>,
    ) -> Option<Permission> {
        denial.and_then(grant_for)?;
        permission
    }
}

/// True if both denials need the same grant.
fn needs_same_grant(one: &Denial, other: &Denial) -> bool {
    one.target == other.target
        && exact_grant_for(one).map(|grant| grant.access)
            == exact_grant_for(other).map(|grant| grant.access)
}

fn denial_text(denial: &Denial) -> String {
    let Denial { operation, target, rule, origin, .. } = denial;
    format!("{} of {target} is denied: {rule} ({origin})", operation.word())
}

fn error_json(error: &ToolError) -> Value {
    json!({ "code": error.code(), "message": error.to_string(), "causes": causes(error), "hint": error.hint() })
}

/// The typed result of the last shell command.
#[derive(Default)]
struct ShellReply(Mutex<Option<Result<ExecuteResult, SandboxError>>>);

impl ShellReply {
    fn take(&self) -> Option<Result<ExecuteResult, SandboxError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The shell of a sandbox; it stores its last result.
struct ShellHandler {
    manager: Arc<SandboxManager>,
    cwd: PathBuf,
    shell: Arc<ShellReply>,
}

impl ToolHandler for ShellHandler {
    fn handle(&self, call: &RoutedCall) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let command = parse_command(call)?;
        let ended = self.manager.execute_blocking(&self.cwd, command);
        *self.shell.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        Ok(Value::Null)
    }
}
