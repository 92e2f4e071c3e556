//! The socket for questions of an MCP server, which has sandboxes but is not a session.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringfence_api::session_protocol::{SessionError, SessionReply, SessionReport, SessionRequest};
use ringfence_audit::now_ms;
use ringfence_client::socket_dir;
use ringfence_policy::AbsPath;

use super::client_peer::ClientPeer;
use super::questions::PendingQuestions;
use super::server::is_allowed_peer;
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
        let about = SessionReport {
            session: id.to_owned(),
            name: Some("mcp".into()),
            pid: std::process::id(),
            cwd: cwd.to_string(),
            started_ms: now_ms(),
            busy: false,
            commands: 0,
            sandbox: None,
        };
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

fn serve(client: UnixStream, about: &SessionReport, questions: &PendingQuestions) {
    if !is_allowed_peer(&client) {
        return;
    }
    let Ok(peer) = ClientPeer::from_socket(client) else { return };
    // A client that cannot be read from or written to has left.
    let _ = peer.serve(&about.session, |request| match request {
        SessionRequest::Inspect {} => Ok(Some(SessionReply::State(Box::new(about.clone())))),
        SessionRequest::Questions {} => {
            Ok(Some(SessionReply::Questions { questions: questions.list(&about.session) }))
        }
        SessionRequest::Answer { question, answer } => questions.handle_answer(question, answer),
        _ => Err(SessionError::new(
            "usage",
            "this is an MCP server: only its client can run commands or stop it",
        )),
    });
}
