use proptest::prelude::*;

use super::super::testing::grown;
use super::*;

fn long(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), &long(data)[..]].concat()
}

fn name_entry(name: &[u8]) -> Vec<u8> {
    [&[0], &long(name)[..]].concat()
}

fn sni(entries: &[Vec<u8>]) -> Vec<u8> {
    extension(SERVER_NAME, &long(&entries.concat()))
}

fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body =
        [&[3, 3][..], &[7; 32], &[32], &[9; 32], &[0, 4, 0x13, 1, 0x13, 2], &[1, 0]].concat();
    body.extend(long(&extensions.concat()));
    let mut out = vec![CLIENT_HELLO];
    out.extend(&(body.len() as u32).to_be_bytes()[1..]);
    out.extend(body);
    out
}

/// The message in records of at most `most` bytes.
fn records(message: &[u8], most: usize) -> Vec<u8> {
    message.chunks(most).flat_map(|piece| [&[HANDSHAKE, 3, 1], &long(piece)[..]].concat()).collect()
}

fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    records(&message(extensions), RECORD)
}

fn named(name: &str) -> Vec<u8> {
    hello(&[
        extension(10, &[0, 2, 0, 29]),
        sni(&[name_entry(name.as_bytes())]),
        extension(16, b"\0\x03\x02h2"),
    ])
}

fn whole(bytes: &[u8]) -> PeekState<HostName> {
    ClientHelloReader::default().read(bytes)
}

#[track_caller]
fn check(bytes: &[u8], expect: PeekState<&str>) {
    let found = whole(bytes);
    let expect = match expect {
        PeekState::Found(name) => PeekState::Found(HostName::new(name).unwrap()),
        PeekState::Refused(objection) => PeekState::Refused(objection),
        PeekState::NeedMore => PeekState::NeedMore,
    };
    assert_eq!(found, expect);
}

#[test]
fn name_is_found_in_a_complete_hello() {
    let bytes = named("www.Example.org");
    check(&bytes, PeekState::Found("www.example.org"));
    for count in 0..bytes.len() {
        check(&bytes[..count], PeekState::NeedMore);
    }
    // Bytes that follow use other keys: early data, for one.
    check(&[&bytes[..], &[23, 3, 3, 0, 1, 0]].concat(), PeekState::Found("www.example.org"));
}

#[test]
fn hello_in_many_records_is_read() {
    let message = message(&[extension(21, &[0; 40_000]), sni(&[name_entry(b"a.example")])]);
    check(&records(&message, RECORD), PeekState::Found("a.example"));
    check(&records(&message, 100), PeekState::Found("a.example"));
    let small = self::message(&[sni(&[name_entry(b"a.example")])]);
    check(&records(&small, 1), PeekState::Found("a.example"));
}

#[test]
fn ech_is_refused_even_with_the_right_name() {
    for kind in [0xfe0d, 0xfe08, 0xffce] {
        let bytes = hello(&[sni(&[name_entry(b"a.example")]), extension(kind, &[0; 200])]);
        check(&bytes, PeekState::Refused(PeekError::HiddenName));
    }
    check(&hello(&[extension(0xfe0d, &[])]), PeekState::Refused(PeekError::HiddenName));
    // GREASE extensions mean nothing.
    check(
        &hello(&[extension(0xfafa, &[0]), sni(&[name_entry(b"a.example")])]),
        PeekState::Found("a.example"),
    );
}

#[test]
fn hello_needs_exactly_one_name() {
    check(&hello(&[]), PeekState::Refused(PeekError::NoName));
    check(&hello(&[extension(10, &[])]), PeekState::Refused(PeekError::NoName));
    let entry = name_entry(b"a.example");
    check(
        &hello(&[sni(&[entry.clone(), name_entry(b"b.example")])]),
        PeekState::Refused(PeekError::ManyNames),
    );
    check(
        &hello(&[sni(std::slice::from_ref(&entry)), sni(&[entry])]),
        PeekState::Refused(PeekError::BadHello),
    );
    for bad in [
        "",
        "127.0.0.1",
        "a\0.example",
        "a..example",
        "a.example\r\nb",
        "[::1]",
        "*.example",
        "b\u{fc}cher.example",
    ] {
        check(&named(bad), PeekState::Refused(PeekError::BadName));
    }
    check(&named("a.example."), PeekState::Found("a.example"));
}

#[test]
fn hello_without_extensions_has_no_name() {
    let body = [&[3, 0][..], &[7; 32], &[0], &[0, 2, 0, 10], &[1, 0]].concat();
    let message = [&[CLIENT_HELLO, 0, 0, body.len() as u8], &body[..]].concat();
    check(&records(&message, RECORD), PeekState::Refused(PeekError::NoName));
}

