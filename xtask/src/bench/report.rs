//! The table and the JSON file.

use std::fmt::Write;

use serde_json::{Value, json};

use super::contender::BEFORE;
use super::measure::Series;
use super::row::{Bar, BenchRow};
use super::service::Load;

/// All results so far.
pub(super) struct Report {
    machine: Value,
    notes: Vec<String>,
    rows: Vec<(&'static BenchRow, Vec<Series>)>,
    load: Option<Load>,
}

/// A bar and its result.
struct BarResult {
    bar: Bar,
    reached: bool,
    /// The number compared with the bar, if the table has no column for it.
    found: Option<f64>,
}

impl Report {
    pub(super) fn new(machine: Value, notes: Vec<String>) -> Report {
        Report { machine, notes, rows: Vec::new(), load: None }
    }

    pub(super) fn add(&mut self, row: &'static BenchRow, series: Vec<Series>) {
        for one in &series {
            if let Err(why) = &one.samples {
                self.note(format!("{}: {}: {why}", row.name, one.contender));
            }
        }
        self.rows.push((row, series));
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub(super) fn under_load(&mut self, load: Load) {
        self.load = Some(load);
    }

    /// The number of bars that ringfence missed.
    pub(super) fn missed(&self) -> usize {
        let missed_rows = self
            .rows
            .iter()
            .flat_map(|(row, series)| verdicts(row, series))
            .filter(|verdict| !verdict.reached)
            .count();
        missed_rows + self.load.as_ref().map_or(0, Load::missed)
    }

    /// The result as a table.
    pub(super) fn table(&self) -> String {
        let text = |key: &str| self.machine[key].as_str().unwrap_or("unknown").to_owned();
        let mut out = format!(
            "kernel {}, {} cores, {}, load {}\n",
            text("kernel"),
            self.machine["cores"],
            text("processor"),
            text("load")
        );
        out.push_str(
            "ratios are medians of the rounds' own ratios; contenders take turns in each round\n\n",
        );
        put(&mut out, ["row", "contender", "min", "median", "× bare", "× bwrap", "bar"]);
        for (row, series) in &self.rows {
            for (index, one) in series.iter().enumerate() {
                let times = |other: &str| {
                    one_of(series, other)
                        .and_then(|other| one.ratio(other))
                        .map_or("-".into(), |ratio| format!("{ratio:.3}"))
                };
                let bars =
                    if one.contender == "ringfence" { bars(row, series) } else { String::new() };
                let name = if index == 0 { row.name } else { "" };
                let show = if row.is_memory() { size } else { time };
                put(
                    &mut out,
                    [
                        name,
                        one.contender,
                        &show(one.min()),
                        &show(one.median()),
                        &times("bare"),
                        &times("bwrap"),
                        &bars,
                    ],
                );
            }
        }
        out.push('\n');
        for (row, series) in &self.rows {
            out.push_str(&comparison(row, series).unwrap_or_default());
        }
        for (row, _) in &self.rows {
            writeln!(out, "{:<14} {}", row.name, row.says).expect("writing to a string succeeds");
        }
        out.push_str(&self.load.as_ref().map_or_else(String::new, Load::table));
        for note in &self.notes {
            writeln!(out, "note: {note}").expect("writing to a string succeeds");
        }
        out
    }

    /// The result as JSON; times in seconds, memory in bytes.
    pub(super) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .flat_map(|(row, series)| series.iter().map(|one| entry(row, series, one)))
            .collect();
        let bars: Vec<Value> = self
            .rows
            .iter()
            .flat_map(|(row, series)| verdicts(row, series).into_iter().map(|verdict| (row.name, verdict)))
            .map(|(name, verdict)| json!({ "name": name, "bar": verdict.bar.to_string(), "reached": verdict.reached, "found": verdict.found }))
            .collect();
        json!({ "machine": self.machine, "rows": rows, "bars": bars, "notes": self.notes,
            "service": self.load.as_ref().map(Load::json) })
    }
}

fn entry(row: &BenchRow, series: &[Series], one: &Series) -> Value {
    let ratio = |other: &str| one_of(series, other).and_then(|other| one.ratio(other));
    json!({
        "name": row.name,
        "contender": one.contender,
        "rounds": one.samples.as_ref().map_or(0, Vec::len),
        "min": one.min(),
        "median": one.median(),
        "ratioToBare": ratio("bare"),
        "ratioToBwrap": ratio("bwrap"),
        "ratioToBefore": ratio(BEFORE),
    })
}

/// The line about another build, if there is one.
fn comparison(row: &BenchRow, series: &[Series]) -> Option<String> {
    let (ours, before) = (one_of(series, "ringfence")?, one_of(series, BEFORE)?);
    let (ratio, (low, high)) = (ours.ratio(before)?, ours.ratio_interval(before)?);
    Some(format!("{:<14} {ratio:.3} × before (95 %: {low:.3} to {high:.3})\n", row.name))
}

/// The bars of `row` with a result; a bar for an absent contender has none.
fn verdicts(row: &BenchRow, series: &[Series]) -> Vec<BarResult> {
    let Some(ringfence) = one_of(series, "ringfence") else { return Vec::new() };
    let judge = |bar: &Bar| {
        let (reached, found) = match *bar {
            // Without a number of ringfence the bar is missed.
            _ if ringfence.samples.is_err() => (false, None),
            Bar::Times(limit, other) => {
                let ratio = ringfence.ratio(one_of(series, other)?)?;
                (ratio <= limit, Some(ratio).filter(|_| !["bare", "bwrap"].contains(&other)))
            }
            Bar::Seconds(limit) => (ringfence.median()? < limit, None),
            Bar::Bytes(limit) => (ringfence.median()? <= limit, None),
            Bar::Adds(limit, other) => {
                let more = ringfence.median()? - one_of(series, other)?.median()?;
                (more <= limit, Some(more * 1e6))
            }
        };
        Some(BarResult { bar: *bar, reached, found })
    };
    row.bars.iter().filter_map(judge).collect()
}

fn bars(row: &BenchRow, series: &[Series]) -> String {
    let verdicts = verdicts(row, series);
    let words = verdicts.iter().map(|verdict| {
        let found = verdict.found.map_or_else(String::new, |found| format!(" ({found:.3})"));
        format!("{} {}{found}", if verdict.reached { "ok  " } else { "FAIL" }, verdict.bar)
    });
    words.collect::<Vec<_>>().join(", ")
}

fn one_of<'a>(series: &'a [Series], name: &str) -> Option<&'a Series> {
    series.iter().find(|one| one.contender == name)
}

