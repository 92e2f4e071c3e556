//! The promises on one screen.

use serde_json::{Value, json};

use super::probe::{Probe, Verdict};
use crate::show::{Paint, cell, printable};

/// All that is shown.
pub(super) struct Table {
    /// Where, and under which policy.
    pub(super) headline: String,
    pub(super) rows: Vec<(Probe, Verdict)>,
    /// Starting and ending a sandbox, in milliseconds.
    pub(super) start_ms: Option<f64>,
}

impl Table {
    pub(super) fn broken(&self) -> usize {
        self.rows.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Broken(_))).count()
    }

    fn held(&self) -> usize {
        self.rows.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Held(_))).count()
    }

    /// At most 80 columns wide.
    pub(super) fn text(&self, paint: Paint) -> String {
        let mut text = format!("{}\n\n", paint.strong(&printable(&self.headline)));
        for (probe, verdict) in &self.rows {
            let (mark, result) = match verdict {
                Verdict::Held(said) => (paint.good("✓"), cell(said, RESULT).trim_end().to_owned()),
                Verdict::Broken(said) => {
                    (paint.bad("✗"), paint.bad(cell(&format!("FAIL {said}"), RESULT).trim_end()))
                }
                Verdict::NotTried(why) => {
                    (paint.faint("–"), paint.faint(cell(why, RESULT).trim_end()))
                }
            };
            text.push_str(&format!(
                "  {mark} {} {} {result}\n",
                cell(probe.promise, PROMISE),
                cell(&probe.tried, TRIED)
            ));
        }
        text.push_str(&format!("\n{}\n", self.summary(paint)));
        text
    }

    fn summary(&self, paint: Paint) -> String {
        let (held, broken) = (self.held(), self.broken());
        let counts = format!(
            "{held} {} held, {broken} broken",
            if held == 1 { "promise" } else { "promises" }
        );
        let counts = if broken == 0 { paint.good(&counts) } else { paint.bad(&counts) };
        match self.start_ms {
            Some(start) => format!("{counts}; a sandbox starts and ends in {start:.1} ms"),
            None => format!("{counts}, without a sandbox"),
        }
    }

    pub(super) fn json(&self) -> Value {
        let row = |(probe, verdict): &(Probe, Verdict)| {
            let (state, said) = match verdict {
                Verdict::Held(said) => ("held", said),
                Verdict::Broken(said) => ("broken", said),
                Verdict::NotTried(said) => ("not-tried", said),
            };
            let targets: Vec<_> =
                probe.trial.acts().iter().map(|act| act.target.to_string_lossy()).collect();
            json!({ "promise": probe.promise, "tried": probe.tried, "targets": targets, "state": state, "result": said })
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
    use super::super::probe::Trial;
    use super::*;

    fn table() -> Table {
        let row = |promise, tried: &str, verdict| {
            (Probe { promise, tried: tried.into(), trial: Trial::Nothing("") }, verdict)
        };
        Table {
            headline: "ringfence test in ~/p".into(),
            rows: vec![
                row(
                    "your ssh keys",
                    "read ~/.ssh/id_rsa",
                    Verdict::Held("Permission denied".into()),
                ),
                row("the network", "look for a way out", Verdict::Broken("it answered".into())),
                row("your other secrets", &"x".repeat(90), Verdict::NotTried("y".repeat(90))),
            ],
            start_ms: Some(6.94),
        }
    }

    #[test]
    fn a_broken_promise_is_loud() {
        let text = table().text(Paint::Plain);
        assert!(
            text.contains(
                "  ✓ your ssh keys         read ~/.ssh/id_rsa           Permission denied\n"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "  ✗ the network           look for a way out           FAIL it answered\n"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("\n1 promise held, 1 broken; a sandbox starts and ends in 6.9 ms\n"),
            "{text}"
        );
        assert_eq!(table().json()["broken"], 1);
        assert_eq!(table().json()["notTried"], 1);
    }

    #[test]
    fn it_fits_a_terminal() {
        assert!(table().text(Paint::Plain).lines().all(|line| line.chars().count() <= 80));
    }
}
