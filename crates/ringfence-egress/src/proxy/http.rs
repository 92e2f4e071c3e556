//! A client that speaks HTTP.

use std::net::SocketAddr;

use super::body::OneBody;
use super::head::{self, Bad, Body, Wanted};
use super::place::Place;
use super::wire::{Gone, Wire};
use super::{Desk, PATIENCE, Refusal, RefusalKind, Speech, Wish};
use crate::relay::{Check, Pair};

/// Serves one request, or opens one tunnel.
pub(super) fn attend(desk: &Desk, mut wire: Wire, client: SocketAddr) -> Result<(), Gone> {
    let end = loop {
        if let Some(end) = head::end(wire.pending()) {
            break end;
        }
        if wire.pending().len() > head::LONGEST {
            return object(desk, wire, client, Bad("the head is too long"));
        }
        wire.fill()?;
    };
    let text = wire.take(end)?;
    match head::parse(&text) {
        Err(bad) => object(desk, wire, client, bad),
        Ok(head) => match head.wanted {
            Wanted::Tunnel(place) => tunnel(desk, wire, client, &place),
            Wanted::Request { place, head: text } => {
                request(desk, wire, client, &place, &text, head.body)
            }
        },
    }
}

fn tunnel(desk: &Desk, mut wire: Wire, client: SocketAddr, place: &Place) -> Result<(), Gone> {
    match desk.gate.open(&wish(place, Speech::Tunnel, client)) {
        Ok(connection) => {
            wire.prolong(PATIENCE);
            wire.say(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            let (inside, said) = wire.into_parts();
            desk.relay.carry(Pair {
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
    desk: &Desk,
    wire: Wire,
    client: SocketAddr,
    place: &Place,
    head: &[u8],
    body: Body,
) -> Result<(), Gone> {
    match desk.gate.open(&wish(place, Speech::Request, client)) {
        Ok(connection) => {
            let (inside, rest) = wire.into_parts();
            // The head was judged here; the body is let through after it, and then nothing more.
            let check: Box<dyn Check> =
                Box::new(Judged { head: head.len() as u64, body: OneBody::new(body) });
            let said = [head, &rest].concat();
            desk.relay.carry(Pair {
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
struct Judged {
    head: u64,
    body: OneBody,
}

impl Check for Judged {
    fn look(&mut self, held: &[u8]) -> crate::relay::Verdict {
        match std::mem::take(&mut self.head) {
            0 => self.body.look(held),
            head => crate::relay::Verdict::Through(head),
        }
    }
}

fn wish(place: &Place, speech: Speech, client: SocketAddr) -> Wish<'_> {
    Wish { host: &place.host, port: place.port, speech, client }
}

fn object(desk: &Desk, wire: Wire, client: SocketAddr, bad: Bad) -> Result<(), Gone> {
    desk.gate.objected(client, bad.0);
    answer(wire, "400 Bad Request", bad.0)
}

fn refuse(wire: Wire, refusal: &Refusal) -> Result<(), Gone> {
    let status = match refusal.kind {
        RefusalKind::Denied => "403 Forbidden",
        RefusalKind::Unreachable | RefusalKind::Refused => "502 Bad Gateway",
        RefusalKind::Late => "504 Gateway Timeout",
    };
    answer(wire, status, &refusal.sentence)
}

fn answer(wire: Wire, status: &str, sentence: &str) -> Result<(), Gone> {
    // It is shown at terminals as it is.
    let sentence: String = sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = format!("ringfence: {sentence}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    wire.part(format!("{head}{text}").as_bytes())
}
