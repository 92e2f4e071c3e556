//! The door over HTTP: on loopback, with a token, and for requests that say where they go.

mod token;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{self, HeaderMap, HeaderValue};
use ::http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::handler::McpHandler;
use crate::state::{ClientScope, McpState, SESSIONS};
use crate::{McpServeError, SandboxOpener, told_to_end};
pub use token::ServerToken;

/// The one place there is.
const PATH: &str = "/mcp";
/// As many connections are served at once; others wait in the kernel's queue.
const CONNECTIONS: usize = 256;
/// So long somebody may take to say what they want.
const HEADS: Duration = Duration::from_secs(10);
/// As much may be sent with one request: a file to write.
const BODY: usize = 16 << 20;
/// As much of a body is read and thrown away of a caller without the token.
const STRANGERS_BODY: usize = 1 << 20;
/// Time for the rest of a body that is thrown away.
const DRAIN: Duration = Duration::from_secs(3);
/// A session that nobody has used for so long ends, and its sandbox with it.
const IDLE: Duration = Duration::from_secs(30 * 60);

type HttpReply = Response<BoxBody<Bytes, Infallible>>;

/// Where and for whom it is served.
pub struct HttpOptions {
    /// An address of loopback.
    pub address: SocketAddr,
    /// What clients have to know.
    pub token: ServerToken,
}

/// Serves clients over HTTP until a signal says no more. `ready` hears where.
pub fn serve_http(
    opening: SandboxOpener,
    site: HttpOptions,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), McpServeError> {
    let at = |source| McpServeError::Served { at: format!("http://{}", site.address), source };
    if !is_own_machine(site.address.ip()) {
        return Err(at(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "it can be reached from other machines",
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(at)?;
    // The address first: one that is taken is told before anything is made.
    let listener = runtime.block_on(TcpListener::bind(site.address)).map_err(at)?;
    let bound = listener.local_addr().map_err(at)?;
    let house = McpState::open(opening)?;
    ready(bound);
    let hall = Arc::new(HttpGate::new(house.clone(), site.token, bound));
    let ended = runtime.block_on(async {
        tokio::select! {
            never = hall.accept(listener) => match never {},
            ended = told_to_end() => ended,
        }
    });
    house.end();
    runtime.shutdown_background();
    ended.map_err(at)
}

/// Whether an address is loopback: nobody reaches it from elsewhere.
pub fn is_own_machine(address: IpAddr) -> bool {
    address.is_loopback()
}

/// What every request comes by.
struct HttpGate {
    service: StreamableHttpService<McpHandler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// Places for those who are about to begin a session.
    beginning: Semaphore,
    token: ServerToken,
}

impl HttpGate {
    fn new(house: Arc<McpState>, token: ServerToken, bound: SocketAddr) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = SessionConfig::default();
        sessions.session_config.keep_alive = Some(IDLE);
        let sessions = Arc::new(sessions);
        // A page in a browser may send requests here under a name of its own that leads to us, or
        // from its own origin: the first is known by `Host`, the second by `Origin`, which no
        // program but a browser sends.
        let mut names = ["127.0.0.1", "localhost", "[::1]"]
            .map(|name| format!("{name}:{}", bound.port()))
            .to_vec();
        // Loopback has more addresses than these.
        names.push(bound.to_string());
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(names)
            .enforce_origin_validation()
            .with_max_request_body_bytes(BODY);
        let door = move || Ok(McpHandler::new(house.clone(), ClientScope::Session(Arc::default())));
        let service = StreamableHttpService::new(door, sessions.clone(), config);
        Self { service, sessions, beginning: Semaphore::new(SESSIONS), token }
    }

    async fn accept(self: &Arc<Self>, listener: TcpListener) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = places.clone().acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let hall = self.clone();
                    tokio::spawn(async move {
                        hall.attend(stream).await;
                        drop(place);
                    });
                }
                // Out of descriptors, most likely: somebody will leave.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn attend(self: Arc<Self>, stream: TcpStream) {
        let serve = service_fn(move |request| {
            let hall = self.clone();
            async move { Ok::<_, Infallible>(hall.answer(request).await) }
        });
        let mut connection = hyper::server::conn::http1::Builder::new();
        connection.timer(TokioTimer::new()).header_read_timeout(HEADS);
        // One that breaks off is noticed by whoever answers it.
        let _ = connection.serve_connection(TokioIo::new(stream), serve).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> HttpReply {
        if !self.token.is_in(request.headers()) {
            let mut answer =
                plain(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer TOKEN");
            answer
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return refused(request, STRANGERS_BODY, answer).await;
        }
        if request.uri().path() != PATH {
            return refused(request, BODY, plain(StatusCode::NOT_FOUND, "the server is at /mcp"))
                .await;
        }
        if request.method() != Method::POST || !may_begin_session(request.headers()) {
            return self.service.handle(request).await;
        }
        // Counted until it is known what came of it: those who come meanwhile would not see it yet.
        match self.beginning.try_acquire() {
            Ok(_begins)
                if self.sessions.sessions.read().await.len()
                    <= self.beginning.available_permits() =>
            {
                self.service.handle(request).await
            }
            _ => {
                let full =
                    "there are as many sessions as there may be: end one, or start another server";
                refused(request, BODY, plain(StatusCode::SERVICE_UNAVAILABLE, full)).await
            }
        }
    }
}

/// Answers a request whose body nothing reads: it is read and thrown away within bounds, since a
/// client that still sends may lose the answer when the connection is closed.
async fn refused(request: Request<Incoming>, most: usize, mut answer: HttpReply) -> HttpReply {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    if !request.headers().contains_key(header::EXPECT) {
        let mut body = Limited::new(request.into_body(), most);
        let _ =
            tokio::time::timeout(DRAIN, async { while let Some(Ok(_)) = body.frame().await {} })
                .await;
    }
    answer
}

/// Whether a request may make a session: it has none, and is of a version that knows them. Others
/// name their method, and are refused if it is not the one they call; a handshake makes a session
/// whatever version it names.
fn may_begin_session(headers: &HeaderMap) -> bool {
    let is_newest = headers
        .get("mcp-protocol-version")
        .is_some_and(|version| version.as_bytes() >= b"2026-07-28".as_slice());
    let is_handshake = headers.get("mcp-method").is_none_or(|method| method == "initialize");
    !headers.contains_key("mcp-session-id") && (!is_newest || is_handshake)
}

fn plain(status: StatusCode, text: &'static str) -> HttpReply {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
