//! A SOCKS5 client of the proxy (RFC 1928, RFC 1929).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::authority::ProxyAuthority;
use super::wire::{ClientGone, ClientSocket};
use super::{PATIENCE, ProxyProtocol, ProxyRefusalKind, ProxyRequest, ProxyShared};
use crate::relay::RelayPair;

/// Protocol version, the first byte of every message.
pub(super) const VERSION: u8 = 5;

const NO_PASSWORD: u8 = 0;
const PASSWORD: u8 = 2;
const NONE_OF_THESE: u8 = 0xff;
const CONNECT: u8 = 1;

/// Reply code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum SocksReply {
    Done = 0,
    Failed = 1,
    Denied = 2,
    HostUnreachable = 4,
    Refused = 5,
    /// TTL expired: the code closest to a timeout.
    Late = 6,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

/// Opens one tunnel.
pub(super) fn serve(
    shared: &ProxyShared,
    mut wire: ClientSocket,
    client: SocketAddr,
) -> Result<(), ClientGone> {
    if !negotiate_auth(&mut wire)? {
        shared.gate.report_malformed(client, "it offers no supported SOCKS5 authentication method");
        return wire.finish(&[VERSION, NONE_OF_THESE]);
    }
    let place = match read_destination(&mut wire)? {
        Ok(place) => place,
        Err(reply) => {
            shared.gate.report_malformed(client, "its SOCKS5 request is not a valid CONNECT");
            return wire.finish(&answer(reply));
        }
    };
    match shared.gate.open(&ProxyRequest {
        host: &place.host,
        port: place.port,
        protocol: ProxyProtocol::Tunnel,
        client,
    }) {
        Ok(connection) => {
            wire.extend_deadline(PATIENCE);
            wire.send_all(&answer(SocksReply::Done))?;
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
        Err(refusal) => wire.finish(&answer(match refusal.kind {
            ProxyRefusalKind::Denied => SocksReply::Denied,
            ProxyRefusalKind::Unreachable => SocksReply::HostUnreachable,
            ProxyRefusalKind::Refused => SocksReply::Refused,
            ProxyRefusalKind::Late => SocksReply::Late,
        })),
    }
}

/// Negotiates the authentication method; any credentials are accepted, since some clients insist on
/// sending them. False if there is no common method.
fn negotiate_auth(wire: &mut ClientSocket) -> Result<bool, ClientGone> {
    let count = wire.take(2)?[1];
    let methods = wire.take(count.into())?;
    if methods.contains(&NO_PASSWORD) {
        wire.send_all(&[VERSION, NO_PASSWORD])?;
        return Ok(true);
    }
    if !methods.contains(&PASSWORD) {
        return Ok(false);
    }
    wire.send_all(&[VERSION, PASSWORD])?;
    let [version, name] = wire.take(2)?[..] else { return Err(ClientGone) };
    if version != 1 {
        return Err(ClientGone);
    }
    wire.take(name.into())?;
    let password = wire.take(1)?[0];
    wire.take(password.into())?;
    wire.send_all(&[1, 0])?;
    Ok(true)
}

/// Reads the requested destination.
fn read_destination(
    wire: &mut ClientSocket,
) -> Result<Result<ProxyAuthority, SocksReply>, ClientGone> {
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
        ProxyAuthority::from_v4(Ipv4Addr::from(address), port)
    } else if let (4, Ok(address)) = (kind, <[u8; 16]>::try_from(host.as_slice())) {
        ProxyAuthority::from_v6(Ipv6Addr::from(address), port)
    } else {
        ProxyAuthority::new(&host, port)
    };
    Ok(place.ok_or(SocksReply::Failed))
}

/// A reply. The address is zero, so that the outside address stays hidden.
fn answer(reply: SocksReply) -> [u8; 10] {
    [VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}
