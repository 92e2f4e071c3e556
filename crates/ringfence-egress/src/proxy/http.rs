//! A client that speaks HTTP.

use std::net::SocketAddr;

use super::authority::ProxyAuthority;
use super::body::SingleBody;
use super::head::{self, BadHead, BodyFraming, ProxyTarget};
use super::wire::{ClientGone, ClientSocket};
use super::{PATIENCE, ProxyProtocol, ProxyRefusal, ProxyRefusalKind, ProxyRequest, ProxyShared};
use crate::relay::{RelayPair, StreamCheck};

/// Serves one request, or opens one tunnel.
pub(super) fn attend(
    desk: &ProxyShared,
    mut wire: ClientSocket,
    client: SocketAddr,
) -> Result<(), ClientGone> {
    let end = loop {
        if let Some(end) = head::end(wire.pending()) {
            break end;
        }
        if wire.pending().len() > head::LONGEST {
            return object(desk, wire, client, BadHead("the head is too long"));
        }
        wire.fill()?;
    };
    let text = wire.take(end)?;
    match head::parse(&text) {
        Err(bad) => object(desk, wire, client, bad),
        Ok(head) => match head.wanted {
            ProxyTarget::Tunnel(place) => tunnel(desk, wire, client, &place),
            ProxyTarget::Request { place, head: text } => {
                request(desk, wire, client, &place, &text, head.body)
            }
        },
    }
}

fn tunnel(
    desk: &ProxyShared,
    mut wire: ClientSocket,
    client: SocketAddr,
    place: &ProxyAuthority,
) -> Result<(), ClientGone> {
    match desk.gate.open(&wish(place, ProxyProtocol::Tunnel, client)) {
        Ok(connection) => {
            wire.prolong(PATIENCE);
            wire.say(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            let (inside, said) = wire.into_parts();
            desk.relay.carry(RelayPair {
                inside,
                outside: connection.outside,
                said,
                check: connection.check,
                ended: connection.ended,
            });
            Ok(())
        }
        Err(refusal) => refuse(wire, &refusal),
    }
}

fn request(
    desk: &ProxyShared,
    wire: ClientSocket,
    client: SocketAddr,
    place: &ProxyAuthority,
    head: &[u8],
    body: BodyFraming,
) -> Result<(), ClientGone> {
    match desk.gate.open(&wish(place, ProxyProtocol::Request, client)) {
        Ok(connection) => {
            let (inside, rest) = wire.into_parts();
            // The head was judged here; the body is let through after it, and then nothing more.
            let check: Box<dyn StreamCheck> =
                Box::new(ApprovedHead { head: head.len() as u64, body: SingleBody::new(body) });
            let said = [head, &rest].concat();
            desk.relay.carry(RelayPair {
                inside,
                outside: connection.outside,
                said,
                check: Some(check),
                ended: connection.ended,
            });
            Ok(())
        }
        Err(refusal) => refuse(wire, &refusal),
    }
}

/// Lets a head through that was judged before, then one body.
struct ApprovedHead {
    head: u64,
    body: SingleBody,
}

impl StreamCheck for ApprovedHead {
    fn look(&mut self, held: &[u8]) -> crate::relay::StreamVerdict {
        match std::mem::take(&mut self.head) {
            0 => self.body.look(held),
            head => crate::relay::StreamVerdict::Through(head),
        }
    }
}

fn wish(place: &ProxyAuthority, speech: ProxyProtocol, client: SocketAddr) -> ProxyRequest<'_> {
    ProxyRequest { host: &place.host, port: place.port, speech, client }
}

fn object(
    desk: &ProxyShared,
    wire: ClientSocket,
    client: SocketAddr,
    bad: BadHead,
) -> Result<(), ClientGone> {
    desk.gate.objected(client, bad.0);
    answer(wire, "400 Bad Request", bad.0)
}

fn refuse(wire: ClientSocket, refusal: &ProxyRefusal) -> Result<(), ClientGone> {
    let status = match refusal.kind {
        ProxyRefusalKind::Denied => "403 Forbidden",
        ProxyRefusalKind::Unreachable | ProxyRefusalKind::Refused => "502 Bad Gateway",
        ProxyRefusalKind::Late => "504 Gateway Timeout",
    };
    answer(wire, status, &refusal.sentence)
}

fn answer(wire: ClientSocket, status: &str, sentence: &str) -> Result<(), ClientGone> {
    // It is shown at terminals as it is.
    let sentence: String = sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = format!("ringfence: {sentence}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    wire.part(format!("{head}{text}").as_bytes())
}
