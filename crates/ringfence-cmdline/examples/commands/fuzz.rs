//! Fuzzes the parser with recombined lines of the table.

use std::error::Error;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringfence_cmdline::{Exclusion, ParsedLine, ShellDialect, check_each_rule, check_exclusion};

use crate::lines::rows;

/// Tokens with a meaning in a shell.
const PIECES: &[&str] = &[
    " ",
    "\t",
    "\n",
    "\\\n",
    "\\",
    "'",
    "\"",
    "`",
    "$",
    "$(",
    "$((",
    "))",
    ")",
    "(",
    "((",
    "{",
    "}",
    "${",
    "${x",
    "[",
    "]",
    "[[",
    "]]",
    "<",
    ">",
    "<<",
    "<<E\n",
    "\nE\n",
    "<<-",
    "<<<",
    "<(",
    ">(",
    "&",
    "&&",
    "|",
    "||",
    "|&",
    ";",
    ";;",
    ";&",
    "#",
    "!",
    "*",
    "?",
    "~",
    "=",
    "+=",
    "x=",
    "a[",
    "2>&1",
    ">&",
    "&>",
    "in",
    "do",
    "done",
    "if",
    "then",
    "fi",
    "for i",
    "case",
    "esac",
    "while",
    "function f",
    "f()",
    "time",
    "eval",
    "bash -c",
    "sh -c",
    "env",
    "xargs",
    "find . -exec",
    "timeout 3",
    "$'",
    "\\x41",
    "$\"",
    "@(",
    "é",
    "\u{a0}",
    "\r",
    "\u{1}",
];
/// Maximum time to parse a line: a slower parser would be a denial of service.
const PATIENCE: Duration = Duration::from_secs(2);
/// One in this many parsed lines is checked with bash, which parses it without running it.
const SHOWN: u64 = 50;

pub(crate) fn run(long: Duration, seed: u64) -> Result<(), Box<dyn Error>> {
    println!("fuzz: seed {seed}, {} s", long.as_secs());
    let lines: Vec<String> = rows().into_iter().map(|row| row.line).collect();
    let mut chance = LineRng(seed | 1);
    let (began, mut tried, mut read) = (Instant::now(), 0u64, 0u64);
    while began.elapsed() < long {
        let text = made(&lines, &mut chance);
        let start = Instant::now();
        let checked = std::panic::catch_unwind(|| check(&text))
            .unwrap_or_else(|_| Err("it breaks the parser".into()));
        let is_read =
            checked.map_err(|why| format!("{why}: {text:?} (seed {seed}, line {tried})"))?;
        if start.elapsed() > PATIENCE {
            return Err(format!("it takes {:?}: {text:?} (seed {seed})", start.elapsed()).into());
        }
        tried += 1;
        read += u64::from(is_read);
        if is_read && read.is_multiple_of(SHOWN) && !bash_reads(&text)? {
            return Err(format!("bash does not read what we read: {text:?} (seed {seed})").into());
        }
    }
    println!("fuzz: {tried} lines, {read} of them read, none broke anything");
    Ok(())
}

/// Parses a line. Returns whether it was parsed, or the violated property.
fn check(text: &str) -> Result<bool, String> {
    let rules = crate::rules();
    let line = ParsedLine::parse(text);
    let posix = ParsedLine::parse_as(text, ShellDialect::Posix);
    if posix.is_ok() && posix != line {
        return Err("sh and bash read it differently".into());
    }
    check_each_rule(line.as_ref(), &rules);
    let by = check_exclusion(line.as_ref(), &["docker*", "npm run test:*"]);
    match &line {
        Err(problem) if text.get(..problem.position).is_none() => {
            return Err("the problem is nowhere".into());
        }
        Err(_) => return Ok(false),
        Ok(line)
            if line
                .parts
                .iter()
                .any(|part| text.get(part.span.clone()).is_none() || part.layers.is_empty()) =>
        {
            return Err("a part is nowhere".into());
        }
        Ok(line) if matches!(&by, Exclusion::Outside(by) if by.len() != line.parts.len()) => {
            return Err("a part was forgotten".into());
        }
        Ok(_) => {}
    }
    // A second command must appear as its own part, after any text.
    let longer = format!("{text}\nstranger x");
    if let Ok(line) = ParsedLine::parse(&longer) {
        let is_seen = line.parts.iter().any(|part| part.to_shell_text() == "stranger x");
        if is_seen
            && matches!(
                check_exclusion(Ok(&line), &["docker*", "npm run test:*"]),
                Exclusion::Outside(_)
            )
        {
            return Err("a stranger is excluded".into());
        }
    }
    Ok(true)
}

fn made(lines: &[String], chance: &mut LineRng) -> String {
    let mut text = chance.of(lines).clone();
    for _ in 0..=chance.below(4) {
        let at = chance.boundary(&text);
        match chance.below(6) {
            0 => text.insert_str(at, chance.of::<&str>(PIECES)),
            1 => text.truncate(at),
            2 => {
                let end = chance.boundary(&text).max(at);
                text.replace_range(at..end, "");
            }
            3 => text.insert_str(at, &chance.of(lines).clone()),
            4 => text = format!("{}{}", &text[..at], chance.of(lines)),
            _ => {
                let (before, after) = *chance.of(&[
                    ("$(", ")"),
                    ("`", "`"),
                    ("\"", "\""),
                    ("(", ")"),
                    ("{ ", "; }"),
                    ("'", "'"),
                    ("eval '", "'"),
                ]);
                text = format!("{before}{text}{after}");
            }
        }
    }
    text
}

/// Checks with `bash -n`: it parses its input and runs nothing.
fn bash_reads(text: &str) -> Result<bool, Box<dyn Error>> {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-n"]).env_clear().env("LC_ALL", "C.UTF-8");
    let mut child =
        bash.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    Ok(child.wait()?.success())
}

/// A deterministic random number generator.
struct LineRng(u64);

impl LineRng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// A random character boundary.
    fn boundary(&mut self, text: &str) -> usize {
        let mut at = self.below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}
