use std::io::{ErrorKind, Write};
use std::time::Duration;

use super::{A, NamesFixture, framed, question};

#[test]
fn silent_clients_are_replaced() {
    let fixture = NamesFixture::new();
    let mut silent: Vec<_> = (0..100).map(|_| fixture.stream()).collect();
    for stream in &mut silent {
        // Half a query; the server may have closed it already.
        let _ = stream.0.write_all(&[0]);
    }
    let mut late = fixture.stream();
    late.send(&question(1, "a.open", A));
    assert_eq!(late.receive(), "1 ok 198.18.0.16");
    silent[0].ends();
    assert_eq!(fixture.datagrams().ask(&question(2, "a.open", A)), "2 ok 198.18.0.16");
}

#[test]
fn client_that_takes_no_answers_is_not_read() {
    let fixture = NamesFixture::new();
    let mut unread = fixture.stream();
    unread.0.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let one = framed(&question(1, "a.open", A));
    let many = one.repeat(1000);
    // The kernel buffers some; then the server stops reading.
    let mut sent = 0;
    let stopped = loop {
        assert!(sent < 100 << 20, "it went on reading");
        match unread.0.write(&many[sent % one.len()..]) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
    };
    assert_eq!(stopped.kind(), ErrorKind::WouldBlock);
    let mut other = fixture.stream();
    other.send(&question(2, "a.open", A));
    assert_eq!(other.receive(), "2 ok 198.18.0.16");
    // Once it takes its answers it gets all of them.
    for _ in 0..sent / one.len() {
        assert_eq!(unread.receive(), "1 ok 198.18.0.16");
    }
}

#[test]
fn server_survives_a_flood() {
    let fixture = NamesFixture::new();
    let flood = fixture.datagrams();
    for number in 0..20_000_u32 {
        // The kernel drops datagrams that do not fit.
        let _ = flood.0.send(&question(number as u16, &format!("n{number}.shut"), A));
        let _ = flood.0.send(&number.to_be_bytes().repeat(number as usize % 300));
    }
    let mut client = fixture.stream();
    client.send(&question(1, "a.open", A));
    assert_eq!(client.receive(), "1 ok 198.18.0.16");
}
