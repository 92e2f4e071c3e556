use std::io::Write;
use std::net::Shutdown;

use super::{A, AAAA, HTTPS, NamesFixture, framed, question};

#[test]
fn both_address_types_by_one_socket() {
    let fixture = NamesFixture::new();
    let client = fixture.datagrams();
    client.send(&question(1, "a.open", A));
    client.send(&question(2, "a.open", AAAA));
    let mut heard = [client.receive(), client.receive()];
    heard.sort();
    assert_eq!(heard, ["1 ok 198.18.0.16", "2 ok fd72:696e:6766:6e63::10"]);
    assert_eq!(client.ask(&question(3, "A.Open", A)), "3 ok 198.18.0.16");
    assert_eq!(client.ask(&question(4, "b.open", A)), "4 ok 198.18.0.17");
    assert_eq!(client.ask(&question(5, "b.open", HTTPS)), "5 ok");
}

#[test]
fn denied_lookup_is_reported_once() {
    let fixture = NamesFixture::new();
    let client = fixture.datagrams();
    for (id, name, kind) in [
        (1, "a.shut", A),
        (2, "a.shut", AAAA),
        (3, "a.shut.corp.test", A),
        (4, "a.shut.corp.test", AAAA),
    ] {
        assert_eq!(client.ask(&question(id, name, kind)), format!("{id} nxdomain"));
    }
    assert_eq!(fixture.refused(), ["a.shut Shut"]);
    client.ask(&question(5, "a.shut", A));
    assert_eq!(fixture.refused(), ["a.shut Shut", "a.shut Shut"]);
}

#[test]
fn stream_queries_are_answered_in_any_split() {
    let fixture = NamesFixture::new();
    let mut client = fixture.stream();
    client
        .0
        .write_all(&[framed(&question(1, "a.open", A)), framed(&question(2, "a.shut", A))].concat())
        .unwrap();
    assert_eq!([client.receive(), client.receive()], ["1 ok 198.18.0.16", "2 nxdomain"]);
    client.0.set_nodelay(true).unwrap();
    for byte in framed(&question(3, "a.open", AAAA)) {
        client.0.write_all(&[byte]).unwrap();
    }
    assert_eq!(client.receive(), "3 ok fd72:696e:6766:6e63::10");
    // A client that has closed its sending side still gets the answer, and then the end.
    client.send(&question(4, "localhost", A));
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.receive(), "4 ok 127.0.0.1");
    client.ends();
}

#[test]
fn malformed_queries_do_not_stop_the_server() {
    let fixture = NamesFixture::new();
    let client = fixture.datagrams();
    client.send(b"");
    client.send(b"short");
    let mut answer = question(1, "a.open", A);
    answer[2] |= 0x80;
    client.send(&answer);
    client.send(&vec![0; 60_000]);
    // Only the last of them has a header that can be answered.
    assert_eq!(client.receive(), "0 formerr");
    let mut update = question(2, "a.open", A);
    update[2] = 0x28;
    assert_eq!(client.ask(&update), "2 notimp");
    let mut two = question(3, "a.open", A);
    two[5] = 2;
    assert_eq!(client.ask(&two), "3 formerr");
    assert_eq!(client.ask(&question(4, "a.open", A)), "4 ok 198.18.0.16");

    let mut long = fixture.stream();
    long.0.write_all(&[0xff; 64]).unwrap();
    long.ends();
    let mut cut = fixture.stream();
    cut.0.write_all(&framed(&question(5, "a.open", A))[..9]).unwrap();
    cut.0.shutdown(Shutdown::Write).unwrap();
    cut.ends();
    let mut whole = fixture.stream();
    whole.send(&question(6, "a.open", A));
    assert_eq!(whole.receive(), "6 ok 198.18.0.16");
}

#[test]
fn dropped_server_closes_its_port() {
    let fixture = NamesFixture::new();
    let (datagrams, mut stream) = (fixture.datagrams(), fixture.stream());
    stream.send(&question(1, "a.open", A));
    stream.receive();
    drop(fixture.server);
    stream.ends();
    // The port is closed, which the kernel reports after the first datagram.
    let _ = datagrams.0.send(&question(2, "a.open", A));
    assert_eq!(
        datagrams.0.recv(&mut [0; 512]).unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}
