//! A door for agents that speak the Model Context Protocol: their commands and files, in a
//! sandbox that stands for as long as they are connected.
//!
//! What may be done is decided below, as for everybody. Here calls are read, handed to a thread
//! each, told of while they run, interrupted when nobody wants them, and answered.

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
pub use http::{HttpOptions, ServerToken, is_own_machine, serve_http};
use lines::Lines;
use state::{ClientScope, McpState};
use stdin::EofWatch;

/// How sandboxes are opened, and who is asked where a client cannot.
pub struct SandboxOpener {
    /// Opens one, on the thread that is to keep it; whether it asks is said by the policy.
    pub open: Box<OpenFn>,
    /// Whoever answers at another terminal.
    pub elsewhere: Option<Arc<dyn Asker>>,
}

/// So long a client that has closed its end may wait for answers.
const FAREWELL: Duration = Duration::from_secs(1);

/// Opens a sandbox with somebody to ask.
pub type OpenFn = dyn Fn(Arc<dyn Asker>) -> Result<Session, EngineError> + Send + Sync;

/// Why a server ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum McpServeError {
    /// There is no sandbox.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The client spoke another protocol, or not at all.
    #[error("cannot serve at {at}")]
    Served {
        /// Where.
        at: String,
        /// Why.
        source: io::Error,
    },
}

/// Serves whoever is at standard input and output, until they are gone.
pub fn serve_stdio(opening: SandboxOpener) -> Result<(), McpServeError> {
    let at = |source| McpServeError::Served { at: "standard input and output".into(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(at)?;
    let house = McpState::open(opening)?;
    let door = McpHandler::new(house.clone(), ClientScope::Common);
    let served = runtime.block_on(async {
        let (input, output) = rmcp::transport::stdio();
        let (input, end) = EofWatch::new(input);
        let serves = async {
            match door.serve(Lines::new(input, output)).await {
                Ok(service) => service.waiting().await.map(drop).map_err(io::Error::other),
                // Nobody has ever said anything.
                Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
                Err(error) => Err(io::Error::other(error)),
            }
        };
        tokio::select! {
            served = serves => served,
            ended = told_to_end() => ended,
            () = left(&end) => Ok(()),
        }
    });
    house.end();
    // Whoever reads standard input cannot be called away from it.
    runtime.shutdown_background();
    served.map_err(at)
}

/// A client that has closed its end wants no more; what it asked for just before may still be
/// answered.
async fn left(end: &Notify) {
    end.notified().await;
    tokio::time::sleep(FAREWELL).await;
}

/// Waits for a signal that ends programs, so that what is in the sandboxes is ended in order.
async fn told_to_end() -> io::Result<()> {
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
