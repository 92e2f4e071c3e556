//! Explains command lines.

use std::fmt::Write as _;
use std::ops::Range;
use std::process::ExitCode;

use ringfence_cmdline::{
    Exclusion, GuardRefusal, GuardRuling, ParseProblem, ParsedLine, ReachedBy, ShellDialect,
    ShellWord, SimpleCommand, check_each_rule, check_exclusion, find_refusal, parse_for_rules,
};
use ringfence_policy::{CommandRules, Origin};
use serde_json::{Value, json};

use super::ExplainFormat;
use crate::error::CliError;
use crate::output::{self, ColorMode, printable};

/// The explanation of a command line.
struct LineReport<'a> {
    text: &'a str,
    /// The line, parsed as bash.
    line: Result<ParsedLine, ParseProblem>,
    rulings: Vec<GuardRuling>,
    exclusion: Exclusion,
    excluded: &'a [Origin],
    /// The reason why only `run -c` refuses the line: `sh` may parse it differently.
    by_sh: Option<GuardRefusal>,
}

impl<'a> LineReport<'a> {
    fn new(text: &'a str, rules: &'a CommandRules) -> Self {
        let line = ParsedLine::parse(text);
        let rulings = check_each_rule(line.as_ref(), rules);
        let patterns: Vec<&str> =
            rules.excluded.iter().map(|origin| origin.text.as_str()).collect();
        let exclusion = check_exclusion(line.as_ref(), &patterns);
        let passes = rulings.iter().all(|ruling| ruling.refusal.is_none());
        let by_sh = passes
            .then(|| {
                find_refusal(parse_for_rules(text, ShellDialect::Posix, rules).as_ref(), rules)
            })
            .flatten();
        Self { text, line, rulings, exclusion, excluded: &rules.excluded, by_sh }
    }

    fn is_refused(&self) -> bool {
        self.rulings.iter().any(|ruling| ruling.refusal.is_some())
    }

    /// Returns the start (in characters, from 0) and the length of a span.
    fn char_span(&self, span: &Range<usize>) -> (usize, usize) {
        let characters = |end: usize| {
            self.text.get(..end.min(self.text.len())).map_or(0, |text| text.chars().count())
        };
        let start = characters(span.start);
        (start, characters(span.end).saturating_sub(start))
    }

    fn at(&self, span: &Range<usize>) -> String {
        format!("at character {}", self.char_span(span).0 + 1)
    }
}

pub(super) fn explain(
    text: &str,
    rules: &CommandRules,
    form: ExplainFormat,
) -> Result<ExitCode, CliError> {
    let report = LineReport::new(text, rules);
    match form {
        ExplainFormat::Json => output::print_json(&as_json(&report))?,
        ExplainFormat::Text => output::print_text(&as_text(&report, ColorMode::for_stdout()))?,
    }
    Ok(ExitCode::from(u8::from(report.is_refused())))
}

fn as_text(report: &LineReport<'_>, paint: ColorMode) -> String {
    let verdict = if report.is_refused() { paint.bad("refused") } else { paint.good("allowed") };
    let mut text = format!("command {}: {verdict}\n", printable(report.text));
    let mut push = |label: &str, value: String| {
        let _ = writeln!(text, "  {} {}", paint.faint(&format!("{label:<7}")), printable(&value));
    };
    match &report.line {
        Err(problem) => push(
            "unread",
            format!("{} ({})", problem.reason, report.at(&(problem.position..problem.position))),
        ),
        Ok(line) => {
            for part in &line.parts {
                push("part", format!("{} ({}{})", shown(part), report.at(&part.span), way(part)));
                part.wrappers().for_each(|wrapper| push("without", wrapper.to_owned()));
            }
            for doubt in &line.doubts {
                push(
                    "doubt",
                    format!("{} ({})", doubt.reason, report.at(&(doubt.position..doubt.position))),
                );
            }
        }
    }
    for ruling in &report.rulings {
        let verdict = match &ruling.refusal {
            Some(refusal) => format!("refuses: {} ({})", refusal.reason, report.at(&refusal.span)),
            None => match &ruling.doubt {
                Some(doubt) => format!(
                    "passes with a doubt, which is recorded: {} ({})",
                    doubt.reason,
                    report.at(&doubt.span)
                ),
                None => "passes".to_owned(),
            },
        };
        push("rule", format!("{}: {verdict}", ruling.rule));
        push("from", ruling.origin.to_string());
    }
    if report.rulings.is_empty() {
        push("rule", "no command rules".to_owned());
    }
    if let Some(refusal) = &report.by_sh {
        push("run -c", format!("refuses: {} ({})", refusal.reason, report.at(&refusal.span)));
    }
    if !report.excluded.is_empty() {
        push("outside", outside(report));
    }
    text
}

