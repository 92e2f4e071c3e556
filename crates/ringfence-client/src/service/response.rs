//! Responses of a server.

use std::io::{self, BufRead, BufReader, Read};

use httparse::Status;
use serde_json::Value;

use super::body::{ChunkedBody, SizedBody};
use super::{ReadWrite, RemoteError, ServiceReply};

/// The maximum size of a response.
const MAX_RESPONSE: u64 = 256 << 20;
/// The maximum size of a head.
const MAX_HEAD: u64 = 64 << 10;
/// The maximum number of headers.
const MAX_HEADERS: usize = 100;

/// A response whose head has been read.
pub(super) struct HttpResponse {
    status: u16,
    authority: String,
    body: Box<dyn BufRead>,
}

/// The end of a body.
enum BodyEnd {
    Chunked,
    Sized(u64),
    UntilClosed,
}

impl HttpResponse {
    /// Reads the head of the final response; interim responses precede it.
    pub(super) fn read(stream: Box<dyn ReadWrite>, authority: &str) -> Result<Self, RemoteError> {
        let mut stream = BufReader::new(stream);
        let (mut status, mut framing) = read_head(&mut stream, authority)?;
        while (100..200).contains(&status) {
            (status, framing) = read_head(&mut stream, authority)?;
        }
        let body: Box<dyn BufRead> = match (status, framing) {
            (204 | 304, _) => Box::new(io::empty()),
            (_, BodyEnd::Chunked) => Box::new(BufReader::new(ChunkedBody::new(stream))),
            (_, BodyEnd::Sized(left)) => Box::new(SizedBody { stream, left }),
            (_, BodyEnd::UntilClosed) => Box::new(stream),
        };
        Ok(Self { status, authority: authority.to_owned(), body })
    }

    pub(super) fn broken(&self, source: io::Error) -> RemoteError {
        RemoteError::Broken { authority: self.authority.clone(), source }
    }

    fn strange(&self, what: String) -> RemoteError {
        RemoteError::Strange { authority: self.authority.clone(), what }
    }

    /// A status other than 2xx is an error with the server's message.
    pub(super) fn successful(mut self) -> Result<Self, RemoteError> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let problem = self.bytes().ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Err(self.refused(&problem.unwrap_or_default()))
    }

    /// The error with the server's message.
    pub(super) fn refused(&self, problem: &Value) -> RemoteError {
        let text = |name: &str| problem[name].as_str().map(str::to_owned);
        match (text("code"), text("message")) {
            (Some(code), Some(message)) => {
                RemoteError::Refused { code, message, hint: text("hint") }
            }
            _ => self.strange(format!("unexpected status {}", self.status)),
        }
    }

    /// Reads the whole body.
    fn bytes(&mut self) -> Result<Vec<u8>, RemoteError> {
        let mut bytes = Vec::new();
        let read = self.body.by_ref().take(MAX_RESPONSE).read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|error| self.broken(error))
    }

    pub(super) fn json(mut self) -> ServiceReply {
        let bytes = self.bytes()?;
        if self.status == 204 {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|error| self.strange(error.to_string()))
    }

    /// Reads the next line of a stream, without its end; `None` after the last.
    pub(super) fn line(&mut self) -> Result<Option<String>, RemoteError> {
        let mut bytes = Vec::new();
        let read = self.body.by_ref().take(MAX_RESPONSE).read_until(b'\n', &mut bytes);
        let taken = read.map_err(|error| self.broken(error))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok((taken > 0).then(|| text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// Reads a head: the status, and where the body ends. Each line is checked as it arrives, because
/// a server of another protocol may wait after its first line.
fn read_head(stream: &mut impl BufRead, authority: &str) -> Result<(u16, BodyEnd), RemoteError> {
    let broken = |source| RemoteError::Broken { authority: authority.to_owned(), source };
    let strange = |what: String| RemoteError::Strange { authority: authority.to_owned(), what };
    let mut bytes = Vec::new();
    let mut stream = stream.take(MAX_HEAD);
    loop {
        if stream.read_until(b'\n', &mut bytes).map_err(broken)? == 0 {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        match head.parse(&bytes) {
            Ok(Status::Partial) => continue,
            Ok(Status::Complete(_)) => {}
            Err(error) => return Err(strange(error.to_string())),
        }
        let value = |name: &str| {
            let header = head.headers.iter().find(|found| found.name.eq_ignore_ascii_case(name))?;
            Some(String::from_utf8_lossy(header.value))
        };
        let framing = match (value("transfer-encoding"), value("content-length")) {
            (None, None) => BodyEnd::UntilClosed,
            (None, Some(length)) => BodyEnd::Sized(
                length.parse().map_err(|_| strange(format!("its length is `{length}`")))?,
            ),
            (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => BodyEnd::Chunked,
            (Some(coding), _) => return Err(strange(format!("its transfer coding is `{coding}`"))),
        };
        return Ok((head.code.unwrap_or_default(), framing));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    struct FakeStream(Cursor<Vec<u8>>);

    impl Read for FakeStream {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            // As a network delivers it: in pieces.
            let most = into.len().min(3);
            self.0.read(&mut into[..most])
        }
    }

    impl Write for FakeStream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn read(response: &str) -> Result<HttpResponse, RemoteError> {
        let stream = FakeStream(Cursor::new(response.as_bytes().to_vec()));
        HttpResponse::read(Box::new(stream), "here")
    }

    #[track_caller]
    fn check(response: &str, expect: Option<&str>) {
        let read = read(response).and_then(|mut response| response.bytes()).ok();
        assert_eq!(read.as_deref(), expect.map(str::as_bytes), "{response:?}");
    }

    #[test]
    fn body_ends_where_its_framing_says() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and more", Some("hello"));
        check(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
            Some("hello"),
        );
        check("HTTP/1.1 200 OK\r\n\r\nhello", Some("hello"));
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Some(""));
    }

    #[test]
    fn truncated_response_is_an_error() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", None);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n", None);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhello", None);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", None);
        check("HTTP/1.1 200 OK\r\nContent-Le", None);
        check("SSH-2.0-OpenSSH_9.2\r\n", None);
    }

    #[test]
    fn refusal_carries_the_servers_message() {
        let response = "HTTP/1.1 404 Not Found\r\n\r\n{\"code\":\"no-skill\",\"message\":\"there is no skill\",\"hint\":\"list them\"}";
        let refusal = read(response).and_then(HttpResponse::successful).err().unwrap();
        assert_eq!(
            (refusal.code(), refusal.to_string(), refusal.hint()),
            ("no-skill", "there is no skill".into(), Some("list them".into()))
        );
    }

    #[test]
    fn other_server_is_recognized() {
        let code = |response: &str| {
            read(response).and_then(HttpResponse::successful).err().unwrap().code().to_owned()
        };
        assert_eq!(code("HTTP/1.1 502 Bad Gateway\r\n\r\n<html>"), "strange");
        // It waits for the client after its first line.
        assert_eq!(code("SSH-2.0-OpenSSH_9.2\r\n"), "strange");
        assert_eq!(code("HTTP/1.1 200 OK\r\nno colon\r\n"), "strange");
        assert_eq!(code("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), "strange");
        assert_eq!(code("HTTP/1.1 200 OK\r\nContent-"), "broken");
    }
}
