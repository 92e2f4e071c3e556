//! How fast somebody may come.

use std::time::Instant;

/// A bucket that fills with time: as much as two seconds bring can be used at once.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    /// How much is left, and since when.
    left: Option<(f64, Instant)>,
}

/// So many seconds' worth fit in.
const DEPTH: f64 = 2.0;

impl TokenBucket {
    /// Takes one; else answers after how many seconds there will be one.
    pub(super) fn take(&mut self, per_second: u32) -> Result<(), u64> {
        self.take_at(per_second, Instant::now())
    }

    fn take_at(&mut self, per_second: u32, now: Instant) -> Result<(), u64> {
        let rate = f64::from(per_second.max(1));
        let (left, since) = self.left.unwrap_or((rate * DEPTH, now));
        let left =
            (left + now.saturating_duration_since(since).as_secs_f64() * rate).min(rate * DEPTH);
        if left < 1.0 {
            self.left = Some((left, now));
            return Err(((1.0 - left) / rate).ceil() as u64);
        }
        self.left = Some((left - 1.0, now));
        Ok(())
    }

    /// Whether it has not been used for so long that it may be forgotten.
    pub(super) fn is_rested(&self) -> bool {
        self.left.is_none_or(|(_, since)| since.elapsed().as_secs_f64() > DEPTH)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_used_up_comes_back_with_time() {
        let (mut pace, start) = (TokenBucket::default(), Instant::now());
        assert!((0..20).all(|_| pace.take_at(10, start).is_ok()));
        assert_eq!(pace.take_at(10, start), Err(1));
        assert!(pace.take_at(10, start + Duration::from_millis(100)).is_ok());
        assert!(pace.take_at(10, start + Duration::from_millis(100)).is_err());
        assert!((0..20).all(|_| pace.take_at(10, start + Duration::from_secs(60)).is_ok()));
        assert!(pace.take_at(10, start + Duration::from_secs(60)).is_err());
    }
}