fn way(part: &SimpleCommand) -> String {
    match part.reached_by {
        ReachedBy::Plain => String::new(),
        way => format!(", {}", way.word()),
    }
}

/// Formats assignments, words and redirections.
fn shown(part: &SimpleCommand) -> String {
    let assigned = part.assignments.iter().map(|assignment| format!("{}=…", assignment.name));
    let words = (!part.words().is_empty()).then(|| part.to_shell_text());
    let redirects = part
        .redirects
        .iter()
        .map(|redirect| format!("{}{}", redirect.operator, redirect.target.raw));
    assigned.chain(words).chain(redirects).collect::<Vec<_>>().join(" ")
}

fn outside(report: &LineReport<'_>) -> String {
    match &report.exclusion {
        Exclusion::Inside { reason, span } => format!("no: {reason} ({})", report.at(span)),
        Exclusion::Outside(by) => {
            let mut patterns: Vec<&str> =
                by.iter().flatten().map(|at| report.excluded[*at].text.as_str()).collect();
            patterns.dedup();
            format!("yes, if the agent asks: every part is excluded ({})", patterns.join(", "))
        }
    }
}

fn as_json(report: &LineReport<'_>) -> Value {
    let char_span = |span: &Range<usize>| report.char_span(span);
    let rules: Vec<Value> = report.rulings.iter().map(|ruling| rule(ruling, &char_span)).collect();
    let (parts, doubts, functions, problem) = match &report.line {
        Err(problem) => (Vec::new(), Vec::new(), Vec::new(), Some(doubt(problem, &char_span))),
        Ok(line) => (
            line.parts.iter().map(|one| part(one, &char_span)).collect(),
            line.doubts.iter().map(|problem| doubt(problem, &char_span)).collect(),
            line.functions.clone(),
            None,
        ),
    };
    let (is_outside, why) = match &report.exclusion {
        Exclusion::Outside(_) => (true, None),
        Exclusion::Inside { reason, .. } => (false, Some(reason)),
    };
    json!({
        "wish": "command",
        "allowed": !report.is_refused(),
        "line": report.text,
        "problem": problem,
        "parts": parts,
        "doubts": doubts,
        "functions": functions,
        "rules": rules,
        "excluded": { "outside": is_outside, "reason": why },
        "runC": { "allowed": !report.is_refused() && report.by_sh.is_none(), "reason": report.by_sh.as_ref().map(|refusal| &refusal.reason) },
    })
}

type LineSpan<'a> = dyn Fn(&Range<usize>) -> (usize, usize) + 'a;

fn rule(ruling: &GuardRuling, char_span: &LineSpan<'_>) -> Value {
    let mut value = json!({ "rule": ruling.rule, "from": ruling.origin.to_string(), "refuses": ruling.refusal.is_some() });
    if let Some(refusal) = &ruling.refusal {
        let (position, length) = char_span(&refusal.span);
        value["reason"] = refusal.reason.clone().into();
        value["position"] = position.into();
        value["length"] = length.into();
    }
    if let Some(doubt) = &ruling.doubt {
        value["doubt"] = doubt.reason.clone().into();
    }
    value
}

