//! Who sees the bytes of one direction, and what is held until they were seen.

use super::check::{Check, Objection, Verdict};

/// What is held of a connection at most while it cannot be judged.
pub(super) const HELD: usize = 64 * 1024;

/// Who sees the bytes, and those that nobody has let through yet.
pub(super) struct Sight {
    rule: Rule,
    /// Read and not let through.
    held: Vec<u8>,
    /// Something is held that was not looked at.
    fresh: bool,
    /// Something was said of what is said, or nobody wants to know.
    judged: bool,
    /// It was looked since somebody asked.
    looked: bool,
}

enum Rule {
    /// Nobody looks.
    Free,
    /// So many go unseen, then they are looked at again.
    Credit(u64, Box<dyn Check>),
    Look(Box<dyn Check>),
    /// What is still read is dropped.
    Drop,
}

impl Sight {
    /// Nobody looks.
    pub(super) fn none() -> Sight {
        Sight { rule: Rule::Free, held: Vec::new(), fresh: false, judged: true, looked: false }
    }

    /// `check` looks, first at what was read before.
    pub(super) fn of(check: Box<dyn Check>, said: Vec<u8>) -> Sight {
        Sight {
            rule: Rule::Look(check),
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
        matches!(self.rule, Rule::Look(_))
    }

    /// How many bytes go unseen from here.
    pub(super) fn unseen(&self) -> u64 {
        match self.rule {
            Rule::Free => u64::MAX,
            Rule::Credit(left, _) => left,
            Rule::Look(_) | Rule::Drop => 0,
        }
    }

    /// How many bytes may be read to be looked at, or dropped.
    pub(super) fn room(&self) -> usize {
        HELD.saturating_sub(self.held.len()).max(1)
    }

    /// Takes what has passed unseen off what may.
    pub(super) fn spend(&mut self, count: usize) {
        if let Rule::Credit(left, _) = &mut self.rule {
            *left = left.saturating_sub(count as u64);
            if *left == 0
                && let Rule::Credit(_, check) = std::mem::replace(&mut self.rule, Rule::Drop)
            {
                self.rule = Rule::Look(check);
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
    pub(super) fn judge(&mut self) -> Result<Option<Vec<u8>>, Objection> {
        let Rule::Look(check) = &mut self.rule else { return Ok(None) };
        if !std::mem::take(&mut self.fresh) || self.held.is_empty() {
            return Ok(None);
        }
        let verdict = check.look(&self.held);
        self.looked = true;
        self.judged |= verdict != Verdict::NeedMore;
        match verdict {
            Verdict::NeedMore if self.held.len() < HELD => Ok(Some(Vec::new())),
            Verdict::NeedMore | Verdict::Through(0) => {
                let reason =
                    format!("it could not be told from {} bytes what is said", self.held.len());
                Err(Objection { reason, answer: Vec::new() })
            }
            Verdict::Pass => {
                self.rule = Rule::Free;
                Ok(Some(std::mem::take(&mut self.held)))
            }
            Verdict::Through(count) => Ok(Some(self.let_through(count))),
            Verdict::Instead(count, bytes) => {
                self.let_through(count.min(self.held.len()) as u64);
                Ok(Some(bytes))
            }
            Verdict::Finish => {
                self.rule = Rule::Drop;
                self.forget();
                Ok(Some(Vec::new()))
            }
            Verdict::Refuse(objection) => Err(objection),
        }
    }

    fn let_through(&mut self, count: u64) -> Vec<u8> {
        let now = usize::try_from(count).unwrap_or(usize::MAX).min(self.held.len());
        let rest = self.held.split_off(now);
        let free = std::mem::replace(&mut self.held, rest);
        self.fresh = !self.held.is_empty();
        let left = count - now as u64;
        if left > 0
            && let Rule::Look(check) = std::mem::replace(&mut self.rule, Rule::Drop)
        {
            self.rule = Rule::Credit(left, check);
        }
        free
    }
}
