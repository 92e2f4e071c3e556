//! One log in several files.

use std::fs;

use ringfence_audit::LogReader;

use crate::{LogScratch, record};

/// 40 records in files of a few records each.
fn rotated() -> LogScratch {
    let scratch = LogScratch::new();
    for number in 0..20 {
        let mut log = scratch.open(4096);
        log.append(&[record(&format!("{number}"))]).unwrap();
        log.append(&[record(&format!("{number}+"))]).unwrap();
    }
    scratch
}

#[test]
fn chain_continues_across_files() {
    let scratch = rotated();
    let report = scratch.verify();
    assert_eq!((report.records, report.findings), (40, vec![]));
    assert!(report.files > 3, "{}", report.files);
    for number in 1..=report.files as u32 {
        assert!(fs::metadata(scratch.file(number)).unwrap().len() <= 4096);
    }
    let expect: Vec<String> =
        (0..20).flat_map(|number| [format!("{number}"), format!("{number}+")]).collect();
    assert_eq!(scratch.targets(), expect);
}

#[test]
fn many_records_at_once_are_spread_over_files() {
    let scratch = LogScratch::new();
    let records: Vec<_> = (0..50).map(|number| record(&format!("{number}"))).collect();
    scratch.open(4096).append(&records).unwrap();
    let report = scratch.verify();
    assert_eq!((report.records, report.findings), (50, vec![]));
    assert!(report.files > 3);
    // A record larger than the limit gets its own file.
    scratch.open(4096).append(&[record(&"x".repeat(10_000)), record("after")]).unwrap();
    assert_eq!(scratch.verify().findings, []);
    assert_eq!(scratch.targets().last().unwrap(), "after");
}

/// Promise: log-tampering
#[test]
fn removed_file_is_detected() {
    for removed in [1, 2] {
        let scratch = rotated();
        fs::remove_file(scratch.file(removed)).unwrap();
        let flaws = scratch.flaws();
        assert_eq!(flaws[0], format!("{removed:08}.jsonl: this file of the log is missing"));
        assert!(
            flaws[1].starts_with(&format!("{:08}.jsonl:1: records ", removed + 1)),
            "{flaws:?}"
        );
        assert_eq!(flaws.len(), 2);
    }
    let scratch = rotated();
    let last = scratch.verify().files as u32;
    fs::remove_file(scratch.file(last)).unwrap();
    let flaws = scratch.flaws();
    assert_eq!(flaws[0], format!("{last:08}.jsonl: this file of the log is missing"));
    assert!(flaws[1].contains("40 are missing at the end"), "{flaws:?}");
    // Also after another record was written.
    scratch.open(4096).append(&[record("later")]).unwrap();
    assert!(!scratch.verify().is_intact());
}

#[test]
fn file_after_the_last_is_foreign() {
    let scratch = rotated();
    let last = scratch.verify().files as u32;
    fs::copy(scratch.file(last), scratch.file(last + 1)).unwrap();
    assert_eq!(
        scratch.flaws(),
        [format!(
            "{:08}.jsonl: this file does not belong to the log, which ends before it",
            last + 1
        )]
    );
}

#[test]
fn a_reader_follows_into_the_next_file() {
    let scratch = LogScratch::new();
    let mut log = scratch.open(2048);
    log.append(&[record("first")]).unwrap();
    let mut reader = LogReader::open(&scratch.path(), 0).unwrap().unwrap();
    assert!(reader.line().unwrap().is_some() && reader.line().unwrap().is_none());
    let mut seen = 1;
    for number in 0..30 {
        log.append(&[record(&format!("{number}"))]).unwrap();
        let line = reader.line().unwrap().expect("what was written is there at once");
        assert!(String::from_utf8_lossy(&line.bytes).contains(&format!("\"target\":\"{number}\"")));
        assert!(reader.line().unwrap().is_none());
        seen += 1;
    }
    assert_eq!(scratch.verify().records, seen);
    assert!(scratch.verify().files > 5);
}

#[test]
fn a_reader_waits_for_the_end_of_a_line() {
    let scratch = LogScratch::filled(1);
    let mut reader = LogReader::open(&scratch.path(), 0).unwrap().unwrap();
    assert!(reader.line().unwrap().is_some());
    let whole = fs::read(scratch.file(1)).unwrap();
    fs::write(scratch.file(1), [whole.as_slice(), b"{\"half"].concat()).unwrap();
    assert_eq!(reader.line().unwrap(), None);
    assert_eq!(reader.line().unwrap(), None);
    scratch.open(u64::MAX).append(&[record("later")]).unwrap();
    let rest: Vec<String> = std::iter::from_fn(|| reader.line().unwrap())
        .map(|line| String::from_utf8_lossy(&line.bytes).into_owned())
        .collect();
    assert_eq!(rest.len(), 2);
    assert!(rest[0].contains("unfinished") && rest[1].contains("later"), "{rest:?}");
}
