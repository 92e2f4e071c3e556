//! For how long somebody is attended to: from the head of a request until the last of its answer,
//! and no longer than their token is worth something.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::{Body as Parts, Bytes, Frame, SizeHint};

use super::bodies::Held;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::tenants::{ApiCaller, lock};

/// So many requests of a tenant are open at the same time: there are places for all, and one of
/// them who took every one would be the only one that is served.
const OPEN: usize = 128;
/// How often somebody who watches is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// One of the places that a tenant has for something.
pub(super) struct TenantSlot {
    house: SharedState,
    what: Option<String>,
}

impl TenantSlot {
    /// Takes one of `most`. Whoever is no tenant has as many as they like.
    pub(super) fn take(
        house: &SharedState,
        caller: &ApiCaller,
        what: &str,
        most: usize,
    ) -> ApiResult<Self> {
        let what = caller.user.as_ref().map(|user| format!("{what} of `{user}`"));
        if let Some(what) = what.as_ref().filter(|what| !house.tenants.enter(what, most)) {
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many-open",
                format!("{most} {what} are open already"),
            )
            .hint("close some, or wait until they end")
            .after(1));
        }
        Ok(Self { house: house.clone(), what })
    }
}

impl Drop for TenantSlot {
    fn drop(&mut self) {
        if let Some(what) = &self.what {
            self.house.tenants.leave(what);
        }
    }
}

/// Somebody who is attended to.
pub(super) struct RequestLease {
    token: String,
    place: TenantSlot,
    /// Bytes of the request's body.
    held: Mutex<Held>,
}

impl RequestLease {
    pub(super) fn begin(house: &SharedState, caller: &ApiCaller) -> ApiResult<Arc<Self>> {
        let place = TenantSlot::take(house, caller, "requests", OPEN)?;
        let held = Mutex::new(Held::in_memory(house, caller));
        Ok(Arc::new(Self { token: caller.id.clone(), place, held }))
    }

    /// Counts bytes of the body until the last of the answer.
    pub(super) fn holds(&self, bytes: u64) -> ApiResult<()> {
        lock(&self.held).grow(bytes)
    }

    /// Until their token is worth nothing any more.
    pub(super) async fn ends(self: Arc<Self>) {
        while self.place.house.tenants.knows(&self.token) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The answer, which keeps the place until all of it was read or nobody reads it.
    pub(super) fn until_the_end_of(self: Arc<Self>, answer: Response) -> Response {
        answer.map(|body| {
            // What is there already is not taken back.
            let is_stream = body.size_hint().exact().is_none();
            let end = is_stream
                .then(|| Box::pin(self.clone().ends()) as Pin<Box<dyn Future<Output = ()> + Send>>);
            Body::new(LeasedBody { body, end, _stay: self })
        })
    }
}

struct LeasedBody {
    body: Body,
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _stay: Arc<RequestLease>,
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
