//! Fuzzer and benchmark for command rules.
//!
//! `commands fuzz SECONDS [SEED]` parses generated lines, and fails if one breaks the parser or its
//! properties. `commands guard COUNT ringfence` prints the nanoseconds per command that the rules
//! take; the bench runs it.
// The crate is pure; this example uses the clock and a shell.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)]

mod fuzz;
#[expect(dead_code, reason = "the verdicts are for the tests")]
#[path = "../../tests/commands/lines.rs"]
mod lines;

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

use ringfence_cmdline::{ParsedLine, find_refusal};
use ringfence_policy::builtin::{STRICT_ARGUMENTS, STRICT_BINARIES};
use ringfence_policy::{AbsPath, Anchor, CommandRules, Doubt, Origin, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["fuzz", seconds] => {
            let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64;
            fuzz::run(Duration::from_secs(seconds.parse()?), seed)
        }
        ["fuzz", seconds, seed] => fuzz::run(Duration::from_secs(seconds.parse()?), seed.parse()?),
        ["guard", count, "ringfence"] => {
            println!("{}", guard(count.parse()?));
            Ok(())
        }
        _ => Err("commands fuzz SECONDS [SEED] | commands guard COUNT ringfence".into()),
    }
}

/// All kinds of rules, and ten patterns.
fn rules() -> CommandRules {
    let origins =
        |texts: &[&str]| texts.iter().map(|text| Origin::new(Source::User, *text)).collect();
    let deny = [
        "git push:*",
        "rm -rf*",
        "curl *",
        "wget *",
        "sudo:*",
        "docker run:*",
        "npm publish",
        "*--force*",
        "chmod 777 *",
        "dd *",
    ];
    CommandRules {
        doubt: Doubt::Refuse,
        deny: origins(&deny),
        allow_binaries: origins(STRICT_BINARIES),
        deny_arguments: origins(STRICT_ARGUMENTS),
        anchor_arguments: AbsPath::new("/skill")
            .map(|root| Anchor { root, origin: Origin::new(Source::User, "/skill") }),
        excluded: origins(&["docker*"]),
    }
}

/// Nanoseconds per everyday command. Each passes every rule but the last, so that all rules run.
fn guard(count: u32) -> f64 {
    const LINES: &[&str] = &[
        "ls -la",
        "python3 run.py --input=data.json --verbose",
        "cat notes.txt | grep -n TODO | sed -n 1,20p",
        "mkdir -p out && cp -r src out/ && find out -name '*.tmp' -exec rm {} + && echo done",
        "for f in a b c; do if ls \"x.txt\"; then cat x.txt; else touch x.txt; fi; done > log 2>&1",
    ];
    let rules = rules();
    let began = Instant::now();
    for _ in 0..count {
        for text in LINES {
            let line = ParsedLine::parse(black_box(text));
            black_box(find_refusal(line.as_ref(), &rules));
        }
    }
    began.elapsed().as_nanos() as f64 / f64::from(count) / LINES.len() as f64
}
