//! Queries as programs send them, for unit tests.

/// A query with recursion desired.
pub(super) fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for number in [id, 0x0100, 1, 0, 0, 0] {
        out.extend(number.to_be_bytes());
    }
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(label.len() as u8);
        out.extend(label.bytes());
    }
    out.push(0);
    out.extend(kind.to_be_bytes());
    out.extend([0, 1]);
    out
}

/// The query with an empty EDNS record, as glibc writes it.
pub(super) fn with_edns(mut question: Vec<u8>) -> Vec<u8> {
    question[11] = 1;
    question.extend([0, 0, 41, 0x04, 0xb0, 0, 0, 0, 0, 0, 0]);
    question
}
