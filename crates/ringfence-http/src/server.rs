//! The HTTP server: listener, connections and routes.

mod asks;
mod audit;
mod auth;
mod bodies;
mod executions;
mod extract;
mod lease;
mod live;
pub(crate) mod log;
mod openapi;
mod page;
mod sandboxes;
pub(crate) mod schema;
mod skills;
mod stream;
mod tenants;
mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post, put};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

pub use openapi::openapi;

use crate::error::ApiError;
use crate::executions::{recover, resume};
use crate::state::AppState;
use crate::{ProviderFactory, ServeError, ServiceReady, ServiceSettings, SharedState};

/// Connections served at once; others wait in the kernel's accept queue.
const CONNECTIONS: usize = 1024;
/// Blocking threads at once, for commands and file access; other work waits.
const MOST_THREADS: usize = 16 * 1024;
/// Time limit for a client to send its request headers, or to finish the TLS handshake.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest request body that is not an archive.
const BODY: usize = 16 << 20;

/// The client address of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddr(pub(crate) SocketAddr);

/// Serves until a termination signal. `ready` gets the bound address.
pub fn serve(
    settings: ServiceSettings,
    new_provider: ProviderFactory,
    ready: impl FnOnce(&ServiceReady),
) -> Result<(), ServeError> {
    let address = settings.listen;
    if !address.ip().is_loopback() && settings.tls.is_none() {
        return Err(ServeError::Exposed { address });
    }
    let at = |source| ServeError::Served { address, source };
    raise_fd_limit();
    let tls = settings.tls.as_ref().map(|(chain, key)| tls::acceptor(chain, key)).transpose()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Threads keep memory: after a burst of blocking work, few of them should remain.
    runtime
        .enable_all()
        .max_blocking_threads(MOST_THREADS)
        .thread_keep_alive(Duration::from_millis(100));
    let runtime = runtime.build().map_err(at)?;
    // Binds first: an address in use is reported before anything is created.
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(at)?;
    let bound = listener.local_addr().map_err(at)?;
    let patience = settings.shutdown_grace;
    let data = settings.data.clone();
    let (app, admin_token) = AppState::open(settings, new_provider)?;
    let app = Arc::new(app);
    let broken = |source| ServeError::Data { path: data.clone(), source };
    let recovered = recover(&app).map_err(broken)?;
    let lost_sandboxes = crate::sandboxes::recover(&app).map_err(broken)?;
    let router = router(app.clone(), bound);
    // Installed before `ready`: its receiver may signal this process at once.
    let mut signals = runtime.block_on(async { ShutdownSignals::new() }).map_err(at)?;
    let (lost, resumed) = (recovered.lost, recovered.waiting.len());
    ready(&ServiceReady {
        address: bound,
        is_secure: tls.is_some(),
        admin_token,
        lost,
        resumed,
        lost_sandboxes,
    });
    let (ends, ending) = watch::channel(false);
    runtime.block_on(async {
        resume(&app, recovered.waiting);
        let connections = ConnectionService { router, tls, ending };
        tokio::select! {
            never = connections.accept(listener) => match never {},
            () = signals.wait() => {}
        }
    });
    let _ = ends.send(true);
    runtime.block_on(shut_down(&app, patience));
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// The signals that end the service.
struct ShutdownSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl ShutdownSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Raises the fd limit: a sandbox takes about twenty fds, and the usual soft limit suffices for a
/// few dozen sandboxes.
fn raise_fd_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // On failure fewer sandboxes fit; creating one more then reports the error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Lets running commands finish for a while, then ends them; their results say so.
async fn shut_down(app: &AppState, patience: Duration) {
    let until = |limit: Duration| async move {
        let end = tokio::time::Instant::now() + limit;
        while app.executions.count_awaited() + app.sandboxes.busy() > 0
            && tokio::time::Instant::now() < end
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until(patience).await;
    app.executions.close();
    app.sandboxes.end_all();
    let ended = async {
        for sandbox in app.sandboxes.list() {
            sandbox.ended().await;
        }
    };
    // Processes that do not end in time end with this one; the next start cleans up after them.
    let _ = tokio::time::timeout(Duration::from_secs(6), async {
        tokio::join!(until(Duration::from_secs(6)), ended)
    })
    .await;
}

fn router(app: SharedState, bound: SocketAddr) -> Router {
    let auth_state = Arc::new(auth::RequestAuth::new(app.clone(), bound));
    let archive =
        usize::try_from(app.settings.bounds.archive).unwrap_or(usize::MAX).saturating_add(64 << 10);
    let skills = Router::new()
        .route("/upload", post(skills::upload).layer(DefaultBodyLimit::max(archive)))
        .route("/list", get(skills::list))
        .route("/{skillId}", axum::routing::delete(skills::remove))
        .route("/{skillId}/files", get(skills::files))
        .route("/{skillId}/content", get(skills::content))
        .route("/{skillId}/edit", put(skills::edit))
        .route("/{skillId}/execute", post(executions::execute));
    Router::new()
        .nest("/v1/skills/{userId}/{agentId}", skills)
        .route("/v1/executions", get(executions::list))
        .route("/v1/executions/{id}", get(executions::status).delete(executions::cancel))
        .route("/v1/executions/{id}/events", get(executions::events))
        .route("/v1/executions/{id}/socket", get(executions::socket))
        .nest("/v1/sandboxes", sandbox_routes())
        .route("/v1/asks", get(asks::list))
        .route("/v1/asks/{id}", post(asks::answer))
        .route("/v1/audit", get(audit::list))
        .route("/v1/audit/verify", get(audit::verify))
        .route("/v1/events", get(live::events))
        .route("/v1/me", get(tenants::who_am_i))
        .route("/v1/tenants", get(tenants::list))
        .route("/v1/tenants/{userId}", get(tenants::show))
        .route("/v1/tenants/{userId}/quotas", put(tenants::set_quotas))
        .route("/v1/tenants/{userId}/policy", get(tenants::policy).put(tenants::set_policy))
        .route("/v1/tokens", get(tenants::tokens).post(tenants::make_token))
        .route("/v1/tokens/{id}", axum::routing::delete(tenants::revoke))
        .route("/metrics", get(live::metrics))
        .route("/healthz", get(live::healthy))
        .route("/readyz", get(live::ready))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(page::index))
        .route("/page/{*path}", get(page::part))
        .fallback(|| async {
            ApiError::not_found("no-such-path", "no such path")
                .hint("/openapi.json lists all paths")
        })
        .method_not_allowed_fallback(|| async {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                "this path does not support the method",
            )
            .hint("/openapi.json lists its methods")
        })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(axum::middleware::from_fn_with_state(auth_state, auth::authenticate))
        .with_state(app)
}

