//! The server name in a TLS ClientHello (RFC 8446; RFC 6066 for the name).
//!
//! A hello that offers ECH (RFC 9849) is refused, even if its readable name is right: it contains a
//! second, encrypted hello with a name that only the server can read, and a server that fronts many
//! hosts uses that one. Browsers always offer ECH, with random bytes if they have no key (GREASE),
//! and these look like a real one. So a browser whose ECH cannot be disabled needs `sni = "off"`
//! for the host. No program gets a key from the DNS responder, which has no `HTTPS` records.
//!
//! Later bytes are invisible: requests inside TLS, a second hello after a HelloRetryRequest, a
//! renegotiation in TLS 1.2. A server that uses those instead of the first hello can be asked for
//! another host.

use super::{LONGEST, PeekError, PeekState};
use crate::byte_reader::ByteReader;
use ringfence_policy::HostName;

/// Record and message types.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Maximum payload of a record.
const RECORD: usize = 1 << 14;
/// Extension types.
const SERVER_NAME: u16 = 0;
/// Encrypted ClientHello with its drafts, and its predecessor, the encrypted SNI.
const HIDES_A_NAME: [std::ops::RangeInclusive<u16>; 2] = [0xfe08..=0xfe0d, 0xffce..=0xffce];

/// Reads one ClientHello, in any number of records.
#[derive(Debug, Default)]
pub struct ClientHelloReader {
    /// Bytes of the queue already scanned.
    scanned: usize,
    /// Remaining bytes of the current record.
    left: usize,
    /// The message, without record headers.
    message: Vec<u8>,
}

impl ClientHelloReader {
    /// The name, once the whole message is in the `queue`.
    pub fn read(&mut self, queue: &[u8]) -> PeekState<HostName> {
        if let Some(objection) = foreign(queue) {
            return PeekState::Refused(objection);
        }
        match self.gather(&queue[..queue.len().min(LONGEST)]) {
            Ok(HelloBytes::Whole) => match parse(&self.message[4..]) {
                Ok(name) => PeekState::Found(name),
                Err(objection) => PeekState::Refused(objection),
            },
            Ok(HelloBytes::Part) if queue.len() >= LONGEST => {
                PeekState::Refused(PeekError::TooLong)
            }
            Ok(HelloBytes::Part) => PeekState::NeedMore,
            Err(objection) => PeekState::Refused(objection),
        }
    }

    fn gather(&mut self, queue: &[u8]) -> Result<HelloBytes, PeekError> {
        loop {
            if self.is_whole()? {
                return Ok(HelloBytes::Whole);
            }
            let new = queue.get(self.scanned..).unwrap_or_default();
            if self.left > 0 {
                let piece = &new[..new.len().min(self.left)];
                if piece.is_empty() {
                    return Ok(HelloBytes::Part);
                }
                self.message.extend(piece);
                self.scanned += piece.len();
                self.left -= piece.len();
            } else {
                let Some(header) = new.first_chunk() else { return Ok(HelloBytes::Part) };
                self.left = record(header)?;
                self.scanned += header.len();
            }
        }
    }

    /// True if the message is complete. It must end with its record: the next bytes use other keys.
    fn is_whole(&self) -> Result<bool, PeekError> {
        if self.message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(PeekError::BadHello);
        }
        let Some([_, high, middle, low]) = self.message.first_chunk() else { return Ok(false) };
        let length = 4 + u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        if length > LONGEST {
            return Err(PeekError::TooLong);
        }
        if self.message.len() > length || self.message.len() == length && self.left > 0 {
            return Err(PeekError::BadHello);
        }
        Ok(self.message.len() == length)
    }
}

enum HelloBytes {
    Part,
    Whole,
}

/// Detects a protocol other than TLS from the first bytes.
fn foreign(queue: &[u8]) -> Option<PeekError> {
    match queue {
        [] | [HANDSHAKE, ..] => None,
        // An SSL 2 hello has the highest bit of its length set, followed by the message type.
        [0x80..=0xff, _, CLIENT_HELLO, ..] => Some(PeekError::Ssl2),
        [0x80..=0xff] | [0x80..=0xff, _] => None,
        _ => Some(PeekError::NotTls),
    }
}

/// Payload length of a record.
fn record(header: &[u8; 5]) -> Result<usize, PeekError> {
    let [kind, major, _, high, low] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    match kind == HANDSHAKE && major == 3 && (1..=RECORD).contains(&length) {
        true => Ok(length),
        false => Err(PeekError::BadHello),
    }
}

fn parse(hello: &[u8]) -> Result<HostName, PeekError> {
    let extensions = extensions(ByteReader(hello)).ok_or(PeekError::BadHello)?;
    if extensions.iter().any(|(kind, _)| HIDES_A_NAME.iter().any(|hides| hides.contains(kind))) {
        return Err(PeekError::HiddenName);
    }
    let (_, list) =
        extensions.iter().find(|(kind, _)| *kind == SERVER_NAME).ok_or(PeekError::NoName)?;
    server_name(*list)
}

/// All extensions; `None` unless every byte of the hello is where it belongs.
fn extensions(mut hello: ByteReader<'_>) -> Option<Vec<(u16, ByteReader<'_>)>> {
    let _version_and_random = hello.take(2 + 32)?;
    let session = hello.prefixed_u8()?;
    let ciphers = hello.prefixed_u16()?;
    let compressions = hello.prefixed_u8()?;
    if session.0.len() > 32
        || ciphers.is_empty()
        || ciphers.0.len() % 2 == 1
        || compressions.is_empty()
    {
        return None;
    }
    let mut all = Vec::new();
    if hello.is_empty() {
        return Some(all);
    }
    let mut block = hello.prefixed_u16()?;
    while !block.is_empty() {
        all.push((block.u16()?, block.prefixed_u16()?));
    }
    // Of a duplicate, one parser could use the first and another the last.
    let mut kinds: Vec<u16> = all.iter().map(|(kind, _)| *kind).collect();
    kinds.sort_unstable();
    (hello.is_empty() && kinds.is_sorted_by(|one, next| one < next)).then_some(all)
}

fn server_name(mut extension: ByteReader<'_>) -> Result<HostName, PeekError> {
    let mut list =
        extension.prefixed_u16().filter(|_| extension.is_empty()).ok_or(PeekError::BadHello)?;
    let (kind, name) = list.u8().zip(list.prefixed_u16()).ok_or(PeekError::BadHello)?;
    if !list.is_empty() {
        return Err(PeekError::ManyNames);
    }
    if kind != 0 {
        return Err(PeekError::BadHello);
    }
    HostName::from_bytes(name.0).map_err(|_| PeekError::BadName)
}

#[cfg(test)]
mod tests;
