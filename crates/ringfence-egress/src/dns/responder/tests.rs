use std::sync::{Arc, Mutex};

use super::*;
use crate::dns::query::parse;
use crate::dns::testing::{question, with_edns};

/// Opens `*.open`, and records denials.
#[derive(Default)]
struct ResponderGate {
    denials: Mutex<Vec<String>>,
}

impl DnsGate for ResponderGate {
    fn decide(&self, name: &HostName) -> DnsVerdict {
        match name.as_str().rsplit('.').next() {
            Some("open") => DnsVerdict::Allow,
            _ => DnsVerdict::Deny,
        }
    }

    fn report_refused(&self, name: &str, why: DnsRefusal) {
        self.denials.lock().unwrap().push(format!("{name} {why:?}"));
    }
}

struct Bench {
    gate: Arc<ResponderGate>,
    responder: DnsResponder,
}

impl Bench {
    fn new() -> Self {
        let gate = Arc::new(ResponderGate::default());
        let responder = DnsResponder {
            gate: gate.clone(),
            pool: Arc::default(),
            reported: RefusedLookups::new(Vec::new()),
        };
        Bench { gate, responder }
    }

    fn ask(&mut self, name: &str, kind: u16) -> DnsReply {
        self.responder.answer(&parse(&question(1, name, kind)).unwrap())
    }

    fn denials(&self) -> Vec<String> {
        std::mem::take(&mut self.gate.denials.lock().unwrap())
    }
}

const HTTPS: u16 = 65;
const SRV: u16 = 33;

#[track_caller]
fn check(name: &str, kind: u16, expect: DnsReply, denials: &[&str]) {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(name, kind), expect, "{name} {kind}");
    assert_eq!(bench.denials(), denials, "{name} {kind}");
}

#[test]
fn allowed_name_has_addresses_and_no_other_records() {
    check("a.open", kind::A, DnsReply::V4([198, 18, 0, 16].into()), &[]);
    check("a.open", kind::AAAA, DnsReply::V6("fd72:696e:6766:6e63::10".parse().unwrap()), &[]);
    for kind in [HTTPS, 64, 15, 16, 255, 2] {
        check("a.open", kind, DnsReply::NoData, &[]);
    }
}

#[test]
fn denied_name_is_nxdomain_and_reported() {
    for kind in [kind::A, kind::AAAA, HTTPS, 16] {
        check("a.shut", kind, DnsReply::NoSuchName, &["a.shut Shut"]);
    }
    check("127.1", kind::A, DnsReply::NoSuchName, &["127.1 NoName"]);
}

#[test]
fn service_query_is_decided_by_its_host() {
    check("_http._tcp.a.open", SRV, DnsReply::NoData, &[]);
    check("_http._tcp.a.shut", SRV, DnsReply::NoSuchName, &["a.shut Shut"]);
    // An address query for such a name is decided as it is.
    check("_a.shut", kind::A, DnsReply::NoSuchName, &["_a.shut Shut"]);
    check("_http._tcp", SRV, DnsReply::NoSuchName, &["_tcp Shut"]);
}

#[test]
fn localhost_resolves_without_a_decision() {
    for name in ["localhost", "LocalHost", "x.localhost"] {
        check(name, kind::A, DnsReply::V4(Ipv4Addr::LOCALHOST), &[]);
        check(name, kind::AAAA, DnsReply::V6(Ipv6Addr::LOCALHOST), &[]);
        check(name, HTTPS, DnsReply::NoData, &[]);
    }
    check("localhost.shut", kind::A, DnsReply::NoSuchName, &["localhost.shut Shut"]);
}

#[test]
fn reverse_lookup_gives_the_original_name() {
    let mut bench = Bench::new();
    bench.ask("a.open", kind::A);
    let pointer = |name: &str| DnsReply::Pointer(HostName::new(name).unwrap());
    assert_eq!(bench.ask("16.0.18.198.in-addr.arpa", kind::PTR), pointer("a.open"));
    let nibbles = "0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.6.e.6.6.6.7.6.e.6.9.6.2.7.d.f.ip6.arpa";
    assert_eq!(bench.ask(nibbles, kind::PTR), pointer("a.open"));
    assert_eq!(bench.ask(nibbles, kind::A), DnsReply::NoData);
    assert_eq!(bench.ask("1.0.0.127.in-addr.arpa", kind::PTR), pointer("localhost"));
    let one = format!("1.{}ip6.arpa", "0.".repeat(31));
    assert_eq!(bench.ask(&one, kind::PTR), pointer("localhost"));
    for name in ["17.0.18.198.in-addr.arpa", "8.8.8.8.in-addr.arpa", "in-addr.arpa"] {
        assert_eq!(bench.ask(name, kind::PTR), DnsReply::NoSuchName);
    }
    assert!(bench.denials().is_empty());
}

#[test]
fn root_and_foreign_queries_need_no_decision() {
    check("", 2, DnsReply::NoData, &[]);
    check("a.shut", kind::AXFR, DnsReply::Refused, &[]);
    check("a.open", kind::IXFR, DnsReply::Refused, &[]);
    let mut bench = Bench::new();
    let mut chaos = question(1, "version.bind", 16);
    *chaos.last_mut().unwrap() = 3;
    assert_eq!(bench.responder.answer(&parse(&chaos).unwrap()), DnsReply::Refused);
    let mut later = with_edns(question(1, "a.open", 1));
    let version = later.len() - 5;
    later[version] = 1;
    assert_eq!(bench.responder.answer(&parse(&later).unwrap()), DnsReply::OtherVersion);
}

#[test]
fn exhausted_pool_is_servfail_and_reported() {
    let mut bench = Bench::new();
    for number in 0..FakeIpPool::MAX_NAMES {
        bench
            .responder
            .pool
            .addresses_for(&HostName::new(&format!("n{number}.open")).unwrap(), Instant::now());
    }
    assert_eq!(bench.ask("a.open", kind::A), DnsReply::TryAgain);
    assert_eq!(bench.ask("a.open", kind::AAAA), DnsReply::TryAgain);
    assert_eq!(bench.denials(), ["a.open NoAddress"]);
}