fn sandbox_routes() -> Router<SharedState> {
    Router::new()
        .route("/", get(sandboxes::list).post(sandboxes::create))
        .route("/{id}", get(sandboxes::show).patch(sandboxes::extend).delete(sandboxes::remove))
        .route("/{id}/exec", post(sandboxes::commands::exec))
        .route("/{id}/interrupt", post(sandboxes::commands::interrupt))
        .route("/{id}/terminal", get(sandboxes::terminal::terminal))
        .route(
            "/{id}/files",
            get(sandboxes::files::get)
                .put(sandboxes::files::put)
                .post(sandboxes::files::make)
                .delete(sandboxes::files::remove),
        )
        .route("/{id}/watch", get(sandboxes::files::watch))
        .route("/{id}/grants", get(sandboxes::grants::list).post(sandboxes::grants::grant))
}

/// Serves the connections of the listener.
struct ConnectionService {
    router: Router,
    tls: Option<tokio_rustls::TlsAcceptor>,
    ending: watch::Receiver<bool>,
}

impl ConnectionService {
    async fn accept(&self, listener: TcpListener) -> Infallible {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let permit = permits.clone().acquire_owned().await;
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                // Most likely out of fds: retry after a connection closes.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let (router, ending, tls) =
                (self.router.clone(), self.ending.clone(), self.tls.clone());
            tokio::spawn(async move {
                match tls {
                    None => serve_connection(stream, peer, router, ending).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) =
                            tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await
                        {
                            serve_connection(stream, peer, router, ending).await;
                        }
                    }
                }
                drop(permit);
            });
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
    mut ending: watch::Receiver<bool>,
) {
    let serve = service_fn(move |request: Request<Incoming>| {
        let router = router.clone();
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(PeerAddr(peer));
            router.oneshot(request).await
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(64 << 10);
    let connection = builder.serve_connection(TokioIo::new(stream), serve).with_upgrades();
    tokio::pin!(connection);
    let is_over = tokio::select! {
        // The request handler notices a broken connection.
        _ = connection.as_mut() => true,
        _ = ending.wait_for(|ends| *ends) => false,
    };
    if !is_over {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}
