//! The audit log: requests, denials and outcomes.
//!
//! Each line is one JSON object with the hash of the line before it, in append-only files. A small
//! file of fixed size, the *head*, names the last record, so that a truncated log is detected. Any
//! number of processes can write at once.
//!
//! There is no key: a process that can write the directory can rewrite the whole history. The chain
//! detects accidental or partial changes. A user who stores the head's hash elsewhere can detect
//! every change.
//!
//! The engine decides what is recorded, and what happens if that fails.

#![forbid(unsafe_code)]

mod chain;
mod directory;
mod error;
mod head;
mod log;
pub mod ocsf;
mod platform;
mod read;
mod record;
mod repair;
mod run;
mod session;
mod tail;
mod time;
mod verify;

pub use chain::{ChainLink, RecordHash, digest};
pub use error::AuditError;
pub use head::LogHead;
pub use log::{AuditLog, LogOptions};
pub use read::{LogLine, LogReader};
pub use record::{
    AllowanceDetails, AskDetails, ConnectDetails, DenialDetails, PolicyChangeDetails, Record,
    RecordAction, RecordDetails, RecordResult, RecordSubject, RunEnded, RunStarted,
};
pub use run::{RecordFields, RunRecords, RunSelector, last_run};
pub use session::session_id;
pub use tail::recent_run;
pub use time::{now_ms, parse_rfc3339, rfc3339};
pub use verify::{LogFlaw, VerifyFinding, VerifyReport, verify};
