//! The two loopbacks: the sandbox's own, and the host's.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ringfence_egress::dial::{DialHost, DialPatience, connect_copy};
use ringfence_enforce::apply::PendingConnect;
use rustix::fs::OFlags;
use rustix::net::sockopt::Timeout;

use super::dial_goal::DialGoal;
use super::gate::EgressCaller;
use super::{EgressServer, socket_state};

impl EgressServer {
    /// Connects a program to its own loopback, or to the host's where that is open.
    pub(super) fn loopback(&self, program: PendingConnect, port: u16) {
        let passage = self.gate.hosts_loopback(program.to().ip().to_canonical(), port);
        if passage.is_open() {
            if let Some(number) = socket_state::refusal(program.socket()) {
                return program.fail(number);
            }
            let host = if program.to().is_ipv6() && !program.to().ip().to_canonical().is_ipv4() {
                IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])
            } else {
                IpAddr::from([127, 0, 0, 1])
            };
            let (host, caller) = (DialHost::Address(host), EgressCaller::of(&program));
            let goal = DialGoal {
                host,
                port,
                judge: &|_| Ok(()),
                caller,
                passage: &passage,
                sealing: None,
            };
            return self.hand_over(program, &goal);
        }
        // Its own socket, in its own network. If only the host serves that port, it is likely that
        // the host was meant.
        let Some(came) = connect(&program) else { return };
        if is_nobody_here(&came, program.socket()) && is_served_outside(port) {
            self.gate.refuse(&passage, &EgressCaller::of(&program));
        }
        match came {
            Ok(()) => drop(program.done()),
            Err(error) => program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// Connects a program's own socket in its own network.
pub(super) fn within(program: PendingConnect) {
    match connect(&program) {
        Some(Ok(())) => drop(program.done()),
        Some(Err(error)) => program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        None => {}
    }
}

/// The same, and how it ended; `None` if the program has stopped waiting for that.
fn connect(program: &PendingConnect) -> Option<io::Result<()>> {
    let (socket, to) = (program.socket(), program.to());
    let is_patient =
        rustix::fs::fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    if !is_patient {
        return Some(rustix::net::connect(socket, &to).map_err(Into::into));
    }
    let limit = rustix::net::sockopt::socket_timeout(socket, Timeout::Send).ok().flatten();
    // By itself the kernel tries for some two minutes.
    let end = Instant::now() + limit.unwrap_or(Duration::from_secs(3600));
    let came = connect_copy(socket, to, &DialPatience::new(end, &|| program.is_waiting()));
    program.is_waiting().then_some(came)
}

/// Whether nobody in the sandbox was there to be connected to. On a loopback that is known at
/// once, for a socket that does not wait as well.
fn is_nobody_here(came: &io::Result<()>, socket: BorrowedFd<'_>) -> bool {
    match came.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(libc::ECONNREFUSED) => true,
        Some(libc::EINPROGRESS) => rustix::net::getpeername(socket).is_err(),
        _ => false,
    }
}

/// Whether somebody listens on the host's loopback. The kernel's table is read: to connect would
/// be noticed by the very one who is not to be reached.
fn is_served_outside(port: u16) -> bool {
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .any(|table| table.lines().any(|line| listens(line, port)))
}

/// `0: 0100007F:1F90 00000000:0000 0A …`: the address in the machine's own words, the port, the
/// other end, and the state, of which the tenth is to listen.
fn listens(line: &str, port: u16) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    let [_, local, _, "0A"] = words[..] else { return false };
    let Some((address, its_port)) = local.split_once(':') else { return false };
    let is_reached =
        |address: IpAddr| address.is_unspecified() || address.to_canonical().is_loopback();
    u16::from_str_radix(its_port, 16) == Ok(port) && read(address).is_some_and(is_reached)
}

fn read(address: &str) -> Option<IpAddr> {
    let words = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let bytes: Vec<u8> =
        words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let v4 = <[u8; 4]>::try_from(bytes.as_slice()).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes.as_slice()).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn check(line: &str, port: u16, expected: bool) {
        assert_eq!(listens(line, port), expected, "{line}");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn lines_of_the_table_are_understood() {
        check("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000", 8080, true);
        check("   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000", 8080, true);
        check(
            "   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A",
            8080,
            true,
        );
        check(
            "   0: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000000000000:0000 0A",
            8080,
            true,
        );
        // Another port, another address, and a connection.
        check("   0: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000", 8080, false);
        check("   0: 0101A8C0:1F90 00000000:0000 0A 00000000:00000000 00:00000000", 8080, false);
        check("   0: 0100007F:1F90 0100007F:AAAA 01 00000000:00000000 00:00000000", 8080, false);
        check("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when", 8080, false);
        check("", 0, false);
    }

    #[test]
    fn a_listener_is_found_and_a_connection_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_served_outside(port));
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(!is_served_outside(client.local_addr().unwrap().port()));
        drop(listener);
        assert!(!is_served_outside(port));
    }
}
