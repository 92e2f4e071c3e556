//! One HTTP/1.1 request per connection: the subset that the server and its proxies use.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;

use super::body::{ChunkedBody, SizedBody, read_line};
use super::url::ServiceUrl;
use super::{RemoteError, ServiceArgs, tls};

/// The connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The read timeout. The server sends an event every few seconds while it streams; a command takes
/// five minutes at most.
const SILENCE: Duration = Duration::from_secs(330);
/// The maximum size of a response.
const MAX_RESPONSE: u64 = 256 << 20;

/// A server, and our token for it.
pub(super) struct ServiceClient {
    address: ServiceUrl,
    token: String,
    tls: Option<Arc<ClientConfig>>,
}

/// The body of a request.
pub(super) enum RequestBody<'a> {
    Nothing,
    Json(&'a Value),
    Form { boundary: &'a str, bytes: &'a [u8] },
}

/// A response whose head has been read.
pub(super) struct HttpResponse {
    pub(super) status: u16,
    authority: String,
    body: Box<dyn BufRead>,
}

impl ServiceClient {
    pub(super) fn new(arguments: &ServiceArgs) -> Result<Self, RemoteError> {
        let url = arguments
            .url
            .clone()
            .or_else(|| std::env::var("RINGFENCE_URL").ok().filter(|url| !url.is_empty()));
        let address = ServiceUrl::parse(url.as_deref().unwrap_or("http://127.0.0.1:7420"))?;
        let token = match &arguments.token_file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| RemoteError::TokenFile { path: path.clone(), source })?,
            None => std::env::var("RINGFENCE_TOKEN").map_err(|_| RemoteError::NoToken)?,
        };
        let token = token.trim().to_owned();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RemoteError::Token);
        }
        let tls = address.is_secure.then(|| tls::config(arguments.ca.as_deref())).transpose()?;
        Ok(Self { address, token, tls })
    }

    /// Sends a request; a status other than 2xx is an error with the server's message.
    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        sent: &RequestBody<'_>,
    ) -> Result<HttpResponse, RemoteError> {
        let authority = self.address.authority();
        let broken = |source| RemoteError::Broken { authority: authority.clone(), source };
        let mut stream = self.connect()?;
        let (kind, body) = match sent {
            RequestBody::Nothing => (None, Vec::new()),
            RequestBody::Json(value) => {
                (Some("application/json".to_owned()), value.to_string().into_bytes())
            }
            RequestBody::Form { boundary, bytes } => {
                (Some(format!("multipart/form-data; boundary={boundary}")), bytes.to_vec())
            }
        };
        let mut head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {}\r\nAccept: {accept}\r\nUser-Agent: ringfence/{}\r\nConnection: close\r\n",
            self.address.base,
            self.token,
            env!("CARGO_PKG_VERSION")
        );
        if let Some(kind) = kind {
            head.push_str(&format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        // A server may respond before it has read the whole request.
        let written = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&body))
            .and_then(|()| stream.flush());
        let answer = HttpResponse::read(stream, authority.clone()).map_err(broken);
        let answer = match (written, answer) {
            (Err(error), Err(_)) => return Err(broken(error)),
            (_, answer) => answer??,
        };
        if (200..300).contains(&answer.status) { Ok(answer) } else { Err(answer.into_error()) }
    }

    /// Sends a request whose response is JSON.
    pub(super) fn json(
        &self,
        method: &str,
        path: &str,
        sent: &RequestBody<'_>,
    ) -> Result<Value, RemoteError> {
        self.send(method, path, "application/json", sent)?.json()
    }

    pub(super) fn get(&self, path: &str) -> Result<Value, RemoteError> {
        self.json("GET", path, &RequestBody::Nothing)
    }

    fn connect(&self) -> Result<Box<dyn ReadWrite>, RemoteError> {
        let ServiceUrl { host, port, .. } = &self.address;
        let unreached =
            |source| RemoteError::Unreached { authority: self.address.authority(), source };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (host.as_str(), *port).to_socket_addrs().map_err(unreached)? {
            if self.tls.is_none() && !address.ip().is_loopback() {
                return Err(RemoteError::Exposed { authority: self.address.authority() });
            }
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return self.start_tls(stream),
                Err(error) => last = error,
            }
        }
        Err(unreached(last))
    }

    fn start_tls(&self, stream: TcpStream) -> Result<Box<dyn ReadWrite>, RemoteError> {
        let prepared =
            stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(SILENCE)));
        let prepared = prepared.and_then(|()| stream.set_write_timeout(Some(SILENCE)));
        prepared.map_err(|source| RemoteError::Unreached {
            authority: self.address.authority(),
            source,
        })?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(config) => {
                let stream = self.handshake(stream, config);
                stream.map_err(|source| RemoteError::Untrusted {
                    authority: self.address.authority(),
                    source,
                })
            }
        }
    }

    fn handshake(
        &self,
        stream: TcpStream,
        config: &Arc<ClientConfig>,
    ) -> io::Result<Box<dyn ReadWrite>> {
        let name = ServerName::try_from(self.address.host.clone()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, stream);
        // The handshake completes before the token is sent.
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Box::new(stream))
    }
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

