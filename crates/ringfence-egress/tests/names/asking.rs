use std::io::Write;
use std::net::Shutdown;

use super::{A, AAAA, HTTPS, Place, framed, question};

#[test]
fn both_kinds_at_once_by_one_socket() {
    let place = Place::new();
    let client = place.datagrams();
    client.put(&question(1, "a.open", A));
    client.put(&question(2, "a.open", AAAA));
    let mut heard = [client.hear(), client.hear()];
    heard.sort();
    assert_eq!(heard, ["1 ok 198.18.0.16", "2 ok fd72:696e:6766:6e63::10"]);
    assert_eq!(client.ask(&question(3, "A.Open", A)), "3 ok 198.18.0.16");
    assert_eq!(client.ask(&question(4, "b.open", A)), "4 ok 198.18.0.17");
    assert_eq!(client.ask(&question(5, "b.open", HTTPS)), "5 ok");
}

#[test]
fn a_refused_lookup_is_told_of_once() {
    let place = Place::new();
    let client = place.datagrams();
    for (id, name, kind) in [
        (1, "a.shut", A),
        (2, "a.shut", AAAA),
        (3, "a.shut.corp.test", A),
        (4, "a.shut.corp.test", AAAA),
    ] {
        assert_eq!(client.ask(&question(id, name, kind)), format!("{id} nxdomain"));
    }
    assert_eq!(place.refused(), ["a.shut Shut"]);
    client.ask(&question(5, "a.shut", A));
    assert_eq!(place.refused(), ["a.shut Shut", "a.shut Shut"]);
}

#[test]
fn questions_come_by_a_stream_in_any_pieces() {
    let place = Place::new();
    let mut client = place.stream();
    client
        .0
        .write_all(&[framed(&question(1, "a.open", A)), framed(&question(2, "a.shut", A))].concat())
        .unwrap();
    assert_eq!([client.hear(), client.hear()], ["1 ok 198.18.0.16", "2 nxdomain"]);
    client.0.set_nodelay(true).unwrap();
    for byte in framed(&question(3, "a.open", AAAA)) {
        client.0.write_all(&[byte]).unwrap();
    }
    assert_eq!(client.hear(), "3 ok fd72:696e:6766:6e63::10");
    // Whoever has no more to say still hears the answer, and then the end.
    client.put(&question(4, "localhost", A));
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.hear(), "4 ok 127.0.0.1");
    client.ends();
}

#[test]
fn what_makes_no_sense_is_answered_or_ignored_and_ends_nothing() {
    let place = Place::new();
    let client = place.datagrams();
    client.put(b"");
    client.put(b"short");
    let mut answer = question(1, "a.open", A);
    answer[2] |= 0x80;
    client.put(&answer);
    client.put(&vec![0; 60_000]);
    // Only the last of them has a head that can be answered.
    assert_eq!(client.hear(), "0 formerr");
    let mut update = question(2, "a.open", A);
    update[2] = 0x28;
    assert_eq!(client.ask(&update), "2 notimp");
    let mut two = question(3, "a.open", A);
    two[5] = 2;
    assert_eq!(client.ask(&two), "3 formerr");
    assert_eq!(client.ask(&question(4, "a.open", A)), "4 ok 198.18.0.16");

    let mut long = place.stream();
    long.0.write_all(&[0xff; 64]).unwrap();
    long.ends();
    let mut cut = place.stream();
    cut.0.write_all(&framed(&question(5, "a.open", A))[..9]).unwrap();
    cut.0.shutdown(Shutdown::Write).unwrap();
    cut.ends();
    let mut whole = place.stream();
    whole.put(&question(6, "a.open", A));
    assert_eq!(whole.hear(), "6 ok 198.18.0.16");
}

#[test]
fn dropping_the_server_ends_it() {
    let place = Place::new();
    let (datagrams, mut stream) = (place.datagrams(), place.stream());
    stream.put(&question(1, "a.open", A));
    stream.hear();
    drop(place.server);
    stream.ends();
    // Nobody has the port any more, which the kernel tells of the first datagram.
    let _ = datagrams.0.send(&question(2, "a.open", A));
    assert_eq!(
        datagrams.0.recv(&mut [0; 512]).unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}
