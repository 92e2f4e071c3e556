//! A complete agent: a model that calls tools, a sandbox that executes the calls, and a user who is
//! asked about denied accesses.
//!
//! The model is a script, one call per line (`{"tool": …, "input": …}`), named by the first
//! argument; without one a few built-in calls are used. Each step is one line of JSON on standard
//! output. The user answers on standard input, one word per line: `allow_once`, `allow_session`,
//! `allow_permanent` or `deny`.
//!
//! ```console
//! $ cargo run -p ringfence --example agent
//! $ yes allow_session | cargo run -p ringfence --example agent -- calls.jsonl
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::io::{self, IsTerminal};

use ringfence::tools::RoutedCall;
use ringfence::{AgentRunner, AgentStep, AskAnswer, Permission, SandboxConfig, SandboxManager};
use serde_json::{Value, json};

/// The model. A real one sends the last step to a service, and gets its next call back.
trait Model {
    /// The next call, given the result of the last one; `None` when it is done.
    fn next(&mut self, last_step: Option<&AgentStep>) -> Option<RoutedCall>;
}

/// A model with a fixed script.
struct ScriptedModel(VecDeque<RoutedCall>);

impl Model for ScriptedModel {
    fn next(&mut self, last_step: Option<&AgentStep>) -> Option<RoutedCall> {
        if matches!(last_step, Some(AgentStep::Denied { .. })) {
            eprintln!("model: denied, going on");
        }
        self.0.pop_front()
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    let mut model = ScriptedModel(script(std::env::args().nth(1))?);
    let mut config = SandboxConfig::default();
    config.provider_options.insert("agent".into(), json!("example"));
    let mut runner = AgentRunner::new(SandboxManager::new(config)?, ".");

    let mut last_step = None;
    while let Some(call) = model.next(last_step.as_ref()) {
        let tool = call.tool.clone();
        let mut step = runner.step(call)?;
        show(&tool, &step)?;
        // The loop waits for the user's answer, then the same call continues.
        while let AgentStep::RequiresPermission(permission) = &step {
            step = runner.answer(ask(permission)?)?;
            show(&tool, &step)?;
        }
        last_step = Some(step);
    }
    runner.shutdown()?;
    Ok(())
}

/// The calls of a script file, or the built-in ones.
fn script(file: Option<String>) -> Result<VecDeque<RoutedCall>, Box<dyn Error>> {
    let Some(file) = file else {
        let call = |tool: &str, input: Value| RoutedCall { tool: tool.into(), input };
        return Ok(VecDeque::from([
            call("list", json!({ "path": "." })),
            call("Bash", json!({ "command": "cd /tmp && export GREETING=hello" })),
            call("Bash", json!({ "command": "echo $GREETING from $(pwd)" })),
            call("Bash", json!({ "command": "cat ~/.ssh/id_rsa" })),
        ]));
    };
    let lines = fs::read_to_string(file)?;
    let read = |line: &str| {
        let value: Value = serde_json::from_str(line)?;
        let tool = value["tool"].as_str().ok_or("a call must name its `tool`")?.to_owned();
        Ok(RoutedCall { tool, input: value["input"].clone() })
    };
    lines.lines().filter(|line| !line.trim().is_empty()).map(read).collect()
}

fn show(tool: &str, step: &AgentStep) -> Result<(), Box<dyn Error>> {
    let mut line = serde_json::to_value(step)?;
    if let Some(result) = line["result"].as_object_mut() {
        // The same for every command, and long.
        result.remove("enforced");
    }
    line["tool"] = json!(tool);
    println!("{line}");
    Ok(())
}

/// Asks the user. Any other text, or none, means deny.
fn ask(permission: &Permission) -> Result<AskAnswer, Box<dyn Error>> {
    let options: Vec<String> = permission.options.iter().map(ToString::to_string).collect();
    if io::stdin().is_terminal() {
        eprintln!("{}. {}?", permission.reason, options.join(", "));
    }
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(permission
        .options
        .iter()
        .copied()
        .find(|option| option.to_string() == line.trim())
        .unwrap_or(AskAnswer::Deny))
}
