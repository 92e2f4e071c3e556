use super::*;

fn request(text: &str) -> (String, u16, String, BodyFraming) {
    match parse(text.as_bytes()) {
        Ok(ProxyHead { wanted: ProxyTarget::Request { place, head }, body }) => {
            (place.host, place.port, String::from_utf8(head).unwrap(), body)
        }
        other => panic!("{other:?} of {text:?}"),
    }
}

#[track_caller]
fn check_bad(text: &str, why: &str) {
    match parse(text.as_bytes()) {
        Err(BadHead(reason)) => assert!(reason.contains(why), "{reason:?} of {text:?}"),
        Ok(head) => panic!("{head:?} of {text:?}"),
    }
}

#[test]
fn connect_is_parsed() {
    for (text, host) in [
        (
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: Basic eA==\r\n\r\n",
            "a.example",
        ),
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: A.example\r\n\r\n", "a.example"),
        ("CONNECT a.example:443 HTTP/1.0\r\n\r\n", "a.example"),
        ("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n", "::1"),
    ] {
        let head = parse(text.as_bytes()).unwrap();
        assert_eq!(
            head.wanted,
            ProxyTarget::Tunnel(ProxyAuthority { host: host.into(), port: 443 })
        );
    }
}

#[test]
fn request_head_is_rewritten() {
    let (host, port, head, body) = request(
        "POST http://a.example:8080/x?y=1 HTTP/1.1\r\nHost: a.example:8080\r\nProxy-Connection: keep-alive\r\nConnection: X-Hop, keep-alive\r\n\
         x-hop: 1\r\nAccept:  */*\t\r\nUpgrade: h2c\r\nProxy-Authorization: Basic eA==\r\nContent-Length: 5\r\nTE: trailers\r\n\r\n",
    );
    assert_eq!((host.as_str(), port, body), ("a.example", 8080, BodyFraming::Length(5)));
    assert_eq!(
        head,
        "POST /x?y=1 HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\nAccept: */*\r\nContent-Length: 5\r\n\r\n"
    );
}

#[test]
fn absolute_targets_are_parsed() {
    for (target, first, host) in [
        ("http://a.example", "GET / HTTP/1.1\r\nHost: a.example\r\n", "a.example"),
        ("HTTP://a.example:80/", "GET / HTTP/1.1\r\nHost: a.example\r\n", "a.example:80"),
        ("http://a.example?q", "GET /?q HTTP/1.1\r\nHost: a.example\r\n", "a.example"),
        ("http://[::1]:81/x", "GET /x HTTP/1.1\r\nHost: [::1]:81\r\n", "[::1]:81"),
    ] {
        let (_, _, head, _) = request(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(head.starts_with(first), "{head:?}");
    }
}

#[test]
fn chunked_body_is_recognized() {
    let (_, _, head, body) =
        request("POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(body, BodyFraming::Chunks);
    assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n"));
}

#[test]
fn ambiguous_head_is_rejected() {
    let with = |fields: &str| format!("GET http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    check_bad(&with("Host: a"), "two hosts");
    check_bad(&with("Content-Length: 1\r\nContent-Length: 1"), "two lengths");
    check_bad(&with("Content-Length: 1\r\nTransfer-Encoding: chunked"), "a length and an encoding");
    check_bad(&with("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), "two encodings");
    for encoding in ["gzip, chunked", "chunked, identity", "xchunked", "\u{b}chunked"] {
        assert!(
            parse(with(&format!("Transfer-Encoding: {encoding}")).as_bytes()).is_err(),
            "{encoding:?}"
        );
    }
    for length in ["+1", "-1", "0x1", "1 1", "1,1", "", "99999999999999999999"] {
        check_bad(&with(&format!("Content-Length: {length}")), "length");
    }
    check_bad(&with("Content-Length : 1"), "name");
    check_bad(&with(" folded: 1"), "name");
    check_bad(&with("X: 1\r\n folded"), "no field");
    check_bad(&with("X: 1\nHost: b"), "control");
    check_bad(&with("X: 1\rHost: b"), "control");
    check_bad(&with("X: \0"), "control");
    check_bad(&with("no colon"), "no field");
    check_bad(&with("Connection: content-length"), "`Connection`");
    check_bad(&with("Connection: close, Host"), "`Connection`");
    check_bad("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", "not the host");
    check_bad("GET http://a/ HTTP/1.1\r\nHost: a:81\r\n\r\n", "not the host");
    check_bad("GET http://a/ HTTP/1.1\r\nHost: a b\r\n\r\n", "no host");
    check_bad("GET http://a/ HTTP/1.1\r\n\r\n", "no `Host`");
    check_bad("POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "encoding");
    check_bad(&with(&"X: 1\r\n".repeat(200)[..1198]), "too many");
}

#[test]
fn invalid_request_lines_are_rejected() {
    for line in [
        "",
        "GET",
        "GET  http://a/ HTTP/1.1",
        "GET http://a/ HTTP/1.1 ",
        " GET http://a/ HTTP/1.1",
        "GET http://a/ HTTP/2",
        "GET http://a/",
        "GET /x HTTP/1.1",
        "GET * HTTP/1.1",
        "GET https://a/ HTTP/1.1",
        "GET ftp://a/ HTTP/1.1",
        "GET http://u:p@a/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://a/#x HTTP/1.1",
        "GET http://a%00/ HTTP/1.1",
        "GET http://ä/ HTTP/1.1",
        "G@T http://a/ HTTP/1.1",
        "CONNECT a HTTP/1.1",
        "CONNECT http://a:1/ HTTP/1.1",
        "CONNECT a:0 HTTP/1.1",
        "CONNECT a:b HTTP/1.1",
        "CONNECT u@a:1 HTTP/1.1",
        "CONNECT [::1%lo]:1 HTTP/1.1",
    ] {
        assert!(parse(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()).is_err(), "{line:?}");
    }
    check_bad("CONNECT a:1 HTTP/1.1\r\nHost: b\r\n\r\n", "not the host");
    check_bad("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", "no body");
}
