use proptest::prelude::*;

use super::*;

fn dialed() -> HostName {
    HostName::new("a.example").unwrap()
}

/// Shows `bytes` as a queue that grows at each of `cuts`; returns the result.
fn drive(bytes: &[u8], cuts: &[usize]) -> CheckedPieces {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]).collect();
    cuts.sort_unstable();
    let mut requests = RequestFollower::new(dialed(), 80);
    let mut out = CheckedPieces { clear: 0, next: RequestNext::More };
    for cut in cuts {
        let checked = requests.check(&bytes[out.clear..cut]);
        out = CheckedPieces { clear: out.clear + checked.clear, next: checked.next };
    }
    out
}

#[track_caller]
fn check(text: &str, clear: usize, next: RequestNext) {
    assert_eq!(drive(text.as_bytes(), &[]), CheckedPieces { clear, next }, "{text:?}");
}

#[track_caller]
fn all(text: &str) {
    check(text, text.len(), RequestNext::More);
}

/// `good` is sent and `bad` is not.
#[track_caller]
fn cut(good: &str, bad: &str, objection: PeekError) {
    check(&format!("{good}{bad}"), good.len(), RequestNext::Refused(objection));
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
const OTHER: &str = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n")
}

fn other() -> PeekError {
    PeekError::OtherName(HostName::new("b.example").unwrap())
}

#[test]
fn every_request_is_checked() {
    all(&format!("{GET}{GET}{}xxx{GET}", post(3)));
    cut("", OTHER, other());
    cut(&format!("{GET}{GET}"), OTHER, other());
    // Nothing of an incomplete head is sent.
    check(&format!("{GET}GET / HT"), GET.len(), RequestNext::More);
    all("GET / HTTP/1.1\r\nHost: A.EXAMPLE.:80\r\n\r\n");
    cut("", "GET / HTTP/1.1\r\nHost: a.example:81\r\n\r\n", PeekError::OtherPort(81));
}

#[test]
fn body_ends_at_its_declared_length() {
    // A body can look like a request, and a request like a body.
    all(&format!("{}{OTHER}", post(OTHER.len())));
    cut(
        &format!("{}{}", post(OTHER.len() - 1), &OTHER[..OTHER.len() - 1]),
        "\nGET",
        PeekError::NotHttp,
    );
    cut(&format!("{}xxx", post(3)), OTHER, other());
    all(&format!("{CHUNKED}3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n{GET}"));
    let body = format!("{CHUNKED}{:x}\r\n{OTHER}\r\n0\r\n\r\n", OTHER.len());
    all(&body);
    cut(&body, OTHER, other());
}

#[test]
fn ambiguous_chunks_are_refused() {
    for bad in [
        "3;x=y\r\nabc",
        "3 \r\nabc",
        " 3\r\nabc",
        "0x3\r\nabc",
        "\r\n",
        "-1\r\n",
        "3\nabc",
        "x\r\n",
        "000000003\r\nabc",
        "100000003\r\nabc",
        "80000000\r\nabc",
    ] {
        cut(CHUNKED, bad, PeekError::BadFraming);
    }
    cut(&format!("{CHUNKED}3\r\nabc"), "d\r\n", PeekError::BadFraming);
    cut(&format!("{CHUNKED}3\r\nabc"), "\n0\r\n\r\n", PeekError::BadFraming);
    cut(&format!("{CHUNKED}0\r\n"), "Host: b.example\r\n\r\n", PeekError::BadFraming);
    cut(&format!("{CHUNKED}0\r\n"), "\rX", PeekError::BadFraming);
}

#[test]
fn body_can_be_sent_unseen() {
    let mut requests = RequestFollower::new(dialed(), 80);
    let head = post(1000);
    assert_eq!(
        requests.check(head.as_bytes()),
        CheckedPieces { clear: head.len(), next: RequestNext::More }
    );
    assert_eq!(requests.body_left(), 1000);
    requests.skip_body(999);
    let rest = format!("x{OTHER}");
    assert_eq!(
        requests.check(rest.as_bytes()),
        CheckedPieces { clear: 1, next: RequestNext::Refused(other()) }
    );
    assert_eq!(requests.body_left(), 0);
}

/// Asserts the next step after the server sends `response` to a first request with an upgrade.
#[track_caller]
fn upgraded(response: &str, expect: &RequestNext) {
    for piece in [1, 7, 1000] {
        let mut requests = RequestFollower::new(dialed(), 80);
        assert!(requests.wants_answer());
        let text = format!("{UPGRADE}{OTHER}");
        assert_eq!(
            requests.check(text.as_bytes()),
            CheckedPieces { clear: UPGRADE.len(), next: RequestNext::Answer }
        );
        for bytes in response.as_bytes().chunks(piece) {
            requests.feed_response(bytes);
        }
        assert_eq!(requests.check(OTHER.as_bytes()).next, *expect, "{response}");
        assert_eq!(requests.wants_answer(), *expect == RequestNext::Answer, "{response}");
    }
}

