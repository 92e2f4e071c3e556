use std::io::{ErrorKind, Write};
use std::time::Duration;

use super::{A, Place, framed, question};

#[test]
fn those_who_say_nothing_make_room() {
    let place = Place::new();
    let mut silent: Vec<_> = (0..100).map(|_| place.stream()).collect();
    for stream in &mut silent {
        // Half a question; the server may have let it go already.
        let _ = stream.0.write_all(&[0]);
    }
    let mut late = place.stream();
    late.put(&question(1, "a.open", A));
    assert_eq!(late.hear(), "1 ok 198.18.0.16");
    silent[0].ends();
    assert_eq!(place.datagrams().ask(&question(2, "a.open", A)), "2 ok 198.18.0.16");
}

#[test]
fn whoever_takes_no_answers_is_not_heard_any_more() {
    let place = Place::new();
    let mut deaf = place.stream();
    deaf.0.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let one = framed(&question(1, "a.open", A));
    let many = one.repeat(1000);
    // What fits between the two ends is the kernel's; then it stops.
    let mut sent = 0;
    let stopped = loop {
        assert!(sent < 100 << 20, "it went on reading");
        match deaf.0.write(&many[sent % one.len()..]) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
    };
    assert_eq!(stopped.kind(), ErrorKind::WouldBlock);
    let mut other = place.stream();
    other.put(&question(2, "a.open", A));
    assert_eq!(other.hear(), "2 ok 198.18.0.16");
    // Once it takes its answers it gets all of them.
    for _ in 0..sent / one.len() {
        assert_eq!(deaf.hear(), "1 ok 198.18.0.16");
    }
}

#[test]
fn a_flood_is_outlived() {
    let place = Place::new();
    let flood = place.datagrams();
    for number in 0..20_000_u32 {
        // The kernel drops what does not fit.
        let _ = flood.0.send(&question(number as u16, &format!("n{number}.shut"), A));
        let _ = flood.0.send(&number.to_be_bytes().repeat(number as usize % 300));
    }
    let mut client = place.stream();
    client.put(&question(1, "a.open", A));
    assert_eq!(client.hear(), "1 ok 198.18.0.16");
}
