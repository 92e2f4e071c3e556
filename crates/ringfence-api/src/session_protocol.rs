//! The protocol between a session and its clients: one JSON object per line.
//!
//! A client sends a [`SessionRequest`], the session answers with a [`SessionReply`]. The same lines
//! are exchanged on the session's Unix socket and on the standard streams of
//! `ringfence session serve --stdio`.
//!
//! One file descriptor is outside of these types: before the lines of a successful
//! [`SessionRequest::Attach`], the socket carries one byte, [`TERMINAL_BYTE`], with the fd of the
//! terminal (`SCM_RIGHTS`). The client resizes the terminal through that fd.

mod byte_text;
mod session_report;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

pub use byte_text::ByteText;
pub use session_report::{
    PolicyProblemReport, PolicyReport, PolicyState, QuestionReport, SessionError, SessionReport,
    SessionSandboxState,
};

use crate::{AskAnswer, ExecuteResult, OutputStream, QuarantinedFile};

/// The version of the protocol. `hello`, `stop` and `error` are the same in every version.
pub const PROTOCOL_VERSION: u32 = 1;

/// The byte that carries the fd of a terminal. No line begins with it.
pub const TERMINAL_BYTE: u8 = b't';

/// A request to a session. An unknown field is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "ask",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum SessionRequest {
    /// Opens the connection; the first request. Reply: `hello`.
    Hello {
        /// The client's version of the protocol.
        version: u32,
    },
    /// Joins the session of an agent's conversation, before `call`. Reply: `begun`.
    Begin {
        /// The settings that all calls of the session have in common.
        signature: String,
    },
    /// Runs a line in the shell, after the lines of other connections. Reply: `result`.
    Exec(ExecRequest),
    /// Runs a program outside the shell. Reply: `result`.
    Start(StartRequest),
    /// Runs a line of an agent's conversation. Reply: `result`.
    Call(CallRequest),
    /// Runs a shell of its own at a terminal. Only on the socket, which carries the terminal's fd.
    /// Reply: `result`.
    Attach {
        /// The number of rows of the terminal.
        rows: u16,
        /// The number of columns of the terminal.
        columns: u16,
    },
    /// Standard input for the command of this connection. No reply.
    Input {
        /// The bytes; none at the end of the input.
        data: ByteText,
    },
    /// Interrupts the command of this connection, like Ctrl-C. A command that ignores this is
    /// killed. No reply.
    Interrupt {},
    /// Asks for the state of the session. Reply: `state`.
    Inspect {},
    /// Asks for the accesses that wait for an answer. Reply: `questions`.
    Questions {},
    /// Answers a question. Reply: `answered`.
    Answer {
        /// The number of the question.
        question: u64,
        /// The answer.
        answer: AskAnswer,
    },
    /// Sends a signal to the processes of all running commands. Reply: `signalled`.
    Signal {
        /// The number of the signal.
        #[schemars(range(min = 1, max = 64))]
        signal: i32,
    },
    /// Ends the session and all its processes. Needs no `hello`. Reply: `stopped`.
    Stop {},
}

/// A line for the shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecRequest {
    /// The text; several lines are one command.
    pub line: ByteText,
    /// The time limit in milliseconds. A shorter one in the policy wins.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// True for output as `output` replies while the command runs, instead of in the result.
    #[serde(default)]
    pub stream: bool,
    /// True if `input` requests follow; else standard input is empty.
    #[serde(default)]
    pub input: bool,
}

/// A program to run outside the shell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartRequest {
    /// The program and its arguments.
    pub command: Vec<ByteText>,
    /// As for `exec`.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// As for `exec`.
    #[serde(default)]
    pub stream: bool,
    /// As for `exec`.
    #[serde(default)]
    pub input: bool,
}

/// A line of an agent's conversation. Its output is streamed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallRequest {
    /// The text.
    pub line: ByteText,
    /// As for `exec`.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// As for `exec`.
    #[serde(default)]
    pub input: bool,
    /// The name of the call in the log.
    #[serde(default)]
    pub call: Option<String>,
    /// The working directory; none for that of the shell.
    #[serde(default)]
    pub cwd: Option<String>,
    /// True to run it outside the shell even if the shell is free.
    #[serde(default)]
    pub beside: bool,
    /// True to write standard error to standard output, in order.
    #[serde(default)]
    pub merged: bool,
    /// True to record the directory at the end of the call for the agent's shell.
    #[serde(default)]
    pub keep_directory: bool,
}

/// A reply of a session. A client ignores fields that it does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reply", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SessionReply {
    /// The session speaks the client's version.
    Hello {
        /// The version of the protocol.
        version: u32,
        /// The id of the session.
        session: String,
    },
    /// The session serves this conversation.
    Begun {},
    /// Output of the command of this connection.
    Output {
        /// The stream.
        stream: OutputStream,
        /// The bytes. A character at the edge of two chunks makes both base64.
        data: ByteText,
    },
    /// The end of the command of this connection.
    Result(Box<ExecuteResult>),
    /// The state of the session.
    State(Box<SessionReport>),
    /// The accesses that wait for an answer.
    Questions {
        /// The questions, oldest first.
        questions: Vec<QuestionReport>,
    },
    /// The question was answered.
    Answered {
        /// The number of the question.
        question: u64,
    },
    /// The signal was sent.
    Signalled {
        /// The number of commands that got it.
        signalled: usize,
    },
    /// The session has ended.
    Stopped {
        /// The id of the session.
        session: String,
        /// Files that were moved away because they could have run on the host.
        quarantined: Vec<QuarantinedFile>,
    },
    /// The request failed.
    Error {
        /// The request that failed; none if it could not be read.
        ask: Option<String>,
        /// The error.
        error: SessionError,
    },
}

impl SessionRequest {
    /// Returns the value of `ask`.
    pub fn word(&self) -> &'static str {
        match self {
            SessionRequest::Hello { .. } => "hello",
            SessionRequest::Begin { .. } => "begin",
            SessionRequest::Exec(_) => "exec",
            SessionRequest::Start(_) => "start",
            SessionRequest::Call(_) => "call",
            SessionRequest::Attach { .. } => "attach",
            SessionRequest::Input { .. } => "input",
            SessionRequest::Interrupt {} => "interrupt",
            SessionRequest::Inspect {} => "inspect",
            SessionRequest::Questions {} => "questions",
            SessionRequest::Answer { .. } => "answer",
            SessionRequest::Signal { .. } => "signal",
            SessionRequest::Stop {} => "stop",
        }
    }
}

/// A line in either direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "A line of ringfence's session protocol, version 1")]
pub enum SessionMessage {
    /// From the client.
    Request(SessionRequest),
    /// From the session.
    Reply(SessionReply),
}

/// Returns the JSON Schema of all lines.
pub fn protocol_schema() -> Schema {
    schema_for!(SessionMessage)
}

#[cfg(test)]
mod tests;
