//! Servers on this host, for as long as the bench runs.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;

/// The number of bytes sent per download.
pub(crate) const POURED: u64 = 1 << 30;

/// The ports of the servers.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    /// Accepts every connection and sends nothing.
    pub(super) greets: u16,
    /// Echoes each byte.
    pub(super) answers: u16,
    /// Sends [`POURED`] bytes to every client.
    pub(super) pours: u16,
}

/// Starts the servers, once.
pub(super) fn ports() -> io::Result<Ports> {
    static PORTS: OnceLock<Ports> = OnceLock::new();
    if let Some(ports) = PORTS.get() {
        return Ok(*ports);
    }
    let ports = Ports { greets: serve(drop)?, answers: serve(answer)?, pours: serve(pour)? };
    Ok(*PORTS.get_or_init(|| ports))
}

fn serve(each: fn(TcpStream)) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // Many clients may connect at once, and a full queue delays them for a second.
    rustix::net::listen(&listener, 1024)?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        listener.incoming().flatten().for_each(each);
    });
    Ok(port)
}

fn answer(mut stream: TcpStream) {
    let answers = move || {
        let mut byte = [0];
        while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
    };
    // Without a thread the client gets no response, and its sample fails.
    let _ = thread::Builder::new().stack_size(64 * 1024).spawn(answers);
}

fn pour(stream: TcpStream) {
    thread::spawn(move || pour_into(stream));
}

fn pour_into(mut stream: TcpStream) {
    const PIECE: u64 = 256 * 1024;
    let piece = vec![7; PIECE as usize];
    for _ in 0..POURED / PIECE {
        if stream.write_all(&piece).is_err() {
            return;
        }
    }
}
