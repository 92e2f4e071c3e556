//! The table of command lines.

use std::fmt::Write as _;

use crate::lines::rows;
use ringfence_cmdline::{
    Exclusion, ParseProblem, ParsedLine, ShellWord, SimpleCommand, check_exclusion, find_refusal,
};
use ringfence_policy::builtin::{STRICT_ARGUMENTS, STRICT_BINARIES};
use ringfence_policy::{AbsPath, Anchor, CommandRules, Origin, Source};

/// The `excluded` list of the table.
pub(crate) const EXCLUDED: &[&str] =
    &["docker*", "npm run lint", "npm run test:*", "sudo -u root docker:*"];
const DENY: &[&str] = &["git push:*", "rm -rf*", "curl", "curl *"];

pub(crate) fn rules(deny: &[&str], strict: bool) -> CommandRules {
    let origins =
        |texts: &[&str]| texts.iter().map(|text| Origin::new(Source::User, *text)).collect();
    let mut rules = CommandRules { deny: origins(deny), ..CommandRules::default() };
    if strict {
        rules.allow_binaries = origins(STRICT_BINARIES);
        rules.deny_arguments = origins(STRICT_ARGUMENTS);
        rules.anchor_arguments = Some(Anchor {
            root: AbsPath::new("/skill").unwrap(),
            origin: Origin::new(Source::User, "/skill"),
        });
    }
    rules
}

/// `x` runs outside the sandbox, `d` is denied, `s` passes the strict list.
fn verdicts(line: Result<&ParsedLine, &ParseProblem>) -> String {
    let is_outside = matches!(check_exclusion(line, EXCLUDED), Exclusion::Outside(_));
    let is_denied = find_refusal(line, &rules(DENY, false)).is_some();
    let is_strict = find_refusal(line, &rules(&[], true)).is_none();
    [(is_outside, 'x'), (is_denied, 'd'), (is_strict, 's')]
        .map(|(is, sign)| if is { sign } else { '-' })
        .iter()
        .collect()
}

/// Parts as words: quoted if known, in angle brackets if not.
fn parts(line: Result<&ParsedLine, &ParseProblem>) -> String {
    match line {
        Err(problem) => format!("! {}: {}", problem.position, problem.reason),
        Ok(line) => {
            let mut parts = line.parts.iter().map(part).collect::<Vec<_>>().join(" ¦ ");
            if !line.doubts.is_empty() {
                parts.push_str(" ~");
            }
            parts
        }
    }
}

fn part(part: &SimpleCommand) -> String {
    let mut text = String::new();
    for assignment in &part.assignments {
        write!(text, "{}= ", assignment.name).unwrap();
    }
    for wrapper in part.wrappers() {
        write!(text, "[{wrapper}] ").unwrap();
    }
    for word in part.words() {
        write!(text, "{} ", shown(word)).unwrap();
    }
    for redirect in &part.redirects {
        write!(text, "{}{} ", redirect.operator, shown(&redirect.target)).unwrap();
    }
    text.trim_end()
        .chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

fn shown(word: &ShellWord) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,{}#^".contains(c);
    match word.literal() {
        None => format!("‹{}›", word.raw),
        Some(text) if !text.is_empty() && text.chars().all(is_plain) => text,
        Some(text) => format!("'{text}'"),
    }
}

/// Promise: parsed-lines
#[test]
fn every_line_has_the_parts_and_the_verdicts_of_the_table() {
    let rows = rows();
    assert!(rows.len() >= 300, "{} lines", rows.len());
    let mut wrong = String::new();
    for row in &rows {
        let line = ParsedLine::parse(&row.line);
        let found = (verdicts(line.as_ref()), parts(line.as_ref()));
        if (found.0.as_str(), found.1.as_str()) != (row.verdicts, row.parts) {
            writeln!(
                wrong,
                "lines.txt:{}: {:?}\n  expect {} {}\n  found  {} {}",
                row.number, row.line, row.verdicts, row.parts, found.0, found.1
            )
            .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn word_that_may_expand_to_nothing_hides_no_match() {
    let is_denied = |text: &str| {
        find_refusal(ParsedLine::parse(text).as_ref(), &rules(&["npm publish"], false)).is_some()
    };
    for text in [
        "npm publish",
        "npm publish $x",
        "npm $x publish",
        "$x npm publish",
        "$x $y npm $z publish $(true)",
        "npm $x",
    ] {
        assert!(is_denied(text), "{text}");
    }
    for text in [
        "npm publish x",
        "npm x publish",
        "npmx $x publish",
        "npm publish x$x",
        "npm publishx $x",
        "npm run $x",
    ] {
        assert!(!is_denied(text), "{text}");
    }
}
