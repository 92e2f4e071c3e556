//! Events of a running command: server-sent events.

use std::io;

use ringfence_api::{OutputStream, decode_base64};
use serde_json::Value;

use super::RemoteError;
use super::response::HttpResponse;

/// An event of a command that runs on a server.
#[derive(Debug, Clone, PartialEq)]
pub enum RemoteEvent {
    /// It wrote to a stream.
    Output {
        /// The stream.
        stream: OutputStream,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Part of the output is missing: the command wrote faster than the server could send.
    Missed,
    /// It has ended; nothing follows.
    Result(Value),
}

/// The events of a command. Dropping them ends the command.
pub struct CommandEvents(pub(super) HttpResponse);

impl CommandEvents {
    /// Waits for the next event. A stream that ends before the result is an error.
    pub fn next_event(&mut self) -> Result<RemoteEvent, RemoteError> {
        loop {
            let (name, data) = self.next_message()?;
            return Ok(match name.as_str() {
                "stdout" => RemoteEvent::Output { stream: OutputStream::Out, data: bytes(&data) },
                "stderr" => RemoteEvent::Output { stream: OutputStream::Err, data: bytes(&data) },
                "missed" => RemoteEvent::Missed,
                "result" => RemoteEvent::Result(data),
                "error" => return Err(self.0.refused(&data)),
                _ => continue,
            });
        }
    }

    /// Reads the name and the data of the next server-sent event.
    fn next_message(&mut self) -> Result<(String, Value), RemoteError> {
        let (mut name, mut data) = (String::new(), Vec::new());
        while let Some(line) = self.0.line()? {
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if !line.is_empty() => {}
                "" if data.is_empty() => name.clear(),
                "" => {
                    return Ok((name, serde_json::from_str(&data.join("\n")).unwrap_or_default()));
                }
                "event" => name = value.to_owned(),
                "data" => data.push(value.to_owned()),
                _ => {}
            }
        }
        Err(self.0.broken(io::ErrorKind::UnexpectedEof.into()))
    }
}

/// Returns the exact bytes of an output event.
fn bytes(data: &Value) -> Vec<u8> {
    let exact = data["base64"].as_str().and_then(decode_base64);
    exact.unwrap_or_else(|| data["text"].as_str().unwrap_or_default().as_bytes().to_vec())
}
