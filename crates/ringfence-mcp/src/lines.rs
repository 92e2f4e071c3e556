//! Messages on standard input and output, one per line. A line that is not a message is answered
//! with a protocol error rather than dropped, since its sender waits for an answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::ErrorData;
use rmcp::model::RequestId;
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The longest line accepted.
const MAX_LINE: usize = 16 << 20;
/// Bytes at both ends of an overlong line that are searched for its request id.
const SEARCHED_BYTES: usize = 1 << 10;

/// A line that is not a message.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RejectedLine {
    NotJson(String),
    TooLong(Option<RequestId>),
}

impl RejectedLine {
    fn answer(self) -> TxJsonRpcMessage<RoleServer> {
        match self {
            RejectedLine::NotJson(why) => TxJsonRpcMessage::<RoleServer>::error(
                ErrorData::parse_error(format!("the line is not JSON: {why}"), None),
                None,
            ),
            RejectedLine::TooLong(id) => {
                let message = format!(
                    "the line is longer than {MAX_LINE} bytes: write large files in parts, or with `shell`"
                );
                TxJsonRpcMessage::<RoleServer>::error(ErrorData::invalid_request(message, None), id)
            }
        }
    }
}

/// The transport over a pair of streams.
pub(crate) struct LineTransport<R: AsyncRead + Unpin, W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, CheckedReader<R>, W>,
    rejected: UnboundedReceiver<RejectedLine>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    pub(crate) fn new(read: R, write: W) -> Self {
        let (reject_sender, rejected) = unbounded_channel();
        let checked = CheckedReader {
            stream: read,
            reject_sender,
            line: Vec::new(),
            overlong_length: 0,
            tail: Vec::new(),
            ready: Vec::new(),
            consumed: 0,
        };
        // `CheckedReader` enforces the limit.
        Self {
            inner: AsyncRwTransport::new(checked, write).with_max_line_length(usize::MAX),
            rejected,
        }
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer>
    for LineTransport<R, W>
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let received = tokio::select! {
                biased;
                Some(rejected) = self.rejected.recv() => Err(rejected),
                message = self.inner.receive() => Ok(message),
            };
            match received {
                Ok(Some(message)) => return Some(message),
                // Rejected lines just before EOF are answered, too.
                Ok(None) => {
                    while let Ok(rejected) = self.rejected.try_recv() {
                        self.inner.send(rejected.answer()).await.ok()?;
                    }
                    return None;
                }
                Err(rejected) => self.inner.send(rejected.answer()).await.ok()?,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.inner.close().await
    }
}

/// A reader that passes on only lines that are JSON.
struct CheckedReader<R> {
    stream: R,
    reject_sender: UnboundedSender<RejectedLine>,
    /// The line so far, or the beginning of an overlong line.
    line: Vec<u8>,
    /// Length read so far of an overlong line.
    overlong_length: usize,
    /// The last bytes of an overlong line.
    tail: Vec<u8>,
    /// Checked lines, passed on up to `consumed`.
    ready: Vec<u8>,
    consumed: usize,
}

impl<R> CheckedReader<R> {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            self.extend(piece);
            bytes = &bytes[end.map_or(bytes.len(), |end| end + 1)..];
            if end.is_some() {
                self.finish_line();
            }
        }
    }

    fn extend(&mut self, piece: &[u8]) {
        if self.overlong_length == 0 && self.line.len() + piece.len() <= MAX_LINE {
            self.line.extend_from_slice(piece);
            return;
        }
        self.overlong_length = self.overlong_length.max(self.line.len()) + piece.len();
        self.line.truncate(SEARCHED_BYTES);
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(SEARCHED_BYTES)..]);
        let excess = self.tail.len().saturating_sub(SEARCHED_BYTES);
        self.tail.drain(..excess);
    }

    /// Handles a complete line.
    fn finish_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let tail = std::mem::take(&mut self.tail);
        if std::mem::take(&mut self.overlong_length) > 0 {
            let _ = self.reject_sender.send(RejectedLine::TooLong(
                find_leading_id(&line).or_else(|| find_trailing_id(&tail)),
            ));
            return;
        }
        let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line).trim_ascii();
        match serde_json::from_slice::<Value>(text) {
            Err(error) if !text.is_empty() => {
                drop(self.reject_sender.send(RejectedLine::NotJson(error.to_string())))
            }
            _ => {
                self.ready.extend_from_slice(&line);
                self.ready.push(b'\n');
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for CheckedReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffer = vec![0; 64 << 10];
        while self.consumed == self.ready.len() {
            (self.ready, self.consumed) = (Vec::new(), 0);
            let mut read = ReadBuf::new(&mut buffer);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let length = read.filled().len();
            self.feed(&buffer[..length]);
        }
        let length = into.remaining().min(self.ready.len() - self.consumed);
        into.put_slice(&self.ready[self.consumed..self.consumed + length]);
        self.consumed += length;
        Poll::Ready(Ok(()))
    }
}

