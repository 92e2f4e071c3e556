//! The loop of an agent: calls go in, steps come out, and where a person has to say something the
//! loop stops and goes on with their answer.

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_api::{AskAnswer, Denial, Permission, causes};
use ringfence_tools::{RoutedCall, ToolError, ToolHandler};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::permission::{what_opens, what_was_opened};
use crate::routing::{command, routed};
use crate::{ExecuteResult, SandboxError, SandboxManager, block_on};

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentStep {
    /// It was carried out; this is what the model is told. What failed by itself was carried
    /// out as well: `exitCode` of a command, `error` of a tool.
    Completed(Value),
    /// Nothing goes on without an answer: show it to a person, and give what they choose to
    /// [`AgentRunner::answer`].
    RequiresPermission(Permission),
    /// It was refused, and that is what the model is told: nobody may allow it, or nobody did.
    Denied {
        /// Why, in a sentence.
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
                permission.clone().required().serialize(serializer)
            }
            AgentStep::Denied { reason } => {
                json!({ "status": "denied", "reason": reason }).serialize(serializer)
            }
        }
    }
}

/// Carries out the calls of one agent, in the sandbox of one directory.
///
/// The five tools are served in process, `mcp` and `skill` by nobody unless extensions are
/// registered, and whatever else has a `command` is run in the sandbox's shell, which lives on
/// from call to call. See [`router`](crate::router).
///
/// ```no_run
/// use ringfence::tools::Call;
/// use ringfence::{AgentRunner, AgentStep, Answer, SandboxConfig, SandboxManager};
/// use serde_json::json;
///
/// ringfence::init();
/// let manager = SandboxManager::new(SandboxConfig::default())?;
/// let mut runner = AgentRunner::new(manager, ".");
/// let mut step = runner.step(Call { tool: "Bash".into(), input: json!({ "command": "cat ~/notes.txt" }) })?;
/// while let AgentStep::RequiresPermission(permission) = &step {
///     println!("{}: {:?}", permission.reason, permission.options);
///     step = runner.answer(Answer::AllowSession)?; // what a person has chosen
/// }
/// println!("{}", serde_json::to_string(&step)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AgentRunner {
    manager: Arc<SandboxManager>,
    cwd: PathBuf,
    extensions: Vec<(String, Arc<dyn ToolHandler>)>,
    waiting: Option<PendingCall>,
}

/// A call that waits for an answer.
struct PendingCall {
    call: RoutedCall,
    permission: Permission,
    denial: Denial,
}

/// What a call came to, before anybody is asked.
enum CallOutcome {
    Through(Value),
    Refused { denial: Box<Denial>, permission: Option<Permission>, result: Option<Value> },
}

impl AgentRunner {
    /// For calls in this directory; nothing is made yet.
    pub fn new(manager: impl Into<Arc<SandboxManager>>, cwd: impl Into<PathBuf>) -> Self {
        Self { manager: manager.into(), cwd: cwd.into(), extensions: Vec::new(), waiting: None }
    }

    /// Has an extension serve all tools with a prefix, such as `mcp` or `skill`.
    pub fn register(&mut self, prefix: &str, extension: Arc<dyn ToolHandler>) {
        self.extensions.push((prefix.to_owned(), extension));
    }

    /// The sandboxes that it has.
    pub fn manager(&self) -> &SandboxManager {
        &self.manager
    }

    /// Carries out a call. One that still waits for an answer is given up.
    pub fn step(&mut self, call: RoutedCall) -> Result<AgentStep, SandboxError> {
        self.waiting = None;
        let came = self.attempt(&self.manager, &call)?;
        Ok(self.settle(call, came, None))
    }

