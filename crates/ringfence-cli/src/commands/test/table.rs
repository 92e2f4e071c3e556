//! The results as a table.

use serde_json::{Value, json};

use super::probe::{ProbeVerdict, PromiseProbe};
use crate::output::{ColorMode, fit_cell, printable};

/// The results.
pub(super) struct TestTable {
    /// The project and its policy.
    pub(super) headline: String,
    pub(super) rows: Vec<(PromiseProbe, ProbeVerdict)>,
    /// The time to start and end a sandbox, in milliseconds.
    pub(super) start_ms: Option<f64>,
}

impl TestTable {
    pub(super) fn broken(&self) -> usize {
        self.rows.iter().filter(|(_, verdict)| matches!(verdict, ProbeVerdict::Broken(_))).count()
    }

    fn held(&self) -> usize {
        self.rows.iter().filter(|(_, verdict)| matches!(verdict, ProbeVerdict::Held(_))).count()
    }

    /// Formats the table, at most 80 columns wide.
    pub(super) fn text(&self, paint: ColorMode) -> String {
        let mut text = format!("{}\n\n", paint.strong(&printable(&self.headline)));
        for (probe, verdict) in &self.rows {
            let (mark, result) = match verdict {
                ProbeVerdict::Held(result) => {
                    (paint.good("✓"), fit_cell(result, RESULT).trim_end().to_owned())
                }
                ProbeVerdict::Broken(result) => (
                    paint.bad("✗"),
                    paint.bad(fit_cell(&format!("FAIL {result}"), RESULT).trim_end()),
                ),
                ProbeVerdict::NotTried(why) => {
                    (paint.faint("–"), paint.faint(fit_cell(why, RESULT).trim_end()))
                }
            };
            text.push_str(&format!(
                "  {mark} {} {} {result}\n",
                fit_cell(probe.promise, PROMISE),
                fit_cell(&probe.tried, TRIED)
            ));
        }
        text.push_str(&format!("\n{}\n", self.summary(paint)));
        text
    }

    fn summary(&self, paint: ColorMode) -> String {
        let (held, broken) = (self.held(), self.broken());
        let counts = format!(
            "{held} {} held, {broken} broken",
            if held == 1 { "guarantee" } else { "guarantees" }
        );
        let counts = if broken == 0 { paint.good(&counts) } else { paint.bad(&counts) };
        match self.start_ms {
            Some(start) => format!("{counts}; a sandbox starts and ends in {start:.1} ms"),
            None => format!("{counts}, without a sandbox"),
        }
    }

    pub(super) fn json(&self) -> Value {
        let row = |(probe, verdict): &(PromiseProbe, ProbeVerdict)| {
            let (state, result) = match verdict {
                ProbeVerdict::Held(result) => ("held", result),
                ProbeVerdict::Broken(result) => ("broken", result),
                ProbeVerdict::NotTried(result) => ("not-tried", result),
            };
            let targets: Vec<_> =
                probe.trial.attempts().iter().map(|act| act.target.to_string_lossy()).collect();
            json!({ "promise": probe.promise, "tried": probe.tried, "targets": targets, "state": state, "result": result })
        };
        json!({
            "held": self.held(),
            "broken": self.broken(),
            "notTried": self.rows.len() - self.held() - self.broken(),
            "confined": self.start_ms.is_some(),
            "startMs": self.start_ms.map(|start| (start * 100.0).round() / 100.0),
            "promises": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

const PROMISE: usize = 21;
const TRIED: usize = 28;
const RESULT: usize = 25;

#[cfg(test)]
mod tests {
    use super::super::probe::ProbeTrial;
    use super::*;

    fn table() -> TestTable {
        let row = |promise, tried: &str, verdict| {
            (PromiseProbe { promise, tried: tried.into(), trial: ProbeTrial::Nothing("") }, verdict)
        };
        TestTable {
            headline: "ringfence test in ~/p".into(),
            rows: vec![
                row(
                    "your ssh keys",
                    "read ~/.ssh/id_rsa",
                    ProbeVerdict::Held("Permission denied".into()),
                ),
                row(
                    "the network",
                    "look for an interface",
                    ProbeVerdict::Broken("it answered".into()),
                ),
                row("your other secrets", &"x".repeat(90), ProbeVerdict::NotTried("y".repeat(90))),
            ],
            start_ms: Some(6.94),
        }
    }

    #[test]
    fn broken_guarantee_is_marked_as_failure() {
        let text = table().text(ColorMode::Plain);
        assert!(
            text.contains(
                "  ✓ your ssh keys         read ~/.ssh/id_rsa           Permission denied\n"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "  ✗ the network           look for an interface        FAIL it answered\n"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("\n1 guarantee held, 1 broken; a sandbox starts and ends in 6.9 ms\n"),
            "{text}"
        );
        assert_eq!(table().json()["broken"], 1);
        assert_eq!(table().json()["notTried"], 1);
    }

    #[test]
    fn table_fits_a_terminal() {
        assert!(table().text(ColorMode::Plain).lines().all(|line| line.chars().count() <= 80));
    }
}
