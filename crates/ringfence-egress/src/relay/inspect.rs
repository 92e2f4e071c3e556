//! Inspection of one direction: the check, and the bytes held until it lets them through.

use super::check::{StreamCheck, StreamObjection, StreamVerdict};

/// Maximum of bytes held while they cannot be judged.
pub(super) const MAX_HELD: usize = 64 * 1024;

/// The check of one direction, and the bytes it has not let through yet.
pub(super) struct StreamInspector {
    rule: InspectMode,
    /// Read and not let through.
    held: Vec<u8>,
    /// Set while held bytes were not shown to the check.
    fresh: bool,
    /// Set once the check gave a verdict, or without a check.
    judged: bool,
    /// Set when the check ran since the last query.
    looked: bool,
}

enum InspectMode {
    /// No check.
    Free,
    /// Number of bytes to pass unchecked before the check sees bytes again.
    Credit(u64, Box<dyn StreamCheck>),
    Look(Box<dyn StreamCheck>),
    /// Further bytes are dropped.
    Drop,
}

impl StreamInspector {
    /// An inspector without a check.
    pub(super) fn without_check() -> StreamInspector {
        StreamInspector {
            rule: InspectMode::Free,
            held: Vec::new(),
            fresh: false,
            judged: true,
            looked: false,
        }
    }

    /// An inspector with a check, which sees `early` first.
    pub(super) fn with_check(check: Box<dyn StreamCheck>, early: Vec<u8>) -> StreamInspector {
        StreamInspector {
            rule: InspectMode::Look(check),
            fresh: !early.is_empty(),
            held: early,
            judged: false,
            looked: false,
        }
    }

    /// True once the first bytes were judged.
    pub(super) fn is_judged(&self) -> bool {
        self.judged
    }

    /// True if the next bytes go to the check.
    pub(super) fn is_checking(&self) -> bool {
        matches!(self.rule, InspectMode::Look(_))
    }

    /// Number of bytes that pass unchecked from here.
    pub(super) fn unchecked_allowance(&self) -> u64 {
        match self.rule {
            InspectMode::Free => u64::MAX,
            InspectMode::Credit(left, _) => left,
            InspectMode::Look(_) | InspectMode::Drop => 0,
        }
    }

    /// Number of bytes to read for the check, or to drop.
    pub(super) fn free_space(&self) -> usize {
        MAX_HELD.saturating_sub(self.held.len()).max(1)
    }

    /// Subtracts passed bytes from the unchecked allowance.
    pub(super) fn spend(&mut self, count: usize) {
        if let InspectMode::Credit(left, _) = &mut self.rule {
            *left = left.saturating_sub(count as u64);
            if *left == 0
                && let InspectMode::Credit(_, check) =
                    std::mem::replace(&mut self.rule, InspectMode::Drop)
            {
                self.rule = InspectMode::Look(check);
            }
        }
    }

    /// Holds bytes for the check, or drops them.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        if self.is_checking() {
            self.held.extend_from_slice(bytes);
            self.fresh = true;
        }
    }

    /// True if the check ran since the last call.
    pub(super) fn take_has_checked(&mut self) -> bool {
        std::mem::take(&mut self.looked)
    }

    /// Marks the held bytes for another check, since the other direction changed. True if there are
    /// any.
    pub(super) fn mark_for_recheck(&mut self) -> bool {
        self.fresh = self.is_checking() && !self.held.is_empty();
        self.fresh
    }

    /// End of input: held bytes that were never judged are not sent.
    pub(super) fn drop_held(&mut self) {
        self.held = Vec::new();
    }

    /// Shows the held bytes to the check if they are new. `None` if there is nothing to check, else
    /// the bytes that may go, perhaps none.
    pub(super) fn judge(&mut self) -> Result<Option<Vec<u8>>, StreamObjection> {
        let InspectMode::Look(check) = &mut self.rule else { return Ok(None) };
        if !std::mem::take(&mut self.fresh) || self.held.is_empty() {
            return Ok(None);
        }
        let verdict = check.check(&self.held);
        self.looked = true;
        self.judged |= verdict != StreamVerdict::NeedMore;
        match verdict {
            StreamVerdict::NeedMore if self.held.len() < MAX_HELD => Ok(Some(Vec::new())),
            StreamVerdict::NeedMore | StreamVerdict::PassBytes(0) => {
                let reason =
                    format!("protocol not recognized in the first {} bytes", self.held.len());
                Err(StreamObjection { reason, answer: Vec::new() })
            }
            StreamVerdict::Pass => {
                self.rule = InspectMode::Free;
                Ok(Some(std::mem::take(&mut self.held)))
            }
            StreamVerdict::PassBytes(count) => Ok(Some(self.let_through(count))),
            StreamVerdict::Replace(count, bytes) => {
                self.let_through(count.min(self.held.len()) as u64);
                Ok(Some(bytes))
            }
            StreamVerdict::DropRest => {
                self.rule = InspectMode::Drop;
                self.drop_held();
                Ok(Some(Vec::new()))
            }
            StreamVerdict::Refuse(objection) => Err(objection),
        }
    }

    fn let_through(&mut self, count: u64) -> Vec<u8> {
        let now = usize::try_from(count).unwrap_or(usize::MAX).min(self.held.len());
        let rest = self.held.split_off(now);
        let free = std::mem::replace(&mut self.held, rest);
        self.fresh = !self.held.is_empty();
        let left = count - now as u64;
        if left > 0
            && let InspectMode::Look(check) = std::mem::replace(&mut self.rule, InspectMode::Drop)
        {
            self.rule = InspectMode::Credit(left, check);
        }
        free
    }
}
