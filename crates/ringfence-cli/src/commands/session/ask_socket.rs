//! Questions of somebody who keeps sandboxes and is no session: an MCP server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringfence_policy::AbsPath;
use serde_json::{Value, json};

use super::frames::{FrameKind, send};
use super::questions::PendingQuestions;
use super::server::{ask, is_welcome};
use super::socket_dir;
use crate::error::CliError;

/// A socket where `ringfence ask` finds them, until this is dropped.
pub(crate) struct AskSocket {
    pub(crate) questions: Arc<PendingQuestions>,
    socket: PathBuf,
}

impl AskSocket {
    /// Under this id; each question waits so long.
    pub(crate) fn open(id: &str, cwd: &AbsPath, patience: Duration) -> Result<Self, CliError> {
        let socket = socket_dir::socket(id)?;
        let path = socket.display().to_string();
        let fail = |what| {
            let path = path.clone();
            move |source| CliError::File { what, path, source }
        };
        let listener = socket_dir::listen(&socket).map_err(fail("listen at"))?;
        let desk = Self { questions: Arc::new(PendingQuestions::new(patience)), socket };
        fs::set_permissions(&desk.socket, fs::Permissions::from_mode(0o600))
            .map_err(fail("guard"))?;
        let about = json!({ "session": id, "name": "mcp", "pid": std::process::id(), "cwd": cwd.to_string(), "busy": false, "commands": 0 });
        let questions = desk.questions.clone();
        let attend = move || {
            for client in listener.incoming().flatten() {
                let (about, questions) = (about.clone(), questions.clone());
                // One that cannot be served is a client that hears nothing.
                let _ = thread::Builder::new()
                    .name("client".into())
                    .spawn(move || serve(client, &about, &questions));
            }
        };
        thread::Builder::new().name("desk".into()).spawn(attend).map_err(fail("watch over"))?;
        Ok(desk)
    }
}

impl Drop for AskSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

fn serve(mut client: UnixStream, about: &Value, questions: &PendingQuestions) {
    if !is_welcome(&client) {
        return;
    }
    while let Ok(Some(asked)) = ask(&mut client) {
        let answer = match asked.question["ask"].as_str().unwrap_or_default() {
            "inspect" => about.clone(),
            "questions" => questions.list(),
            "answer" => questions.answer_to(&asked.question),
            _ => {
                json!({ "error": { "code": "usage", "message": "this is an MCP server: its client runs commands, and ends it" } })
            }
        };
        if send(&mut client, FrameKind::Answer, answer.to_string().as_bytes()).is_err() {
            return;
        }
    }
}