impl HttpResponse {
    /// Reads the head. The outer error is of the connection, the inner one of the protocol.
    fn read(
        stream: Box<dyn ReadWrite>,
        authority: String,
    ) -> io::Result<Result<Self, RemoteError>> {
        let mut stream = BufReader::new(stream);
        let strange =
            |what: String| Ok(Err(RemoteError::Strange { authority: authority.clone(), what }));
        loop {
            let first = read_line(&mut stream)?;
            let status = first
                .strip_prefix("HTTP/1.")
                .and_then(|rest| rest.get(2..5))
                .and_then(|status| status.parse::<u16>().ok());
            let Some(status) = status else {
                return strange(format!("`{}`", crate::output::printable(&first)));
            };
            let (mut length, mut is_chunked) = (None, false);
            loop {
                let header = read_line(&mut stream)?;
                if header.is_empty() {
                    break;
                }
                let Some((name, value)) = header.split_once(':') else {
                    return strange("a header line is malformed".into());
                };
                let (name, value) = (name.to_ascii_lowercase(), value.trim());
                match name.as_str() {
                    "content-length" => length = Some(value.parse().map_err(io::Error::other)?),
                    "transfer-encoding" => is_chunked = value.eq_ignore_ascii_case("chunked"),
                    _ => {}
                }
            }
            // An interim response precedes the final one.
            if (100..200).contains(&status) {
                continue;
            }
            let body: Box<dyn BufRead> = match (status, is_chunked, length) {
                (204 | 304, ..) => Box::new(io::empty()),
                (_, true, _) => Box::new(BufReader::new(ChunkedBody::new(stream))),
                (_, false, Some(length)) => Box::new(SizedBody { stream, left: length }),
                (_, false, None) => Box::new(stream),
            };
            return Ok(Ok(Self { status, authority, body }));
        }
    }

    fn broken(&self) -> impl Fn(io::Error) -> RemoteError + use<> {
        let authority = self.authority.clone();
        move |source| RemoteError::Broken { authority: authority.clone(), source }
    }

    /// Reads the whole body.
    fn bytes(mut self) -> Result<Vec<u8>, RemoteError> {
        let mut bytes = Vec::new();
        self.body.by_ref().take(MAX_RESPONSE).read_to_end(&mut bytes).map_err(self.broken())?;
        Ok(bytes)
    }

    pub(super) fn json(self) -> Result<Value, RemoteError> {
        let (status, authority) = (self.status, self.authority.clone());
        let bytes = self.bytes()?;
        if status == 204 {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| RemoteError::Strange { authority, what: error.to_string() })
    }

    /// Reads the next line of a stream, without its end; `None` after the last.
    pub(super) fn line(&mut self) -> Result<Option<String>, RemoteError> {
        let mut bytes = Vec::new();
        let broken = self.broken();
        let taken =
            self.body.by_ref().take(MAX_RESPONSE).read_until(b'\n', &mut bytes).map_err(broken)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok((taken > 0).then(|| text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    fn into_error(self) -> RemoteError {
        let (status, authority) = (self.status, self.authority.clone());
        let problem = self
            .bytes()
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
            .unwrap_or_default();
        let text = |name: &str| problem[name].as_str().map(crate::output::printable);
        match (text("code"), text("message")) {
            (Some(code), Some(message)) => {
                RemoteError::Refused { code, message, hint: text("hint") }
            }
            _ => RemoteError::Strange { authority, what: format!("unexpected status {status}") },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

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

    fn read(response: &str) -> io::Result<Result<HttpResponse, RemoteError>> {
        let stream = FakeStream(Cursor::new(response.as_bytes().to_vec()));
        HttpResponse::read(Box::new(stream), "here".into())
    }

    #[track_caller]
    fn check(response: &str, expect: Option<&str>) {
        let read = read(response).ok().and_then(Result::ok).and_then(|answer| answer.bytes().ok());
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
        check("HTTP/1.1 200 OK\r\nContent-Le", None);
        check("SSH-2.0-OpenSSH_9.2\r\n", None);
    }

    #[test]
    fn refusal_carries_the_servers_message() {
        let response = "HTTP/1.1 404 Not Found\r\n\r\n{\"code\":\"no-skill\",\"message\":\"there is no skill\",\"hint\":\"list them\"}";
        let refusal = read(response).unwrap().ok().map(HttpResponse::into_error).unwrap();
        assert_eq!(
            (refusal.code(), refusal.to_string(), refusal.hint()),
            ("no-skill", "there is no skill".into(), Some("list them".into()))
        );
        let strange = read("HTTP/1.1 502 Bad Gateway\r\n\r\n<html>")
            .unwrap()
            .ok()
            .map(HttpResponse::into_error)
            .unwrap();
        assert_eq!(strange.code(), "strange");
    }
}
