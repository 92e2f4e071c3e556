//! Where requests come in.

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

/// As many connections are served at once; others wait in the kernel's queue.
const CONNECTIONS: usize = 1024;
/// As many commands and looks at files go on at once; others wait.
const MOST_THREADS: usize = 16 * 1024;
/// So long somebody may take to say what they want.
const HEADS: Duration = Duration::from_secs(10);
/// As much may be sent with one request that is no archive.
const BODY: usize = 16 << 20;

/// The address of whoever sent a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerAddr(pub(crate) SocketAddr);

/// Serves until a signal says no more. `ready` hears where.
pub fn serve(
    settings: ServiceSettings,
    place: ProviderFactory,
    ready: impl FnOnce(&ServiceReady),
) -> Result<(), ServeError> {
    let address = settings.listen;
    if !address.ip().is_loopback() && settings.tls.is_none() {
        return Err(ServeError::Exposed { address });
    }
    let at = |source| ServeError::Served { address, source };
    make_room();
    let tls = settings.tls.as_ref().map(|(chain, key)| tls::acceptor(chain, key)).transpose()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // All that wait take turns, and each keeps memory: after many at once, few are to be left.
    runtime
        .enable_all()
        .max_blocking_threads(MOST_THREADS)
        .thread_keep_alive(Duration::from_millis(100));
    let runtime = runtime.build().map_err(at)?;
    // The address first: one that is taken is told before anything is made.
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(at)?;
    let bound = listener.local_addr().map_err(at)?;
    let patience = settings.patience;
    let data = settings.data.clone();
    let (house, admin_token) = AppState::open(settings, place)?;
    let house = Arc::new(house);
    let broken = |source| ServeError::Data { path: data.clone(), source };
    let recovered = recover(&house).map_err(broken)?;
    let lost_sandboxes = crate::sandboxes::recover(&house).map_err(broken)?;
    let router = router(house.clone(), bound);
    // Whoever hears where it serves may tell it to end at once.
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
        resume(&house, recovered.waiting);
        let hall = ConnectionService { router, tls, ending };
        tokio::select! {
            never = hall.accept(listener) => match never {},
            () = signals.come() => {}
        }
    });
    let _ = ends.send(true);
    runtime.block_on(leave(&house, patience));
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// By which it is told to end.
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

    async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A sandbox takes some twenty descriptors, and what a shell gives a program is for a few dozen.
fn make_room() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Without it there is room for fewer, which is told to whoever wants one more.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// What runs may end by itself for a while; then it is ended, and has a result that says so.
async fn leave(house: &AppState, patience: Duration) {
    let until = |limit: Duration| async move {
        let end = tokio::time::Instant::now() + limit;
        while house.executions.busy() + house.sandboxes.busy() > 0
            && tokio::time::Instant::now() < end
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    until(patience).await;
    house.executions.close();
    house.sandboxes.end_all();
    let ended = async {
        for sandbox in house.sandboxes.list() {
            sandbox.ended().await;
        }
    };
    // What does not end in time ends with us, and is taken away by the next one.
    let _ = tokio::time::timeout(Duration::from_secs(6), async {
        tokio::join!(until(Duration::from_secs(6)), ended)
    })
    .await;
}

fn router(house: SharedState, bound: SocketAddr) -> Router {
    let entry = Arc::new(auth::RequestAuth::new(house.clone(), bound));
    let archive = usize::try_from(house.settings.bounds.archive)
        .unwrap_or(usize::MAX)
        .saturating_add(64 << 10);
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
        .nest("/v1/sandboxes", of_sandboxes())
        .route("/v1/asks", get(asks::list))
        .route("/v1/asks/{id}", post(asks::answer))
        .route("/v1/audit", get(audit::list))
        .route("/v1/audit/verify", get(audit::verify))
        .route("/v1/events", get(live::events))
        .route("/v1/me", get(tenants::me))
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
            ApiError::absent("no-such-path", "nothing is served there")
                .hint("/openapi.json lists what is")
        })
        .method_not_allowed_fallback(|| async {
            ApiError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                "this path does not know that method",
            )
            .hint("/openapi.json lists what it knows")
        })
        .layer(DefaultBodyLimit::max(BODY))
        .layer(axum::middleware::from_fn_with_state(entry, auth::admit))
        .with_state(house)
}

fn of_sandboxes() -> Router<SharedState> {
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

/// What every connection comes by.
struct ConnectionService {
    router: Router,
    tls: Option<tokio_rustls::TlsAcceptor>,
    ending: watch::Receiver<bool>,
}

impl ConnectionService {
    async fn accept(&self, listener: TcpListener) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = places.clone().acquire_owned().await;
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                // Out of descriptors, most likely: somebody will leave.
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
                    None => attend(stream, peer, router, ending).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) =
                            tokio::time::timeout(HEADS, tls.accept(stream)).await
                        {
                            attend(stream, peer, router, ending).await;
                        }
                    }
                }
                drop(place);
            });
        }
    }
}

async fn attend(
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
    builder.timer(TokioTimer::new()).header_read_timeout(HEADS).max_buf_size(64 << 10);
    let connection = builder.serve_connection(TokioIo::new(stream), serve).with_upgrades();
    tokio::pin!(connection);
    let is_over = tokio::select! {
        // One that breaks off is noticed by whoever answers it.
        _ = connection.as_mut() => true,
        _ = ending.wait_for(|ends| *ends) => false,
    };
    if !is_over {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}
