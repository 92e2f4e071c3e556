use proptest::prelude::*;

use super::super::testing::grown;
use super::*;

fn whole(bytes: &[u8]) -> PeekState<HttpHead> {
    HttpHeadReader::default().read(bytes)
}

#[track_caller]
fn refused(head: &str, expect: PeekError) {
    assert_eq!(whole(head.as_bytes()), PeekState::Refused(expect), "{head:?}");
}

#[track_caller]
fn found(head: &str, host: &str, framing: HttpFraming) {
    let PeekState::Found(found) = whole(format!("{head}rest").as_bytes()) else {
        panic!("{head:?}: {:?}", whole(head.as_bytes()))
    };
    let port = found.host.port.map_or(String::new(), |port| format!(":{port}"));
    assert_eq!(format!("{}{port}", found.host.name), host, "{head:?}");
    assert_eq!((found.length, found.framing), (head.len(), framing), "{head:?}");
}

fn with(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n")
}

#[test]
fn plain_head_is_parsed() {
    let none = HttpFraming::Length(0);
    found("GET / HTTP/1.1\r\nHost: A.example\r\n\r\n", "a.example", none);
    found(
        "GET /x?y#z HTTP/1.0\r\nuser-agent: x y\th\u{fc}\r\nHOST:\t a.example:8080 \r\n\r\n",
        "a.example:8080",
        none,
    );
    found("GET /\u{fc} HTTP/1.1\r\nHost: a.example.\r\n\r\n", "a.example", none);
    found("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example", none);
    found(&with("content-length: 12\r\n"), "a.example", HttpFraming::Length(12));
    found(&with("Transfer-Encoding: Chunked\r\n"), "a.example", HttpFraming::Chunked);
    found(&with("X-Host: b.example\r\n"), "a.example", none);
    let head = with("");
    for count in 0..head.len() {
        assert_eq!(whole(&head.as_bytes()[..count]), PeekState::NeedMore);
    }
}

#[test]
fn absolute_target_must_match_host() {
    let head = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for target in ["http://a.example/", "HTTP://A.example:80?x", "http://a.example"] {
        found(&head(target, "a.example"), "a.example", HttpFraming::Length(0));
    }
    refused(
        &head("http://b.example/", "a.example"),
        PeekError::OtherName(HostName::new("b.example").unwrap()),
    );
    refused(&head("http://a.example:81/", "a.example"), PeekError::OtherPort(81));
    refused(&head("http://b.example@a.example/", "a.example"), PeekError::BadName);
    refused(&head("http://a.example\\@b.example/", "a.example"), PeekError::BadName);
    for target in [
        "https://a.example/",
        "a.example",
        "a.example:80",
        "*",
        "ftp://a.example/",
        "http:/a.example/",
        "",
    ] {
        assert!(
            matches!(whole(head(target, "a.example").as_bytes()), PeekState::Refused(_)),
            "{target}"
        );
    }
}

