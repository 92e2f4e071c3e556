//! Rounds of samples.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Pace;
use super::contender::{BEFORE, Contender};
use super::job::{Job, Timing};
use super::row::{BenchRow, Who};

/// The pause between samples: the kernel removes namespaces after their last process has ended,
/// which must not count for the next contender.
const PAUSE: Duration = Duration::from_millis(5);

/// The samples of one contender by round, in seconds or bytes; or the reason there are none.
pub(super) struct Series {
    pub(super) contender: &'static str,
    pub(super) samples: Result<Vec<f64>, String>,
}

/// Measures all rounds of a row. The contenders take turns in each round, with another one first
/// each time.
pub(super) fn measure(
    row: &BenchRow,
    job: &Job,
    contenders: &[Contender],
    pace: Pace,
) -> Vec<Series> {
    let is_included = |contender: &&Contender| match row.who {
        // Helpers that are part of the measured program know no other build.
        _ if contender.name == BEFORE && job.timing.knows_all() => false,
        Who::All => !contender.is_without_tripwire() && !contender.is_notify_only(),
        Who::Full => contender.is_full(),
        Who::Wired => contender.is_full() || contender.is_without_tripwire(),
        Who::Ringfence => ["ringfence", BEFORE].contains(&contender.name),
        Who::Both => ["bare", "ringfence", BEFORE].contains(&contender.name),
    };
    let contenders: Vec<&Contender> = contenders.iter().filter(is_included).collect();
    let mut series: Vec<Series> = contenders
        .iter()
        .map(|contender| Series { contender: contender.name, samples: Ok(Vec::new()) })
        .collect();
    for round in 0..row.rounds(pace) {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            if let Ok(samples) = &mut series[index].samples {
                std::thread::sleep(PAUSE);
                match sample(contenders[index], job) {
                    Ok(needed) => samples.push(needed),
                    Err(why) => series[index].samples = Err(why),
                }
            }
        }
    }
    series
}

fn sample(contender: &Contender, job: &Job) -> Result<f64, String> {
    let mut command = contender.command(job);
    let stdio = || if job.timing.is_printed() { Stdio::piped() } else { Stdio::null() };
    command.stdin(Stdio::null()).stdout(stdio()).stderr(stdio());
    let began = Instant::now();
    let output = command
        .spawn()
        .and_then(|child| child.wait_with_output())
        .map_err(|error| format!("cannot start: {error}"))?;
    let whole = began.elapsed().as_secs_f64();
    match (job.timing, output.status.success()) {
        (Timing::Whole, true) | (Timing::Refused, false) => Ok(whole),
        (Timing::Refused, true) => Err("NOT REFUSED".into()),
        (timing, true) => {
            let printed = String::from_utf8_lossy(&output.stdout);
            let number = printed
                .trim()
                .parse::<f64>()
                .map_err(|_| format!("the probe printed `{}`", printed.trim()))?;
            Ok(if timing == Timing::Memory { number } else { number / 1e9 })
        }
        (_, false) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, stderr.lines().next().unwrap_or("no message")))
        }
    }
}

impl Series {
    pub(super) fn median(&self) -> Option<f64> {
        median(self.samples.as_ref().ok()?.clone())
    }

    pub(super) fn min(&self) -> Option<f64> {
        self.samples.as_ref().ok()?.iter().copied().min_by(f64::total_cmp)
    }

    /// The median of the ratios to `other` by round.
    pub(super) fn ratio(&self, other: &Series) -> Option<f64> {
        let (ours, theirs) = (self.samples.as_ref().ok()?, other.samples.as_ref().ok()?);
        median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// The 95 % interval of that median, from the order of the ratios.
    pub(super) fn ratio_interval(&self, other: &Series) -> Option<(f64, f64)> {
        let (ours, theirs) = (self.samples.as_ref().ok()?, other.samples.as_ref().ok()?);
        let mut ratios: Vec<f64> =
            ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        ratios.sort_by(f64::total_cmp);
        let count = ratios.len() as f64;
        let outside = (count / 2.0 - 0.98 * count.sqrt()).max(0.0) as usize;
        Some((*ratios.get(outside)?, *ratios.get(ratios.len() - 1 - outside)?))
    }
}

fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    match samples.len() {
        0 => None,
        count if count % 2 == 1 => Some(samples[middle]),
        _ => Some((samples[middle - 1] + samples[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{Series, median};

    #[test]
    fn interval_of_a_ratio_leaves_out_both_ends() {
        let series = |samples: Vec<f64>| Series { contender: "x", samples: Ok(samples) };
        let ours = series((1..=100).map(f64::from).collect());
        let interval = ours.ratio_interval(&series(vec![1.0; 100]));
        assert_eq!(interval, Some((41.0, 60.0)));
        assert_eq!(series(vec![2.0]).ratio_interval(&series(vec![1.0])), Some((2.0, 2.0)));
        assert_eq!(series(vec![]).ratio_interval(&series(vec![])), None);
    }

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratio_is_the_median_over_rounds() {
        let series = |samples: &[f64]| Series { contender: "x", samples: Ok(samples.to_vec()) };
        // One round under load slows both, so the ratio stays.
        assert_eq!(series(&[2.0, 20.0, 2.0]).ratio(&series(&[1.0, 10.0, 1.0])), Some(2.0));
        assert_eq!(
            series(&[1.0]).ratio(&Series { contender: "y", samples: Err("absent".into()) }),
            None
        );
    }
}
