//! Writers that are killed.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::worker::{parse_reports, print_report, task, worker};
use crate::{LogScratch, record};

/// Promise: no-lost-record
#[test]
fn acknowledged_records_survive_a_kill_at_any_time() {
    if let Some((name, scratch)) = task() {
        let mut log = scratch.open(16 << 10);
        for number in 0.. {
            // Different sizes, over several memory pages: such a write can be cut short.
            let end = log
                .append(&[record(&format!("{name}-{}", "x".repeat(number * 977 % 20_000)))])
                .unwrap();
            print_report(&end.seq.to_string());
        }
    }
    let scratch = LogScratch::new();
    let test = "crash::acknowledged_records_survive_a_kill_at_any_time";
    let mut acknowledged = 0;
    for round in 0..60u64 {
        let mut child = worker(test, "w", &scratch)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut output = Vec::new();
        // Kill it only after its first record.
        while parse_reports(&output).is_empty() {
            let mut more = [0; 256];
            let length = stdout.read(&mut more).unwrap();
            assert!(length > 0, "the writer ended by itself");
            output.extend_from_slice(&more[..length]);
        }
        std::thread::sleep(Duration::from_micros(round * 397 % 5_000));
        child.kill().unwrap();
        stdout.read_to_end(&mut output).unwrap();
        child.wait().unwrap();
        acknowledged =
            parse_reports(&output).last().and_then(|seq| seq.parse().ok()).unwrap_or(acknowledged);
        let report = scratch.verify();
        assert!(report.is_intact(), "round {round}: {:?}", scratch.flaws());
        assert!(
            report.records >= acknowledged,
            "round {round}: acknowledged {acknowledged}, found {}",
            report.records
        );
    }
    scratch.open(u64::MAX).append(&[record("after")]).unwrap();
    assert_eq!(scratch.flaws(), [] as [&str; 0]);
    eprintln!("{} records, {acknowledged} acknowledged", scratch.verify().records);
}

/// Promise: no-lost-record
#[test]
fn incomplete_record_is_removed_at_any_length() {
    let scratch = LogScratch::filled(3);
    let whole = fs::read(scratch.file(1)).unwrap();
    let (before, last) = whole
        .split_at(whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1);
    let head = fs::read(scratch.head()).unwrap();
    for length in (1..last.len()).step_by(7).chain([last.len() - 1]) {
        fs::write(scratch.file(1), [&whole, &last[..length]].concat()).unwrap();
        fs::write(scratch.head(), &head).unwrap();
        assert_eq!(
            scratch.flaws(),
            ["00000001.jsonl:4: the last record is unfinished; the next writer removes it"]
        );
        assert!(scratch.verify().is_intact());
        scratch.open(u64::MAX).append(&[record("after")]).unwrap();
        assert_eq!(scratch.flaws(), [] as [&str; 0], "after {length} bytes");
        assert_eq!(scratch.targets().len(), 5);
        assert!(
            fs::read(scratch.file(1)).unwrap().starts_with(&whole) && whole.starts_with(before)
        );
    }
}

#[test]
fn record_missing_in_the_head_is_kept() {
    let scratch = LogScratch::filled(2);
    let head = fs::read(scratch.head()).unwrap();
    scratch.open(u64::MAX).append(&[record("third"), record("fourth")]).unwrap();
    fs::write(scratch.head(), &head).unwrap();
    assert_eq!(scratch.flaws(), [] as [&str; 0]);
    assert_eq!(scratch.open(u64::MAX).append(&[record("fifth")]).unwrap().seq, 5);
    assert_eq!(scratch.targets()[2..], ["third", "fourth", "fifth"]);
    assert_eq!(scratch.flaws(), [] as [&str; 0]);
}

#[test]
fn empty_next_file_is_used() {
    let scratch = LogScratch::filled(2);
    fs::File::create(scratch.file(2)).unwrap().write_all(b"").unwrap();
    let permissions = fs::metadata(scratch.file(1)).unwrap().permissions();
    fs::set_permissions(scratch.file(2), permissions).unwrap();
    let size = fs::metadata(scratch.file(1)).unwrap().len();
    scratch.open(size).append(&[record("on the next page")]).unwrap();
    assert_eq!(scratch.flaws(), [] as [&str; 0]);
    assert_eq!(scratch.verify().files, 2);
}

#[test]
fn removed_files_are_created_again() {
    let scratch = LogScratch::new();
    let mut log = scratch.open(u64::MAX);
    log.append(&[record("a")]).unwrap();
    fs::remove_file(scratch.file(1)).unwrap();
    log.append(&[record("b")]).unwrap();
    assert_eq!(scratch.targets(), ["00000001.jsonl", "b"]);
    fs::remove_dir_all(scratch.path()).unwrap();
    log.append(&[record("c")]).unwrap();
    assert_eq!(scratch.targets(), ["c"]);
}
