//! Recent runs, found from the end of the log.

use std::fs::OpenOptions;
use std::io::Write;

use ringfence_audit::{
    AuditLog, Record, RecordAction, RecordDetails, RecordResult, RecordSubject, RunStarted,
    recent_run,
};

use crate::{LogScratch, record};

fn with_session(session: &str, mut record: Record) -> Record {
    record.session = session.into();
    record
}

fn begun(session: &str) -> Record {
    let begun = RunStarted {
        command: vec!["true".into()],
        command_base64: None,
        cwd: "/p".into(),
        cwd_base64: None,
        confined: true,
        policy_files: Vec::new(),
        provider: "local".into(),
        policy_digest: String::new(),
        gaps: Vec::new(),
        user: "me".into(),
        pid: 1,
        version: "0".into(),
    };
    let details = RecordDetails::Begun(Box::new(begun));
    let (operation, result) = (RecordAction::Begin, RecordResult::Allowed);
    let subject = RecordSubject { agent: None, session: session.into() };
    Record {
        timestamp: 0,
        agent: subject.agent,
        session: subject.session,
        operation,
        target: "true".into(),
        result,
        policy: "x".into(),
        reason: None,
        details,
    }
}

fn refused(scratch: &LogScratch, session: &str) -> Option<Vec<String>> {
    let run = recent_run(&scratch.path(), session).unwrap()?;
    Some(run.refused.iter().map(|record| record["target"].as_str().unwrap().to_owned()).collect())
}

fn write(log: &mut AuditLog, records: Vec<Record>) {
    log.append(&records).unwrap();
}

#[test]
fn recent_run_is_found_by_full_name_without_records_of_others() {
    let scratch = LogScratch::new();
    assert_eq!(refused(&scratch, "call_1"), None);
    let mut log = scratch.open(u64::MAX);
    write(
        &mut log,
        vec![
            begun("call_1"),
            with_session("call_1", record("/a")),
            begun("call_12"),
            with_session("call_12", record("/b")),
        ],
    );
    write(
        &mut log,
        vec![with_session("call_1", record("call_12")), with_session("x", record("call_1"))],
    );
    assert_eq!(refused(&scratch, "call_1"), Some(vec!["/a".into(), "call_12".into()]));
    assert_eq!(refused(&scratch, "call_12"), Some(vec!["/b".into()]));
    assert_eq!(refused(&scratch, "call"), None);
    // A reused name means the latest run.
    write(&mut log, vec![begun("call_1"), with_session("call_1", record("/c"))]);
    assert_eq!(refused(&scratch, "call_1"), Some(vec!["/c".into()]));
}

#[test]
fn recent_run_spans_files_and_ignores_an_unfinished_line() {
    let scratch = LogScratch::new();
    let mut log = scratch.open(4000);
    write(&mut log, vec![begun("call_1")]);
    for number in 0..40 {
        write(
            &mut log,
            vec![
                with_session("other", record(&"long ".repeat(20))),
                with_session("call_1", record(&format!("/{number}"))),
            ],
        );
    }
    assert!(scratch.file(3).exists());
    let last = (1..).take_while(|number| scratch.file(*number).exists()).last().unwrap();
    let mut page = OpenOptions::new().append(true).open(scratch.file(last)).unwrap();
    page.write_all(b"{\"session\":\"call_1\",\"operation\":\"read\"").unwrap();
    let found = refused(&scratch, "call_1").unwrap();
    assert_eq!((found.len(), found[0].as_str(), found[39].as_str()), (40, "/0", "/39"));
}
