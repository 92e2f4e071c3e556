//! A client that speaks SOCKS5 (RFC 1928, RFC 1929).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::authority::ProxyAuthority;
use super::wire::{ClientGone, ClientSocket};
use super::{PATIENCE, ProxyProtocol, ProxyRefusalKind, ProxyRequest, ProxyShared};
use crate::relay::RelayPair;

/// The first byte of everything.
pub(super) const VERSION: u8 = 5;

const NO_PASSWORD: u8 = 0;
const PASSWORD: u8 = 2;
const NONE_OF_THESE: u8 = 0xff;
const CONNECT: u8 = 1;

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum SocksReply {
    Done = 0,
    Failed = 1,
    Denied = 2,
    HostUnreachable = 4,
    Refused = 5,
    /// The time to live has expired: what comes nearest to nobody answering.
    Late = 6,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

/// Opens one tunnel.
pub(super) fn attend(
    desk: &ProxyShared,
    mut wire: ClientSocket,
    client: SocketAddr,
) -> Result<(), ClientGone> {
    if !greet(&mut wire)? {
        desk.gate.objected(client, "it wants a way of SOCKS5 to say who it is that is not known");
        return wire.part(&[VERSION, NONE_OF_THESE]);
    }
    let place = match wanted(&mut wire)? {
        Ok(place) => place,
        Err(reply) => {
            desk.gate
                .objected(client, "it wants something of SOCKS5 other than to connect to a host");
            return wire.part(&answer(reply));
        }
    };
    match desk.gate.open(&ProxyRequest {
        host: &place.host,
        port: place.port,
        speech: ProxyProtocol::Tunnel,
        client,
    }) {
        Ok(connection) => {
            wire.prolong(PATIENCE);
            wire.say(&answer(SocksReply::Done))?;
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
        Err(refusal) => wire.part(&answer(match refusal.kind {
            ProxyRefusalKind::Denied => SocksReply::Denied,
            ProxyRefusalKind::Unreachable => SocksReply::HostUnreachable,
            ProxyRefusalKind::Refused => SocksReply::Refused,
            ProxyRefusalKind::Late => SocksReply::Late,
        })),
    }
}

/// Agrees on how the client says who it is: nobody wants to know, but some clients insist.
/// Whether there was a way that both know.
fn greet(wire: &mut ClientSocket) -> Result<bool, ClientGone> {
    let count = wire.take(2)?[1];
    let ways = wire.take(count.into())?;
    if ways.contains(&NO_PASSWORD) {
        wire.say(&[VERSION, NO_PASSWORD])?;
        return Ok(true);
    }
    if !ways.contains(&PASSWORD) {
        return Ok(false);
    }
    wire.say(&[VERSION, PASSWORD])?;
    let [version, name] = wire.take(2)?[..] else { return Err(ClientGone) };
    if version != 1 {
        return Err(ClientGone);
    }
    wire.take(name.into())?;
    let password = wire.take(1)?[0];
    wire.take(password.into())?;
    wire.say(&[1, 0])?;
    Ok(true)
}

/// Where the client wants to go.
fn wanted(wire: &mut ClientSocket) -> Result<Result<ProxyAuthority, SocksReply>, ClientGone> {
    let [version, command, _, kind] = wire.take(4)?[..] else { return Err(ClientGone) };
    if version != VERSION {
        return Ok(Err(SocksReply::Failed));
    }
    let host = match kind {
        1 => wire.take(4)?,
        4 => wire.take(16)?,
        3 => {
            let length = wire.take(1)?[0];
            wire.take(length.into())?
        }
        _ => return Ok(Err(SocksReply::NoSuchAddress)),
    };
    let port = wire.take(2)?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    if command != CONNECT {
        return Ok(Err(SocksReply::NoSuchCommand));
    }
    let place = if let (1, Ok(address)) = (kind, <[u8; 4]>::try_from(host.as_slice())) {
        ProxyAuthority::of_v4(Ipv4Addr::from(address), port)
    } else if let (4, Ok(address)) = (kind, <[u8; 16]>::try_from(host.as_slice())) {
        ProxyAuthority::of_v6(Ipv6Addr::from(address), port)
    } else {
        ProxyAuthority::new(&host, port)
    };
    Ok(place.ok_or(SocksReply::Failed))
}

/// An answer. The address that we speak from is nobody's business inside.
fn answer(reply: SocksReply) -> [u8; 10] {
    [VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}