impl std::fmt::Display for Bar {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bar::Times(limit, other) => write!(out, "≤ {limit} × {other}"),
            Bar::Seconds(limit) => write!(out, "< {limit} s"),
            Bar::Bytes(limit) => write!(out, "≤ {}", size(Some(*limit))),
            Bar::Adds(limit, other) => write!(out, "≤ {other} + {:.0} µs", limit * 1e6),
        }
    }
}

fn put(out: &mut String, [row, contender, min, median, bare, bwrap, bar]: [&str; 7]) {
    let line =
        format!("{row:<14} {contender:<10} {min:>10} {median:>10} {bare:>8} {bwrap:>8}  {bar}");
    out.push_str(line.trim_end());
    out.push('\n');
}

/// A time with a suitable unit.
fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(s) if s < 1e-5 => format!("{:.0} ns", s * 1e9),
        Some(s) if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        Some(s) if s < 1.0 => format!("{:.2} ms", s * 1e3),
        Some(s) => format!("{s:.2} s"),
    }
}

fn size(bytes: Option<f64>) -> String {
    bytes.map_or("-".into(), |bytes| format!("{:.0} KiB", bytes / 1024.0))
}

#[cfg(test)]
mod tests {
    use super::super::row::ROWS;
    use super::{Series, bars, time, verdicts};

    fn row(name: &str) -> &'static super::BenchRow {
        ROWS.iter().find(|row| row.name == name).expect("a row")
    }

    fn series(numbers: &[(&'static str, f64)]) -> Vec<Series> {
        numbers
            .iter()
            .map(|(contender, seconds)| Series { contender, samples: Ok(vec![*seconds]) })
            .collect()
    }

    #[track_caller]
    fn check(name: &str, numbers: &[(&'static str, f64)], expect: &str) {
        assert_eq!(bars(row(name), &series(numbers)), expect);
    }

    #[test]
    fn bars_are_checked_for_present_contenders() {
        check("start", &[("bare", 1.0), ("ringfence", 3.9), ("bwrap", 5.0)], "ok   ≤ 0.8 × bwrap");
        check(
            "start",
            &[("ringfence", 4.1), ("bwrap", 5.0), ("srt", 300.0)],
            "FAIL ≤ 0.8 × bwrap, ok   ≤ 0.02 × srt (0.014)",
        );
        check(
            "stat",
            &[("ringfence", 1.04), ("no-tripwire", 1.0)],
            "FAIL ≤ 1.03 × no-tripwire (1.040)",
        );
        check("start", &[("bare", 1.0), ("ringfence", 3.9)], "");
        check("grep", &[("bare", 1.0), ("ringfence", 1.03)], "FAIL ≤ 1.02 × bare");
        check("deny-60k", &[("ringfence", 1.9)], "ok   < 2 s");
        check("session-idle", &[("ringfence", 2_097_152.0)], "ok   ≤ 2048 KiB");
        check("session-idle", &[("ringfence", 2_097_153.0)], "FAIL ≤ 2048 KiB");
    }

    #[test]
    fn missing_number_is_a_missed_bar() {
        let broken = [Series { contender: "ringfence", samples: Err("NOT REFUSED".into()) }];
        assert!(verdicts(row("deny-60k"), &broken).iter().all(|verdict| !verdict.reached));
    }

    #[test]
    fn times_have_a_suitable_unit() {
        assert_eq!(
            [1.5e-6, 5.4e-4, 2.1e-3, 1.25].map(|s| time(Some(s))),
            ["1500 ns", "540 µs", "2.10 ms", "1.25 s"]
        );
    }
}
