//! DNS answers in wire format.
//!
//! No answer is longer than [`LONGEST`]: a question of at most 259 bytes and one record. So no
//! answer is ever truncated, and no client has to retry over TCP.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::query::{DnsHeader, DnsQuery, EdnsUse, HEADER, INTERNET, flag, kind};
use ringfence_policy::HostName;

/// Maximum answer size that every client accepts.
pub(super) const LONGEST: usize = 512;

/// TTL of an address, in seconds. Short, so that a program that runs for days looks up again; far
/// less than a name stays in the pool.
const TTL_SECONDS: u32 = 60;

/// TTL of a negative answer. A denied name may be allowed a moment later, by a prompt or a policy
/// change.
const NEGATIVE_TTL_SECONDS: u32 = 1;

/// Content of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DnsReply {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    /// Name of an address.
    Pointer(HostName),
    /// The name exists, without a record of the requested type.
    NoData,
    NoSuchName,
    /// Query class or type that is not served here.
    Refused,
    /// Temporary failure.
    TryAgain,
    /// Unsupported EDNS version.
    OtherVersion,
}

/// Response codes.
mod code {
    pub(super) const NO_ERROR: u16 = 0;
    pub(super) const MALFORMED: u16 = 1;
    pub(super) const SERVER_FAILED: u16 = 2;
    pub(super) const NO_SUCH_NAME: u16 = 3;
    pub(super) const NOT_IMPLEMENTED: u16 = 4;
    pub(super) const REFUSED: u16 = 5;
}

/// Encodes `reply` to `query`.
pub(super) fn write(query: &DnsQuery, reply: &DnsReply) -> Vec<u8> {
    let (code, answers, authorities) = match reply {
        DnsReply::V4(_) | DnsReply::V6(_) | DnsReply::Pointer(_) => (code::NO_ERROR, 1, 0),
        DnsReply::NoData => (code::NO_ERROR, 0, 1),
        DnsReply::NoSuchName => (code::NO_SUCH_NAME, 0, 1),
        DnsReply::Refused => (code::REFUSED, 0, 0),
        DnsReply::TryAgain => (code::SERVER_FAILED, 0, 0),
        DnsReply::OtherVersion => (code::NO_ERROR, 0, 0),
    };
    let additional = match query.edns {
        EdnsUse::Absent => 0,
        EdnsUse::Version(_) => 1,
    };
    let mut out = header(query.head, code, [1, answers, authorities, additional]);
    out.extend(&query.question);
    match reply {
        DnsReply::V4(address) => answer(&mut out, kind::A, &address.octets()),
        DnsReply::V6(address) => answer(&mut out, kind::AAAA, &address.octets()),
        DnsReply::Pointer(name) => answer(&mut out, kind::PTR, &labels(name)),
        DnsReply::NoData | DnsReply::NoSuchName => add_soa(&mut out),
        DnsReply::Refused | DnsReply::TryAgain | DnsReply::OtherVersion => {}
    }
    if additional == 1 {
        edns(&mut out, reply);
    }
    out
}

/// Answer to a malformed query.
pub(super) fn malformed(head: DnsHeader) -> Vec<u8> {
    header(head, code::MALFORMED, [0; 4])
}

/// Answer to an unsupported opcode.
pub(super) fn not_implemented(head: DnsHeader) -> Vec<u8> {
    header(head, code::NOT_IMPLEMENTED, [0; 4])
}

