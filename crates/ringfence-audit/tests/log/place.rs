//! Where a log may be, and what happens where it cannot.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use ringfence_audit::AuditLog;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::worker::{said, say, task, worker, worker_after};
use crate::{Scratch, code, options, record};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn nobody_else_can_read_or_write_it() {
    let scratch = Scratch::filled(1);
    let audit = scratch.path();
    assert_eq!((mode(&audit), mode(audit.parent().unwrap())), (0o700, 0o700));
    assert_eq!((mode(&scratch.file(1)), mode(&scratch.head())), (0o600, 0o600));
}

#[test]
fn what_others_can_write_is_refused() {
    let scratch = Scratch::filled(1);
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
    let elsewhere = Scratch::filled(1);
    for (link, target) in [
        ("state/ringfence", elsewhere.path().parent().unwrap().to_owned()),
        ("state/ringfence/audit", elsewhere.path()),
        ("state/ringfence/audit/head", elsewhere.head()),
        ("state/ringfence/audit/00000001.jsonl", elsewhere.file(1)),
    ] {
        let scratch = Scratch::new();
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
fn a_file_with_two_names_and_a_pipe_are_refused() {
    let scratch = Scratch::filled(1);
    fs::hard_link(scratch.file(1), scratch.0.join("other")).unwrap();
    assert_eq!(code(scratch.open(u64::MAX).append(&[record("x")])), "audit-unsafe");
    let scratch = Scratch::filled(1);
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

/// Writes until nothing more goes in, and says what became of it.
fn fill(scratch: &Scratch) {
    let mut written = 0;
    let error = loop {
        match scratch.open(u64::MAX).append(&[record(&"x".repeat(500))]) {
            Ok(end) => written = end.seq,
            Err(error) => break error,
        }
    };
    let report = scratch.verify();
    say(&format!(
        "{} {} {}",
        error.code(),
        written == report.records && written > 3,
        report.findings.is_empty()
    ));
}

#[track_caller]
fn check(output: std::process::Output, expect: &str) {
    assert_eq!(
        said(&output.stdout),
        [expect],
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Promise: P32
#[test]
fn a_full_disk_is_an_error_and_leaves_whole_records() {
    if let Some((_, scratch)) = task() {
        fill(&scratch);
        return std::mem::forget(scratch);
    }
    let scratch = Scratch::new();
    let test = "place::a_full_disk_is_an_error_and_leaves_whole_records";
    let mount = "mkdir $SCRATCH/state; mount -t tmpfs -o size=64k tmpfs $SCRATCH/state";
    check(worker_after(mount, test, "fill", &scratch).output().unwrap(), "audit-full true true");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_kills_nobody() {
    if let Some((_, scratch)) = task() {
        setrlimit(Resource::Fsize, Rlimit { current: Some(10_000), maximum: Some(10_000) })
            .unwrap();
        fill(&scratch);
        return std::mem::forget(scratch);
    }
    let scratch = Scratch::new();
    let test = "place::a_limit_on_the_size_of_files_is_an_error_and_kills_nobody";
    check(worker(test, "fill", &scratch).output().unwrap(), "audit-full true true");
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error() {
    if let Some((_, scratch)) = task() {
        let refused = AuditLog::open(&scratch.path(), options(u64::MAX))
            .and_then(|mut log| log.append(&[record("x")]));
        say(&refused
            .map_or_else(|error| format!("{}: {error}", error.code()), |_| "written".into()));
        return std::mem::forget(scratch);
    }
    let scratch = Scratch::filled(1);
    let test = "place::a_directory_that_cannot_be_written_is_an_error";
    let mount = "mount --bind $SCRATCH $SCRATCH; mount -o remount,bind,ro $SCRATCH";
    let expect = format!("audit-unusable: cannot open {}", scratch.head().display());
    check(worker_after(mount, test, "write", &scratch).output().unwrap(), &expect);
    let empty = Scratch::new();
    let expect = format!("audit-unusable: cannot make {}", empty.0.join("state").display());
    check(worker_after(mount, test, "write", &empty).output().unwrap(), &expect);
}
