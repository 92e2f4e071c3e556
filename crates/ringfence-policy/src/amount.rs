//! Durations and sizes with units.

use crate::policy::Amount;

const DURATIONS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

const SIZES: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl Amount {
    /// The duration in milliseconds; `None` if it is no duration.
    pub fn milliseconds(&self) -> Option<u64> {
        self.scaled(&DURATIONS, 1000)
    }

    /// The size in bytes; `None` if it is no size.
    pub fn bytes(&self) -> Option<u64> {
        self.scaled(&SIZES, 1)
    }

    fn scaled(&self, units: &[(&str, u64)], plain: u64) -> Option<u64> {
        match self {
            Amount::Number(number) => number.checked_mul(plain),
            Amount::Text(text) => {
                let split = text.find(|c: char| !c.is_ascii_digit())?;
                let (number, unit) = text.split_at(split);
                let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
                number.parse::<u64>().ok()?.checked_mul(*factor)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, milliseconds: Option<u64>, bytes: Option<u64>) {
        let amount = text.parse().map_or_else(|_| Amount::Text(text.to_owned()), Amount::Number);
        assert_eq!((amount.milliseconds(), amount.bytes()), (milliseconds, bytes), "{text}");
    }

    #[test]
    fn units_are_exact() {
        check("300s", Some(300_000), None);
        check("5m", Some(300_000), None);
        check("2h", Some(7_200_000), None);
        check("500ms", Some(500), None);
        check("30", Some(30_000), Some(30));
        check("512MiB", None, Some(512 << 20));
        check("2 GB", None, Some(2_000_000_000));
        check("7B", None, Some(7));
        for nonsense in
            ["", "s", "5", "-5s", "1.5h", "5x", "5 m s", "99999999999999999999s", "20000000TiB"]
        {
            let amount = Amount::Text(nonsense.to_owned());
            assert_eq!((amount.milliseconds(), amount.bytes()), (None, None), "{nonsense}");
        }
    }
}
