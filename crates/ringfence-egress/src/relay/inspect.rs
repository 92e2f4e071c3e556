//! Who sees the bytes of one direction, and what is held until they were seen.

use super::check::{StreamCheck, StreamObjection, StreamVerdict};

/// What is held of a connection at most while it cannot be judged.
pub(super) const HELD: usize = 64 * 1024;

/// Who sees the bytes, and those that nobody has let through yet.
pub(super) struct StreamInspector {
    rule: InspectMode,
    /// Read and not let through.
    held: Vec<u8>,
    /// Something is held that was not looked at.
    fresh: bool,
    /// Something was said of what is said, or nobody wants to know.
    judged: bool,
    /// It was looked since somebody asked.
    looked: bool,
}

enum InspectMode {
    /// Nobody looks.
    Free,
    /// So many go unseen, then they are looked at again.
    Credit(u64, Box<dyn StreamCheck>),
    Look(Box<dyn StreamCheck>),
    /// What is still read is dropped.
    Drop,
}

impl StreamInspector {
    /// Nobody looks.
    pub(super) fn none() -> StreamInspector {
        StreamInspector {
            rule: InspectMode::Free,
            held: Vec::new(),
            fresh: false,
            judged: true,
            looked: false,
        }
    }

    /// `check` looks, first at what was read before.
    pub(super) fn of(check: Box<dyn StreamCheck>, said: Vec<u8>) -> StreamInspector {
        StreamInspector {
            rule: InspectMode::Look(check),
            fresh: !said.is_empty(),
            held: said,
            judged: false,
            looked: false,
        }
    }

    /// Whether what was said first has been judged.
    pub(super) fn is_judged(&self) -> bool {
        self.judged
    }

    /// Whether what is read next is looked at.
    pub(super) fn is_looking(&self) -> bool {
        matches!(self.rule, InspectMode::Look(_))
    }

    /// How many bytes go unseen from here.
    pub(super) fn unseen(&self) -> u64 {
        match self.rule {
            InspectMode::Free => u64::MAX,
            InspectMode::Credit(left, _) => left,
            InspectMode::Look(_) | InspectMode::Drop => 0,
        }
    }

    /// How many bytes may be read to be looked at, or dropped.
    pub(super) fn room(&self) -> usize {
        HELD.saturating_sub(self.held.len()).max(1)
    }

    /// Takes what has passed unseen off what may.
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

    /// Holds what was read, or drops it.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        if self.is_looking() {
            self.held.extend_from_slice(bytes);
            self.fresh = true;
        }
    }

    /// Whether it was looked since this was asked last.
    pub(super) fn has_looked(&mut self) -> bool {
        std::mem::take(&mut self.looked)
    }

    /// Something else is known now: what is held is to be looked at again. Whether there is any.
    pub(super) fn look_again(&mut self) -> bool {
        self.fresh = self.is_looking() && !self.held.is_empty();
        self.fresh
    }

    /// Nothing more will be read: what was held and never understood does not go.
    pub(super) fn forget(&mut self) {
        self.held = Vec::new();
    }

    /// Has what is held looked at, once for each time that there is something new. `None` if
    /// there is nothing to look at, else what may go, which may be nothing.
    pub(super) fn judge(&mut self) -> Result<Option<Vec<u8>>, StreamObjection> {
        let InspectMode::Look(check) = &mut self.rule else { return Ok(None) };
        if !std::mem::take(&mut self.fresh) || self.held.is_empty() {
            return Ok(None);
        }
        let verdict = check.look(&self.held);
        self.looked = true;
        self.judged |= verdict != StreamVerdict::NeedMore;
        match verdict {
            StreamVerdict::NeedMore if self.held.len() < HELD => Ok(Some(Vec::new())),
            StreamVerdict::NeedMore | StreamVerdict::Through(0) => {
                let reason =
                    format!("it could not be told from {} bytes what is said", self.held.len());
                Err(StreamObjection { reason, answer: Vec::new() })
            }
            StreamVerdict::Pass => {
                self.rule = InspectMode::Free;
                Ok(Some(std::mem::take(&mut self.held)))
            }
            StreamVerdict::Through(count) => Ok(Some(self.let_through(count))),
            StreamVerdict::Instead(count, bytes) => {
                self.let_through(count.min(self.held.len()) as u64);
                Ok(Some(bytes))
            }
            StreamVerdict::Finish => {
                self.rule = InspectMode::Drop;
                self.forget();
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