/// The value of the top-level `"id":`, not of a nested one.
fn find_leading_id(line: &[u8]) -> Option<RequestId> {
    let (mut depth, mut at) = (0usize, 0);
    while at < line.len() {
        match line[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let length = string_length(&line[at..])?;
                if depth == 1 && &line[at..at + length] == b"\"id\"" {
                    let rest = line[at + length..].trim_ascii_start();
                    if let Some(value) = rest.strip_prefix(b":") {
                        return read_id(value).map(|(id, _)| id);
                    }
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The same at the end of the line, where only the protocol version may follow.
fn find_trailing_id(tail: &[u8]) -> Option<RequestId> {
    let text = String::from_utf8_lossy(tail);
    let (_, value) = text.rsplit_once("\"id\":")?;
    let (id, rest) = read_id(value.as_bytes())?;
    let rest: String = String::from_utf8_lossy(rest).split_whitespace().collect();
    matches!(rest.as_str(), "}" | ",\"jsonrpc\":\"2.0\"}").then_some(id)
}

/// The id at the beginning of `text`, and the rest.
fn read_id(text: &[u8]) -> Option<(RequestId, &[u8])> {
    let text = text.trim_ascii_start();
    let length = match text.first()? {
        b'"' => string_length(text)?,
        _ => text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'-')?,
    };
    let id = serde_json::from_slice(&text[..length]).ok()?;
    Some((id, &text[length..]))
}

/// Length of the JSON string at the beginning of `text`, quotes included.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> (Vec<u8>, Vec<RejectedLine>) {
        let (reject_sender, mut rejected) = unbounded_channel();
        let mut checked = CheckedReader {
            stream: (),
            reject_sender,
            line: Vec::new(),
            overlong_length: 0,
            tail: Vec::new(),
            ready: Vec::new(),
            consumed: 0,
        };
        pieces.iter().for_each(|piece| checked.feed(piece));
        let all = std::iter::from_fn(|| rejected.try_recv().ok()).collect();
        (checked.ready, all)
    }

    #[test]
    fn lines_of_json_pass_however_they_are_cut() {
        let (ready, rejected) = read(&[b"{\"a\"", b":1}\n\n[", b"2]\n{"]);
        assert_eq!((ready.as_slice(), rejected), (b"{\"a\":1}\n\n[2]\n".as_slice(), vec![]));
        assert!(matches!(read(&[b"{\n", b"\"x\"\n"]).1.as_slice(), [RejectedLine::NotJson(_)]));
    }

    #[test]
    fn id_of_a_line_that_is_too_long_is_found_at_either_end() {
        let long = vec![b'x'; MAX_LINE + 1];
        let found = |before: &[u8], after: &[u8]| {
            let (ready, rejected) = read(&[before, &long, after, b"\n{}\n"]);
            assert_eq!(ready, b"{}\n");
            rejected
        };
        let number = |number| vec![RejectedLine::TooLong(Some(RequestId::Number(number)))];
        assert_eq!(
            found(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"params\":{\"id\":8,\"text\":\"", b"\"}}"),
            number(7)
        );
        assert_eq!(
            found(b"{\"params\":{\"id\":8,\"text\":\"", b"\"},\"jsonrpc\":\"2.0\",\"id\": 9}"),
            number(9)
        );
        assert_eq!(
            found(b"{\"params\":{\"text\":\"", b"\\\"id\\\":8}\"}}"),
            vec![RejectedLine::TooLong(None)]
        );
        assert_eq!(found(b"", b""), vec![RejectedLine::TooLong(None)]);
    }
}
