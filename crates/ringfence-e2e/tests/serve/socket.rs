//! A minimal WebSocket client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::client::HttpTestClient;

/// A WebSocket connection.
pub(crate) struct Socket(BufReader<TcpStream>);

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketMessage {
    Text(String),
    Bytes(Vec<u8>),
    /// The close code.
    Close(u16),
}

impl Socket {
    /// Opens a connection, or returns the HTTP status.
    pub(crate) fn open(
        client: &HttpTestClient,
        path: &str,
        more: &[(&str, &str)],
    ) -> Result<(Socket, Vec<String>), u16> {
        let mut headers = vec![
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="),
        ];
        headers.extend_from_slice(more);
        let mut stream = client.begin_upgrade(path, &headers).expect("the service answers");
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).expect("a head");
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_ascii_lowercase());
        }
        let status =
            head[0].split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        if status == 101 { Ok((Socket(stream), head)) } else { Err(status) }
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.send(1, text.as_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.send(2, bytes);
    }

    fn send(&mut self, kind: u8, bytes: &[u8]) {
        assert!(bytes.len() < 126, "short messages are enough here");
        // A mask of zeros is valid.
        let mut frame = vec![0x80 | kind, 0x80 | bytes.len() as u8, 0, 0, 0, 0];
        frame.extend(bytes);
        self.0.get_mut().write_all(&frame).expect("the service listens");
    }

    pub(crate) fn hear(&mut self) -> SocketMessage {
        let mut exactly = |length: usize| {
            let mut bytes = vec![0; length];
            self.0.read_exact(&mut bytes).expect("a message");
            bytes
        };
        let head = exactly(2);
        let length = match head[1] {
            126 => exactly(2).iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            127 => exactly(8).iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            short => usize::from(short),
        };
        let bytes = exactly(length);
        match head[0] & 15 {
            1 => SocketMessage::Text(String::from_utf8(bytes).expect("text")),
            2 => SocketMessage::Bytes(bytes),
            8 => SocketMessage::Close(
                bytes.iter().take(2).fold(0, |sum, byte| sum << 8 | u16::from(*byte)),
            ),
            other => panic!("a message of kind {other}"),
        }
    }
}
