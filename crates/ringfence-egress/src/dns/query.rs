//! DNS queries in wire format (RFC 1035, EDNS of RFC 6891).
//!
//! Strict, since every client is a program of the sandbox and every resolver writes the same form:
//! one question with an uncompressed name, empty answer and authority sections, and at most one
//! additional record, which is EDNS. Anything else is rejected, so it cannot be misread.

use crate::byte_reader::ByteReader;
use ringfence_policy::HostName;

/// Record types used here.
pub(super) mod kind {
    pub(in crate::dns) const A: u16 = 1;
    pub(in crate::dns) const SOA: u16 = 6;
    pub(in crate::dns) const PTR: u16 = 12;
    pub(in crate::dns) const AAAA: u16 = 28;
    pub(in crate::dns) const OPT: u16 = 41;
    pub(in crate::dns) const IXFR: u16 = 251;
    pub(in crate::dns) const AXFR: u16 = 252;
}

/// Class `IN`.
pub(super) const INTERNET: u16 = 1;

pub(super) const HEADER: usize = 12;

/// A query that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DnsQuery {
    pub(super) head: DnsHeader,
    /// As received: the answer repeats it exactly, since some resolvers compare its case.
    pub(super) question: Vec<u8>,
    pub(super) subject: DnsQuestion,
    pub(super) kind: u16,
    pub(super) class: u16,
    pub(super) edns: EdnsUse,
}

/// Subject of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DnsQuestion {
    /// The DNS root.
    Root,
    Name(HostName),
    /// Labels that are no host name, escaped for display.
    Odd(String),
}

/// EDNS use of a query; the answer repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EdnsUse {
    Absent,
    Version(u8),
}

/// Header fields that the answer repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DnsHeader {
    pub(super) id: u16,
    pub(super) flags: u16,
}

/// Reason why a message cannot be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DnsParseError {
    /// Too short for an id, or itself an answer: answering an answer could start an endless loop.
    NoQuery,
    Malformed(DnsHeader),
    /// Not a standard query: an update or a notification.
    OtherOpcode(DnsHeader),
}

pub(super) mod flag {
    pub(in crate::dns) const ANSWER: u16 = 0x8000;
    pub(in crate::dns) const OPCODE: u16 = 0x7800;
    pub(in crate::dns) const TRUNCATED: u16 = 0x0200;
    pub(in crate::dns) const RECURSION_DESIRED: u16 = 0x0100;
    pub(in crate::dns) const RECURSION_AVAILABLE: u16 = 0x0080;
    pub(in crate::dns) const CHECKING_DISABLED: u16 = 0x0010;
}

/// The host name of an address query; `None` for any other message.
pub fn queried_name(message: &[u8]) -> Option<HostName> {
    match parse(message).ok()? {
        DnsQuery { subject: DnsQuestion::Name(name), kind: kind::A | kind::AAAA, .. } => Some(name),
        _ => None,
    }
}

/// An NXDOMAIN answer to the query in `message`; `None` if it is no query.
pub fn nxdomain_reply(message: &[u8]) -> Option<Vec<u8>> {
    parse(message)
        .ok()
        .map(|query| super::reply::write(&query, &super::reply::DnsReply::NoSuchName))
}

/// Parses one whole message.
pub(super) fn parse(message: &[u8]) -> Result<DnsQuery, DnsParseError> {
    let mut bytes = ByteReader(message);
    let head = bytes
        .u16()
        .zip(bytes.u16())
        .map(|(id, flags)| DnsHeader { id, flags })
        .ok_or(DnsParseError::NoQuery)?;
    if message.len() < HEADER || head.flags & flag::ANSWER != 0 {
        return Err(DnsParseError::NoQuery);
    }
    if head.flags & flag::OPCODE != 0 {
        return Err(DnsParseError::OtherOpcode(head));
    }
    body(head, bytes).ok_or(DnsParseError::Malformed(head))
}

fn body(head: DnsHeader, mut bytes: ByteReader<'_>) -> Option<DnsQuery> {
    let [questions, answers, authorities, additional] =
        [bytes.u16()?, bytes.u16()?, bytes.u16()?, bytes.u16()?];
    if (questions, answers, authorities) != (1, 0, 0) || head.flags & flag::TRUNCATED != 0 {
        return None;
    }
    let from = bytes.0;
    let subject = name(&mut bytes)?;
    let (kind, class) = (bytes.u16()?, bytes.u16()?);
    let question = from[..from.len() - bytes.0.len()].to_vec();
    let edns = match additional {
        0 => EdnsUse::Absent,
        1 => edns(&mut bytes)?,
        _ => return None,
    };
    (bytes.is_empty() && kind != kind::OPT).then_some(DnsQuery {
        head,
        question,
        subject,
        kind,
        class,
        edns,
    })
}

/// Parses an uncompressed name. A compression pointer could only point back into the header.
fn name(bytes: &mut ByteReader<'_>) -> Option<DnsQuestion> {
    let mut labels: Vec<&[u8]> = Vec::new();
    let mut length = 1;
    loop {
        let count = usize::from(bytes.u8()?);
        if count == 0 {
            break;
        }
        length += count + 1;
        if count > 63 || length > 255 {
            return None;
        }
        labels.push(bytes.take(count)?);
    }
    if labels.is_empty() {
        return Some(DnsQuestion::Root);
    }
    // A dot within a label would look like a label end.
    let plain = labels.iter().all(|label| !label.contains(&b'.'));
    Some(match HostName::from_bytes(&labels.join(&b'.')) {
        Ok(name) if plain => DnsQuestion::Name(name),
        _ => DnsQuestion::Odd(escape_labels(&labels)),
    })
}

