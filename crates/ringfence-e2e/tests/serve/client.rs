//! An HTTP/1.1 client with one connection for each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::archives::zip;

/// A client with or without a token.
#[derive(Debug, Clone)]
pub(crate) struct HttpTestClient {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Checks the status and returns the JSON body.
    #[track_caller]
    pub(crate) fn is(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Checks for an error with this status and code, and returns its JSON body.
    #[track_caller]
    pub(crate) fn fails(&self, status: u16, code: &str) -> Value {
        let problem = self.is(status);
        assert_eq!(problem["code"], code, "{problem}");
        assert!(
            problem["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{problem}"
        );
        assert!(problem.get("hint").is_some(), "{problem}");
        problem
    }
}

impl HttpTestClient {
    pub(crate) fn with(&self, token: &str) -> HttpTestClient {
        HttpTestClient { token: Some(token.to_owned()), ..self.clone() }
    }

    pub(crate) fn without(&self) -> HttpTestClient {
        HttpTestClient { token: None, ..self.clone() }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(
            "POST",
            path,
            &[("Content-Type", "application/json")],
            body.to_string().as_bytes(),
        )
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Reply {
        self.send("PUT", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send(
            "PATCH",
            path,
            &[("Content-Type", "application/json")],
            body.to_string().as_bytes(),
        )
    }

    /// Sends a request and reads the whole response.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        self.try_send(method, path, headers, body).expect("the service answers")
    }

    pub(crate) fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Reply> {
        let mut stream = self.begin(method, path, headers, body)?;
        read(&mut stream)
    }

    /// Sends a request and returns the stream with the response unread.
    pub(crate) fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<BufReader<TcpStream>> {
        self.begin_as("close", method, path, headers, body)
    }

    /// Sends a protocol upgrade request.
    pub(crate) fn begin_upgrade(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> std::io::Result<BufReader<TcpStream>> {
        self.begin_as("Upgrade", "GET", path, headers, b"")
    }

    fn begin_as(
        &self,
        what: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nConnection: {what}\r\nContent-Length: {}\r\n",
            body.len()
        );
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        // A server that refuses the request by its head may close without reading the body.
        let _ = stream.write_all(body);
        Ok(BufReader::new(stream))
    }

    /// Uploads these files, each under its path in the archive.
    pub(crate) fn upload(&self, user: &str, agent: &str, files: &[(&str, &str)]) -> Reply {
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|(name, content)| (*name, content.as_bytes())).collect();
        self.upload_bytes(user, agent, &zip(&files))
    }

    pub(crate) fn upload_bytes(&self, user: &str, agent: &str, archive: &[u8]) -> Reply {
        self.try_upload(user, agent, archive).expect("the service answers")
    }

    pub(crate) fn try_upload(
        &self,
        user: &str,
        agent: &str,
        archive: &[u8],
    ) -> std::io::Result<Reply> {
        let mut body =
            b"--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"s.zip\"\r\nContent-Type: application/zip\r\n\r\n"
                .to_vec();
        body.extend(archive);
        body.extend(b"\r\n--edge--\r\n");
        let headers = [("Content-Type", "multipart/form-data; boundary=edge")];
        self.try_send("POST", &format!("/v1/skills/{user}/{agent}/upload"), &headers, &body)
    }

    /// Runs a command line in `user/agent/skill`.
    pub(crate) fn execute(&self, skill: &str, line: &str) -> Reply {
        self.post(&format!("/v1/skills/{skill}/execute"), &json!({ "command": line }))
    }

    /// The audit records of a tenant.
    #[track_caller]
    pub(crate) fn audit(&self, user: &str, more: &str) -> Vec<Value> {
        let found = self.get(&format!("/v1/audit?userId={user}&limit=1000{more}")).is(200);
        found["records"].as_array().expect("records").clone()
    }
}

pub(crate) fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Reply> {
    let broken = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "no whole answer");
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status =
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => break,
        }
    }
    let is_chunked = headers
        .iter()
        .any(|(name, value)| name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked");
    let mut body = Vec::new();
    if is_chunked {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| broken())?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk)?;
            if size == 0 {
                break;
            }
            body.extend(&chunk[..size]);
        }
    } else {
        let length = headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.parse().ok());
        match length {
            Some(length) => stream.take(length).read_to_end(&mut body)?,
            None => stream.read_to_end(&mut body)?,
        };
    }
    Ok(Reply { status, headers, body })
}
