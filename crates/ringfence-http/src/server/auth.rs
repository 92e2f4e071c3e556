//! Checks of every request: host, origin, token and rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ringfence_audit::{Record, RecordAction, RecordDetails, RecordResult, now_ms};

use super::bodies::{Drain, Remainder};
use super::lease::RequestLease;
use super::{PeerAddr, log};
use crate::SharedState;
use crate::error::ApiError;
use crate::tenants::ApiCaller;

/// The WebSocket subprotocol of the service, for clients that must name one.
pub(super) const PROTOCOL: &str = "ringfence";
/// Prefix of a token among the subprotocols of a WebSocket: a web page cannot set headers there,
/// and a token in the URL would end up in logs.
const TOKEN_PROTOCOL: &str = "ringfence.token.";

/// Requests per second from one address without a known token.
const ANONYMOUS_RATE: u32 = 20;

pub(super) struct RequestAuth {
    app: SharedState,
    /// Accepted values of `Host`.
    hosts: Vec<String>,
    /// Accepted values of `Origin`.
    origins: Vec<String>,
}

impl RequestAuth {
    pub(super) fn new(app: SharedState, bound: SocketAddr) -> Self {
        let settings = &app.settings;
        let port = bound.port();
        let mut hosts: Vec<String> =
            ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}")).to_vec();
        hosts.push(bound.to_string());
        for name in &settings.hosts {
            hosts.extend([
                name.to_ascii_lowercase(),
                format!("{}:{port}", name.to_ascii_lowercase()),
            ]);
        }
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        let mut origins: Vec<String> =
            hosts.iter().map(|host| format!("{scheme}://{host}")).collect();
        // Behind a TLS proxy, browsers send the proxy's origin.
        origins.extend(
            settings.hosts.iter().map(|name| format!("https://{}", name.to_ascii_lowercase())),
        );
        origins.extend(
            settings.origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()),
        );
        Self { app, hosts, origins }
    }

    /// Checks `Host` and `Origin`. A web page can reach this server by DNS rebinding or by a
    /// cross-origin request. `Host` reveals the first, `Origin` the second; only browsers send
    /// `Origin`.
    fn check_host_and_origin(&self, request: &Request) -> Result<(), ApiError> {
        let single_header = |name: header::HeaderName| single_header(request.headers(), name);
        // If the URI names the host too, both must match: a proxy may use either.
        let is_ours = |host: &str| self.hosts.contains(&host.to_ascii_lowercase());
        let is_authority_ours =
            request.uri().authority().is_none_or(|authority| is_ours(authority.as_str()));
        if !is_authority_ours || !single_header(header::HOST).is_some_and(|host| is_ours(&host)) {
            return Err(ApiError::new(
                StatusCode::MISDIRECTED_REQUEST,
                "host",
                "unknown host name",
            )
            .hint("use the service's address, or start the service with `--host NAME`"));
        }
        if request.headers().contains_key(header::ORIGIN) {
            let origin = single_header(header::ORIGIN).map(|origin| origin.to_ascii_lowercase());
            if !origin.is_some_and(|origin| self.origins.contains(&origin)) {
                return Err(ApiError::new(
                    StatusCode::FORBIDDEN,
                    "origin",
                    "web pages of this origin may not use the service",
                )
                .hint("start the service with `--origin URL`"));
            }
        }
        Ok(())
    }

    fn caller(&self, request: &Request, peer: SocketAddr) -> Result<ApiCaller, ApiError> {
        let said = single_header(request.headers(), header::AUTHORIZATION);
        let word = said.as_deref().and_then(|said| said.split_at_checked("Bearer ".len()));
        let word = word
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer "))
            .map(|(_, word)| word.to_owned());
        let word = word.or_else(|| socket_token(request.headers()));
        let caller = word.and_then(|word| self.app.tenants.caller(word.as_bytes()));
        let Some(caller) = caller else {
            self.app.metrics.unauthorized.fetch_add(1, Ordering::Relaxed);
            self.app
                .tenants
                .take_request(&format!("address {}", peer.ip()), ANONYMOUS_RATE)
                .map_err(too_fast)?;
            return Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "token",
                "missing or unknown token",
            )
            .hint("send it as `Authorization: Bearer TOKEN`"));
        };
        Ok(caller)
    }

    /// Counts a request against the rate limit of its tenant.
    fn check_rate(&self, caller: &ApiCaller) -> Result<(), ApiError> {
        let rate = caller
            .user
            .as_ref()
            .map_or(self.app.settings.quotas, |user| self.app.tenants.quotas(user))
            .requests_per_second;
        self.app.tenants.take_request(&caller.rate_key(), rate).map_err(too_fast)
    }

    /// Serves a caller with a known token.
    async fn serve_caller(&self, caller: ApiCaller, mut request: Request, next: Next) -> Response {
        let target = format!("{} {}", request.method(), request.uri().path());
        let begun = self.check_rate(&caller).and_then(|()| RequestLease::begin(&self.app, &caller));
        let lease = match begun {
            Ok(lease) => lease,
            Err(fault) => return fault.into_response(),
        };
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(lease.clone());
        let answer = next.run(request).await;
        if answer.status() == StatusCode::FORBIDDEN {
            self.record_forbidden(&caller, target);
        }
        lease.hold_until_sent(answer)
    }
}

