//! An HTTP client of the proxy.

use std::net::SocketAddr;

use super::authority::ProxyAuthority;
use super::body::SingleBody;
use super::head::{self, BadHead, BodyFraming, ProxyTarget};
use super::wire::{ClientGone, ClientSocket};
use super::{PATIENCE, ProxyProtocol, ProxyRefusal, ProxyRefusalKind, ProxyRequest, ProxyShared};
use crate::relay::{RelayPair, StreamCheck};

/// Serves one request, or opens one tunnel.
pub(super) fn serve(
    shared: &ProxyShared,
    mut wire: ClientSocket,
    client: SocketAddr,
) -> Result<(), ClientGone> {
    let end = loop {
        if let Some(end) = head::find_end(wire.pending()) {
            break end;
        }
        if wire.pending().len() > head::LONGEST {
            return reject(shared, wire, client, BadHead("the head is too long"));
        }
        wire.fill()?;
    };
    let text = wire.take(end)?;
    match head::parse(&text) {
        Err(bad) => reject(shared, wire, client, bad),
        Ok(head) => match head.wanted {
            ProxyTarget::Tunnel(place) => tunnel(shared, wire, client, &place),
            ProxyTarget::Request { place, head: text } => {
                request(shared, wire, client, &place, &text, head.body)
            }
        },
    }
}

fn tunnel(
    shared: &ProxyShared,
    mut wire: ClientSocket,
    client: SocketAddr,
    place: &ProxyAuthority,
) -> Result<(), ClientGone> {
    match shared.gate.open(&proxy_request(place, ProxyProtocol::Tunnel, client)) {
        Ok(connection) => {
            wire.extend_deadline(PATIENCE);
            wire.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            let (inside, early) = wire.into_parts();
            shared.relay.relay(RelayPair {
                inside,
                outside: connection.outside,
                early_bytes: early,
                check: connection.check,
                on_end: connection.on_end,
            });
            Ok(())
        }
        Err(refusal) => refuse(wire, &refusal),
    }
}

fn request(
    shared: &ProxyShared,
    wire: ClientSocket,
    client: SocketAddr,
    place: &ProxyAuthority,
    head: &[u8],
    body: BodyFraming,
) -> Result<(), ClientGone> {
    match shared.gate.open(&proxy_request(place, ProxyProtocol::Request, client)) {
        Ok(connection) => {
            let (inside, rest) = wire.into_parts();
            // The head is checked already; the relay lets the body through and nothing after it.
            let check: Box<dyn StreamCheck> =
                Box::new(ApprovedHead { head: head.len() as u64, body: SingleBody::new(body) });
            let early = [head, &rest].concat();
            shared.relay.relay(RelayPair {
                inside,
                outside: connection.outside,
                early_bytes: early,
                check: Some(check),
                on_end: connection.on_end,
            });
            Ok(())
        }
        Err(refusal) => refuse(wire, &refusal),
    }
}

/// Lets a checked head through, then one body.
struct ApprovedHead {
    head: u64,
    body: SingleBody,
}

impl StreamCheck for ApprovedHead {
    fn check(&mut self, held: &[u8]) -> crate::relay::StreamVerdict {
        match std::mem::take(&mut self.head) {
            0 => self.body.check(held),
            head => crate::relay::StreamVerdict::PassBytes(head),
        }
    }
}

fn proxy_request(
    place: &ProxyAuthority,
    speech: ProxyProtocol,
    client: SocketAddr,
) -> ProxyRequest<'_> {
    ProxyRequest { host: &place.host, port: place.port, protocol: speech, client }
}

fn reject(
    shared: &ProxyShared,
    wire: ClientSocket,
    client: SocketAddr,
    bad: BadHead,
) -> Result<(), ClientGone> {
    shared.gate.report_malformed(client, bad.0);
    answer(wire, "400 Bad Request", bad.0)
}

fn refuse(wire: ClientSocket, refusal: &ProxyRefusal) -> Result<(), ClientGone> {
    let status = match refusal.kind {
        ProxyRefusalKind::Denied => "403 Forbidden",
        ProxyRefusalKind::Unreachable | ProxyRefusalKind::Refused => "502 Bad Gateway",
        ProxyRefusalKind::Late => "504 Gateway Timeout",
    };
    answer(wire, status, &refusal.message)
}

fn answer(wire: ClientSocket, status: &str, message: &str) -> Result<(), ClientGone> {
    // It is shown at a terminal as it is.
    let message: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = format!("ringfence: {message}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    wire.finish(format!("{head}{text}").as_bytes())
}
