//! Resource limits.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Amount;

/// A resource with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Wall-clock time, in milliseconds.
    Wall,
    /// CPU time of all processes, in milliseconds.
    Cpu,
    /// Memory of all processes, in bytes.
    Memory,
    /// Number of processes and threads.
    Processes,
    /// Number of open files per process.
    OpenFiles,
    /// Size of one file, in bytes.
    FileSize,
    /// Amount written to disk, in bytes.
    Disk,
    /// Amount written to standard output and standard error, in bytes.
    Output,
}

impl Limit {
    /// All limits.
    pub const ALL: &[Limit] = &[
        Limit::Wall,
        Limit::Cpu,
        Limit::Memory,
        Limit::Processes,
        Limit::OpenFiles,
        Limit::FileSize,
        Limit::Disk,
        Limit::Output,
    ];

    /// The key in the policy.
    pub fn word(self) -> &'static str {
        match self {
            Limit::Wall => "wall",
            Limit::Cpu => "cpu",
            Limit::Memory => "memory",
            Limit::Processes => "processes",
            Limit::OpenFiles => "open-files",
            Limit::FileSize => "file-size",
            Limit::Disk => "disk",
            Limit::Output => "output",
        }
    }

    /// Parses an amount into the smallest unit; `None` if `text` is invalid.
    pub fn parse_amount(self, text: &str) -> Option<u64> {
        let amount = text.parse().map_or_else(|_| Amount::Text(text.to_owned()), Amount::Number);
        match self.unit() {
            LimitUnit::Milliseconds => amount.milliseconds(),
            LimitUnit::Bytes => amount.bytes(),
            LimitUnit::Pieces => text.parse().ok(),
        }
    }

    /// Description of valid amounts.
    pub fn expected_format(self) -> &'static str {
        match self.unit() {
            LimitUnit::Milliseconds => "a duration such as `500ms`, `300s`, `5m` or `2h`",
            LimitUnit::Bytes => "a size such as `512MiB` or `2GB`",
            LimitUnit::Pieces => "a number",
        }
    }

    fn unit(self) -> LimitUnit {
        match self {
            Limit::Wall | Limit::Cpu => LimitUnit::Milliseconds,
            Limit::Memory | Limit::FileSize | Limit::Disk | Limit::Output => LimitUnit::Bytes,
            Limit::Processes | Limit::OpenFiles => LimitUnit::Pieces,
        }
    }

    /// Formats an amount for the user.
    pub fn format_amount(self, amount: u64) -> String {
        const STEPS: [(u64, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match self.unit() {
            LimitUnit::Pieces => amount.to_string(),
            LimitUnit::Milliseconds if amount.is_multiple_of(1000) => {
                format!("{} s", amount / 1000)
            }
            LimitUnit::Milliseconds => format!("{}.{:03} s", amount / 1000, amount % 1000),
            LimitUnit::Bytes => match STEPS.iter().find(|(step, _)| amount >= *step) {
                Some((step, unit)) if amount.is_multiple_of(*step) => {
                    format!("{} {unit}", amount / step)
                }
                Some((step, unit)) => format!("{:.1} {unit}", amount as f64 / *step as f64),
                None => format!("{amount} bytes"),
            },
        }
    }
}

enum LimitUnit {
    Milliseconds,
    Bytes,
    Pieces,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl std::str::FromStr for Limit {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|limit| limit.word() == word).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, text: &str, amount: Option<u64>, shown: &str) {
        let limit: Limit = word.parse().unwrap();
        assert_eq!(limit.parse_amount(text), amount, "{word} {text}");
        assert_eq!(
            amount.map(|amount| limit.format_amount(amount)).unwrap_or_default(),
            shown,
            "{word} {text}"
        );
    }

    #[test]
    fn amounts_are_read_and_shown() {
        check("wall", "90s", Some(90_000), "90 s");
        check("cpu", "1500ms", Some(1500), "1.500 s");
        check("cpu", "1GiB", None, "");
        check("memory", "512MiB", Some(512 << 20), "512 MiB");
        check("disk", "2GB", Some(2_000_000_000), "1.9 GiB");
        check("output", "100", Some(100), "100 bytes");
        check("output", "5m", None, "");
        check("processes", "64", Some(64), "64");
        check("open-files", "64KiB", None, "");
        assert!("memoory".parse::<Limit>().is_err());
    }

    #[test]
    fn every_limit_has_its_own_value() {
        use crate::grants::Limits;
        let mut limits = Limits::default();
        for (number, limit) in (1..).zip(Limit::ALL) {
            limits = limits.with(*limit, Some(number));
        }
        let expect: Vec<(Limit, u64)> = Limit::ALL.iter().copied().zip(1..).collect();
        assert_eq!(limits.set_limits(), expect);
        assert_eq!(Limits::default().set_limits(), []);
    }
}