#[test]
fn upgrade_needs_the_servers_agreement() {
    upgraded("HTTP/1.1 101 Switching Protocols\r\n", &RequestNext::Opaque);
    upgraded(
        "HTTP/1.1 103 Early\r\nLink: HTTP/1.1 101\r\n\r\nHTTP/1.1 101 \r\n",
        &RequestNext::Opaque,
    );
    upgraded("HTTP/1.1 10", &RequestNext::Answer);
    upgraded("HTTP/1.1 100 Continue\r\n\r\n", &RequestNext::Answer);
    for response in [
        "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 \r\n",
        "HTTP/1.1 400 x",
        "HTTP/1.1 100 \r\n\r\nHTTP/1.1 404 x",
        "SSH-2.0-x 101\r\n",
    ] {
        upgraded(response, &RequestNext::Refused(other()));
    }
    let endless = format!("HTTP/1.1 100 {}", "x".repeat(ANSWER));
    upgraded(&endless, &RequestNext::Refused(other()));
}

#[test]
fn only_the_first_request_can_upgrade() {
    let mut requests = RequestFollower::new(dialed(), 80);
    let text = format!("{GET}{UPGRADE}");
    assert_eq!(
        requests.check(text.as_bytes()),
        CheckedPieces { clear: text.len(), next: RequestNext::More }
    );
    assert!(!requests.wants_answer());
    requests.feed_response(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
    assert_eq!(requests.check(b"\x81\x05hello").next, RequestNext::Refused(PeekError::NotHttp));

    // Nor a request that was answered before it was made.
    let mut requests = RequestFollower::new(dialed(), 80);
    requests.feed_response(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
    assert_eq!(requests.check(UPGRADE.as_bytes()).next, RequestNext::More);
    assert_eq!(requests.check(OTHER.as_bytes()).next, RequestNext::Refused(other()));
}

#[test]
fn upgrade_to_http2_is_refused() {
    let h2c = UPGRADE.replace("websocket", "h2c");
    let mut requests = RequestFollower::new(dialed(), 80);
    assert_eq!(requests.check(h2c.as_bytes()).next, RequestNext::More);
    requests.feed_response(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
    assert_eq!(
        requests.check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").next,
        RequestNext::Refused(PeekError::Http2)
    );
}

#[test]
fn upgrade_is_answered_after_its_body() {
    let text =
        UPGRADE.replacen("GET", "POST", 1).replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\n");
    let mut requests = RequestFollower::new(dialed(), 80);
    assert_eq!(requests.check(format!("{text}ab").as_bytes()).next, RequestNext::More);
    requests.feed_response(b"HTTP/1.1 101 \r\n\r\n");
    assert_eq!(
        requests.check(b"cdeanything"),
        CheckedPieces { clear: 11, next: RequestNext::Opaque }
    );
    assert_eq!(requests.check(b"\0"), CheckedPieces { clear: 1, next: RequestNext::Opaque });
}

/// One request as text, for `host`.
fn request(host: &'static str) -> impl Strategy<Value = String> {
    let plain = Just(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let absolute = Just(format!("GET http://{host}/x HTTP/1.1\r\nA: b\r\nHost: {host}\r\n\r\n"));
    let counted = "[a-zA-Z0-9 \r\n:/.]{0,60}".prop_map(move |body| {
        format!("PUT /x HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    });
    let chunked = prop::collection::vec("[a-zA-Z0-9 \r\n:/.]{1,40}", 0..4).prop_map(move |chunks| {
        let chunks: String = chunks.iter().map(|chunk| format!("{:X}\r\n{chunk}\r\n", chunk.len())).collect();
        format!("PUT /x HTTP/1.1\r\ntransfer-encoding: chunked\r\nHost: {host}\r\n\r\n{chunks}0\r\n\r\n")
    });
    prop_oneof![plain, absolute, counted, chunked]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Requests for the host are sent with any body, and nothing from the first byte for another
    /// host.
    #[test]
    fn exactly_the_requests_for_the_host_are_sent(
        good in prop::collection::vec(request("a.example"), 0..5),
        bad in prop::option::of(request("b.example")),
        after in prop::collection::vec(request("a.example"), 0..2),
        cuts in prop::collection::vec(any::<usize>(), 0..10),
    ) {
        let good = good.concat();
        let text = [good.clone(), bad.clone().unwrap_or_default(), after.concat()].concat();
        let expect = match bad {
            Some(_) => CheckedPieces { clear: good.len(), next: RequestNext::Refused(other()) },
            None => CheckedPieces { clear: text.len(), next: RequestNext::More },
        };
        prop_assert_eq!(drive(text.as_bytes(), &cuts), expect);
    }

    #[test]
    fn result_does_not_depend_on_splits(
        requests in prop::collection::vec(request("a.example"), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cuts in prop::collection::vec(any::<usize>(), 0..10),
    ) {
        let mut bytes = requests.concat().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        prop_assert_eq!(drive(&bytes, &cuts), drive(&bytes, &[]));
    }
}
