use proptest::prelude::*;

use super::*;

const VALUE: &str = "the-real-value";
const TWO: [ResponseKind; 2] = [ResponseKind::Other, ResponseKind::Other];

fn answers(kinds: &[ResponseKind]) -> ResponseFollower {
    let mut answers = ResponseFollower::new(SecretScrubber::new([VALUE].into_iter()));
    kinds.iter().for_each(|kind| answers.expect(*kind));
    answers
}

/// Output for input in pieces, and the reason for a block.
fn passed<'a>(
    kinds: &[ResponseKind],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (String, Option<Unreadable>, ResponseFollower) {
    let mut answers = answers(kinds);
    let mut out = Pieces::default();
    let mut why = None;
    for piece in pieces {
        if let Err(unreadable) = answers.feed(piece, &mut out) {
            why = Some(unreadable);
            break;
        }
    }
    answers.release(&mut out);
    (String::from_utf8(out.0.concat()).unwrap(), why, answers)
}

/// Asserts that `ends` responses end in the input, and that it is passed on unchanged in any split.
#[track_caller]
fn check(kinds: &[ResponseKind], input: &str, ends: usize) {
    for piece in [1, 7, 1000] {
        let (out, why, answers) = passed(kinds, input.as_bytes().chunks(piece));
        assert_eq!((why, answers.expected.len()), (None, kinds.len() - ends), "{input}");
        assert_eq!(plain(&out), plain(input), "by {piece}");
    }
}

/// The text without chunk framing.
fn plain(input: &str) -> String {
    let (head, mut rest) = input.split_once("\r\n\r\n").unwrap();
    if !head.to_ascii_lowercase().contains("chunked") {
        return input.to_owned();
    }
    let mut body = String::new();
    while let Some((line, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(line.split(';').next().unwrap(), 16).unwrap();
        if length == 0 {
            return format!("{head}|{body}|{after}");
        }
        body.push_str(&after[..length]);
        rest = &after[length + 2..];
    }
    format!("{head}|{body}")
}

#[test]
fn every_body_framing_ends_correctly() {
    check(&TWO, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No\r\n\r\n", 2);
    check(&[ResponseKind::Head], "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 1);
    check(&TWO, "HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\nCONTENT-LENGTH: 0\r\n\r\n", 1);
    check(
        &TWO,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n",
        1,
    );
    check(&TWO, "HTTP/1.1 200\r\n\r\nabc", 0);
    check(&TWO, "HTTP/1.1 101 Go\r\nContent-Length: 1\r\n\r\nabc", 0);
}

#[test]
fn response_that_could_hide_a_secret_is_blocked() {
    let head = "HTTP/1.1 200 OK\r\n";
    for input in [
        "garbage\r\n\r\n".to_owned(),
        format!("{head}Content-Encoding: gzip\r\n\r\nx"),
        format!("{head}content-encoding: identity, br\r\nContent-Length: 1\r\n\r\nx"),
        format!("{head}Transfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n"),
        format!("{head}Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"),
        format!("{head}Content-Length: 1\r\nContent-Length: 2\r\n\r\nx"),
        format!("{head}Content-Length: -1\r\n\r\nx"),
        "HTTP/1.1 101 Go\r\nUpgrade: h2c\r\n\r\nx".to_owned(),
        "H".repeat(LONGEST + 1),
    ] {
        let (out, why, answers) = passed(&TWO, input.as_bytes().chunks(1));
        assert!(out.is_empty() && why.is_some() && answers.is_before_output(), "{input}");
    }
    for chunks in ["x\r\n", "3\r\nabcd\r\n", "\r\n", "-1\r\n", "fffffffffffffffff\r\n", "3x\r\nabc"]
    {
        let (out, why, _) = passed(
            &TWO,
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}").as_bytes().chunks(1),
        );
        assert!(out.starts_with(head) && why.is_some(), "{chunks}");
    }
}

#[test]
fn quiet_and_unbegun_states_are_known() {
    let (mut answers, mut out) = (answers(&[]), Pieces::default());
    assert!(answers.is_quiet());
    answers.expect(ResponseKind::Other);
    assert!(!answers.is_quiet());
    answers.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", &mut out).unwrap();
    assert!(!answers.is_quiet());
    answers.feed(b"a", &mut out).unwrap();
    assert!(answers.is_quiet());
    answers.feed(b"H", &mut out).unwrap();
    assert!(!answers.is_quiet());
}

#[test]
fn piece_lengths_do_not_reveal_timing() {
    let input = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx abc".as_bytes();
    for cut in [0, input.len() - 5, input.len()] {
        let (mut answers, mut out) = (answers(&[ResponseKind::Other]), Pieces::default());
        answers.feed(&input[..cut], &mut out).unwrap();
        answers.feed(&input[cut..], &mut out).unwrap();
        assert_eq!(out.iter().last(), Some(&b"abc"[..]), "cut at {cut}");
    }
}

#[test]
fn content_length_of_chunked_response_is_dropped() {
    let (out, why, _) = passed(
        &TWO,
        [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                [..],
        ]
        .into_iter(),
    );
    assert_eq!(
        (out.as_str(), why),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", None)
    );
}

#[test]
fn secret_in_head_or_trailer_is_replaced() {
    let input = format!(
        "HTTP/1.1 103 {VALUE}\r\nLink: {VALUE}\r\n\r\nHTTP/1.1 200 OK\r\nX: {VALUE}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: {VALUE}\r\n\r\n"
    );
    for piece in [1, 7, 1000] {
        let (out, _, answers) = passed(&[ResponseKind::Other], input.as_bytes().chunks(piece));
        assert_eq!(out, input.replace(VALUE, "**************"));
        assert!(answers.is_quiet());
    }
}

/// A body in chunks that are split at `cuts`.
fn in_chunks(body: &str, cuts: &[usize]) -> String {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| cut % (body.len() + 1)).chain([0, body.len()]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let chunks = cuts
        .windows(2)
        .map(|two| format!("{:x}\r\n{}\r\n", two[1] - two[0], &body[two[0]..two[1]]));
    format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        chunks.collect::<String>()
    )
}

#[test]
fn secret_across_two_chunks_is_replaced() {
    let body = format!("Authorization: Bearer {VALUE}\r\n");
    for cut in 0..body.len() {
        let (out, _, answers) =
            passed(&[ResponseKind::Other], [in_chunks(&body, &[cut]).as_bytes()].into_iter());
        let expect = plain(&in_chunks(&body.replace(VALUE, "**************"), &[]));
        assert_eq!(plain(&out), expect, "at {cut}");
        assert!(answers.is_quiet());
    }
}

proptest! {
    /// Promise: secret-reflection
    #[test]
    fn secret_is_replaced_in_any_framing_and_split(
        before in "[a-zA-Z0-9 .-]{0,60}", after in "[a-zA-Z0-9 .-]{0,60}", framing in 0..3_u8,
        chunks in prop::collection::vec(0..200_usize, 0..8), cuts in prop::collection::vec(0..400_usize, 0..8),
    ) {
        let body = format!("{before}|{VALUE}|{after}");
        let input = match framing {
            0 => in_chunks(&body, &chunks),
            1 => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            _ => format!("HTTP/1.1 200 OK\r\n\r\n{body}"),
        };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).chain([0, input.len()]).collect();
        cuts.sort_unstable();
        let (out, why, _) = passed(&[ResponseKind::Other], cuts.windows(2).map(|two| &input.as_bytes()[two[0]..two[1]]));
        prop_assert_eq!(why, None);
        let stars = body.replace(VALUE, "**************");
        prop_assert!(plain(&out).contains(&stars), "{}", out);
    }
}
