//! A client of `ringfence serve`: one HTTP/1.1 request per connection.

mod body;
mod error;
mod events;
mod response;
#[cfg(feature = "tls")]
mod tls;
mod url;

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub use error::RemoteError;
pub use events::{CommandEvents, RemoteEvent};

use response::HttpResponse;
#[cfg(feature = "tls")]
use tls::load as load_tls;
use url::{ServiceUrl, query_string, request_path};

/// The connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The read timeout. The server sends an event every few seconds while it streams; a command takes
/// five minutes at most.
const SILENCE: Duration = Duration::from_secs(330);

/// The JSON of a response; `null` if it has no content.
pub type ServiceReply = Result<Value, RemoteError>;

/// A media type, and bytes of it.
type MediaBytes = (String, Vec<u8>);

/// Completes the TLS handshake with a host.
type TlsHandshake = Box<dyn Fn(&str, TcpStream) -> io::Result<Box<dyn ReadWrite>> + Send + Sync>;

/// A server, and our token for it.
pub struct ServiceClient {
    address: ServiceUrl,
    token: String,
    tls: Option<TlsHandshake>,
}

/// The parameters of a query; one without a value is left out.
type QueryParameters<'a> = [(&'a str, Option<String>)];

impl ServiceClient {
    /// A client of the server at `url`. For `https`, it trusts the certificates in the file `ca`,
    /// or else the system's. Nothing is sent yet.
    pub fn new(url: &str, token: &str, ca: Option<&Path>) -> Result<Self, RemoteError> {
        let address = ServiceUrl::parse(url)?;
        let token = token.trim().to_owned();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RemoteError::Token);
        }
        let tls = address.is_secure.then(|| load_tls(ca)).transpose()?;
        Ok(Self { address, token, tls })
    }

    /// Sends `GET` with a path, by segments, of the server's OpenAPI document.
    pub fn get(&self, path: &[&str], query: &QueryParameters<'_>) -> ServiceReply {
        self.json("GET", path, query, None)
    }

    /// Sends a request with JSON.
    pub fn json(
        &self,
        method: &str,
        path: &[&str],
        query: &QueryParameters<'_>,
        body: Option<&Value>,
    ) -> ServiceReply {
        let body = body.map(|body| ("application/json".to_owned(), body.to_string().into_bytes()));
        let path = request_path(path) + &query_string(query);
        self.send(method, &path, "application/json", body)?.json()
    }

    /// Uploads a ZIP file.
    pub fn upload(&self, path: &[&str], archive: &[u8]) -> ServiceReply {
        // Unpredictable: the archive cannot contain it.
        let boundary = format!("ringfence-{:016x}", RandomState::new().hash_one(archive));
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"skills.zip\"\r\nContent-Type: application/zip\r\n\r\n"
        );
        let bytes =
            [head.as_bytes(), archive, format!("\r\n--{boundary}--\r\n").as_bytes()].concat();
        let body = (format!("multipart/form-data; boundary={boundary}"), bytes);
        self.send("POST", &request_path(path), "application/json", Some(body))?.json()
    }

    /// Runs a command, and returns its events while it runs.
    pub fn run(&self, path: &[&str], command: &Value) -> Result<CommandEvents, RemoteError> {
        let body = ("application/json".to_owned(), command.to_string().into_bytes());
        self.send("POST", &request_path(path), "text/event-stream", Some(body)).map(CommandEvents)
    }

    /// Sends a request; a status other than 2xx is an error with the server's message.
    fn send(
        &self,
        method: &str,
        path: &str,
        accept: &str,
        body: Option<MediaBytes>,
    ) -> Result<HttpResponse, RemoteError> {
        let authority = self.address.authority();
        let mut stream = self.connect()?;
        let mut head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {}\r\nAccept: {accept}\r\nUser-Agent: ringfence/{}\r\nConnection: close\r\n",
            self.address.base,
            self.token,
            env!("CARGO_PKG_VERSION")
        );
        if let Some((kind, bytes)) = &body {
            head.push_str(&format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", bytes.len()));
        }
        head.push_str("\r\n");
        // A server may respond before it has read the whole request.
        let written = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&body.unwrap_or_default().1))
            .and_then(|()| stream.flush());
        let response = HttpResponse::read(stream, &authority);
        match (written, response) {
            (Err(source), Err(RemoteError::Broken { authority, .. })) => {
                Err(RemoteError::Broken { authority, source })
            }
            (_, response) => response?.successful(),
        }
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

    /// Completes the handshake before the token is sent.
    fn start_tls(&self, stream: TcpStream) -> Result<Box<dyn ReadWrite>, RemoteError> {
        let authority = || self.address.authority();
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(SILENCE)))
            .and_then(|()| stream.set_write_timeout(Some(SILENCE)))
            .map_err(|source| RemoteError::Unreached { authority: authority(), source })?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(handshake) => handshake(&self.address.host, stream)
                .map_err(|source| RemoteError::Untrusted { authority: authority(), source }),
        }
    }
}

#[cfg(not(feature = "tls"))]
fn load_tls(_: Option<&Path>) -> Result<TlsHandshake, RemoteError> {
    Err(RemoteError::NoTls)
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}
