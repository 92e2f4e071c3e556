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
        assert!(pool.addresses_for(&name(number), now).is_some());
    }
    pool
}

#[test]
fn name_keeps_its_addresses_and_they_resolve_back() {
    let (pool, now) = (FakeIpPool::new(), Instant::now());
    let one = pool.addresses_for(&name(1), now).unwrap();
    let two = pool.addresses_for(&name(2), now).unwrap();
    assert_eq!(
        one,
        FakeAddresses {
            v4: "198.18.0.16".parse().unwrap(),
            v6: "fd72:696e:6766:6e63::10".parse().unwrap()
        }
    );
    assert_ne!(one, two);
    assert_eq!(pool.addresses_for(&name(1), now), Some(one));
    assert_eq!(pool.name_of(one.v4.into(), now), Some(name(1)));
    assert_eq!(pool.name_of(one.v6.into(), now), Some(name(1)));
    assert_eq!(pool.name_of(two.v4.to_ipv6_mapped().into(), now), Some(name(2)));
}

#[test]
fn address_never_given_resolves_to_nothing() {
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
    let covers = |address: &str| FakeIpPool::is_fake(address.parse::<IpAddr>().unwrap());
    assert!(
        covers("198.18.0.0")
            && covers("198.19.255.255")
            && covers("::ffff:198.18.0.1")
            && covers("fd72:696e:6766:6e63:ffff::")
    );
    assert!(!covers("198.17.255.255") && !covers("198.20.0.0") && !covers("fd72:696e:6766:6e64::"));
}

#[test]
fn used_name_stays_and_idle_name_is_evicted() {
    let begun = Instant::now();
    let pool = crowded(FakeIpPool::KEPT_NAMES, begun);
    let [first, second] = [0, 1].map(|number| pool.addresses_for(&name(number), begun).unwrap());
    // A connect counts as use.
    let later = begun + FakeIpPool::MIN_AGE;
    pool.name_of(first.v6.into(), later);
    for number in 0..FakeIpPool::KEPT_NAMES {
        assert!(pool.addresses_for(&name(10_000 + number), later).is_some());
    }
    assert_eq!(pool.name_of(first.v4.into(), later), Some(name(0)));
    assert_eq!(pool.name_of(second.v4.into(), later), None);
    let again = pool.addresses_for(&name(1), later).unwrap();
    assert_ne!(again, second, "an evicted address must stay unknown");
    assert_eq!(pool.name_of(second.v4.into(), later), None);
}

#[test]
fn flood_of_names_does_not_evict_names_in_use() {
    let begun = Instant::now();
    let pool = crowded(FakeIpPool::MAX_NAMES, begun);
    let nearly = begun + FakeIpPool::MIN_AGE - Duration::from_millis(1);
    assert_eq!(pool.addresses_for(&name(FakeIpPool::MAX_NAMES), nearly), None);
    assert!(pool.addresses_for(&name(0), begun).is_some());
    // The pool shrinks with every new name.
    let later = begun + FakeIpPool::MIN_AGE;
    for number in 0..2 * FakeIpPool::MAX_NAMES {
        assert!(
            pool.addresses_for(
                &name(FakeIpPool::MAX_NAMES + number),
                later + Duration::from_secs(number as u64)
            )
            .is_some()
        );
    }
    assert_eq!(pool.table.lock().unwrap().entries.len(), FakeIpPool::KEPT_NAMES);
}

#[test]
fn no_number_is_reused_until_exhausted() {
    let pool = FakeIpPool::new();
    let mut now = Instant::now();
    let first = pool.addresses_for(&name(0), now).unwrap();
    for number in 1..FakeIpPool::MAX_NUMBERS as usize {
        if number % FakeIpPool::KEPT_NAMES == 0 {
            now += FakeIpPool::MIN_AGE;
        }
        let given = pool.addresses_for(&name(number), now).unwrap();
        assert_ne!(given.v4, first.v4);
    }
    now += FakeIpPool::MIN_AGE;
    assert_eq!(pool.addresses_for(&name(usize::MAX), now), None);
    assert_eq!(pool.name_of(first.v4.into(), now), None);
    let last = name(FakeIpPool::MAX_NUMBERS as usize - 1);
    let addresses = pool.addresses_for(&last, now).unwrap();
    assert_eq!(addresses.v4.to_string(), "198.19.255.254");
    assert_eq!(pool.name_of(addresses.v6.into(), now), Some(last));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In any order and pace of lookups, an address means the name it was given for, or nothing.
    #[test]
    fn an_address_never_changes_its_meaning(steps in prop::collection::vec((0..6000_usize, 0..3_u64), 1..600)) {
        let mut now = Instant::now();
        let pool = crowded(FakeIpPool::KEPT_NAMES, now);
        let crowd = (0..FakeIpPool::KEPT_NAMES).map(|number| (pool.addresses_for(&name(number), now).unwrap().v4, name(number)));
        let mut given_names: HashMap<Ipv4Addr, HostName> = crowd.collect();
        for (number, minutes) in steps {
            now += Duration::from_secs(60 * minutes);
            let given = pool.addresses_for(&name(number), now).unwrap();
            prop_assert_eq!(given_names.entry(given.v4).or_insert_with(|| name(number)), &name(number));
            prop_assert_eq!(pool.name_of(given.v6.into(), now), Some(name(number)));
        }
        for (address, expected) in &given_names {
            let means = pool.name_of((*address).into(), now);
            prop_assert!(means.is_none() || means.as_ref() == Some(expected));
        }
    }
}
