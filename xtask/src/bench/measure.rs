//! Rounds of samples.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Pace;
use super::contender::Contender;
use super::job::{Job, Timing};
use super::row::{Row, Who};

/// The kernel takes namespaces down after their last process is gone: not in the next contender's
/// time.
const REST: Duration = Duration::from_millis(5);

/// What one contender needed, round by round, in seconds or bytes; or why there is no number.
pub(super) struct Series {
    pub(super) contender: &'static str,
    pub(super) samples: Result<Vec<f64>, String>,
}

/// Takes the row's rounds, the contenders one after the other in each, starting with another one
/// each time.
pub(super) fn measure(row: &Row, job: &Job, contenders: &[Contender], pace: Pace) -> Vec<Series> {
    let takes_part = |contender: &&Contender| match row.who {
        Who::All => !contender.is_untold() && !contender.is_only_told(),
        Who::Full => contender.is_full(),
        Who::Wired => contender.is_full() || contender.is_untold(),
        Who::Ringfence => contender.name == "ringfence",
        Who::Both => ["bare", "ringfence"].contains(&contender.name),
    };
    let contenders: Vec<&Contender> = contenders.iter().filter(takes_part).collect();
    let mut series: Vec<Series> = contenders
        .iter()
        .map(|contender| Series { contender: contender.name, samples: Ok(Vec::new()) })
        .collect();
    for round in 0..row.rounds(pace) {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            if let Ok(samples) = &mut series[index].samples {
                std::thread::sleep(REST);
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
    let heard = || if job.timing.is_told() { Stdio::piped() } else { Stdio::null() };
    command.stdin(Stdio::null()).stdout(heard()).stderr(heard());
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
            let told = printed
                .trim()
                .parse::<f64>()
                .map_err(|_| format!("the probe printed `{}`", printed.trim()))?;
            Ok(if timing == Timing::Memory { told } else { told / 1e9 })
        }
        (_, false) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, said.lines().next().unwrap_or("no message")))
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

    /// The median of the rounds' ratios to `other`.
    pub(super) fn ratio(&self, other: &Series) -> Option<f64> {
        let (ours, theirs) = (self.samples.as_ref().ok()?, other.samples.as_ref().ok()?);
        median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
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
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds() {
        let of = |samples: &[f64]| Series { contender: "x", samples: Ok(samples.to_vec()) };
        // One round under load slows both: the ratio does not move.
        assert_eq!(of(&[2.0, 20.0, 2.0]).ratio(&of(&[1.0, 10.0, 1.0])), Some(2.0));
        assert_eq!(
            of(&[1.0]).ratio(&Series { contender: "y", samples: Err("absent".into()) }),
            None
        );
    }
}
