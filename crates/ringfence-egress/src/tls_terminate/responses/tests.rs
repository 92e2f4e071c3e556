use proptest::prelude::*;

use super::*;

const VALUE: &str = "the-real-value";
const TWO: [ResponseKind; 2] = [ResponseKind::Other, ResponseKind::Other];

fn answers(kinds: &[ResponseKind]) -> ResponseFollower {
    let mut answers = ResponseFollower::new(SecretScrubber::new([VALUE].into_iter()));
    kinds.iter().for_each(|kind| answers.expect(*kind));
    answers
}

/// What is passed on of what is `said` in pieces, and why nothing more is.
fn passed<'a>(
    kinds: &[ResponseKind],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (String, Option<Unreadable>, ResponseFollower) {
    let mut answers = answers(kinds);
    let mut out = Pieces::default();
    let mut why = None;
    for piece in pieces {
        if let Err(unreadable) = answers.hear(piece, &mut out) {
            why = Some(unreadable);
            break;
        }
    }
    answers.release(&mut out);
    (String::from_utf8(out.0.concat()).unwrap(), why, answers)
}

/// How many answers end in what is said, and that it is passed on as it is, however it is cut.
#[track_caller]
fn check(kinds: &[ResponseKind], said: &str, ends: usize) {
    for piece in [1, 7, 1000] {
        let (out, why, answers) = passed(kinds, said.as_bytes().chunks(piece));
        assert_eq!((why, answers.asked.len()), (None, kinds.len() - ends), "{said}");
        assert_eq!(plain(&out), plain(said), "by {piece}");
    }
}

/// The same without framing.
fn plain(said: &str) -> String {
    let (head, mut rest) = said.split_once("\r\n\r\n").unwrap();
    if !head.to_ascii_lowercase().contains("chunked") {
        return said.to_owned();
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
fn every_way_to_end_is_known() {
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
fn an_answer_that_could_hide_a_value_is_not_passed_on() {
    let head = "HTTP/1.1 200 OK\r\n";
    for said in [
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
        let (out, why, answers) = passed(&TWO, said.as_bytes().chunks(1));
        assert!(out.is_empty() && why.is_some() && answers.is_unbegun(), "{said}");
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
fn who_waits_is_known() {
    let (mut answers, mut out) = (answers(&[]), Pieces::default());
    assert!(answers.is_quiet());
    answers.expect(ResponseKind::Other);
    assert!(!answers.is_quiet());
    answers.hear(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", &mut out).unwrap();
    assert!(!answers.is_quiet());
    answers.hear(b"a", &mut out).unwrap();
    assert!(answers.is_quiet());
    answers.hear(b"H", &mut out).unwrap();
    assert!(!answers.is_quiet());
}

#[test]
fn pieces_do_not_tell_when_the_host_has_spoken() {
    let said = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx abc".as_bytes();
    for cut in [0, said.len() - 5, said.len()] {
        let (mut answers, mut out) = (answers(&[ResponseKind::Other]), Pieces::default());
        answers.hear(&said[..cut], &mut out).unwrap();
        answers.hear(&said[cut..], &mut out).unwrap();
        assert_eq!(out.iter().last(), Some(&b"abc"[..]), "cut at {cut}");
    }
}

#[test]
fn a_length_beside_chunks_is_dropped() {
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
fn a_value_in_head_or_trailer_is_starred() {
    let said = format!(
        "HTTP/1.1 103 {VALUE}\r\nLink: {VALUE}\r\n\r\nHTTP/1.1 200 OK\r\nX: {VALUE}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: {VALUE}\r\n\r\n"
    );
    for piece in [1, 7, 1000] {
        let (out, _, answers) = passed(&[ResponseKind::Other], said.as_bytes().chunks(piece));
        assert_eq!(out, said.replace(VALUE, "**************"));
        assert!(answers.is_quiet());
    }
}

/// A body in chunks that are cut at `cuts`.
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
fn a_value_across_two_chunks_is_starred() {
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
    /// Promise: P138
    #[test]
    fn a_value_is_starred_in_any_framing_and_any_cut(
        before in "[a-zA-Z0-9 .-]{0,60}", after in "[a-zA-Z0-9 .-]{0,60}", framing in 0..3_u8,
        chunks in prop::collection::vec(0..200_usize, 0..8), cuts in prop::collection::vec(0..400_usize, 0..8),
    ) {
        let body = format!("{before}|{VALUE}|{after}");
        let said = match framing {
            0 => in_chunks(&body, &chunks),
            1 => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            _ => format!("HTTP/1.1 200 OK\r\n\r\n{body}"),
        };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (said.len() + 1)).chain([0, said.len()]).collect();
        cuts.sort_unstable();
        let (out, why, _) = passed(&[ResponseKind::Other], cuts.windows(2).map(|two| &said.as_bytes()[two[0]..two[1]]));
        prop_assert_eq!(why, None);
        let stars = body.replace(VALUE, "**************");
        prop_assert!(plain(&out).contains(&stars), "{}", out);
    }
}