#[test]
fn head_needs_exactly_one_host() {
    refused("GET / HTTP/1.1\r\n\r\n", PeekError::NoName);
    refused("GET / HTTP/1.0\r\nX: y\r\n\r\n", PeekError::NoName);
    refused(&with("host: a.example\r\n"), PeekError::ManyNames);
    for value in [
        "",
        "127.0.0.1",
        "[::1]",
        "a.example, b.example",
        "a.example b.example",
        "a.example:",
        "a.example:x",
        "a.example:+80",
    ] {
        refused(&format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n"), PeekError::BadName);
    }
    for value in [
        "a.example:65536",
        "a.example:080080",
        "u@a.example",
        "a.example/x",
        "a..example",
        "h\u{f6}.example",
    ] {
        refused(&format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n"), PeekError::BadName);
    }
}

#[test]
fn ambiguous_lines_are_refused() {
    for lines in [
        "X: y\n",
        "X: y\rZ: z\r\n",
        "X: y\r\r\n",
        "X : y\r\n",
        " X: y\r\n",
        "\tfolded\r\n",
        "X\r\n",
        ": y\r\n",
        "X\u{fc}: y\r\n",
    ] {
        refused(&with(lines), PeekError::BadHead);
    }
    for lines in [
        "X: \0\r\n",
        "X: \u{1b}\r\n",
        "X: \u{7f}\r\n",
        "X: \u{b}y\r\n",
        "Ho st: b.example\r\n",
        "(x): y\r\n",
    ] {
        refused(&with(lines), PeekError::BadHead);
    }
    for start in [
        "GET / HTTP/1.1\n",
        "\r\nGET / HTTP/1.1\r\n",
        "GET  / HTTP/1.1\r\n",
        "GET /\r\n",
        "GET / HTTP/1.1 \r\n",
        "GET\t/ HTTP/1.1\r\n",
    ] {
        refused(&format!("{start}Host: a.example\r\n\r\n"), PeekError::NotHttp);
    }
    for start in [
        " GET / HTTP/1.1\r\n",
        "GET / HTTP/1.2\r\n",
        "GET / http/1.1\r\n",
        "G(T / HTTP/1.1\r\n",
        "GET /a b HTTP/1.1\r\n",
    ] {
        refused(&format!("{start}Host: a.example\r\n\r\n"), PeekError::NotHttp);
    }
}

#[test]
fn unsupported_requests_are_refused() {
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", PeekError::Http2);
    refused("CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", PeekError::Tunnel);
    // Refused as soon as it can be seen, since the client may wait for an answer.
    refused("\u{16}", PeekError::NotHttp);
    assert_eq!(whole(&[0x80]), PeekState::Refused(PeekError::NotHttp));
    assert_eq!(whole(b"SSH-2.0-x\r\n"), PeekState::Refused(PeekError::NotHttp));
}

#[test]
fn ambiguous_framing_is_refused() {
    for lines in [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding:\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 9999999999999999999\r\n",
    ] {
        refused(&with(lines), PeekError::BadFraming);
    }
    refused(
        "GET / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n",
        PeekError::BadFraming,
    );
}

#[test]
fn upgrade_request_is_recognized() {
    let requested_upgrade = |lines: &str| match whole(with(lines).as_bytes()) {
        PeekState::Found(head) => head.upgrade,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        requested_upgrade("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"),
        UpgradeWish::Upgrade
    );
    assert_eq!(requested_upgrade("Upgrade: websocket\r\n"), UpgradeWish::Stay);
    assert_eq!(requested_upgrade("Connection: upgrade\r\n"), UpgradeWish::Stay);
    assert_eq!(
        requested_upgrade("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"),
        UpgradeWish::Stay
    );
    assert_eq!(
        requested_upgrade("Connection: Upgrade\r\nUpgrade: websocket, H2C\r\n"),
        UpgradeWish::Stay
    );
}

#[test]
fn too_long_head_is_refused() {
    let fill =
        |count: usize| format!("GET /{} HTTP/1.1\r\nHost: a.example\r\n\r\n", "x".repeat(count));
    let fits = LONGEST - fill(0).len();
    assert!(
        matches!(whole(fill(fits).as_bytes()), PeekState::Found(head) if head.length == LONGEST)
    );
    refused(&fill(fits + 1), PeekError::TooLong);
    assert_eq!(whole(&fill(fits + 1).as_bytes()[..LONGEST]), PeekState::NeedMore);
}

/// The hosts of a head, found by a naive parser: all lines of that name.
fn hosts(bytes: &[u8]) -> Vec<String> {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    lines
        .filter(|(name, _)| name.eq_ignore_ascii_case("host"))
        .map(|(_, value)| value.trim().to_ascii_lowercase())
        .collect()
}

/// Fragments of nearly correct heads.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "Host: a.example\r\n",
        "host:b.example:80\r\n",
        "HOST : c.example\r\n",
        "Host: d.example\n",
        "X-Host: e.example\r\n",
        " Host: f.example\r\n",
        "X: y\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "\r",
        "\n",
        "Host",
        ":",
        " ",
        "g.example",
        "Upgrade: websocket\r\nConnection: upgrade\r\n",
        "\0",
        "\u{fc}",
    ]);
    let start = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "GET http://a.example/ HTTP/1.1\r\n",
        "POST /x HTTP/1.0\r\n",
        "",
    ]);
    (start, prop::collection::vec(piece, 0..8), any::<bool>()).prop_map(|(start, pieces, ends)| {
        let end = match ends {
            true => "\r\n",
            false => "",
        };
        [start, &pieces.concat(), end].concat().into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn host_matches_a_naive_parser(bytes in pieces(), cuts in prop::collection::vec(any::<usize>(), 0..6)) {
        let mut reader = HttpHeadReader::default();
        let found = grown(&bytes, &cuts, |queue| reader.read(queue));
        prop_assert_eq!(&found, &whole(&bytes));
        if let PeekState::Found(head) = found {
            let port = head.host.port.map_or(String::new(), |port| format!(":{port}"));
            prop_assert_eq!(hosts(&bytes), [format!("{}{port}", head.host.name)]);
            let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
            prop_assert_eq!(head.length, end + 4);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), cuts in prop::collection::vec(any::<usize>(), 0..6)) {
        let bytes = [b"GET / HTTP/1.1\r\n", &bytes[..]].concat();
        let mut reader = HttpHeadReader::default();
        prop_assert_eq!(grown(&bytes, &cuts, |queue| reader.read(queue)), whole(&bytes));
    }
}

#[test]
fn headers_that_confuse_other_parsers_are_refused() {
    for lines in [
        "Content-Length: 010\r\n",
        "Content_Length: 5\r\n",
        "Transfer_Encoding: chunked\r\n",
        "Connection: close, content-length\r\nContent-Length: 5\r\n",
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
        "Connection: host\r\n",
        "Expect: y 100-continue\r\n",
        "Expect: 100-continue, x\r\n",
    ] {
        refused(&with(lines), PeekError::BadFraming);
    }
    found(
        &with("Expect: 100-continue\r\nContent-Length: 5\r\n"),
        "a.example",
        HttpFraming::Length(5),
    );
}
