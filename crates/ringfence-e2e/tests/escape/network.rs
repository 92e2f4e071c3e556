//! Sockets that could reach past the network namespace.

use ringfence_testkit::each_user;

use crate::project;

/// Promise: network-shut
#[test]
fn rare_socket_families_are_refused() {
    each_user(|user| {
        let project = project(user);
        for family in [3, 4, 5, 9, 11, 15, 17, 21, 29, 30, 31, 38, 39, 40, 41, 42, 43, 44, 45] {
            project
                .tries(&format!("call('socket', {family}, 2, 0)"))
                .inside(&["EAFNOSUPPORT", "EPERM"]);
        }
        for kind in [1, 3, 5] {
            project
                .tries(&format!("call('socket', 40, {kind}, 0)"))
                .inside(&["EAFNOSUPPORT", "EPERM"]);
            project
                .tries(&format!("call('socket', 38, {kind}, 0)"))
                .inside(&["EAFNOSUPPORT", "EPERM"]);
        }
        // With a bit that the kernel ignores.
        project.tries("call('socket', 0x100000028, 1, 0)").inside(&["EAFNOSUPPORT", "EPERM"]);
        project.tries("socket.socketpair(40, 1)").inside(&["EAFNOSUPPORT", "EPERM", "EOPNOTSUPP"]);
    });
}

#[test]
fn raw_sockets_are_refused() {
    each_user(|user| {
        let project = project(user);
        for net in [&["--net", "none"][..], &["--net", "full"]] {
            project
                .tries("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)")
                .with(net)
                .inside(&["EPERM"])
                .bare_ok_as_root();
            project
                .tries("socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)")
                .with(net)
                .inside(&["EPERM", "EAFNOSUPPORT"]);
            project
                .tries("socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768)")
                .with(net)
                .inside(&["EPERM", "EAFNOSUPPORT"])
                .bare_ok_as_root();
            project.tries("call('socket', 2, 10, 768)").with(net).inside(&[
                "EPERM",
                "ESOCKTNOSUPPORT",
                "EINVAL",
            ]);
        }
    });
}

#[test]
fn routes_and_addresses_cannot_be_changed() {
    each_user(|user| {
        let project = project(user);
        let code = "
def ask(kind, body, flags=5):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.send(struct.pack('IHHII', 16 + len(body), kind, flags | 0x400, 1, 0) + body)
    answer = s.recv(4096)
    return errno.errorcode.get(-struct.unpack('i', answer[16:20])[0], 'ok')
print(ask(24, struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 4, 0, 1, 0)))
print(ask(20, struct.pack('BBBBI', 2, 8, 0, 0, 1) + struct.pack('HH4s', 8, 2, bytes([10, 9, 8, 7]))))
print(ask(16, struct.pack('BxHiII', 0, 0, 1, 0, 1)))
";
        for flags in [&["--net", "none"][..], &["--net", "full"]] {
            let program = format!("{}\n{code}", ringfence_testkit::PRELUDE);
            let ran = project.run(flags.iter().copied().chain([
                "--",
                ringfence_testkit::python().expect("python3"),
                "-Bc",
                &program,
            ]));
            assert_eq!(ran.ok(), "EPERM\nEPERM\nEPERM", "{flags:?}");
        }
        for family in [1, 4, 6, 9, 12, 15, 16, 21] {
            project
                .tries(&format!("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, {family})"))
                .inside(&["EPERM", "EPROTONOSUPPORT"]);
        }
        // Reading is allowed: many programs list the interfaces.
        project.tries("socket.if_nameindex()").inside(&["ok"]);
    });
}

/// Promise: network-shut
#[test]
fn host_listeners_get_nothing_from_inside() {
    each_user(|user| {
        let project = project(user);
        let listener = std::net::TcpListener::bind("0.0.0.0:0").expect("the host has a network");
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("the host has a loopback");
        listener.set_nonblocking(true).expect("a listener need not wait");
        datagrams.set_nonblocking(true).expect("a socket need not wait");
        let (tcp, udp) = (
            listener.local_addr().expect("bound").port(),
            datagrams.local_addr().expect("bound").port(),
        );
        let code = format!(
            "
for address in ['127.0.0.1', '0.0.0.0', '127.1', '::1', '::ffff:127.0.0.1', 'localhost', '169.254.169.254']:
    for port in [{tcp}, {udp}]:
        outcome(lambda: socket.create_connection((address, port), 0.3))
        outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', port)))
print('over')"
        );
        project.python(&code).ok();
        assert!(
            listener.accept().is_err() && datagrams.recv(&mut [0; 8]).is_err(),
            "a connection or datagram came through"
        );
        project.python_bare(&code).ok();
        assert!(
            listener.accept().is_ok() && datagrams.recv(&mut [0; 8]).is_ok(),
            "the probe cannot succeed"
        );
    });
}