fn part(part: &SimpleCommand, char_span: &LineSpan<'_>) -> Value {
    let (position, length) = char_span(&part.span);
    json!({
        "text": part.to_shell_text(),
        // A word whose value is known only at run time is null.
        "words": part.words().iter().map(ShellWord::literal).collect::<Vec<_>>(),
        "wrappers": part.wrappers().collect::<Vec<_>>(),
        "assignments": part.assignments.iter().map(|assignment| &assignment.name).collect::<Vec<_>>(),
        "redirects": part.redirects.iter().map(|redirect| format!("{}{}", redirect.operator, redirect.target.raw)).collect::<Vec<_>>(),
        "way": part.reached_by.word(),
        "position": position,
        "length": length,
    })
}

fn doubt(problem: &ParseProblem, char_span: &LineSpan<'_>) -> Value {
    json!({ "reason": problem.reason, "position": char_span(&(problem.position..problem.position)).0 })
}

#[cfg(test)]
mod tests {
    use ringfence_policy::Source;

    use super::*;

    fn rules() -> CommandRules {
        let origins =
            |texts: &[&str]| texts.iter().map(|text| Origin::new(Source::User, *text)).collect();
        CommandRules {
            deny: origins(&["curl *"]),
            excluded: origins(&["docker*"]),
            ..CommandRules::default()
        }
    }

    #[track_caller]
    fn check(line: &str, expect: &str) {
        assert_eq!(as_text(&LineReport::new(line, &rules()), ColorMode::Plain), expect);
    }

    #[test]
    fn line_is_shown_as_parsed() {
        check(
            "FOO=x timeout 30 docker ps",
            "command FOO=x timeout 30 docker ps: allowed\n  part    FOO=… docker ps (at character 1)\n  without timeout 30\n  \
             rule    deny curl *: passes\n  from    user policy\n  outside yes, if the agent asks: every part is excluded (docker*)\n",
        );
        check(
            "docker $(curl é.com)",
            "command docker $(curl é.com): refused\n  part    curl é.com (at character 10, substitution)\n  part    docker $(curl é.com) (at character 1)\n  \
             rule    deny curl *: refuses: `curl é.com` is denied (at character 10)\n  from    user policy\n  \
             outside no: `curl é.com` is not excluded (at character 10)\n",
        );
        check(
            "docker 'ps",
            "command docker 'ps: refused\n  unread  unclosed quote (at character 9)\n  \
             rule    deny curl *: refuses: the line cannot be parsed: unclosed quote (at character 9)\n  from    user policy\n  \
             outside no: the line cannot be parsed: unclosed quote (at character 9)\n",
        );
    }

    #[test]
    fn line_that_sh_parses_differently_is_reported() {
        check(
            "[[ -n x ]]",
            "command [[ -n x ]]: allowed\n  rule    deny curl *: passes\n  from    user policy\n  \
             run -c  refuses: the line cannot be parsed: sh implementations parse `[[` differently (at character 3)\n  outside no: the line contains no command (at character 1)\n",
        );
    }

    #[test]
    fn json_holds_the_same_report() {
        let value = as_json(&LineReport::new("env A=b curl \"$x\" | docker ps", &rules()));
        assert_eq!(
            (&value["allowed"], &value["excluded"]["outside"]),
            (&false.into(), &false.into())
        );
        assert_eq!(value["parts"][0]["words"], json!(["curl", null]));
        assert_eq!(
            (&value["parts"][0]["wrappers"], &value["parts"][0]["assignments"]),
            (&json!(["env A=b"]), &json!(["A"]))
        );
        assert_eq!(
            (&value["rules"][0]["position"], &value["rules"][0]["length"]),
            (&0.into(), &17.into())
        );
        assert_eq!(
            (&value["parts"][1]["text"], &value["parts"][1]["position"]),
            (&"docker ps".into(), &20.into())
        );
    }
}
