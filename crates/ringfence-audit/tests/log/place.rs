//! The location of a log, and errors there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use ringfence_audit::AuditLog;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::worker::{parse_reports, print_report, task, worker, worker_after};
use crate::{LogScratch, code, options, record};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn only_the_owner_can_read_or_write_the_log() {
    let scratch = LogScratch::filled(1);
    let audit = scratch.path();
    assert_eq!((mode(&audit), mode(audit.parent().unwrap())), (0o700, 0o700));
    assert_eq!((mode(&scratch.file(1)), mode(&scratch.head())), (0o600, 0o600));
}

#[test]
fn log_writable_by_other_users_is_refused() {
    let scratch = LogScratch::filled(1);
    let audit = scratch.path();
    let paths =
        [audit.clone(), audit.parent().unwrap().to_owned(), scratch.head(), scratch.file(1)];
    for path in &paths {
        let before = mode(path);
        for wrong in [0o020, 0o002] {
            set_mode(path, before | wrong);
            let refused = AuditLog::open(&audit, options(u64::MAX))
                .and_then(|mut log| log.append(&[record("x")]));
            assert_eq!(code(refused), "audit-unsafe", "{}", path.display());
        }
        set_mode(path, before);
    }
    let state = audit.ancestors().nth(2).unwrap();
    set_mode(state, 0o777);
    assert_eq!(code(AuditLog::open(&audit, options(u64::MAX))), "audit-unsafe");
    set_mode(state, 0o1777);
    scratch.open(u64::MAX).append(&[record("x")]).unwrap();
    assert_eq!(scratch.verify().records, 2);
}

#[test]
fn no_link_is_followed() {
    let elsewhere = LogScratch::filled(1);
    for (link, target) in [
        ("state/ringfence", elsewhere.path().parent().unwrap().to_owned()),
        ("state/ringfence/audit", elsewhere.path()),
        ("state/ringfence/audit/head", elsewhere.head()),
        ("state/ringfence/audit/00000001.jsonl", elsewhere.file(1)),
    ] {
        let scratch = LogScratch::new();
        let link = scratch.0.join(link);
        for (number, above) in
            link.parent().unwrap().ancestors().collect::<Vec<_>>().into_iter().rev().enumerate()
        {
            if number > 0 && !above.exists() {
                fs::create_dir(above).unwrap();
                set_mode(above, 0o700);
            }
        }
        symlink(&target, &link).unwrap();
        let refused = AuditLog::open(&scratch.path(), options(u64::MAX))
            .and_then(|mut log| log.append(&[record("x")]));
        assert_eq!(code(refused), "audit-unusable", "{}", link.display());
    }
    assert_eq!(elsewhere.verify().records, 1);
}

#[test]
fn hard_link_and_pipe_are_refused() {
    let scratch = LogScratch::filled(1);
    fs::hard_link(scratch.file(1), scratch.0.join("other")).unwrap();
    assert_eq!(code(scratch.open(u64::MAX).append(&[record("x")])), "audit-unsafe");
    let scratch = LogScratch::filled(1);
    fs::remove_file(scratch.file(1)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scratch.file(1),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    assert_eq!(code(scratch.open(u64::MAX).append(&[record("x")])), "audit-unsafe");
    assert!(ringfence_audit::verify(&scratch.path(), &[]).is_err());
}

/// Writes until the disk is full, and reports the result.
fn fill(scratch: &LogScratch) {
    let mut written = 0;
    let error = loop {
        match scratch.open(u64::MAX).append(&[record(&"x".repeat(500))]) {
            Ok(end) => written = end.seq,
            Err(error) => break error,
        }
    };
    let report = scratch.verify();
    print_report(&format!(
        "{} {} {}",
        error.code(),
        written == report.records && written > 3,
        report.findings.is_empty()
    ));
}

#[track_caller]
fn check(output: std::process::Output, expect: &str) {
    assert_eq!(
        parse_reports(&output.stdout),
        [expect],
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Promise: no-lost-record
#[test]
fn full_disk_is_an_error_and_leaves_only_complete_records() {
    if let Some((_, scratch)) = task() {
        fill(&scratch);
        return std::mem::forget(scratch);
    }
    let scratch = LogScratch::new();
    let test = "place::full_disk_is_an_error_and_leaves_only_complete_records";
    let mount = "mkdir $SCRATCH/state; mount -t tmpfs -o size=64k tmpfs $SCRATCH/state";
    check(worker_after(mount, test, "fill", &scratch).output().unwrap(), "audit-full true true");
}

#[test]
fn file_size_limit_is_an_error_and_does_not_kill_the_writer() {
    if let Some((_, scratch)) = task() {
        setrlimit(Resource::Fsize, Rlimit { current: Some(10_000), maximum: Some(10_000) })
            .unwrap();
        fill(&scratch);
        return std::mem::forget(scratch);
    }
    let scratch = LogScratch::new();
    let test = "place::file_size_limit_is_an_error_and_does_not_kill_the_writer";
    check(worker(test, "fill", &scratch).output().unwrap(), "audit-full true true");
}

#[test]
fn read_only_directory_is_an_error() {
    if let Some((_, scratch)) = task() {
        let refused = AuditLog::open(&scratch.path(), options(u64::MAX))
            .and_then(|mut log| log.append(&[record("x")]));
        print_report(
            &refused
                .map_or_else(|error| format!("{}: {error}", error.code()), |_| "written".into()),
        );
        return std::mem::forget(scratch);
    }
    let scratch = LogScratch::filled(1);
    let test = "place::read_only_directory_is_an_error";
    let mount = "mount --bind $SCRATCH $SCRATCH; mount -o remount,bind,ro $SCRATCH";
    let expect = format!("audit-unusable: cannot open {}", scratch.head().display());
    check(worker_after(mount, test, "write", &scratch).output().unwrap(), &expect);
    let empty = LogScratch::new();
    let expect = format!("audit-unusable: cannot create {}", empty.0.join("state").display());
    check(worker_after(mount, test, "write", &empty).output().unwrap(), &expect);
}