/// Labels as text with every other byte escaped (RFC 4343).
fn escape_labels(labels: &[&[u8]]) -> String {
    let byte = |byte: &u8| match byte {
        byte if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') => {
            char::from(*byte).to_string()
        }
        byte => format!("\\{byte:03}"),
    };
    let label = |label: &&[u8]| label.iter().map(byte).collect::<String>();
    labels.iter().map(label).collect::<Vec<_>>().join(".")
}

/// Parses the additional record. Its options (cookies, padding, client subnet) matter only to
/// forwarding resolvers.
fn edns(bytes: &mut ByteReader<'_>) -> Option<EdnsUse> {
    let (root, kind) = (bytes.u8()?, bytes.u16()?);
    if (root, kind) != (0, kind::OPT) {
        return None;
    }
    let _payload = bytes.u16()?;
    let (extended, version) = (bytes.u8()?, bytes.u8()?);
    let _flags = bytes.u16()?;
    let _options = bytes.prefixed_u16()?;
    (extended == 0).then_some(EdnsUse::Version(version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dns::testing::{question, with_edns};

    #[track_caller]
    fn check(message: &[u8], expect: &str) {
        let actual = match parse(message) {
            Ok(DnsQuery { subject, kind, edns, .. }) => format!("{subject:?} {kind} {edns:?}"),
            Err(DnsParseError::NoQuery) => "no query".to_owned(),
            Err(DnsParseError::Malformed(_)) => "malformed".to_owned(),
            Err(DnsParseError::OtherOpcode(_)) => "other opcode".to_owned(),
        };
        assert_eq!(actual, expect);
    }

    fn changed(mut message: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
        message[at] = byte;
        message
    }

    #[test]
    fn query_is_parsed() {
        check(&question(7, "WWW.Example.org", 1), r#"Name(HostName("www.example.org")) 1 Absent"#);
        check(
            &with_edns(question(7, "a.example", 28)),
            r#"Name(HostName("a.example")) 28 Version(0)"#,
        );
        check(&question(7, "", 2), "Root 2 Absent");
        let read = parse(&question(7, "WWW.example.org", 1)).unwrap();
        assert_eq!((read.head.id, read.class), (7, INTERNET));
        assert_eq!(read.question, question(7, "WWW.example.org", 1)[HEADER..]);
    }

    #[test]
    fn labels_of_no_host_name_are_escaped() {
        let mut dotted = question(7, "aXb.example", 1);
        dotted[HEADER + 2] = b'.';
        check(&dotted, r#"Odd("a\\046b.example") 1 Absent"#);
        check(&changed(question(7, "aXb", 1), HEADER + 2, 0), r#"Odd("a\\000b") 1 Absent"#);
        check(&changed(question(7, "aXb", 1), HEADER + 2, 0xff), r#"Odd("a\\255b") 1 Absent"#);
        check(&question(7, "127.1", 1), r#"Odd("127.1") 1 Absent"#);
    }

    #[test]
    fn any_other_form_is_rejected() {
        let plain = question(7, "a.example", 1);
        check(&plain[..HEADER - 1], "no query");
        check(&changed(plain.clone(), 2, 0x80), "no query");
        check(&changed(plain.clone(), 2, 0x28), "other opcode");
        check(&changed(plain.clone(), 2, 0x02), "malformed");
        // Counts of each section.
        for (at, count) in [(5, 0), (5, 2), (7, 1), (9, 1), (11, 1), (11, 2)] {
            check(&changed(plain.clone(), at, count), "malformed");
        }
        check(&[&plain[..], b"x"].concat(), "malformed");
        check(&plain[..plain.len() - 1], "malformed");
        // A compression pointer, and the two reserved prefixes.
        for prefix in [0xc0, 0x80, 0x40] {
            check(&changed(plain.clone(), HEADER, prefix), "malformed");
        }
        check(&question(7, "a.example", kind::OPT), "malformed");
        // Wrong owner, wrong type, wrong length, options longer than the message.
        let edns = with_edns(plain.clone());
        for (at, byte) in [(0, 1), (2, 42), (5, 1), (10, 1)] {
            check(&changed(edns.clone(), plain.len() + at, byte), "malformed");
        }
        check(&changed(edns, plain.len() + 6, 1), r#"Name(HostName("a.example")) 1 Version(1)"#);
    }

    #[test]
    fn too_long_names_are_malformed() {
        let long = |last: usize| format!("{0}.{0}.{0}.{1}", "a".repeat(63), "a".repeat(last));
        assert!(
            matches!(parse(&question(7, &long(61), 1)).unwrap().subject, DnsQuestion::Name(name) if name.as_str().len() == 253)
        );
        check(&question(7, &long(62), 1), "malformed");
        check(&question(7, &"a".repeat(64), 1), "malformed");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(message in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse(&message);
        }

        #[test]
        fn any_change_of_a_question_is_read_or_refused(at in 0..60_usize, byte: u8, cut in 0..60_usize) {
            let mut message = with_edns(question(7, "www.a.example", 1));
            let at = at % message.len();
            message[at] = byte;
            message.truncate(message.len().saturating_sub(cut / 4));
            if let Ok(query) = parse(&message) {
                prop_assert!(message[HEADER..].starts_with(&query.question));
            }
        }
    }
}
