//! Standard input with a notification at EOF.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Notify;

/// A reader that notifies at EOF at once, not when all earlier requests are done.
pub(crate) struct EofWatch<R> {
    stream: R,
    end: Arc<Notify>,
}

impl<R> EofWatch<R> {
    pub(crate) fn new(stream: R) -> (Self, Arc<Notify>) {
        let end = Arc::new(Notify::new());
        (Self { stream, end: end.clone() }, end)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for EofWatch<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if matches!(read, Poll::Ready(Err(_))) || (read.is_ready() && into.filled().len() == before)
        {
            self.end.notify_one();
        }
        read
    }
}
