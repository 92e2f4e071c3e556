//! The audit log: what was asked for, what was refused, what came of it.
//!
//! One JSON object a line, each with the hash of the line before it, in files that are only
//! ever appended to. A small file of fixed size, the *head*, names the last record, so that a
//! tail that was cut off is noticed too. Any number of processes write at once.
//!
//! There is no key: whoever can write the directory can write another history, from the
//! first line to the head. What the chain shows is what happened to the files by accident or
//! in part, and, to somebody who kept the head's hash elsewhere, everything.
//!
//! What is recorded, and what happens when it cannot be, is for the engine to say.

#![forbid(unsafe_code)]

mod chain;
mod directory;
mod error;
mod head;
mod log;
pub mod ocsf;
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