    /// Goes on with the call that waits, as a person has answered.
    ///
    /// - [`Answer::AllowOnce`]: for this one call, in a sandbox of its own that has what was
    ///   asked for; nothing runs outside, and the shell of the others is not touched.
    /// - [`Answer::AllowSession`]: for this call and all after it; the sandbox is made anew.
    /// - [`Answer::AllowPermanent`]: the same, and one line in the person's own policy file.
    /// - [`Answer::Deny`]: the model is told.
    ///
    /// What is not among the options is an error, and the call still waits.
    pub fn answer(&mut self, answer: AskAnswer) -> Result<AgentStep, SandboxError> {
        let not_offered = || SandboxError::NotOffered { what: answer.to_string() };
        let waiting = self
            .waiting
            .take_if(|waiting| waiting.permission.options.contains(&answer))
            .ok_or_else(not_offered)?;
        let PendingCall { call, permission, denial } = waiting;
        if answer == AskAnswer::Deny {
            return Ok(AgentStep::Denied {
                reason: format!("{}; a person was asked, and did not allow it", permission.reason),
            });
        }
        let came = if answer == AskAnswer::AllowOnce {
            let alone = Arc::new(self.manager.isolated()?);
            alone.grant(what_opens(&denial).ok_or_else(not_offered)?);
            let came = self.attempt(&alone, &call);
            block_on(alone.shutdown())?;
            came?
        } else {
            self.manager.allow(&self.cwd, &denial, answer)?;
            self.attempt(&self.manager, &call)?
        };
        Ok(self.settle(call, came, Some(&denial)))
    }

    /// Ends all sandboxes.
    pub fn shutdown(&self) -> Result<(), SandboxError> {
        block_on(self.manager.shutdown()).map(drop)
    }

    fn settle(
        &mut self,
        call: RoutedCall,
        came: CallOutcome,
        allowed: Option<&Denial>,
    ) -> AgentStep {
        match came {
            CallOutcome::Through(result) => AgentStep::Completed(result),
            // Whoever was allowed something and is refused it again would be asked for ever.
            CallOutcome::Refused { denial, permission: Some(permission), .. }
                if !allowed.is_some_and(|allowed| is_same(allowed, &denial)) =>
            {
                self.waiting =
                    Some(PendingCall { call, permission: permission.clone(), denial: *denial });
                AgentStep::RequiresPermission(permission)
            }
            CallOutcome::Refused { result: Some(result), .. } => AgentStep::Completed(result),
            CallOutcome::Refused { denial, .. } => AgentStep::Denied { reason: refusal(&denial) },
        }
    }

    /// One call, in the sandbox that `manager` has for it.
    fn attempt(
        &self,
        manager: &Arc<SandboxManager>,
        call: &RoutedCall,
    ) -> Result<CallOutcome, SandboxError> {
        let sandbox = block_on(manager.get_sandbox(&self.cwd))?;
        let shell = Arc::new(ShellReply::default());
        let session =
            ShellHandler { manager: manager.clone(), cwd: self.cwd.clone(), shell: shell.clone() };
        let mut router = routed(sandbox.as_ref(), Arc::new(session))?;
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
            Err(error) => Ok(CallOutcome::Through(json!({ "error": told(&error) }))),
        }
    }

    /// The question, with what a grant can answer.
    fn offered(
        &self,
        permission: Option<Permission>,
        denial: Option<&Denial>,
    ) -> Option<Permission> {
        denial.and_then(what_opens)?;
        permission
    }
}

/// Whether the same is refused again.
fn is_same(one: &Denial, other: &Denial) -> bool {
    one.target == other.target
        && what_was_opened(one).map(|grant| grant.opens)
            == what_was_opened(other).map(|grant| grant.opens)
}

fn refusal(denial: &Denial) -> String {
    let Denial { operation, target, rule, origin, .. } = denial;
    format!("{} of {target} is refused: {rule} ({origin})", operation.word())
}

fn told(error: &ToolError) -> Value {
    json!({ "code": error.code(), "message": error.to_string(), "causes": causes(error), "hint": error.hint() })
}

/// What the shell has answered, as more than JSON.
#[derive(Default)]
struct ShellReply(Mutex<Option<Result<ExecuteResult, SandboxError>>>);

impl ShellReply {
    fn take(&self) -> Option<Result<ExecuteResult, SandboxError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The shell of a sandbox, which remembers what it answered.
struct ShellHandler {
    manager: Arc<SandboxManager>,
    cwd: PathBuf,
    shell: Arc<ShellReply>,
}

impl ToolHandler for ShellHandler {
    fn handle(&self, call: &RoutedCall) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let command = command(call)?;
        let ended = self.manager.execute_blocking(&self.cwd, command);
        *self.shell.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        Ok(Value::Null)
    }
}
