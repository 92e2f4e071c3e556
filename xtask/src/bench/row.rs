//! The rows of the bench.

use std::error::Error;

use super::contender::on_path;
use super::job::{Job, Timing};
use super::scratch::BenchScratch;
use super::server;
use super::{BenchPrograms, Pace};

/// A row of the table.
pub(super) struct BenchRow {
    pub(super) name: &'static str,
    /// The meaning of the number.
    pub(super) says: &'static str,
    pub(super) who: Who,
    rounds: usize,
    /// The bars for ringfence.
    pub(super) bars: &'static [Bar],
    pub(super) prepare: Prepare,
}

/// Prepares the files of the row, once.
type Prepare = fn(&BenchScratch, &BenchPrograms) -> Result<Job, Box<dyn Error>>;

/// The contenders of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    All,
    /// Bare, ringfence, bwrap with and without a filter, and the notify-only one.
    Full,
    /// The same, and ringfence without its tripwire.
    Wired,
    Ringfence,
    /// Bare and ringfence.
    Both,
}

/// A limit for ringfence's number.
#[derive(Clone, Copy)]
pub(super) enum Bar {
    /// At most this many times another contender's.
    Times(f64, &'static str),
    /// Less than this many seconds.
    Seconds(f64),
    /// At most this many bytes.
    Bytes(f64),
    /// At most this many seconds more than another contender.
    Adds(f64, &'static str),
}

/// The number of rounds for bars of a few percent. On a busy machine one table may still be two
/// percent off: use the median of several.
const A_FEW_PER_CENT: usize = 30;

/// All rows, in the order of the table.
pub(super) const ROWS: &[BenchRow] = &[
    BenchRow {
        name: "start",
        says: "`true`, from start to exit status",
        who: Who::All,
        rounds: 40,
        // Against bwrap with the same mounts, and with few mounts, which is harder.
        bars: &[Bar::Times(0.8, "bwrap"), Bar::Times(0.8, "bwrap-few"), Bar::Times(0.02, "srt")],
        prepare: |scratch, _| Ok(Job::whole(scratch.empty()?, &["true"])),
    },
    BenchRow {
        name: "git-status",
        says: "one `git status` in a repository of 5,000 files, timed inside",
        who: Who::Full,
        rounds: A_FEW_PER_CENT,
        bars: &[Bar::Times(1.02, "bare")],
        prepare: |scratch, programs| {
            Ok(Job::inside(
                scratch.repository()?,
                scratch.probe(programs)?,
                &["loop", "20", "git", "status", "--short"],
            ))
        },
    },
    BenchRow {
        name: "grep",
        says: "one `grep -r` over 5,000 files (50 MB), timed inside",
        who: Who::Full,
        rounds: A_FEW_PER_CENT,
        bars: &[Bar::Times(1.02, "bare")],
        prepare: |scratch, programs| {
            let task = ["loop", "8", "grep", "-r", "--exclude-dir=.git", "-c", "yield7", "."];
            Ok(Job::inside(scratch.repository()?, scratch.probe(programs)?, &task))
        },
    },
    BenchRow {
        name: "compile",
        says: "one compilation of a file of 4,000 lines, timed inside",
        who: Who::Full,
        rounds: A_FEW_PER_CENT,
        bars: &[Bar::Times(1.02, "bare")],
        prepare: compile,
    },
    BenchRow {
        name: "open",
        says: "open and close of one file of the project, three directories deep",
        who: Who::Wired,
        rounds: 30,
        bars: &[Bar::Times(1.03, "no-tripwire")],
        prepare: |scratch, programs| {
            Ok(Job::inside(
                scratch.tree()?,
                scratch.probe(programs)?,
                &["open", "50000", "src/d7/f707.txt"],
            ))
        },
    },
    BenchRow {
        name: "stat",
        says: "stat of the same file",
        who: Who::Wired,
        rounds: 30,
        bars: &[Bar::Times(1.03, "no-tripwire")],
        prepare: |scratch, programs| {
            Ok(Job::inside(
                scratch.tree()?,
                scratch.probe(programs)?,
                &["stat", "100000", "src/d7/f707.txt"],
            ))
        },
    },
    BenchRow {
        name: "untar",
        says: "unpacking a .tar.gz of 5,000 files of 0.2 to 40 KB on tmpfs, timed inside",
        who: Who::Full,
        rounds: 10,
        bars: &[Bar::Times(1.15, "bare")],
        prepare: |scratch, programs| {
            let task = ["fresh", "1", "out", "tar", "-xzf", "files.tar.gz", "-C", "out"];
            Ok(Job::inside(scratch.archives()?, scratch.probe(programs)?, &task))
        },
    },
    BenchRow {
        name: "create",
        says: "the worst case: 5,000 tiny files from a plain tar on tmpfs, timed inside",
        who: Who::Full,
        rounds: 10,
        // The same bar as untar, where decompression hides the cost of creating names.
        bars: &[Bar::Times(1.15, "bare")],
        prepare: |scratch, programs| {
            let task = ["fresh", "4", "out", "tar", "-xf", "tiny.tar", "-C", "out"];
            Ok(Job::inside(scratch.archives()?, scratch.probe(programs)?, &task))
        },
    },
    BenchRow {
        name: "deny-60k",
        says: "`cat` of one of 60,000 files that match a denied pattern, from start to denial",
        who: Who::Ringfence,
        rounds: 5,
        bars: &[Bar::Seconds(2.0)],
        prepare: |scratch, _| {
            Ok(Job {
                timing: Timing::Refused,
                ..Job::whole(scratch.keys()?, &["cat", "d0/f1.pem"])
            })
        },
    },
    BenchRow {
        name: "guard",
        says: "the time of rules on command text for one command: ten patterns and the strict list",
        who: Who::Ringfence,
        rounds: 10,
        bars: &[Bar::Seconds(0.00005)],
        prepare: |scratch, programs| {
            Ok(Job::itself(scratch.empty()?, programs.commands.path()?, &["guard", "2000"]))
        },
    },
    BenchRow {
        name: "hook",
        says: "an agent's hook before a command, from start to response, in a repository",
        who: Who::Ringfence,
        rounds: 10,
        bars: &[Bar::Seconds(0.015)],
        prepare: |scratch, programs| hook_job(scratch, programs, "Bash"),
    },
    BenchRow {
        name: "hook-file",
        says: "the same before a file is read, with a survey of the project",
        who: Who::Ringfence,
        rounds: 10,
        bars: &[Bar::Seconds(0.015)],
        prepare: |scratch, programs| hook_job(scratch, programs, "Read"),
    },
    BenchRow {
        name: "session-true",
        says: "one `true` in the shell of a session, compared with a bash on pipes",
        who: Who::Both,
        rounds: 40,
        bars: &[Bar::Times(1.15, "bare")],
        prepare: |scratch, programs| {
            Ok(Job::itself(scratch.empty()?, programs.rounds.path()?, &["true", "5000"]))
        },
    },
    BenchRow {
        name: "session-output",
        says: "1 GiB of output of one command of such a shell, compared with a pipe",
        who: Who::Both,
        rounds: 10,
        // At least nine tenths of the rate.
        bars: &[Bar::Times(1.11, "bare")],
        prepare: |scratch, programs| {
            Ok(Job::itself(scratch.empty()?, programs.rounds.path()?, &["output", "1024"]))
        },
    },
    BenchRow {
        name: "session-idle",
        says: "the memory of one of 100 idle sessions of a program, without its bash (PSS, with the program's share)",
        who: Who::Ringfence,
        rounds: 3,
        bars: &[Bar::Bytes(2.0 * 1024.0 * 1024.0)],
        prepare: |scratch, programs| {
            Ok(Job {
                timing: Timing::Memory,
                ..Job::itself(scratch.repository()?, programs.many.path()?, &["idle", "100"])
            })
        },
    },
    BenchRow {
        name: "connect",
        says: "one connection to this host, opened and closed, timed inside",
        who: Who::Both,
        rounds: 20,
        bars: &[Bar::Adds(0.0003, "bare")],
        prepare: |scratch, programs| {
            let port = server::ports()?.greets;
            connect_job(scratch, programs, port, &["connect", "500", &format!("127.0.0.1:{port}")])
        },
    },
    BenchRow {
        name: "crowd",
        says: "one of 500 concurrent connections to this host with one response each, timed inside",
        who: Who::Both,
        rounds: 10,
        bars: &[Bar::Adds(0.0003, "bare")],
        prepare: |scratch, programs| {
            let port = server::ports()?.answers;
            connect_job(scratch, programs, port, &["crowd", "500", &format!("127.0.0.1:{port}")])
        },
    },
    BenchRow {
        name: "crowd-relay",
        says: "the same, each through the relay",
        who: Who::Both,
        rounds: 10,
        bars: &[Bar::Adds(0.0003, "bare")],
        prepare: |scratch, programs| {
            let port = server::ports()?.answers;
            let mut job = connect_job(
                scratch,
                programs,
                port,
                &["crowd", "500", &format!("127.0.0.1:{port}")],
            )?;
            job.flags
                .extend(["--policy".into(), scratch.proxied()?.to_string_lossy().into_owned()]);
            Ok(job)
        },
    },
    BenchRow {
        name: "download",
        says: "1 GiB from this host over a connection passed as an fd, timed inside",
        who: Who::Both,
        rounds: 10,
        // At least 0.95 of the rate.
        bars: &[Bar::Times(1.053, "bare")],
        prepare: |scratch, programs| {
            let port = server::ports()?.pours;
            connect_job(scratch, programs, port, &["download", "1", &format!("127.0.0.1:{port}")])
        },
    },
    BenchRow {
        name: "relay",
        says: "the same through the relay that inspects the first bytes, timed inside",
        who: Who::Both,
        rounds: 10,
        // At least 0.7 of the rate.
        bars: &[Bar::Times(1.43, "bare")],
        prepare: |scratch, programs| {
            let port = server::ports()?.pours;
            let mut job = connect_job(
                scratch,
                programs,
                port,
                &["download", "1", &format!("127.0.0.1:{port}")],
            )?;
            // With a proxy, every connection goes through the relay, on any port.
            job.flags
                .extend(["--policy".into(), scratch.proxied()?.to_string_lossy().into_owned()]);
            Ok(job)
        },
    },
];

/// A task of the probe that may connect to a port of this host.
fn connect_job(
    scratch: &BenchScratch,
    programs: &BenchPrograms,
    port: u16,
    task: &[&str],
) -> Result<Job, Box<dyn Error>> {
    let flags = vec![format!("--allow-localhost={port}")];
    Ok(Job { flags, ..Job::inside(scratch.empty()?, scratch.probe(programs)?, task) })
}

impl BenchRow {
    /// True if it measures memory, not time.
    pub(super) fn is_memory(&self) -> bool {
        self.bars.iter().any(|bar| matches!(bar, Bar::Bytes(_)))
    }

    /// True if the contender that measures only notifications takes part.
    pub(super) fn is_for_notify_only(&self) -> bool {
        matches!(self.who, Who::Full | Who::Wired)
    }

    pub(super) fn rounds(&self, pace: Pace) -> usize {
        match pace {
            Pace::Full => self.rounds,
            Pace::Quick => self.rounds.div_ceil(4),
        }
    }
}

/// A hook before a tool call, started again each time.
fn hook_job(
    scratch: &BenchScratch,
    programs: &BenchPrograms,
    tool: &str,
) -> Result<Job, Box<dyn Error>> {
    Ok(Job::itself(
        scratch.repository()?,
        programs.probe.path()?,
        &["probe", "hook", "20", &programs.ringfence.to_string_lossy(), tool],
    ))
}

/// The values of `--only`.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Compiles with gcc if it is installed, else with the rustc that built this.
fn compile(scratch: &BenchScratch, programs: &BenchPrograms) -> Result<Job, Box<dyn Error>> {
    let (project, probe) = (scratch.sources()?, scratch.probe(programs)?);
    if on_path("gcc").is_some() {
        return Ok(Job::inside(
            project,
            probe,
            &["loop", "3", "gcc", "-c", "big.c", "-o", "big.o"],
        ));
    }
    let output = std::process::Command::new("rustc").args(["--print", "sysroot"]).output()?;
    let toolchain = String::from_utf8(output.stdout)?.trim().to_owned();
    let rustc = format!("{toolchain}/bin/rustc");
    let task = ["loop", "2", &rustc, "--crate-type=lib", "--emit=obj", "big.rs", "-o", "big.o"];
    let mut job = Job::inside(project, probe, &task);
    job.reads.push(toolchain.into());
    Ok(job)
}
