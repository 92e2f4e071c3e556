//! The HTTP transport: on loopback only, with a token, and with `Host` and `Origin` checks.

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
use crate::{McpServeError, SandboxOpener, wait_for_signal};
pub use token::ServerToken;

/// The only path served.
const PATH: &str = "/mcp";
/// Connections served at once; others wait in the kernel's accept queue.
const CONNECTIONS: usize = 256;
/// Time limit for a client to send its request headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest request body: a file to write.
const BODY: usize = 16 << 20;
/// Bytes of body that are read and discarded for a caller without the token.
const ANONYMOUS_BODY: usize = 1 << 20;
/// Time limit for discarding the rest of a body.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// A session idle for this long ends, and its sandbox with it.
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

type HttpReply = Response<BoxBody<Bytes, Infallible>>;

/// The address to listen on and the token clients must send.
pub struct HttpOptions {
    /// A loopback address.
    pub address: SocketAddr,
    /// The token that clients must send.
    pub token: ServerToken,
}

/// Serves clients over HTTP until a termination signal. `ready` gets the bound address.
pub fn serve_http(
    opening: SandboxOpener,
    options: HttpOptions,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), McpServeError> {
    let serve_error =
        |source| McpServeError::Served { at: format!("http://{}", options.address), source };
    if !is_loopback(options.address.ip()) {
        return Err(serve_error(io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "the address is reachable from other machines",
        )));
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(serve_error)?;
    // Binds first: an address in use is reported before any sandbox is made.
    let listener = runtime.block_on(TcpListener::bind(options.address)).map_err(serve_error)?;
    let bound = listener.local_addr().map_err(serve_error)?;
    let app = McpState::open(opening)?;
    ready(bound);
    let gate = Arc::new(HttpGate::new(app.clone(), options.token, bound));
    let ended = runtime.block_on(async {
        tokio::select! {
            never = gate.accept(listener) => match never {},
            ended = wait_for_signal() => ended,
        }
    });
    app.end();
    runtime.shutdown_background();
    ended.map_err(serve_error)
}

/// True for a loopback address, which other machines cannot reach.
pub fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

/// Checks every request before it reaches the MCP service.
struct HttpGate {
    service: StreamableHttpService<McpHandler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// Permits for sessions that are being created.
    session_permits: Semaphore,
    token: ServerToken,
}

impl HttpGate {
    fn new(app: Arc<McpState>, token: ServerToken, bound: SocketAddr) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config = SessionConfig::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE);
        let sessions = Arc::new(sessions);
        // A web page can reach this server by DNS rebinding or by a cross-origin request. `Host`
        // reveals the first, `Origin` the second; only browsers send `Origin`.
        let mut hosts = ["127.0.0.1", "localhost", "[::1]"]
            .map(|name| format!("{name}:{}", bound.port()))
            .to_vec();
        // Loopback has more addresses than these.
        hosts.push(bound.to_string());
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .enforce_origin_validation()
            .with_max_request_body_bytes(BODY);
        let make_handler =
            move || Ok(McpHandler::new(app.clone(), ClientScope::Session(Arc::default())));
        let service = StreamableHttpService::new(make_handler, sessions.clone(), config);
        Self { service, sessions, session_permits: Semaphore::new(SESSIONS), token }
    }

    async fn accept(self: &Arc<Self>, listener: TcpListener) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = places.clone().acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let gate = self.clone();
                    tokio::spawn(async move {
                        gate.serve_stream(stream).await;
                        drop(place);
                    });
                }
                // Most likely out of fds: retry after a connection closes.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn serve_stream(self: Arc<Self>, stream: TcpStream) {
        let serve = service_fn(move |request| {
            let gate = self.clone();
            async move { Ok::<_, Infallible>(gate.respond(request).await) }
        });
        let mut connection = hyper::server::conn::http1::Builder::new();
        connection.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        // The request handler notices a broken connection.
        let _ = connection.serve_connection(TokioIo::new(stream), serve).await;
    }

    async fn respond(&self, request: Request<Incoming>) -> HttpReply {
        if !self.token.matches_headers(request.headers()) {
            let mut answer = text_response(
                StatusCode::UNAUTHORIZED,
                "token required: Authorization: Bearer TOKEN",
            );
            answer
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return refuse(request, ANONYMOUS_BODY, answer).await;
        }
        if request.uri().path() != PATH {
            return refuse(
                request,
                BODY,
                text_response(StatusCode::NOT_FOUND, "the server is at /mcp"),
            )
            .await;
        }
        if request.method() != Method::POST || !may_begin_session(request.headers()) {
            return self.service.handle(request).await;
        }
        // The permit is held until the session exists: a concurrent request would not count it yet.
        match self.session_permits.try_acquire() {
            Ok(_begins)
                if self.sessions.sessions.read().await.len()
                    <= self.session_permits.available_permits() =>
            {
                self.service.handle(request).await
            }
            _ => {
                let message = "too many sessions: end one, or start another server";
                refuse(request, BODY, text_response(StatusCode::SERVICE_UNAVAILABLE, message)).await
            }
        }
    }
}

/// Answers a request without using its body. The body is read and discarded within bounds: a client
/// that is still sending may lose the response when the connection closes.
async fn refuse(request: Request<Incoming>, limit: usize, mut answer: HttpReply) -> HttpReply {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    if !request.headers().contains_key(header::EXPECT) {
        let mut body = Limited::new(request.into_body(), limit);
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, async {
            while let Some(Ok(_)) = body.frame().await {}
        })
        .await;
    }
    answer
}

/// True if the request may create a session: it names none, and its protocol version has sessions.
/// Newer versions name their method in a header and are rejected if it is not the method called;
/// `initialize` creates a session in any version.
fn may_begin_session(headers: &HeaderMap) -> bool {
    let is_newest = headers
        .get("mcp-protocol-version")
        .is_some_and(|version| version.as_bytes() >= b"2026-07-28".as_slice());
    let is_handshake = headers.get("mcp-method").is_none_or(|method| method == "initialize");
    !headers.contains_key("mcp-session-id") && (!is_newest || is_handshake)
}

fn text_response(status: StatusCode, text: &'static str) -> HttpReply {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
