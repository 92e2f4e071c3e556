use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{FakeAddresses, FakeIpPool};
use ringfence_policy::HostName;

fn name(number: usize) -> HostName {
    HostName::new(&format!("n{number}.example")).unwrap()
}

/// A pool with `count` names, all given `now`.
fn crowded(count: usize, now: Instant) -> FakeIpPool {
    let pool = FakeIpPool::new();
    for number in 0..count {
        assert!(pool.give(&name(number), now).is_some());
    }
    pool
}

#[test]
fn a_name_keeps_its_addresses_and_they_lead_back() {
    let (pool, now) = (FakeIpPool::new(), Instant::now());
    let one = pool.give(&name(1), now).unwrap();
    let two = pool.give(&name(2), now).unwrap();
    assert_eq!(
        one,
        FakeAddresses {
            v4: "198.18.0.16".parse().unwrap(),
            v6: "fd72:696e:6766:6e63::10".parse().unwrap()
        }
    );
    assert_ne!(one, two);
    assert_eq!(pool.give(&name(1), now), Some(one));
    assert_eq!(pool.name_of(one.v4.into(), now), Some(name(1)));
    assert_eq!(pool.name_of(one.v6.into(), now), Some(name(1)));
    assert_eq!(pool.name_of(two.v4.to_ipv6_mapped().into(), now), Some(name(2)));
}

#[test]
fn what_was_never_given_means_nothing() {
    let (pool, now) = (crowded(1, Instant::now()), Instant::now());
    let none = [
        "198.18.0.17",
        "198.18.0.0",
        "198.19.255.255",
        "192.0.2.1",
        "fd72:696e:6766:6e63::11",
        "fd72:696e:6766:6e63:0:1::10",
    ];
    for address in
        none.into_iter().chain(["fd72:696e:6766:6e62::10", "::ffff:198.18.0.17", "::198.18.0.16"])
    {
        assert_eq!(pool.name_of(address.parse().unwrap(), now), None, "{address}");
    }
    assert_eq!(FakeIpPool::OWN.v4.to_string(), "198.18.0.1");
    assert_eq!(pool.name_of(FakeIpPool::OWN.v6.into(), now), None);
    let covers = |address: &str| FakeIpPool::covers(address.parse::<IpAddr>().unwrap());
    assert!(
        covers("198.18.0.0")
            && covers("198.19.255.255")
            && covers("::ffff:198.18.0.1")
            && covers("fd72:696e:6766:6e63:ffff::")
    );
    assert!(!covers("198.17.255.255") && !covers("198.20.0.0") && !covers("fd72:696e:6766:6e64::"));
}

#[test]
fn a_name_that_is_in_use_stays_and_one_that_is_not_goes() {
    let begun = Instant::now();
    let pool = crowded(FakeIpPool::KEPT, begun);
    let [first, second] = [0, 1].map(|number| pool.give(&name(number), begun).unwrap());
    // Dialing counts as use.
    let later = begun + FakeIpPool::STAYS;
    pool.name_of(first.v6.into(), later);
    for number in 0..FakeIpPool::KEPT {
        assert!(pool.give(&name(10_000 + number), later).is_some());
    }
    assert_eq!(pool.name_of(first.v4.into(), later), Some(name(0)));
    assert_eq!(pool.name_of(second.v4.into(), later), None);
    let again = pool.give(&name(1), later).unwrap();
    assert_ne!(again, second, "an address that was let go must stay unknown");
    assert_eq!(pool.name_of(second.v4.into(), later), None);
}

#[test]
fn a_flood_of_names_is_refused_and_takes_nothing_from_others() {
    let begun = Instant::now();
    let pool = crowded(FakeIpPool::MOST, begun);
    let nearly = begun + FakeIpPool::STAYS - Duration::from_millis(1);
    assert_eq!(pool.give(&name(FakeIpPool::MOST), nearly), None);
    assert!(pool.give(&name(0), begun).is_some());
    // What it left behind becomes less with every name that comes.
    let later = begun + FakeIpPool::STAYS;
    for number in 0..2 * FakeIpPool::MOST {
        assert!(
            pool.give(&name(FakeIpPool::MOST + number), later + Duration::from_secs(number as u64))
                .is_some()
        );
    }
    assert_eq!(pool.book.lock().unwrap().entries.len(), FakeIpPool::KEPT);
}

#[test]
fn no_number_is_given_twice_and_then_there_are_none() {
    let pool = FakeIpPool::new();
    let mut now = Instant::now();
    let first = pool.give(&name(0), now).unwrap();
    for number in 1..FakeIpPool::NUMBERS as usize {
        if number % FakeIpPool::KEPT == 0 {
            now += FakeIpPool::STAYS;
        }
        let given = pool.give(&name(number), now).unwrap();
        assert_ne!(given.v4, first.v4);
    }
    now += FakeIpPool::STAYS;
    assert_eq!(pool.give(&name(usize::MAX), now), None);
    assert_eq!(pool.name_of(first.v4.into(), now), None);
    let last = name(FakeIpPool::NUMBERS as usize - 1);
    let addresses = pool.give(&last, now).unwrap();
    assert_eq!(addresses.v4.to_string(), "198.19.255.254");
    assert_eq!(pool.name_of(addresses.v6.into(), now), Some(last));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is looked up in whatever order and pace: an address means the name that it was
    /// given for, or nothing.
    #[test]
    fn an_address_never_changes_its_meaning(steps in prop::collection::vec((0..6000_usize, 0..3_u64), 1..600)) {
        let mut now = Instant::now();
        let pool = crowded(FakeIpPool::KEPT, now);
        let crowd = (0..FakeIpPool::KEPT).map(|number| (pool.give(&name(number), now).unwrap().v4, name(number)));
        let mut told: HashMap<Ipv4Addr, HostName> = crowd.collect();
        for (number, minutes) in steps {
            now += Duration::from_secs(60 * minutes);
            let given = pool.give(&name(number), now).unwrap();
            prop_assert_eq!(told.entry(given.v4).or_insert_with(|| name(number)), &name(number));
            prop_assert_eq!(pool.name_of(given.v6.into(), now), Some(name(number)));
        }
        for (address, meant) in &told {
            let means = pool.name_of((*address).into(), now);
            prop_assert!(means.is_none() || means.as_ref() == Some(meant));
        }
    }
}