fn header(head: DnsHeader, code: u16, counts: [u16; 4]) -> Vec<u8> {
    let kept = head.flags & (flag::OPCODE | flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
    let mut out = Vec::with_capacity(LONGEST);
    // Go treats an empty answer without RA as a referral to other servers.
    let flags = flag::ANSWER | flag::RECURSION_AVAILABLE | kept | code;
    for number in [head.id, flags].into_iter().chain(counts) {
        out.extend(number.to_be_bytes());
    }
    out
}

fn record(out: &mut Vec<u8>, owner: &[u8], kind: u16, seconds: u32, data: &[u8]) {
    out.extend(owner);
    out.extend(kind.to_be_bytes());
    out.extend(INTERNET.to_be_bytes());
    out.extend(seconds.to_be_bytes());
    out.extend((data.len() as u16).to_be_bytes());
    out.extend(data);
}

fn answer(out: &mut Vec<u8>, kind: u16, data: &[u8]) {
    // The owner is a compression pointer to the name in the question.
    let owner = (0xc000 | HEADER as u16).to_be_bytes();
    record(out, &owner, kind, TTL_SECONDS, data);
}

/// Adds the TTL of a negative answer (RFC 2308): an SOA of the root, since there are no zones here.
fn add_soa(out: &mut Vec<u8>) {
    let mut data = vec![0, 0];
    for number in [1, 3600, 600, 86_400, NEGATIVE_TTL_SECONDS] {
        data.extend(number.to_be_bytes());
    }
    record(out, &[0], kind::SOA, NEGATIVE_TTL_SECONDS, &data);
}

fn edns(out: &mut Vec<u8>, reply: &DnsReply) {
    let extended: u8 = match reply {
        DnsReply::OtherVersion => 1,
        _ => 0,
    };
    out.push(0);
    out.extend(kind::OPT.to_be_bytes());
    out.extend(1232_u16.to_be_bytes());
    out.extend([extended, 0, 0, 0, 0, 0]);
}

fn labels(name: &HostName) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.as_str().len() + 2);
    for label in name.as_str().split('.') {
        out.push(label.len() as u8);
        out.extend(label.bytes());
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::query::parse;
    use crate::dns::testing::{question, with_edns};

    /// Compares flags, counts and the part behind the question, in hexadecimal.
    #[track_caller]
    fn check(question: &[u8], reply: DnsReply, expect: &str) {
        let query = parse(question).unwrap();
        let out = write(&query, &reply);
        assert_eq!(out[..2], question[..2]);
        assert!(out[HEADER..].starts_with(&query.question));
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let actual = format!(
            "{} {} {}",
            hex(&out[2..4]),
            hex(&out[4..HEADER]),
            hex(&out[HEADER + query.question.len()..])
        );
        assert_eq!(actual, expect, "{reply:?}");
    }

    #[test]
    fn answers_have_the_exact_wire_format() {
        let plain = question(7, "A.example", 1);
        check(
            &plain,
            DnsReply::V4([198, 18, 0, 16].into()),
            "8180 0001000100000000 c00c000100010000003c0004c6120010",
        );
        let v6 = "fd72:696e:6766:6e63::10".parse().unwrap();
        check(
            &plain,
            DnsReply::V6(v6),
            "8180 0001000100000000 c00c001c00010000003c0010fd72696e67666e630000000000000010",
        );
        check(
            &plain,
            DnsReply::Pointer(HostName::new("localhost").unwrap()),
            "8180 0001000100000000 c00c000c00010000003c000b096c6f63616c686f737400",
        );
        let soa = "000006000100000001001600000000000100000e10000002580001518000000001";
        check(&plain, DnsReply::NoData, &format!("8180 0001000000010000 {soa}"));
        check(&plain, DnsReply::NoSuchName, &format!("8183 0001000000010000 {soa}"));
        check(&plain, DnsReply::Refused, "8185 0001000000000000 ");
        check(&plain, DnsReply::TryAgain, "8182 0001000000000000 ");
        check(
            &with_edns(plain.clone()),
            DnsReply::NoSuchName,
            &format!("8183 0001000000010001 {soa}00002904d0000000000000"),
        );
        check(
            &with_edns(plain),
            DnsReply::OtherVersion,
            "8180 0001000000000001 00002904d0010000000000",
        );
        let head = DnsHeader { id: 0x0102, flags: 0x2910 };
        assert_eq!(malformed(head), [1, 2, 0xa9, 0x91, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(not_implemented(head), [1, 2, 0xa9, 0x94, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn every_answer_fits_in_512_bytes() {
        let long = |last: usize| format!("{0}.{0}.{0}.{1}", "a".repeat(63), "a".repeat(last));
        let name = HostName::new(&long(61)).unwrap();
        let query = |name: &str| parse(&with_edns(question(7, name, 1))).unwrap();
        for reply in [
            DnsReply::V4([0; 4].into()),
            DnsReply::V6([0; 16].into()),
            DnsReply::NoData,
            DnsReply::NoSuchName,
        ] {
            assert!(write(&query(&long(61)), &reply).len() <= LONGEST);
        }
        // A reverse query contains the spelt-out address.
        let longest = format!("{}ip6.arpa", "f.".repeat(32));
        assert!(write(&query(&longest), &DnsReply::Pointer(name)).len() <= LONGEST);
    }
}
