//! Compares the table with bash: bash parses the same lines, and runs no program that the parser
//! missed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use ringfence_cmdline::{ParsedLine, ShellWord};

use crate::lines::rows;
use crate::property::lines;

/// Real programs, because they run others.
const REAL: &[&str] =
    &["env", "timeout", "nice", "nohup", "stdbuf", "xargs", "setsid", "bash", "sh", "find", "cat"];
/// Builtins and reserved words of the shell: no program has these names.
const SHELLS_OWN: &[&str] = &[
    "exec", "eval", "command", "builtin", "echo", "test", "time", "trap", "alias", "read",
    "printf", "export",
];

/// A directory in which every program records its start.
struct BashFixture {
    directory: PathBuf,
}

impl BashFixture {
    fn new(name: &str, lines: &[String]) -> Self {
        let directory =
            std::env::temp_dir().join(format!("ringfence-commands-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(directory.join("bin")).unwrap();
        fs::create_dir_all(directory.join("work")).unwrap();
        let stage = Self { directory };
        let mut names: BTreeSet<&str> = lines
            .iter()
            .flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-'))
            .collect();
        names.retain(|name| {
            name.starts_with(|c: char| c.is_ascii_lowercase()) && !SHELLS_OWN.contains(name)
        });
        for name in names {
            let real = format!("exec $(PATH=/usr/bin:/bin command -v {name}) \"$@\"");
            stage.program(name, if REAL.contains(&name) { &real } else { "" });
        }
        let handler = format!("command_not_found_handle() {{ {} }}\n", stage.note("$1", "${@:2}"));
        fs::write(stage.directory.join("start"), handler).unwrap();
        stage
    }

    /// A shell line that records a program and its arguments in one write.
    fn note(&self, name: &str, arguments: &str) -> String {
        format!(
            "printf '%s\\0' \"{name}\" \"{arguments}\" END >> {}/log;",
            self.directory.display()
        )
    }

    fn program(&self, name: &str, then: &str) {
        let path = self.directory.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{}\n{then}\n", self.note("${0##*/}", "$@"))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn shell(&self) -> Command {
        let mut command = Command::new("/usr/bin/timeout");
        command.args(["-s", "KILL", "10", "/bin/bash", "--norc", "--noprofile"]);
        command
            .env_clear()
            .env("PATH", self.directory.join("bin"))
            .env("BASH_ENV", self.directory.join("start"))
            .env("LC_ALL", "C.UTF-8");
        command.current_dir(self.directory.join("work")).stdin(Stdio::null());
        command
    }

    /// Every program that a line started, with its arguments.
    fn started(&self, line: &str) -> Vec<Vec<String>> {
        let log = self.directory.join("log");
        fs::write(&log, "").unwrap();
        // Background processes keep the streams open, so this waits for them, too.
        self.shell().arg("-c").arg(line).output().unwrap();
        let text = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
        let words = |entry: &str| {
            entry.strip_suffix('\0').map(|entry| entry.split('\0').map(str::to_owned).collect())
        };
        text.split("END\0").filter_map(words).collect()
    }
}

impl Drop for BashFixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// True if a line is safe to run: it names nothing outside its directory, finds only the recorded
/// programs, and terminates.
fn is_harmless(line: &str) -> bool {
    const OTHER_PROGRAMS: &[&str] = &["env -i", "env - ", "exec -c", "command -p", "bash -l"];
    const ENDLESS: &[&str] = &[":|:", "while ", "until docker", "((;;))"];
    let without = line.replace("/dev/null", "").replace("/usr/bin/env", "");
    let has = |texts: &[&str]| texts.iter().any(|text| without.contains(text));
    !without.contains(['/', '~', '\0'])
        && !has(&["..", "kill"])
        && !has(OTHER_PROGRAMS)
        && !has(ENDLESS)
}

/// True if the parser found `started`, or reported a doubt.
fn was_seen(line: &ParsedLine, started: &[String]) -> bool {
    let is_same = |words: &[ShellWord]| {
        let Some(program) = words.first().and_then(ShellWord::literal) else { return false };
        let Some(arguments) = words[1..].iter().map(ShellWord::literal).collect::<Option<Vec<_>>>()
        else {
            return Path::new(&program).ends_with(&started[0]);
        };
        Path::new(&program).ends_with(&started[0]) && arguments == started[1..]
    };
    let is_open =
        |words: &[ShellWord]| words.first().is_some_and(|program| program.unknown().is_some());
    let layers = || line.parts.iter().flat_map(|part| &part.layers);
    !line.doubts.is_empty() || layers().any(|layer| is_same(&layer.words) || is_open(&layer.words))
}

/// Promise: parsed-lines
#[test]
fn bash_accepts_every_parsed_line() {
    let stage = BashFixture::new("syntax", &[]);
    let mut read = 0;
    for row in rows() {
        if ParsedLine::parse(&row.line).is_ok() {
            let said = stage.shell().arg("-n").arg("-c").arg(&row.line).output().unwrap();
            assert!(said.status.success(), "bash does not read {:?}: {said:?}", row.line);
            read += 1;
        }
    }
    assert!(read > 250, "{read} lines");
}

/// Runs the parsed lines; returns the number of lines and of started programs.
#[track_caller]
fn all_are_seen(name: &str, lines: &[String]) -> (usize, usize) {
    let stage = BashFixture::new(name, lines);
    let (mut ran, mut started) = (0, 0);
    let mut unseen = Vec::new();
    for text in lines {
        let Ok(line) = ParsedLine::parse(text) else { continue };
        ran += 1;
        for program in stage.started(text) {
            started += 1;
            if !was_seen(&line, &program) {
                unseen.push(format!("{text:?} started {program:?}"));
            }
        }
    }
    assert!(unseen.is_empty(), "{}", unseen.join("\n"));
    (ran, started)
}

/// Promise: parsed-lines
#[test]
fn bash_starts_no_program_unknown_to_parser() {
    let lines: Vec<String> =
        rows().into_iter().map(|row| row.line).filter(|line| is_harmless(line)).collect();
    let (ran, started) = all_are_seen("started", &lines);
    assert!(ran > 200 && started > 200, "{ran} lines started {started} programs");
}

/// Promise: parsed-lines
#[test]
fn bash_starts_no_unknown_program_from_generated_lines() {
    let mut chance = TestRunner::deterministic();
    let made =
        std::iter::repeat_with(|| lines().new_tree(&mut chance).expect("a line").current().text);
    let lines: Vec<String> = made.filter(|line| is_harmless(line)).take(150).collect();
    let (ran, started) = all_are_seen("made-up", &lines);
    assert!(ran > 100 && started > 200, "{ran} lines started {started} programs");
}
