//! Many writers at once.

use std::collections::BTreeSet;

use crate::worker::{task, worker};
use crate::{LogScratch, record};

const WRITERS: usize = 8;
const RECORDS: usize = 2_500;

/// Promise: no-lost-record
#[test]
fn eight_processes_at_once_lose_no_record() {
    if let Some((name, scratch)) = task() {
        // Small enough for several rotations.
        let mut log = scratch.open(2 << 20);
        for number in 0..RECORDS {
            log.append(&[record(&format!("{name}-{number}"))]).unwrap();
        }
        std::mem::forget(scratch);
        return;
    }
    let scratch = LogScratch::new();
    let test = "crowd::eight_processes_at_once_lose_no_record";
    let begun = std::time::Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            worker(test, &writer.to_string(), &scratch)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    eprintln!("{} records in {:?}", WRITERS * RECORDS, begun.elapsed());
    let report = scratch.verify();
    assert_eq!(report.findings, []);
    assert_eq!(report.records, (WRITERS * RECORDS) as u64);
    assert!(report.files > 3);
    let targets: BTreeSet<String> = scratch.targets().into_iter().collect();
    assert_eq!(targets.len(), WRITERS * RECORDS);
}

#[test]
fn stopped_writer_blocks_others_only_for_a_limited_time() {
    use rustix::fs::{FlockOperation, flock};
    let scratch = LogScratch::filled(1);
    let held = std::fs::File::open(scratch.head()).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let begun = std::time::Instant::now();
    assert_eq!(crate::code(scratch.open(u64::MAX).append(&[record("x")])), "audit-busy");
    assert!(begun.elapsed().as_secs() < 30);
}
