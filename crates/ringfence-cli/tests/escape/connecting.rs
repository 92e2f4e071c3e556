//! A connection of the host's network is used for something else.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::thread;

use ringfence_testkit::{Ran, compiled, each_user};

use crate::project;

const CONNECTING: &str = include_str!("connecting.c");
const TRIES: &str = "4000";

#[test]
fn a_socket_of_the_hosts_is_connected_to_another_port() {
    each_user(|user| {
        let project = project(user);
        let Some(_) = compiled(&project, "attack", CONNECTING) else { return };
        let (listed, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
        let (at, wanted, flag) = (port(&listed), port(&other), format!("--allow-localhost={}", port(&listed)));
        other.set_nonblocking(true).unwrap();
        // Those who come are kept, so that nothing ends by itself.
        thread::spawn(move || listed.incoming().collect::<Vec<_>>());
        let words = ["run", &flag, "--", "./attack", &at, &wanted, TRIES];
        assert_eq!(Ran::of(project.ringfence().args(words), b"").ok(), "tried often");
        assert_eq!(other.accept().map(drop).unwrap_err().kind(), ErrorKind::WouldBlock, "nobody came");
    });
}
