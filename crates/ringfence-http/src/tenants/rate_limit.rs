//! Rate limiting.

use std::time::Instant;

/// A token bucket with a depth of two seconds.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    /// The tokens left, and the time of that count.
    left: Option<(f64, Instant)>,
}

/// Seconds' worth of tokens that fit in.
const DEPTH: f64 = 2.0;

impl TokenBucket {
    /// Takes a token, or returns the seconds to wait.
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

    /// True if it is full again, so that it can be dropped.
    pub(super) fn is_full(&self) -> bool {
        self.left.is_none_or(|(_, since)| since.elapsed().as_secs_f64() > DEPTH)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bucket_refills_with_time() {
        let (mut bucket, start) = (TokenBucket::default(), Instant::now());
        assert!((0..20).all(|_| bucket.take_at(10, start).is_ok()));
        assert_eq!(bucket.take_at(10, start), Err(1));
        assert!(bucket.take_at(10, start + Duration::from_millis(100)).is_ok());
        assert!(bucket.take_at(10, start + Duration::from_millis(100)).is_err());
        assert!((0..20).all(|_| bucket.take_at(10, start + Duration::from_secs(60)).is_ok()));
        assert!(bucket.take_at(10, start + Duration::from_secs(60)).is_err());
    }
}
