//! Messages on standard input and output: a line that is no message is answered with an error of
//! the protocol rather than dropped, since its sender waits for an answer.

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

/// The longest line that is read.
const LONGEST: usize = 16 << 20;
/// Bytes at both ends of a longer line in which its id is looked for.
const SEARCHED: usize = 1 << 10;

/// A line that is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unread {
    NotJson(String),
    TooLong(Option<RequestId>),
}

impl Unread {
    fn answer(self) -> TxJsonRpcMessage<RoleServer> {
        match self {
            Unread::NotJson(why) => TxJsonRpcMessage::<RoleServer>::error(
                ErrorData::parse_error(format!("the line is no JSON: {why}"), None),
                None,
            ),
            Unread::TooLong(id) => {
                let message = format!(
                    "the line is longer than {LONGEST} bytes: write large files in parts, or with `shell`"
                );
                TxJsonRpcMessage::<RoleServer>::error(ErrorData::invalid_request(message, None), id)
            }
        }
    }
}

/// The transport over a pair of streams.
pub(crate) struct Lines<R: AsyncRead + Unpin, W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, Checked<R>, W>,
    unread: UnboundedReceiver<Unread>,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    pub(crate) fn new(read: R, write: W) -> Self {
        let (tells, unread) = unbounded_channel();
        let checked = Checked {
            stream: read,
            tells,
            line: Vec::new(),
            passed: 0,
            tail: Vec::new(),
            ready: Vec::new(),
            given: 0,
        };
        // Longer ones are kept back below.
        Self {
            inner: AsyncRwTransport::new(checked, write).with_max_line_length(usize::MAX),
            unread,
        }
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer>
    for Lines<R, W>
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
                Some(unread) = self.unread.recv() => Err(unread),
                message = self.inner.receive() => Ok(message),
            };
            match received {
                Ok(Some(message)) => return Some(message),
                // Lines just before the end are answered, too.
                Ok(None) => {
                    while let Ok(unread) = self.unread.try_recv() {
                        self.inner.send(unread.answer()).await.ok()?;
                    }
                    return None;
                }
                Err(unread) => self.inner.send(unread.answer()).await.ok()?,
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.inner.close().await
    }
}

/// A stream of which only lines of JSON are passed on.
struct Checked<R> {
    stream: R,
    tells: UnboundedSender<Unread>,
    /// The line so far; the beginning of one that is too long.
    line: Vec<u8>,
    /// Length of a line that is too long, as far as it was read.
    passed: usize,
    /// Its last bytes.
    tail: Vec<u8>,
    /// Checked, and given on up to `given`.
    ready: Vec<u8>,
    given: usize,
}

impl<R> Checked<R> {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            self.extend(piece);
            bytes = &bytes[end.map_or(bytes.len(), |end| end + 1)..];
            if end.is_some() {
                self.ends();
            }
        }
    }

    fn extend(&mut self, piece: &[u8]) {
        if self.passed == 0 && self.line.len() + piece.len() <= LONGEST {
            self.line.extend_from_slice(piece);
            return;
        }
        self.passed = self.passed.max(self.line.len()) + piece.len();
        self.line.truncate(SEARCHED);
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(SEARCHED)..]);
        let beyond = self.tail.len().saturating_sub(SEARCHED);
        self.tail.drain(..beyond);
    }

    /// A whole line was read.
    fn ends(&mut self) {
        let line = std::mem::take(&mut self.line);
        let tail = std::mem::take(&mut self.tail);
        if std::mem::take(&mut self.passed) > 0 {
            let _ =
                self.tells.send(Unread::TooLong(id_in_front(&line).or_else(|| id_behind(&tail))));
            return;
        }
        let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line).trim_ascii();
        match serde_json::from_slice::<Value>(text) {
            Err(error) if !text.is_empty() => {
                drop(self.tells.send(Unread::NotJson(error.to_string())))
            }
            _ => {
                self.ready.extend_from_slice(&line);
                self.ready.push(b'\n');
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Checked<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffer = vec![0; 64 << 10];
        while self.given == self.ready.len() {
            (self.ready, self.given) = (Vec::new(), 0);
            let mut read = ReadBuf::new(&mut buffer);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            let length = read.filled().len();
            self.take(&buffer[..length]);
        }
        let length = into.remaining().min(self.ready.len() - self.given);
        into.put_slice(&self.ready[self.given..self.given + length]);
        self.given += length;
        Poll::Ready(Ok(()))
    }
}

/// The value behind `"id":` where that stands in the object itself and not in something in it.
fn id_in_front(line: &[u8]) -> Option<RequestId> {
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
                        return id(value).map(|(id, _)| id);
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

/// The same at the end of the line, where nothing but the protocol's version follows.
fn id_behind(tail: &[u8]) -> Option<RequestId> {
    let text = String::from_utf8_lossy(tail);
    let (_, value) = text.rsplit_once("\"id\":")?;
    let (id, rest) = id(value.as_bytes())?;
    let rest: String = String::from_utf8_lossy(rest).split_whitespace().collect();
    matches!(rest.as_str(), "}" | ",\"jsonrpc\":\"2.0\"}").then_some(id)
}

/// The id that a text begins with, and what follows it.
fn id(text: &[u8]) -> Option<(RequestId, &[u8])> {
    let text = text.trim_ascii_start();
    let length = match text.first()? {
        b'"' => string_length(text)?,
        _ => text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'-')?,
    };
    let id = serde_json::from_slice(&text[..length]).ok()?;
    Some((id, &text[length..]))
}

/// Length of the string that a text begins with, with its quotation marks.
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

    fn read(pieces: &[&[u8]]) -> (Vec<u8>, Vec<Unread>) {
        let (tells, mut unread) = unbounded_channel();
        let mut checked = Checked {
            stream: (),
            tells,
            line: Vec::new(),
            passed: 0,
            tail: Vec::new(),
            ready: Vec::new(),
            given: 0,
        };
        pieces.iter().for_each(|piece| checked.take(piece));
        let all = std::iter::from_fn(|| unread.try_recv().ok()).collect();
        (checked.ready, all)
    }

    #[test]
    fn lines_of_json_pass_however_they_are_cut() {
        let (ready, unread) = read(&[b"{\"a\"", b":1}\n\n[", b"2]\n{"]);
        assert_eq!((ready.as_slice(), unread), (b"{\"a\":1}\n\n[2]\n".as_slice(), vec![]));
        assert!(matches!(read(&[b"{\n", b"\"x\"\n"]).1.as_slice(), [Unread::NotJson(_)]));
    }

    #[test]
    fn id_of_a_line_that_is_too_long_is_found_at_either_end() {
        let long = vec![b'x'; LONGEST + 1];
        let found = |before: &[u8], after: &[u8]| {
            let (ready, unread) = read(&[before, &long, after, b"\n{}\n"]);
            assert_eq!(ready, b"{}\n");
            unread
        };
        let number = |number| vec![Unread::TooLong(Some(RequestId::Number(number)))];
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
            vec![Unread::TooLong(None)]
        );
        assert_eq!(found(b"", b""), vec![Unread::TooLong(None)]);
    }
}
