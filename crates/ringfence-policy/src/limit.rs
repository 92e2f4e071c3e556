//! What a command may use only so much of.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Amount;

/// Something that a command may use only so much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Time, in milliseconds.
    Wall,
    /// Time on a processor, in milliseconds, of all its processes together.
    Cpu,
    /// Memory, in bytes, of all its processes together.
    Memory,
    /// Processes and threads.
    Processes,
    /// Files that one process has open.
    OpenFiles,
    /// The size of one file, in bytes.
    FileSize,
    /// What is written to disk, in bytes.
    Disk,
    /// What is written to standard output and error, in bytes.
    Output,
}

impl Limit {
    /// All of them.
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

    /// Its key in the policy.
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

    /// How much of it `text` says, in its smallest unit; `None` if it says nothing of the kind.
    pub fn amount(self, text: &str) -> Option<u64> {
        let amount = text.parse().map_or_else(|_| Amount::Text(text.to_owned()), Amount::Number);
        match self.unit() {
            LimitUnit::Milliseconds => amount.milliseconds(),
            LimitUnit::Bytes => amount.bytes(),
            LimitUnit::Pieces => text.parse().ok(),
        }
    }

    /// What can be said of it.
    pub fn expected(self) -> &'static str {
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

    /// So much of it, for people.
    pub fn show(self, amount: u64) -> String {
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
        assert_eq!(limit.amount(text), amount, "{word} {text}");
        assert_eq!(
            amount.map(|amount| limit.show(amount)).unwrap_or_default(),
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
    fn each_is_one_of_the_numbers() {
        use crate::grants::Limits;
        let mut limits = Limits::default();
        for (number, limit) in (1..).zip(Limit::ALL) {
            limits = limits.with(*limit, Some(number));
        }
        let expect: Vec<(Limit, u64)> = Limit::ALL.iter().copied().zip(1..).collect();
        assert_eq!(limits.asked(), expect);
        assert_eq!(Limits::default().asked(), []);
    }
}