#[test]
fn other_protocols_are_refused_at_once() {
    check(b"G", PeekState::Refused(PeekError::NotTls));
    check(&[23, 3, 3], PeekState::Refused(PeekError::NotTls));
    check(&[0x80, 0x2e, 1, 0, 2], PeekState::Refused(PeekError::Ssl2));
    check(&[0x80, 0x2e], PeekState::NeedMore);
    check(&[0x80, 0x2e, 2], PeekState::Refused(PeekError::NotTls));
}

#[test]
fn malformed_hello_is_refused() {
    let bytes = named("a.example");
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    // Version, length, message type, length of the session id.
    for (at, byte) in [(1, 2), (5, 2), (43, 33)] {
        check(&changed(at, byte), PeekState::Refused(PeekError::BadHello));
    }
    check(&[HANDSHAKE, 3, 1, 0, 0], PeekState::Refused(PeekError::BadHello));
    check(&[HANDSHAKE, 3, 1, 0x40, 1], PeekState::Refused(PeekError::BadHello));
    // Data between two records, and behind the message in its last record.
    let parts = records(&message(&[sni(&[name_entry(b"a.example")])]), 60);
    check(
        &[&parts[..65], &[21, 3, 1, 0, 2, 1, 0], &parts[65..]].concat(),
        PeekState::Refused(PeekError::BadHello),
    );
    let trailing = [&message(&[sni(&[name_entry(b"a.example")])])[..], &[0]].concat();
    check(&records(&trailing, RECORD), PeekState::Refused(PeekError::BadHello));
    check(
        &records(&trailing, RECORD)[..5 + trailing.len() - 1],
        PeekState::Refused(PeekError::BadHello),
    );
    // A part with another record type, and data behind the extensions.
    let mut disguised = parts.clone();
    disguised[65] = 23;
    check(&disguised, PeekState::Refused(PeekError::BadHello));
    let mut behind = [&message(&[sni(&[name_entry(b"a.example")])])[..], &[0]].concat();
    behind[3] += 1;
    check(&records(&behind, RECORD), PeekState::Refused(PeekError::BadHello));
    // An extension longer than the list, and a list longer than its extension.
    check(&hello(&[extension(10, &[])[..3].to_vec()]), PeekState::Refused(PeekError::BadHello));
    check(&hello(&[extension(SERVER_NAME, &[0, 9, 0])]), PeekState::Refused(PeekError::BadHello));
    check(&hello(&[extension(SERVER_NAME, &[])]), PeekState::Refused(PeekError::BadHello));
}

#[test]
fn too_long_hello_is_refused() {
    let long = |bytes: usize| {
        (0..bytes.div_ceil(60_000))
            .map(|kind| extension(100 + kind as u16, &vec![0; bytes.min(60_000)]))
            .collect::<Vec<_>>()
    };
    // Declared too long, and too long for its many small records.
    let mut announced = hello(&[]);
    announced[6] = 1;
    check(&announced[..9], PeekState::Refused(PeekError::TooLong));
    let small = records(&message(&long(30_000)), 1);
    check(&small[..LONGEST - 1], PeekState::NeedMore);
    check(&small[..LONGEST], PeekState::Refused(PeekError::TooLong));
    check(&small, PeekState::Refused(PeekError::TooLong));
}

proptest! {
    #[test]
    fn result_does_not_depend_on_splits(
        name in "[a-z]{1,9}\\.example",
        most in 1..300_usize,
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ech: bool,
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut extensions = vec![extension(21, &[0; 100]), sni(&[name_entry(name.as_bytes())])];
        if ech {
            extensions.push(extension(0xfe0d, &[1; 50]));
        }
        let mut bytes = records(&message(&extensions), most);
        if let Some((at, byte)) = &change {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        } else if ech {
            prop_assert_eq!(whole(&bytes), PeekState::Refused(PeekError::HiddenName));
        } else {
            prop_assert_eq!(whole(&bytes), PeekState::Found(HostName::new(&name).unwrap()));
        }
        let mut reader = ClientHelloReader::default();
        prop_assert_eq!(grown(&bytes, &cuts, |queue| reader.read(queue)), whole(&bytes));
        prop_assert!(reader.message.len() <= LONGEST);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), cuts in prop::collection::vec(any::<usize>(), 0..8)) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = HANDSHAKE;
        }
        let mut reader = ClientHelloReader::default();
        prop_assert_eq!(grown(&bytes, &cuts, |queue| reader.read(queue)), whole(&bytes));
    }
}
