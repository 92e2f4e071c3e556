use std::collections::HashSet;

use ringfence_egress::dns::Verdict;

use super::{A, AAAA, PATIENCE, Place, question};

#[test]
fn what_takes_time_keeps_nobody_waiting() {
    let place = Place::new();
    let (slow, quick, mut stream) = (place.datagrams(), place.datagrams(), place.stream());
    slow.put(&question(1, "a.slow", A));
    assert_eq!(place.begun.recv_timeout(PATIENCE).unwrap(), "a.slow");
    slow.put(&question(2, "a.slow", AAAA));
    // A resolver that loses patience asks again; it is answered once.
    slow.put(&question(1, "a.slow", A));
    stream.put(&question(3, "a.slow", A));
    stream.put(&question(4, "a.open", A));
    assert_eq!(quick.ask(&question(5, "a.open", A)), "5 ok 198.18.0.16");
    assert_eq!(stream.hear(), "4 ok 198.18.0.16");

    place.say.send(Verdict::Open).unwrap();
    let heard = HashSet::from([slow.hear(), slow.hear()]);
    assert_eq!(heard, ["1 ok 198.18.0.17", "2 ok fd72:696e:6766:6e63::11"].map(String::from).into());
    assert_eq!(stream.hear(), "3 ok 198.18.0.17");
    assert!(place.begun.try_recv().is_err(), "asked about twice");
    // Nothing else has come for the one who asked three times.
    assert_eq!(slow.ask(&question(6, "a.open", A)), "6 ok 198.18.0.16");
}

#[test]
fn what_somebody_denies_is_refused_and_told_of_once() {
    let place = Place::new();
    let client = place.datagrams();
    client.put(&question(1, "a.slow", A));
    place.begun.recv_timeout(PATIENCE).unwrap();
    client.put(&question(2, "a.slow", AAAA));
    // The second one waits as well once this one has been answered.
    client.ask(&question(3, "a.open", A));
    place.say.send(Verdict::Shut).unwrap();
    assert_eq!(HashSet::from([client.hear(), client.hear()]), ["1 nxdomain", "2 nxdomain"].map(String::from).into());
    assert_eq!(place.refused(), ["a.slow Shut"]);
}

#[test]
fn too_many_that_wait_are_turned_away() {
    let place = Place::new();
    let client = place.datagrams();
    for number in 0..16 {
        client.put(&question(number, &format!("n{number}.slow"), A));
        place.begun.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(client.ask(&question(99, "one-more.slow", A)), "99 servfail");
    assert_eq!(place.refused(), ["one-more.slow Crowded"]);
    assert_eq!(client.ask(&question(100, "a.open", A)), "100 ok 198.18.0.16");
}

#[test]
fn a_question_that_is_asked_outlives_neither_client_nor_server() {
    let place = Place::new();
    let (mut gone, client) = (place.stream(), place.datagrams());
    gone.put(&question(1, "a.slow", A));
    place.begun.recv_timeout(PATIENCE).unwrap();
    drop(gone);
    assert_eq!(client.ask(&question(2, "a.open", A)), "2 ok 198.18.0.16");
    client.put(&question(3, "b.slow", A));
    // Ends although nobody has been given an answer.
    drop(place.server);
    place.say.send(Verdict::Open).unwrap();
}
