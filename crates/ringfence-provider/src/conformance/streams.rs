//! What goes into a command and what comes out of it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use ringfence_api::StdioMode;

use super::trial::{CheckRun, differs, host_has, same};
use super::{CheckResult, ConformanceCheck, INPUT};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck::running("streams_are_separate", streams_are_separate),
    ConformanceCheck::running("bytes_are_bytes", bytes_are_bytes),
    ConformanceCheck::running("long_output_is_complete", long_output_is_complete),
    ConformanceCheck::running(
        "output_beyond_the_limit_is_counted",
        output_beyond_the_limit_is_counted,
    ),
    ConformanceCheck::running("inherited_streams_are_not_kept", inherited_streams_are_not_kept),
    ConformanceCheck::running("input_is_the_callers", input_is_the_callers),
    ConformanceCheck::running("words_arrive_as_they_are", words_arrive_as_they_are),
    ConformanceCheck::running("variables_are_those_given", variables_are_those_given),
    ConformanceCheck::running(
        "the_command_starts_where_it_is_told",
        the_command_starts_where_it_is_told,
    ),
];

fn streams_are_separate(trial: &CheckRun<'_>) -> CheckResult {
    let ran = trial.open()?.sh("echo out; echo err >&2; echo more")?;
    ran.says("out\nmore")?;
    same("standard error", ran.talk().as_str(), "err")
}

fn bytes_are_bytes(trial: &CheckRun<'_>) -> CheckResult {
    let ran = trial.open()?.sh(r"printf '\000\377\r\n\001 no end'; printf '\376' >&2")?;
    same("standard output", ran.outcome.stdout.bytes().as_slice(), b"\x00\xff\r\n\x01 no end")?;
    same("standard error", ran.outcome.stderr.bytes().as_slice(), b"\xfe")
}

/// Of both streams more than any pipe holds, at the same time: whoever reads one of them to
/// its end before the other never gets there.
fn long_output_is_complete(trial: &CheckRun<'_>) -> CheckResult {
    const LENGTH: usize = 3_000_000;
    let line = format!(
        "head -c {LENGTH} /dev/zero | tr '\\0' o & head -c {LENGTH} /dev/zero | tr '\\0' e >&2; wait"
    );
    let outcome = trial.open()?.sh(&line)?.outcome;
    for (name, output, byte) in
        [("standard output", &outcome.stdout, b'o'), ("standard error", &outcome.stderr, b'e')]
    {
        let bytes = output.bytes();
        same(format!("the length of {name}"), (bytes.len(), output.dropped), (LENGTH, 0))?;
        same(
            format!("bytes of {name} that were not written"),
            bytes.iter().filter(|found| **found != byte).count(),
            0,
        )?;
    }
    Ok(())
}

fn output_beyond_the_limit_is_counted(trial: &CheckRun<'_>) -> CheckResult {
    const LIMIT: usize = 8192;
    let mut session = trial.open()?;
    let mut request =
        session.line("printf start; head -c 100000 /dev/zero | tr '\\0' x; printf end");
    request.stdio = StdioMode::Capture { limit: LIMIT };
    let output = session.run(&request)?.outcome.stdout;
    same("bytes kept and dropped", output.bytes().len() as u64 + output.dropped, 100_008)?;
    if output.bytes().len() > LIMIT {
        return Err(differs(
            "bytes kept",
            &format!("{LIMIT} or fewer"),
            output.bytes().len().to_string(),
        ));
    }
    same("the first bytes", output.head.get(..5), Some(b"start".as_slice()))?;
    same("the last bytes", output.tail.last_chunk(), Some(b"end"))
}

fn inherited_streams_are_not_kept(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let mut request = session.line("echo heard; echo heard >&2; echo ran > made; exit 5");
    request.stdio = StdioMode::Inherit;
    let ran = session.run(&request)?;
    ran.ends(5)?.says("")?;
    same("standard error", ran.talk().as_str(), "")?;
    host_has(&trial.at("made"), "ran\n")
}

fn input_is_the_callers(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let ran = session.run(&session.request(["cat"]))?;
    same("what the command read", ran.outcome.stdout.bytes().as_slice(), INPUT)
}

fn words_arrive_as_they_are(trial: &CheckRun<'_>) -> CheckResult {
    let words = ["a b", "", "*", "'\"$HOME`", "line\nend", "-n", "--", "\\0"].map(OsString::from);
    let words: Vec<OsString> =
        words.into_iter().chain([OsString::from_vec(vec![0xff, b'x', 0xfe])]).collect();
    let mut session = trial.open()?;
    let request =
        session.request(["printf".into(), "%s\\0".into()].into_iter().chain(words.iter().cloned()));
    let found = session.run(&request)?.outcome.stdout.bytes();
    let wanted: Vec<u8> =
        words.into_iter().flat_map(|word| [word.into_vec(), vec![0]].concat()).collect();
    same("the words as the command has them", found, wanted)
}

/// Exactly those: what passes was decided before, and a place adds nothing of its own.
fn variables_are_those_given(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let mut request = session.request(["env", "-0"]);
    request.variables.push(("GIVEN".into(), "a b\nc=d".into()));
    request.variables.push(("EMPTY".into(), OsString::new()));
    request.variables.push(("BYTES".into(), OsString::from_vec(vec![0xff, 0x01])));
    let found = session.run(&request)?.outcome.stdout.bytes();
    let found: BTreeSet<Vec<u8>> = found
        .split(|byte| *byte == 0)
        .filter(|entry| !entry.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let entry = |(name, value): (OsString, OsString)| {
        [name.into_vec(), b"=".to_vec(), value.into_vec()].concat()
    };
    let wanted: BTreeSet<Vec<u8>> = request.variables.into_iter().map(entry).collect();
    let readable = |entries: &BTreeSet<Vec<u8>>| {
        entries.iter().map(|entry| String::from_utf8_lossy(entry).into_owned()).collect::<Vec<_>>()
    };
    if found == wanted {
        Ok(())
    } else {
        Err(differs(
            "variables",
            &format!("{:?}", readable(&wanted)),
            format!("{:?}", readable(&found)),
        ))
    }
}

fn the_command_starts_where_it_is_told(trial: &CheckRun<'_>) -> CheckResult {
    let mut session = trial.open()?;
    let mut request = session.line("pwd -P; cat plain");
    request.cwd = trial.at("sub");
    session.run(&request)?.says(&format!("{}\nplain", trial.at("sub"))).map(drop)
}
