//! MCP frontend: agents that speak the Model Context Protocol run commands and edit files in a
//! sandbox that lives as long as they are connected.
//!
//! The engine makes all policy decisions, as for the other frontends. This crate parses calls, runs
//! each on its own thread, reports progress, interrupts cancelled calls and returns results.

#![forbid(unsafe_code)]

mod call;
mod handler;
mod http;
mod lines;
mod outputs;
mod permission;
mod questions;
mod quote;
mod reply;
mod request;
mod sandbox;
mod schema;
mod state;
mod stdin;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::Asker;
use ringfence_engine::EngineError;
use ringfence_engine::session::Session;
use rmcp::ServiceExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use handler::McpHandler;
pub use http::{HttpOptions, ServerToken, is_loopback, serve_http};
use lines::LineTransport;
use state::{ClientScope, McpState};
use stdin::EofWatch;

/// Opens sandboxes; `elsewhere` answers questions for clients that cannot ask the user.
pub struct SandboxOpener {
    /// Opens a sandbox on the thread that will own it. The policy decides if it asks.
    pub open: Box<OpenFn>,
    /// Asks the user at another terminal.
    pub fallback_asker: Option<Arc<dyn Asker>>,
}

/// Time limit for answers to a client that has closed its end.
const EOF_GRACE: Duration = Duration::from_secs(1);

/// Opens a sandbox that sends its questions to the given asker.
pub type OpenFn = dyn Fn(Arc<dyn Asker>) -> Result<Session, EngineError> + Send + Sync;

/// Why the server failed to start or stopped.
#[derive(Debug, thiserror::Error)]
pub enum McpServeError {
    /// The sandbox could not be opened.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The transport failed, or the client spoke another protocol.
    #[error("cannot serve at {at}")]
    Served {
        /// The address.
        at: String,
        /// The cause.
        source: io::Error,
    },
}

/// Serves the client on standard input and output until it disconnects.
pub fn serve_stdio(opening: SandboxOpener) -> Result<(), McpServeError> {
    let at = |source| McpServeError::Served { at: "standard input and output".into(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(at)?;
    let app = McpState::open(opening)?;
    let handler = McpHandler::new(app.clone(), ClientScope::Common);
    let served = runtime.block_on(async {
        let (input, output) = rmcp::transport::stdio();
        let (input, end) = EofWatch::new(input);
        let serves = async {
            match handler.serve(LineTransport::new(input, output)).await {
                Ok(service) => service.waiting().await.map(drop).map_err(io::Error::other),
                // The client closed the connection before it sent anything.
                Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
                Err(error) => Err(io::Error::other(error)),
            }
        };
        tokio::select! {
            served = serves => served,
            ended = wait_for_signal() => ended,
            () = wait_for_eof(&end) => Ok(()),
        }
    });
    app.end();
    // The blocking read of standard input cannot be interrupted.
    runtime.shutdown_background();
    served.map_err(at)
}

/// Resolves a moment after the client has closed its end, so that its last calls are still
/// answered.
async fn wait_for_eof(end: &Notify) {
    end.notified().await;
    tokio::time::sleep(EOF_GRACE).await;
}

/// Waits for SIGTERM, SIGINT or SIGHUP, so that the sandboxes are ended in order.
async fn wait_for_signal() -> io::Result<()> {
    let (mut terminate, mut interrupt, mut hang_up) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok(())
}