/// The token among the subprotocols of a WebSocket request; `None` for other requests.
fn socket_token(headers: &HeaderMap) -> Option<String> {
    let is_socket = single_header(headers, header::UPGRADE)
        .is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"));
    let offered = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut words = offered
        .flat_map(|value| value.split(','))
        .filter_map(|word| word.trim().strip_prefix(TOKEN_PROTOCOL));
    let word =
        words.next().filter(|_| is_socket && !headers.contains_key(header::AUTHORIZATION))?;
    words.next().is_none().then(|| word.to_owned())
}

fn too_fast(seconds: u64) -> ApiError {
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate", "too many requests per second")
        .hint("wait a moment")
        .retry_after(seconds)
}

/// The value of a header that occurs exactly once.
fn single_header(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok().map(str::to_owned)
}

/// True for paths that need no token: health, API description, and the web page, which asks for
/// one.
fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/openapi.json" | "/") || path.starts_with("/page/")
}

pub(super) async fn authenticate(
    State(auth): State<Arc<RequestAuth>>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let method = request.method().clone();
    let matched = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let peer = request
        .extensions()
        .get::<PeerAddr>()
        .map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |peer| peer.0);
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut token = None;
    let mut drain = Drain::ANONYMOUS;
    let origin_check = auth.check_host_and_origin(&request);
    // A refused page gets no CORS headers, so it cannot read the refusal.
    let origin = origin.filter(|_| origin_check.is_ok());
    let (request, remainder) = Remainder::lend(request);
    let mut answer = match origin_check {
        Err(fault) => fault.into_response(),
        Ok(()) if method == Method::OPTIONS && origin.is_some() => {
            StatusCode::NO_CONTENT.into_response()
        }
        Ok(()) if is_public(request.uri().path()) => next.run(request).await,
        Ok(()) => match auth.caller(&request, peer) {
            Err(fault) => fault.into_response(),
            Ok(caller) => {
                token = Some(caller.id.clone());
                drain = Drain::known(&auth.app);
                auth.serve_caller(caller, request, next).await
            }
        },
    };
    remainder.drain_rest(&mut answer, drain).await;
    if answer.status() == StatusCode::UNAUTHORIZED {
        // A caller without a token keeps no connection.
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    add_browser_headers(answer.headers_mut(), origin);
    auth.app.metrics.count_request(&matched, method.as_str(), answer.status().as_u16());
    log::log_response(&method, &matched, answer.status(), begun.elapsed(), token.as_deref());
    answer
}

impl RequestAuth {
    /// Records a request that the token does not permit.
    fn record_forbidden(&self, caller: &ApiCaller, target: String) {
        let record = |subject: &ringfence_audit::RecordSubject| Record {
            timestamp: now_ms(),
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Request,
            target: target.clone(),
            result: RecordResult::Blocked,
            policy: format!("token {}", caller.id),
            reason: Some("the token does not allow it".into()),
            details: RecordDetails::None {},
        };
        self.app.record_in_service_log(record);
        if let Some(user) = &caller.user {
            self.app.record(user, record);
        }
    }
}

/// Adds the security headers and CORS headers to a response.
fn add_browser_headers(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        ),
    ];
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("authorization, content-type, idempotency-key, accept"),
        );
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE"),
        );
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
}
