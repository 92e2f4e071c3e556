//! Every manual change of the files is found and located.

use std::fs;

use crate::{LogScratch, edit, record};

#[track_caller]
fn check(scratch: &LogScratch, expect: &[&str]) {
    assert_eq!(scratch.flaws(), expect);
    assert!(!scratch.verify().is_intact());
}

#[test]
fn changed_byte_is_located() {
    let scratch = LogScratch::filled(5);
    edit(&scratch.file(1), |lines| {
        let at = lines[2].windows(4).position(|bytes| bytes == b"file").unwrap();
        lines[2][at] = b'p';
    });
    check(
        &scratch,
        &["00000001.jsonl:3: record 3 was changed: its content does not match its hash"],
    );
}

/// Promise: log-tampering
#[test]
fn any_changed_byte_is_detected() {
    let scratch = LogScratch::filled(3);
    for path in [scratch.file(1), scratch.head()] {
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).unwrap();
            assert!(!scratch.verify().is_intact(), "byte {at} of {}", path.display());
        }
        fs::write(&path, bytes).unwrap();
    }
    assert!(scratch.verify().is_intact());
}

#[test]
fn line_rewritten_with_a_valid_hash_is_detected() {
    let (scratch, other) = (LogScratch::filled(5), LogScratch::new());
    let mut log = other.open(u64::MAX);
    for name in ["a", "b", "c", "d", "e"] {
        log.append(&[record(name)]).unwrap();
    }
    let forged = fs::read(other.file(1)).unwrap();
    edit(&scratch.file(1), |lines| {
        lines[2] = forged.split(|byte| *byte == b'\n').nth(2).unwrap().to_vec()
    });
    check(
        &scratch,
        &[
            "00000001.jsonl:3: record 3 does not continue the one before it",
            "00000001.jsonl:4: record 4 does not continue the one before it",
        ],
    );
}

/// Promise: log-tampering
#[test]
fn removed_lines_are_detected() {
    let scratch = LogScratch::filled(5);
    edit(&scratch.file(1), |lines| drop(lines.remove(2)));
    check(&scratch, &["00000001.jsonl:3: record 3 is missing before this line"]);
    edit(&scratch.file(1), |lines| drop(lines.drain(..2)));
    check(&scratch, &["00000001.jsonl:1: records 1 to 3 are missing before this line"]);
}

/// Promise: log-tampering
#[test]
fn swapped_lines_are_detected() {
    let scratch = LogScratch::filled(5);
    edit(&scratch.file(1), |lines| lines.swap(1, 2));
    check(
        &scratch,
        &[
            "00000001.jsonl:2: record 2 is missing before this line",
            "00000001.jsonl:3: record 2 comes after record 3: it was moved or copied",
        ],
    );
}

#[test]
fn added_lines_are_detected() {
    let scratch = LogScratch::filled(3);
    edit(&scratch.file(1), |lines| lines.insert(1, b"{\"timestamp\":\"x\"}".to_vec()));
    check(&scratch, &["00000001.jsonl:2: this line is not a record"]);
    edit(&scratch.file(1), |lines| lines[1] = lines[0].clone());
    check(&scratch, &["00000001.jsonl:2: record 1 comes after record 1: it was moved or copied"]);
}

/// Promise: log-tampering
#[test]
fn truncated_log_is_detected() {
    let scratch = LogScratch::filled(5);
    edit(&scratch.file(1), |lines| lines.truncate(3));
    let cut = "00000001.jsonl: records 4 to 5 are missing at the end: truncated, or lost in a power failure";
    check(&scratch, &[cut]);
    let bytes = fs::read(scratch.file(1)).unwrap();
    fs::write(scratch.file(1), &bytes[..bytes.len() - 9]).unwrap();
    check(
        &scratch,
        &[
            "00000001.jsonl:3: the last record is unfinished; the next writer removes it",
            "00000001.jsonl: records 3 to 5 are missing at the end: truncated, or lost in a power failure",
        ],
    );
}

/// Promise: log-tampering
#[test]
fn truncated_log_stays_detectable_after_new_records() {
    let scratch = LogScratch::filled(5);
    edit(&scratch.file(1), |lines| lines.truncate(3));
    scratch.open(u64::MAX).append(&[record("later")]).unwrap();
    // A record of the damage, then the new one.
    assert_eq!(scratch.targets()[3..], ["00000001.jsonl", "later"]);
    check(&scratch, &["00000001.jsonl:4: records 4 to 5 are missing before this line"]);
}

#[test]
fn missing_head_is_detected_and_repaired() {
    let scratch = LogScratch::filled(3);
    fs::remove_file(scratch.head()).unwrap();
    check(&scratch, &["head: the head file is missing or broken"]);
    scratch.open(u64::MAX).append(&[record("later")]).unwrap();
    // Nothing is lost, and the damage is recorded.
    assert_eq!(scratch.targets()[3..], ["head", "later"]);
    assert_eq!(scratch.flaws(), [] as [&str; 0]);
}

#[test]
fn head_that_is_too_long_is_repaired_once() {
    let scratch = LogScratch::filled(3);
    let head = fs::read(scratch.head()).unwrap();
    fs::write(scratch.head(), [head.as_slice(), b"more"].concat()).unwrap();
    check(&scratch, &["head: the head file is missing or broken"]);
    scratch.open(u64::MAX).append(&[record("later")]).unwrap();
    scratch.open(u64::MAX).append(&[record("much later")]).unwrap();
    // Repaired once, not again and again.
    assert_eq!(scratch.targets()[3..], ["head", "later", "much later"]);
    assert_eq!(scratch.flaws(), [] as [&str; 0]);
}

#[test]
fn head_of_another_log_is_detected() {
    let (scratch, other) = (LogScratch::filled(3), LogScratch::new());
    other.open(u64::MAX).append(&[record("a"), record("b"), record("c")]).unwrap();
    fs::copy(other.head(), scratch.head()).unwrap();
    check(&scratch, &["00000001.jsonl:3: the head file has a different hash for record 3"]);
}

#[test]
fn lines_after_the_end_are_detected() {
    let scratch = LogScratch::filled(3);
    edit(&scratch.file(1), |lines| lines.push(b"{}".to_vec()));
    scratch.open(u64::MAX).append(&[record("later")]).unwrap();
    assert_eq!(scratch.flaws(), ["00000001.jsonl:4: this line is not a record"]);
}
