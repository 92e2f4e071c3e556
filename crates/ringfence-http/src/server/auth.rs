//! What every request has to pass: whom it is for, where it comes from, who sent it, how fast.

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

/// What a WebSocket of ours speaks, for those who have to say it.
pub(super) const PROTOCOL: &str = "ringfence";
/// In front of a token among the protocols of a WebSocket: a page can set no header there, and
/// what stands in an address is written down by many.
const TOKEN_PROTOCOL: &str = "ringfence.token.";

/// So many requests in a second may come from one address without a token that is known.
const STRANGERS: u32 = 20;

pub(super) struct RequestAuth {
    house: SharedState,
    /// What `Host` may say.
    hosts: Vec<String>,
    /// What `Origin` may say.
    origins: Vec<String>,
}

impl RequestAuth {
    pub(super) fn new(house: SharedState, bound: SocketAddr) -> Self {
        let settings = &house.settings;
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
        // Behind a proxy that speaks TLS, browsers name that.
        origins.extend(
            settings.hosts.iter().map(|name| format!("https://{}", name.to_ascii_lowercase())),
        );
        origins.extend(
            settings.origins.iter().map(|origin| origin.trim_end_matches('/').to_ascii_lowercase()),
        );
        Self { house, hosts, origins }
    }

    /// A page in a browser may send requests here under a name of its own that leads to us, or
    /// from its own origin: the first is known by `Host`, the second by `Origin`, which no
    /// program but a browser sends.
    fn whereabouts(&self, request: &Request) -> Result<(), ApiError> {
        let one = |name: header::HeaderName| one(request.headers(), name);
        // Named in both places, it has to be right in both: whoever is in between may go by either.
        let is_ours = |host: &str| self.hosts.contains(&host.to_ascii_lowercase());
        let is_led_here =
            request.uri().authority().is_none_or(|authority| is_ours(authority.as_str()));
        if !is_led_here || !one(header::HOST).is_some_and(|host| is_ours(&host)) {
            return Err(ApiError::new(
                StatusCode::MISDIRECTED_REQUEST,
                "host",
                "the service is not known by this name",
            )
            .hint("name it by its address, or start it with `--host NAME`"));
        }
        if request.headers().contains_key(header::ORIGIN) {
            let origin = one(header::ORIGIN).map(|origin| origin.to_ascii_lowercase());
            if !origin.is_some_and(|origin| self.origins.contains(&origin)) {
                return Err(ApiError::new(
                    StatusCode::FORBIDDEN,
                    "origin",
                    "pages of this origin may not use the service",
                )
                .hint("start it with `--origin URL`"));
            }
        }
        Ok(())
    }

    fn caller(&self, request: &Request, peer: SocketAddr) -> Result<ApiCaller, ApiError> {
        let said = one(request.headers(), header::AUTHORIZATION);
        let word = said.as_deref().and_then(|said| said.split_at_checked("Bearer ".len()));
        let word = word
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer "))
            .map(|(_, word)| word.to_owned());
        let word = word.or_else(|| of_socket(request.headers()));
        let caller = word.and_then(|word| self.house.tenants.caller(word.as_bytes()));
        let Some(caller) = caller else {
            self.house.metrics.strangers.fetch_add(1, Ordering::Relaxed);
            self.house
                .tenants
                .take(&format!("address {}", peer.ip()), STRANGERS)
                .map_err(too_fast)?;
            return Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "token",
                "a token is needed that the service knows",
            )
            .hint("send it as `Authorization: Bearer TOKEN`"));
        };
        Ok(caller)
    }

    /// Counts a request against the quota of its tenant.
    fn pace(&self, caller: &ApiCaller) -> Result<(), ApiError> {
        let rate = caller
            .user
            .as_ref()
            .map_or(self.house.settings.quotas, |user| self.house.tenants.quotas(user))
            .requests_per_second;
        self.house.tenants.take(&caller.payer(), rate).map_err(too_fast)
    }

    /// Answers a caller whose token is known.
    async fn attend(&self, caller: ApiCaller, mut request: Request, next: Next) -> Response {
        let target = format!("{} {}", request.method(), request.uri().path());
        let begun = self.pace(&caller).and_then(|()| RequestLease::begin(&self.house, &caller));
        let stay = match begun {
            Ok(stay) => stay,
            Err(fault) => return fault.into_response(),
        };
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(stay.clone());
        let answer = next.run(request).await;
        if answer.status() == StatusCode::FORBIDDEN {
            self.refused(&caller, target);
        }
        stay.until_the_end_of(answer)
    }
}

/// The token among the protocols that a WebSocket offers; of no other request.
fn of_socket(headers: &HeaderMap) -> Option<String> {
    let is_socket = one(headers, header::UPGRADE)
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
    ApiError::new(
        StatusCode::TOO_MANY_REQUESTS,
        "rate",
        "more requests than are allowed in a second",
    )
    .hint("wait for a moment")
    .after(seconds)
}

/// The value of a header that is there once.
fn one(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok().map(str::to_owned)
}

/// What anybody may see: that it is there, what it offers, and the page, which asks for a token.
fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/openapi.json" | "/") || path.starts_with("/page/")
}

pub(super) async fn admit(
    State(entry): State<Arc<RequestAuth>>,
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
    let mut drain = Drain::STRANGER;
    let whereabouts = entry.whereabouts(&request);
    // A page that is refused is told nothing that lets it read the refusal.
    let origin = origin.filter(|_| whereabouts.is_ok());
    let (request, remainder) = Remainder::lend(request);
    let mut answer = match whereabouts {
        Err(fault) => fault.into_response(),
        Ok(()) if method == Method::OPTIONS && origin.is_some() => {
            StatusCode::NO_CONTENT.into_response()
        }
        Ok(()) if is_open(request.uri().path()) => next.run(request).await,
        Ok(()) => match entry.caller(&request, peer) {
            Err(fault) => fault.into_response(),
            Ok(caller) => {
                token = Some(caller.id.clone());
                drain = Drain::known(&entry.house);
                entry.attend(caller, request, next).await
            }
        },
    };
    remainder.settle(&mut answer, drain).await;
    if answer.status() == StatusCode::UNAUTHORIZED {
        // A caller without a token keeps no connection.
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    dress(answer.headers_mut(), origin);
    entry.house.metrics.requested(&matched, method.as_str(), answer.status().as_u16());
    log::answered(&method, &matched, answer.status(), begun.elapsed(), token.as_deref());
    answer
}

impl RequestAuth {
    /// Somebody reached for what is not theirs.
    fn refused(&self, caller: &ApiCaller, target: String) {
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
        self.house.record_own(record);
        if let Some(user) = &caller.user {
            self.house.record(user, record);
        }
    }
}

/// What browsers have to be told with every answer.
fn dress(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
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
