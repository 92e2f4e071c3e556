//! The lifetime of a request: from its headers to the last byte of the response, and no longer than
//! its token is valid.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::{Body as Parts, Bytes, Frame, SizeHint};

use super::bodies::PendingBytes;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::tenants::{ApiCaller, lock};

/// Open requests per tenant: without this limit one tenant could take all connections.
const OPEN: usize = 128;
/// Interval of the token checks of an open stream.
const TOKEN_CHECK: Duration = Duration::from_secs(1);

/// One of a tenant's limited slots for an activity.
pub(super) struct TenantSlot {
    app: SharedState,
    what: Option<String>,
}

impl TenantSlot {
    /// Takes one of `most` slots. A caller without a tenant has no limit.
    pub(super) fn take(
        app: &SharedState,
        caller: &ApiCaller,
        what: &str,
        most: usize,
    ) -> ApiResult<Self> {
        let what = caller.user.as_ref().map(|user| format!("{what} of `{user}`"));
        if let Some(what) = what.as_ref().filter(|what| !app.tenants.take_slot(what, most)) {
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-open",
                format!("too many open: {most} {what}"),
            )
            .hint("close some, or wait until they end")
            .retry_after(1));
        }
        Ok(Self { app: app.clone(), what })
    }
}

impl Drop for TenantSlot {
    fn drop(&mut self) {
        if let Some(what) = &self.what {
            self.app.tenants.release_slot(what);
        }
    }
}

/// An open request.
pub(super) struct RequestLease {
    token: String,
    slot: TenantSlot,
    /// Bytes of the request body.
    held: Mutex<PendingBytes>,
}

impl RequestLease {
    pub(super) fn begin(app: &SharedState, caller: &ApiCaller) -> ApiResult<Arc<Self>> {
        let slot = TenantSlot::take(app, caller, "requests", OPEN)?;
        let held = Mutex::new(PendingBytes::in_memory(app, caller));
        Ok(Arc::new(Self { token: caller.id.clone(), slot, held }))
    }

    /// Counts bytes of the body until the end of the response.
    pub(super) fn count_body(&self, bytes: u64) -> ApiResult<()> {
        lock(&self.held).count_bytes(bytes)
    }

    /// Resolves when the token is no longer valid.
    pub(super) async fn expired(self: Arc<Self>) {
        while self.slot.app.tenants.is_token_valid(&self.token) {
            tokio::time::sleep(TOKEN_CHECK).await;
        }
    }

    /// Keeps the slot until the response is sent or the client disconnects.
    pub(super) fn hold_until_sent(self: Arc<Self>, answer: Response) -> Response {
        answer.map(|body| {
            // A complete response is not cut off.
            let is_stream = body.size_hint().exact().is_none();
            let end = is_stream.then(|| {
                Box::pin(self.clone().expired()) as Pin<Box<dyn Future<Output = ()> + Send>>
            });
            Body::new(LeasedBody { body, end, _lease: self })
        })
    }
}

struct LeasedBody {
    body: Body,
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _lease: Arc<RequestLease>,
}

impl Parts for LeasedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            self.body = Body::empty();
            self.end = None;
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
