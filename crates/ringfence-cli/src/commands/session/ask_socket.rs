//! The socket for questions of an MCP server, which has sandboxes but is not a session.

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
use super::server::{is_allowed_peer, read_request};
use super::socket_dir;
use crate::error::CliError;

/// A socket that `ringfence ask` finds; removed on drop.
pub(crate) struct AskSocket {
    pub(crate) questions: Arc<PendingQuestions>,
    socket: PathBuf,
}

impl AskSocket {
    /// Opens the socket under `id`; each question waits for `patience`.
    pub(crate) fn open(
        id: &str,
        cwd: &AbsPath,
        answer_timeout: Duration,
    ) -> Result<Self, CliError> {
        let socket = socket_dir::new_socket_path(id)?;
        let path = socket.display().to_string();
        let fail = |what| {
            let path = path.clone();
            move |source| CliError::File { what, path, source }
        };
        let listener = socket_dir::listen(&socket).map_err(fail("listen at"))?;
        let ask_socket =
            Self { questions: Arc::new(PendingQuestions::new(answer_timeout)), socket };
        fs::set_permissions(&ask_socket.socket, fs::Permissions::from_mode(0o600))
            .map_err(fail("set the mode of"))?;
        let about = json!({ "session": id, "name": "mcp", "pid": std::process::id(), "cwd": cwd.to_string(), "busy": false, "commands": 0 });
        let questions = ask_socket.questions.clone();
        let accept_clients = move || {
            for client in listener.incoming().flatten() {
                let (about, questions) = (about.clone(), questions.clone());
                // If no thread can be started, the client gets no answer.
                let _ = thread::Builder::new()
                    .name("client".into())
                    .spawn(move || serve(client, &about, &questions));
            }
        };
        thread::Builder::new()
            .name("ask-socket".into())
            .spawn(accept_clients)
            .map_err(fail("start a thread for"))?;
        Ok(ask_socket)
    }
}

impl Drop for AskSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

fn serve(mut client: UnixStream, about: &Value, questions: &PendingQuestions) {
    if !is_allowed_peer(&client) {
        return;
    }
    while let Ok(Some(request)) = read_request(&mut client) {
        let answer = match request.question["ask"].as_str().unwrap_or_default() {
            "inspect" => about.clone(),
            "questions" => questions.list(),
            "answer" => questions.handle_answer(&request.question),
            _ => {
                json!({ "error": { "code": "usage", "message": "this is an MCP server: only its client can run commands or stop it" } })
            }
        };
        if send(&mut client, FrameKind::Answer, answer.to_string().as_bytes()).is_err() {
            return;
        }
    }
}
