//! The name in a TLS ClientHello (RFC 8446, and RFC 6066 for the name).
//!
//! Whoever offers ECH (RFC 9849) is refused, also where the name that can be read is the right
//! one: the hello has a second one inside, with a name that only the server can read, and a server
//! that fronts many hosts goes by that. Browsers offer it always, with random bytes in it where
//! they have no key (GREASE), and these are made to look the same as a real one: no reader can tell
//! them apart, so a browser whose offers cannot be turned off needs `sni = "off"` for the host.
//! Nobody gets a key from our name server, which has no `HTTPS` records.
//!
//! What is said later cannot be seen: the requests inside TLS, a second hello after a
//! HelloRetryRequest, one more within a session of TLS 1.2. A server that goes by those and not by
//! the first hello can be asked for another host.

use super::{LONGEST, PeekError, PeekState};
use crate::byte_reader::ByteReader;
use ringfence_policy::HostName;

/// Kinds of record and message.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The most that a record holds.
const RECORD: usize = 1 << 14;
/// Kinds of extension.
const SERVER_NAME: u16 = 0;
/// Encrypted ClientHello with its drafts, and the encrypted name that was before it.
const HIDES_A_NAME: [std::ops::RangeInclusive<u16>; 2] = [0xfe08..=0xfe0d, 0xffce..=0xffce];

/// Reads one ClientHello, in however many records it comes.
#[derive(Debug, Default)]
pub struct ClientHelloReader {
    /// How much of the queue has been looked at.
    scanned: usize,
    /// How much of the record is left.
    left: usize,
    /// The message, without the records around it.
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

    /// A hello has its last record for itself: what follows it is said with other keys.
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

/// What can be seen of the first bytes to be something else.
fn foreign(queue: &[u8]) -> Option<PeekError> {
    match queue {
        [] | [HANDSHAKE, ..] => None,
        // The length of a hello of SSL 2 has its highest bit set; then comes the kind of message.
        [0x80..=0xff, _, CLIENT_HELLO, ..] => Some(PeekError::Ssl2),
        [0x80..=0xff] | [0x80..=0xff, _] => None,
        _ => Some(PeekError::NotTls),
    }
}

/// How much a record holds.
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

/// All of them; nothing unless every byte of the hello is where it belongs.
fn extensions(mut hello: ByteReader<'_>) -> Option<Vec<(u16, ByteReader<'_>)>> {
    let _version_and_random = hello.take(2 + 32)?;
    let session = hello.short()?;
    let ciphers = hello.long()?;
    let compressions = hello.short()?;
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
    let mut block = hello.long()?;
    while !block.is_empty() {
        all.push((block.u16()?, block.long()?));
    }
    // The same one twice could be read by its first or by its last.
    let mut kinds: Vec<u16> = all.iter().map(|(kind, _)| *kind).collect();
    kinds.sort_unstable();
    (hello.is_empty() && kinds.is_sorted_by(|one, next| one < next)).then_some(all)
}

fn server_name(mut extension: ByteReader<'_>) -> Result<HostName, PeekError> {
    let mut list = extension.long().filter(|_| extension.is_empty()).ok_or(PeekError::BadHello)?;
    let (kind, name) = list.u8().zip(list.long()).ok_or(PeekError::BadHello)?;
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
