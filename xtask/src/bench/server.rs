//! Somebody on this machine to be connected to, as long as the bench runs.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;

/// How much is sent to whoever asks for it.
pub(crate) const POURED: u64 = 1 << 30;

/// Where they are.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    /// Who takes everybody and says nothing.
    pub(super) greets: u16,
    /// Who sends [`POURED`] bytes to everybody.
    pub(super) pours: u16,
}

/// Starts them, once.
pub(super) fn ports() -> io::Result<Ports> {
    static PORTS: OnceLock<Ports> = OnceLock::new();
    if let Some(ports) = PORTS.get() {
        return Ok(*ports);
    }
    let ports = Ports { greets: serve(drop)?, pours: serve(pour)? };
    Ok(*PORTS.get_or_init(|| ports))
}

fn serve(each: fn(TcpStream)) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        listener.incoming().flatten().for_each(each);
    });
    Ok(port)
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
