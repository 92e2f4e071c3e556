//! Prometheus metrics.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use crate::tenants::lock;

/// Upper bounds of the duration buckets, in milliseconds.
const BOUNDS: [u64; 12] = [5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 30_000, 120_000, 300_000];

#[derive(Default)]
pub(crate) struct Metrics {
    /// By route, method and status.
    requests: Mutex<BTreeMap<(String, String, u16), u64>>,
    /// By result.
    executions: Mutex<BTreeMap<&'static str, u64>>,
    /// By limit.
    breaches: Mutex<BTreeMap<String, u64>>,
    denials: AtomicU64,
    pub(crate) unauthorized: AtomicU64,
    pub(crate) uploads: AtomicU64,
    durations: [AtomicU64; BOUNDS.len()],
    duration_sum: AtomicU64,
    duration_count: AtomicU64,
}

impl Metrics {
    pub(crate) fn count_request(&self, path: &str, method: &str, status: u16) {
        // Callers without a token could invent methods, and each would be kept.
        const KNOWN: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
        let method = KNOWN.into_iter().find(|known| *known == method).unwrap_or("other");
        *lock(&self.requests).entry((path.to_owned(), method.to_owned(), status)).or_default() += 1;
    }

    /// Counts an ended command; without a result it could not be run.
    pub(crate) fn count_execution(&self, result: Option<&Value>) {
        let what = match result {
            Some(result) if result["blocked"] == true => "blocked",
            Some(result) if result["timedOut"] == true => "timed-out",
            Some(_) => "ended",
            None => "failed",
        };
        *lock(&self.executions).entry(what).or_default() += 1;
        let Some(result) = result else { return };
        self.denials.fetch_add(
            result["denials"].as_array().map_or(0, |denials| denials.len() as u64),
            Ordering::Relaxed,
        );
        for breach in result["breaches"].as_array().into_iter().flatten() {
            *lock(&self.breaches)
                .entry(breach["limit"].as_str().unwrap_or_default().to_owned())
                .or_default() += 1;
        }
        let took = result["durationMs"].as_u64().unwrap_or_default();
        for (bound, count) in BOUNDS.iter().zip(&self.durations) {
            if took <= *bound {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.duration_sum.fetch_add(took, Ordering::Relaxed);
        self.duration_count.fetch_add(1, Ordering::Relaxed);
    }

    /// The text format; `gauges` are current values.
    pub(crate) fn text(&self, gauges: &[(&str, &str, u64)]) -> String {
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ =
                writeln!(text, "# HELP ringfence_{name} {help}\n# TYPE ringfence_{name} {kind}");
        };
        head(&mut text, "requests_total", "counter", "Requests, by path, method and status.");
        for ((path, method, status), count) in &*lock(&self.requests) {
            let _ = writeln!(
                text,
                "ringfence_requests_total{{path=\"{path}\",method=\"{method}\",status=\"{status}\"}} {count}"
            );
        }
        head(&mut text, "executions_total", "counter", "Commands run, by result.");
        for (what, count) in &*lock(&self.executions) {
            let _ = writeln!(text, "ringfence_executions_total{{result=\"{what}\"}} {count}");
        }
        head(&mut text, "breaches_total", "counter", "Exceeded limits, by limit.");
        for (limit, count) in &*lock(&self.breaches) {
            let _ = writeln!(text, "ringfence_breaches_total{{limit=\"{limit}\"}} {count}");
        }
        let counters = [
            ("denials_total", "Denied accesses of commands.", &self.denials),
            ("unauthorized_total", "Requests without a known token.", &self.unauthorized),
            ("uploads_total", "Uploaded archives.", &self.uploads),
        ];
        for (name, help, count) in counters {
            head(&mut text, name, "counter", help);
            let _ = writeln!(text, "ringfence_{name} {}", count.load(Ordering::Relaxed));
        }
        head(&mut text, "execution_seconds", "histogram", "Duration of commands.");
        for (bound, count) in BOUNDS.iter().zip(&self.durations) {
            let bound = *bound as f64 / 1000.0;
            let _ = writeln!(
                text,
                "ringfence_execution_seconds_bucket{{le=\"{bound}\"}} {}",
                count.load(Ordering::Relaxed)
            );
        }
        let count = self.duration_count.load(Ordering::Relaxed);
        let sum = self.duration_sum.load(Ordering::Relaxed) as f64 / 1000.0;
        let _ = writeln!(text, "ringfence_execution_seconds_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(
            text,
            "ringfence_execution_seconds_sum {sum}\nringfence_execution_seconds_count {count}"
        );
        for (name, help, value) in gauges {
            head(&mut text, name, "gauge", help);
            let _ = writeln!(text, "ringfence_{name} {value}");
        }
        text
    }
}
