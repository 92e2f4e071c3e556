//! A whole agent: a model that calls tools, a sandbox that carries the calls out, and a person
//! who is asked where something is in the way.
//!
//! The model is a script, one call a line (`{"tool": …, "input": …}`), named by the first
//! argument; without one a few calls are made up. Each step is one line of JSON on standard
//! output. The person answers on standard input, one word a line: `allow_once`, `allow_session`,
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

/// What thinks. A real one sends what it has heard to a service, and gets its next call back.
trait Model {
    /// The next call, after it has been told what became of the last one; `None` when it is done.
    fn next(&mut self, heard: Option<&AgentStep>) -> Option<RoutedCall>;
}

/// One that knows beforehand what it will say.
struct Scripted(VecDeque<RoutedCall>);

impl Model for Scripted {
    fn next(&mut self, heard: Option<&AgentStep>) -> Option<RoutedCall> {
        if matches!(heard, Some(AgentStep::Denied { .. })) {
            eprintln!("model: then not");
        }
        self.0.pop_front()
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    ringfence::init();
    let mut model = Scripted(script(std::env::args().nth(1))?);
    let mut config = SandboxConfig::default();
    config.provider_options.insert("agent".into(), json!("example"));
    let mut runner = AgentRunner::new(SandboxManager::new(config)?, ".");

    let mut heard = None;
    while let Some(call) = model.next(heard.as_ref()) {
        let tool = call.tool.clone();
        let mut step = runner.step(call)?;
        show(&tool, &step)?;
        // The loop stands still until somebody has answered, then the same call goes on.
        while let AgentStep::RequiresPermission(permission) = &step {
            step = runner.answer(ask(permission)?)?;
            show(&tool, &step)?;
        }
        heard = Some(step);
    }
    runner.shutdown()?;
    Ok(())
}

/// The calls of a script, or some that show what there is to see.
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
        let tool = value["tool"].as_str().ok_or("a call names its `tool`")?.to_owned();
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

/// Asks the person. Whoever says nothing, or something else, has not said yes.
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
