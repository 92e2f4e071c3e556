//! Request bodies: counted while held, stored on disk if large, and drained if a handler did not
//! read them.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Body as Parts, Bytes, Frame, SizeHint};

use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::tenants::{ApiCaller, lock};

/// Bodies up to this size are not counted.
const SMALL: u64 = 64 << 10;
/// Bytes of larger bodies that one tenant may have in memory at once.
const IN_MEMORY: u64 = 64 << 20;
/// Bytes of incomplete bodies that one tenant may have on disk at once.
const STAGED: u64 = 128 << 20;

/// Bytes of a tenant's request bodies that are not processed yet.
pub(super) struct PendingBytes {
    app: SharedState,
    /// `None` if nothing is counted.
    key: Option<String>,
    most: u64,
    total: u64,
    counted: u64,
}

impl PendingBytes {
    /// Counts bytes in memory.
    pub(super) fn in_memory(app: &SharedState, caller: &ApiCaller) -> Self {
        Self::new(app, Some(format!("memory of {}", caller.rate_key())), IN_MEMORY)
    }

    /// Counts bytes on disk. A token without a tenant has no limit.
    pub(super) fn staged(app: &SharedState, caller: &ApiCaller) -> Self {
        Self::new(
            app,
            caller.user.is_some().then(|| format!("staging of {}", caller.rate_key())),
            STAGED,
        )
    }

    fn new(app: &SharedState, key: Option<String>, most: u64) -> Self {
        Self { app: app.clone(), key, most, total: 0, counted: 0 }
    }

    /// Counts more bytes, if the limit permits.
    pub(super) fn count_bytes(&mut self, bytes: u64) -> ApiResult<()> {
        self.total += bytes;
        let (Some(key), true) = (&self.key, self.total > SMALL) else { return Ok(()) };
        let more = self.total - self.counted;
        if !self.app.tenants.hold_bytes(key, more, self.most) {
            let message = format!("large bodies in transfer exceed {} bytes", self.most);
            let fault = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many-open", message);
            return Err(fault.hint("send fewer large bodies at once").retry_after(1));
        }
        self.counted = self.total;
        Ok(())
    }
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.app.tenants.release_bytes(key, self.counted);
        }
    }
}

/// The next bytes of a body; `None` at its end.
pub(super) async fn next_bytes(body: &mut Body) -> ApiResult<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request("body", format!("cannot read the body: {error}"))
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Writes a body to an unnamed file and returns its length.
pub(super) async fn stage_body(
    app: &SharedState,
    mut body: Body,
    held: &mut PendingBytes,
    most: u64,
) -> ApiResult<(File, u64)> {
    let mut file = create_unlinked_file(app).map_err(|error| ApiError::internal(&error))?;
    let mut length = 0;
    while let Some(bytes) = next_bytes(&mut body).await? {
        length += bytes.len() as u64;
        if length > most {
            return Err(ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-large",
                format!("the body is larger than {most} bytes"),
            ));
        }
        held.count_bytes(bytes.len() as u64)?;
        file.write_all(&bytes).map_err(|error| ApiError::internal(&error))?;
    }
    file.seek(SeekFrom::Start(0)).map_err(|error| ApiError::internal(&error))?;
    Ok((file, length))
}

/// An unlinked file in the staging directory; it vanishes when closed.
pub(super) fn create_unlinked_file(app: &SharedState) -> io::Result<File> {
    let path = app.data.join("staging").join(format!("archive-{}", ringfence_audit::session_id()));
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path.as_path())?;
    std::fs::remove_file(path.as_path())?;
    Ok(file)
}

/// Limits for draining a body, so that its sender can read the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    bytes: u64,
    total: Duration,
}

impl Drain {
    /// For a caller with a known token: as much as any handler accepts.
    pub(super) fn known(app: &SharedState) -> Self {
        Self {
            bytes: app.settings.bounds.archive.saturating_add(1 << 20),
            total: Duration::from_secs(20),
        }
    }

    /// For a caller without a known token.
    pub(super) const ANONYMOUS: Self = Self { bytes: 1 << 20, total: Duration::from_secs(3) };
}

/// A sender that is silent for this long is abandoned.
const IDLE: Duration = Duration::from_secs(2);

/// A request body that the handler reads first and the connection afterwards.
///
/// If the server responds and closes while the client still sends, the kernel resets the
/// connection, and the client may never see the response.
pub(super) struct Remainder {
    body: Arc<Mutex<UnreadBody>>,
    /// Set when the client waits for `100 Continue` before it sends the body.
    waits: bool,
}

struct UnreadBody {
    body: Body,
    was_read: bool,
}

/// The handler's end of a body.
struct Lent(Arc<Mutex<UnreadBody>>);

impl Remainder {
    /// Lends the body of a request to its handler.
    pub(super) fn lend(request: Request) -> (Request, Self) {
        let expects = request.headers().get(header::EXPECT);
        let waits =
            expects.is_some_and(|expects| expects.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let (parts, body) = request.into_parts();
        let inner = Arc::new(Mutex::new(UnreadBody { body, was_read: false }));
        let request = Request::from_parts(parts, Body::new(Lent(inner.clone())));
        (request, Self { body: inner, waits })
    }

    /// Reads the rest within the limits of `drain`. If more follows, the connection is closed, and
    /// the response says so.
    pub(super) async fn drain_rest(self, answer: &mut Response, drain: Drain) {
        let UnreadBody { mut body, was_read } = {
            let mut inner = lock(&self.body);
            UnreadBody { body: std::mem::take(&mut inner.body), was_read: inner.was_read }
        };
        if body.is_end_stream() {
            return;
        }
        let is_sent = was_read || !self.waits;
        let is_over = is_sent
            && tokio::time::timeout(drain.total, drained(&mut body, drain.bytes))
                .await
                .unwrap_or(false);
        if !is_over {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Reads a body; true if it ended within `most` bytes.
async fn drained(body: &mut Body, most: u64) -> bool {
    let mut length = 0;
    while length <= most {
        match tokio::time::timeout(IDLE, next_bytes(body)).await {
            Ok(Ok(Some(bytes))) => length += bytes.len() as u64,
            Ok(Ok(None)) => return true,
            Ok(Err(_)) | Err(_) => return false,
        }
    }
    false
}

impl Parts for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut inner = lock(&self.0);
        inner.was_read = true;
        Pin::new(&mut inner.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).body.size_hint()
    }
}
