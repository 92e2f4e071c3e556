//! Guarantees of the log, tested on real files and processes.

mod crash;
mod crowd;
mod place;
mod recent;
mod rotation;
mod tampering;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ringfence_api::{Denial, DenialEvidence, Operation};
use ringfence_audit::{
    AuditError, AuditLog, LogFlaw, LogOptions, LogReader, Record, RecordSubject, VerifyReport,
};
use ringfence_policy::Fsync;
use serde_json::Value;

/// A temporary directory, removed when dropped.
struct LogScratch(PathBuf);

impl LogScratch {
    fn new() -> LogScratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("audit-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        LogScratch(path)
    }

    /// The directory of the log.
    fn path(&self) -> PathBuf {
        self.0.join("state/ringfence/audit")
    }

    fn file(&self, number: u32) -> PathBuf {
        self.path().join(format!("{number:08}.jsonl"))
    }

    fn head(&self) -> PathBuf {
        self.path().join("head")
    }

    fn open(&self, rotate_bytes: u64) -> AuditLog {
        AuditLog::open(&self.path(), options(rotate_bytes)).expect("the log can be opened")
    }

    /// A log with this number of records in one file.
    fn filled(records: u32) -> LogScratch {
        let scratch = LogScratch::new();
        let mut log = scratch.open(u64::MAX);
        for number in 0..records {
            log.append(&[record(&format!("/project/file-{number}"))]).expect("there is space");
        }
        scratch
    }

    fn verify(&self) -> VerifyReport {
        ringfence_audit::verify(&self.path(), &[]).expect("the log can be read")
    }

    /// The findings as `FILE:LINE: FLAW`.
    fn flaws(&self) -> Vec<String> {
        self.verify().findings.iter().map(ToString::to_string).collect()
    }

    fn targets(&self) -> Vec<String> {
        let mut reader = LogReader::open(&self.path(), 0).unwrap().expect("there is a log");
        std::iter::from_fn(|| reader.line().unwrap())
            .map(|line| {
                serde_json::from_slice::<Value>(&line.bytes).unwrap()["target"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }
}

impl Drop for LogScratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(rotate_bytes: u64) -> LogOptions {
    LogOptions { fsync: Fsync::Never, rotate_bytes }
}

fn record(target: &str) -> Record {
    let denial = Denial {
        operation: Operation::Read,
        target: target.to_owned(),
        rule: "deny **/.env".into(),
        origin: "built in".into(),
        explicit: true,
        pid: 42,
        program: "cat".into(),
        time_ms: 1_769_596_205_000,
        evidence: DenialEvidence::Kernel,
        count: 1,
        optional: false,
    };
    Record::denied(&RecordSubject { agent: Some("agent".into()), session: "0199".into() }, &denial)
}

/// Changes the lines of a file, each without its newline.
fn edit(path: &Path, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
    let bytes = fs::read(path).unwrap();
    let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    lines.pop();
    change(&mut lines);
    let ended: Vec<u8> =
        lines.into_iter().flat_map(|line| [line, b"\n".to_vec()].concat()).collect();
    fs::write(path, ended).unwrap();
}

#[track_caller]
fn code(result: Result<impl std::fmt::Debug, AuditError>) -> &'static str {
    result.expect_err("it must not go through").code()
}

#[test]
fn records_are_read_back_as_they_were_written() {
    let scratch = LogScratch::new();
    let mut log = scratch.open(u64::MAX);
    let hostile = "new\nline \u{1b}[31m \u{202e}\0 \"quote\" \\ é 漢";
    let end = log.append(&[record("a"), record(hostile)]).unwrap();
    assert_eq!(end.seq, 2);
    assert_eq!(scratch.targets(), ["a", hostile]);
    let report = scratch.verify();
    assert_eq!((report.records, report.files, report.head), (2, 1, Some(end)));
    assert_eq!(report.findings, []);
    let bytes = fs::read(scratch.file(1)).unwrap();
    assert!(bytes.iter().all(|byte| *byte == b'\n' || !byte.is_ascii_control()));
    assert_eq!(ringfence_audit::verify(&scratch.path(), &[end.hash]).unwrap().findings, []);
}

#[test]
fn rewritten_log_is_detected_by_a_stored_hash() {
    let scratch = LogScratch::filled(3);
    let kept = scratch.verify().head.unwrap().hash;
    let other = LogScratch::new();
    let mut log = other.open(u64::MAX);
    log.append(&[record("a"), record("b"), record("c"), record("d")]).unwrap();
    assert!(other.verify().is_intact());
    let report = ringfence_audit::verify(&other.path(), &[kept]).unwrap();
    assert_eq!(
        report.findings.iter().map(|finding| finding.flaw).collect::<Vec<_>>(),
        [LogFlaw::Unknown { hash: kept }]
    );
    assert!(!report.is_intact());
}

#[test]
fn missing_log_is_intact() {
    let scratch = LogScratch::new();
    assert_eq!(scratch.verify(), VerifyReport::default());
    assert!(LogReader::open(&scratch.path(), 0).unwrap().is_none());
    scratch.open(u64::MAX);
    assert!(scratch.verify().is_intact());
}
