//! The input, output, arguments and environment of a command.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use ringfence_api::StdioMode;

use super::CheckResult;
use super::check_run::{CheckRun, difference, expect_equal, expect_host_file};
use super::suite::INPUT;

checks! {
    Core: streams_are_separate,
    Core: binary_output_is_unchanged,
    Core: long_output_is_complete,
    Core: output_beyond_the_limit_is_counted,
    Core: inherited_streams_are_not_captured,
    Core: input_comes_from_the_caller,
    Core: arguments_arrive_unchanged,
    Core: environment_is_exactly_the_given_one,
    Core: command_starts_in_the_given_directory,
}

fn streams_are_separate(check_run: &CheckRun<'_>) -> CheckResult {
    let ran = check_run.open()?.sh("echo out; echo err >&2; echo more")?;
    ran.expect_output("out\nmore")?;
    expect_equal("standard error", ran.stderr().as_str(), "err")
}

fn binary_output_is_unchanged(check_run: &CheckRun<'_>) -> CheckResult {
    let ran = check_run.open()?.sh(r"printf '\000\377\r\n\001 no end'; printf '\376' >&2")?;
    expect_equal(
        "standard output",
        ran.outcome.stdout.bytes().as_slice(),
        b"\x00\xff\r\n\x01 no end",
    )?;
    expect_equal("standard error", ran.outcome.stderr.bytes().as_slice(), b"\xfe")
}

/// Both streams exceed the pipe buffer at once: a provider that reads one to its end before the
/// other deadlocks.
fn long_output_is_complete(check_run: &CheckRun<'_>) -> CheckResult {
    const LENGTH: usize = 3_000_000;
    let line = format!(
        "head -c {LENGTH} /dev/zero | tr '\\0' o & head -c {LENGTH} /dev/zero | tr '\\0' e >&2; wait"
    );
    let outcome = check_run.open()?.sh(&line)?.outcome;
    for (name, output, byte) in
        [("standard output", &outcome.stdout, b'o'), ("standard error", &outcome.stderr, b'e')]
    {
        let bytes = output.bytes();
        expect_equal(format!("the length of {name}"), (bytes.len(), output.dropped), (LENGTH, 0))?;
        expect_equal(
            format!("bytes of {name} that were not written"),
            bytes.iter().filter(|found| **found != byte).count(),
            0,
        )?;
    }
    Ok(())
}

fn output_beyond_the_limit_is_counted(check_run: &CheckRun<'_>) -> CheckResult {
    const LIMIT: usize = 8192;
    let mut prepared = check_run.open()?;
    let mut request =
        prepared.line("printf start; head -c 100000 /dev/zero | tr '\\0' x; printf end");
    request.stdio = StdioMode::Capture { limit: LIMIT };
    let output = prepared.run(&request)?.outcome.stdout;
    expect_equal("bytes kept and dropped", output.bytes().len() as u64 + output.dropped, 100_008)?;
    if output.bytes().len() > LIMIT {
        return Err(difference(
            "bytes kept",
            &format!("{LIMIT} or fewer"),
            output.bytes().len().to_string(),
        ));
    }
    expect_equal("the first bytes", output.head.get(..5), Some(b"start".as_slice()))?;
    expect_equal("the last bytes", output.tail.last_chunk(), Some(b"end"))
}

fn inherited_streams_are_not_captured(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let mut request = prepared.line("echo heard; echo heard >&2; echo ran > made; exit 5");
    request.stdio = StdioMode::Inherit;
    let ran = prepared.run(&request)?;
    ran.expect_status(5)?.expect_output("")?;
    expect_equal("standard error", ran.stderr().as_str(), "")?;
    expect_host_file(&check_run.path("made"), "ran\n")
}

fn input_comes_from_the_caller(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let ran = prepared.run(&prepared.request(["cat"]))?;
    expect_equal("the input of the command", ran.outcome.stdout.bytes().as_slice(), INPUT)
}

fn arguments_arrive_unchanged(check_run: &CheckRun<'_>) -> CheckResult {
    let words = ["a b", "", "*", "'\"$HOME`", "line\nend", "-n", "--", "\\0"].map(OsString::from);
    let words: Vec<OsString> =
        words.into_iter().chain([OsString::from_vec(vec![0xff, b'x', 0xfe])]).collect();
    let mut prepared = check_run.open()?;
    let request = prepared
        .request(["printf".into(), "%s\\0".into()].into_iter().chain(words.iter().cloned()));
    let found = prepared.run(&request)?.outcome.stdout.bytes();
    let wanted: Vec<u8> =
        words.into_iter().flat_map(|word| [word.into_vec(), vec![0]].concat()).collect();
    expect_equal("the words as the command has them", found, wanted)
}

/// Exactly those: the caller has filtered them, and a provider adds none.
fn environment_is_exactly_the_given_one(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let mut request = prepared.request(["env", "-0"]);
    request.variables.push(("GIVEN".into(), "a b\nc=d".into()));
    request.variables.push(("EMPTY".into(), OsString::new()));
    request.variables.push(("BYTES".into(), OsString::from_vec(vec![0xff, 0x01])));
    let found = prepared.run(&request)?.outcome.stdout.bytes();
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
        Err(difference(
            "variables",
            &format!("{:?}", readable(&wanted)),
            format!("{:?}", readable(&found)),
        ))
    }
}

fn command_starts_in_the_given_directory(check_run: &CheckRun<'_>) -> CheckResult {
    let mut prepared = check_run.open()?;
    let mut request = prepared.line("pwd -P; cat plain");
    request.cwd = check_run.path("sub");
    let wanted = format!("{}\nplain", prepared.inside(&request.cwd));
    prepared.run(&request)?.expect_output(&wanted).map(drop)
}
