//! Bodies of requests: counted while they are held, kept on the disk where they are large, and read
//! to their end where a handler did not.

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

/// Bodies up to this many bytes are not counted.
const SMALL: u64 = 64 << 10;
/// Bytes of larger bodies that one tenant has in memory at the same time.
const IN_MEMORY: u64 = 64 << 20;
/// Bytes that one tenant has on the disk before they are whole.
const STAGED: u64 = 128 << 20;

/// Bytes of bodies that a tenant has sent and that are not dealt with yet.
pub(super) struct Held {
    house: SharedState,
    /// `None` where nothing is counted.
    key: Option<String>,
    most: u64,
    total: u64,
    counted: u64,
}

impl Held {
    /// Counts bytes in memory.
    pub(super) fn in_memory(house: &SharedState, caller: &ApiCaller) -> Self {
        Self::new(house, Some(format!("memory of {}", caller.payer())), IN_MEMORY)
    }

    /// Counts bytes on the disk. A token that is for no tenant may stage as much as it likes.
    pub(super) fn staged(house: &SharedState, caller: &ApiCaller) -> Self {
        Self::new(
            house,
            caller.user.is_some().then(|| format!("staging of {}", caller.payer())),
            STAGED,
        )
    }

    fn new(house: &SharedState, key: Option<String>, most: u64) -> Self {
        Self { house: house.clone(), key, most, total: 0, counted: 0 }
    }

    /// Counts more, if there is room for it.
    pub(super) fn grow(&mut self, bytes: u64) -> ApiResult<()> {
        self.total += bytes;
        let (Some(key), true) = (&self.key, self.total > SMALL) else { return Ok(()) };
        let more = self.total - self.counted;
        if !self.house.tenants.hold(key, more, self.most) {
            let message =
                format!("bodies of more than {} bytes are on their way already", self.most);
            let fault = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many-open", message);
            return Err(fault.hint("send fewer large ones at the same time").after(1));
        }
        self.counted = self.total;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.house.tenants.release(key, self.counted);
        }
    }
}

/// The next bytes of a body; `None` at its end.
pub(super) async fn next(body: &mut Body) -> ApiResult<Option<Bytes>> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::wrong("body", format!("the body cannot be read: {error}"))
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Writes a body into a file without a name. Answers how long it is.
pub(super) async fn stage(
    house: &SharedState,
    mut body: Body,
    held: &mut Held,
    most: u64,
) -> ApiResult<(File, u64)> {
    let mut file = unnamed(house).map_err(|error| ApiError::ours(&error))?;
    let mut length = 0;
    while let Some(bytes) = next(&mut body).await? {
        length += bytes.len() as u64;
        if length > most {
            return Err(ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-large",
                format!("a body has at most {most} bytes here"),
            ));
        }
        held.grow(bytes.len() as u64)?;
        file.write_all(&bytes).map_err(|error| ApiError::ours(&error))?;
    }
    file.seek(SeekFrom::Start(0)).map_err(|error| ApiError::ours(&error))?;
    Ok((file, length))
}

/// A file that is gone when it is closed, in the directory for data that is on its way in.
pub(super) fn unnamed(house: &SharedState) -> io::Result<File> {
    let path =
        house.data.join("staging").join(format!("archive-{}", ringfence_audit::session_id()));
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path.as_path())?;
    std::fs::remove_file(path.as_path())?;
    Ok(file)
}

/// Bounds on a body that is read and thrown away so that its sender reads the answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    bytes: u64,
    total: Duration,
}

impl Drain {
    /// For a caller whose token is known: as much as any handler takes.
    pub(super) fn known(house: &SharedState) -> Self {
        Self {
            bytes: house.settings.bounds.archive.saturating_add(1 << 20),
            total: Duration::from_secs(20),
        }
    }

    /// For a caller without a token that is known.
    pub(super) const STRANGER: Self = Self { bytes: 1 << 20, total: Duration::from_secs(3) };
}

/// Time after which a sender that sends nothing is not waited for.
const IDLE: Duration = Duration::from_secs(2);

/// A body that is read by a handler, and afterwards by the connection.
///
/// A server that answers and closes while the client still sends has the kernel reset the
/// connection, and the client may never see the answer.
pub(super) struct Remainder {
    body: Arc<Mutex<Inner>>,
    /// The client waits for `100 Continue` before it sends the body.
    waits: bool,
}

struct Inner {
    body: Body,
    was_read: bool,
}

/// The handler's end of a body.
struct Lent(Arc<Mutex<Inner>>);

impl Remainder {
    /// Lends the body of a request to its handler.
    pub(super) fn lend(request: Request) -> (Request, Self) {
        let expects = request.headers().get(header::EXPECT);
        let waits =
            expects.is_some_and(|expects| expects.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let (parts, body) = request.into_parts();
        let inner = Arc::new(Mutex::new(Inner { body, was_read: false }));
        let request = Request::from_parts(parts, Body::new(Lent(inner.clone())));
        (request, Self { body: inner, waits })
    }

    /// Reads what is left, as far as `drain` goes. A connection on which more comes is closed, and
    /// the answer says so.
    pub(super) async fn settle(self, answer: &mut Response, drain: Drain) {
        let Inner { mut body, was_read } = {
            let mut inner = lock(&self.body);
            Inner { body: std::mem::take(&mut inner.body), was_read: inner.was_read }
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

/// Reads a body; true where it came to its end within so many bytes.
async fn drained(body: &mut Body, most: u64) -> bool {
    let mut length = 0;
    while length <= most {
        match tokio::time::timeout(IDLE, next(body)).await {
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
