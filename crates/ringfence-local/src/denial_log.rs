//! What was refused, as it comes.

use std::collections::HashMap;

use ringfence_api::Denial;

/// Denials as they come: repeats become one with a count, and of different ones as many
/// are kept as anybody will read. A command can be denied a million things. Those of explicit
/// rules are counted by themselves: no crowd of others lets one of them be forgotten.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    kept: Vec<Denial>,
    /// How many of them are of explicit rules.
    explicit: usize,
    known: HashMap<(String, String, &'static str), usize>,
    /// How often something was refused that is not among those kept.
    dropped: u64,
}

impl DenialLog {
    pub(crate) fn note(&mut self, denial: Denial) {
        const READABLE: usize = 1000;
        let key = (denial.target.clone(), denial.program.clone(), denial.operation.word());
        let alike = if denial.explicit { self.explicit } else { self.kept.len() - self.explicit };
        match self.known.get(&key) {
            Some(at) => {
                let kept = &mut self.kept[*at];
                kept.count += denial.count;
                // Tried by several: one that does not run without it is enough.
                kept.optional &= denial.optional;
            }
            None if alike < READABLE => {
                self.explicit += usize::from(denial.explicit);
                self.known.insert(key, self.kept.len());
                self.kept.push(denial);
            }
            None => self.dropped += denial.count,
        }
    }

    /// Both together.
    pub(crate) fn with(mut self, others: DenialLog) -> Self {
        self.dropped += others.dropped;
        others.kept.into_iter().for_each(|denial| self.note(denial));
        self
    }

    /// Adds to each what is known of it only now. Nothing is noted after that.
    pub(crate) fn each(&mut self, add: impl FnMut(&mut Denial)) {
        self.kept.iter_mut().for_each(add);
    }

    /// Those that were kept, and how often others were refused.
    pub(crate) fn into_parts(self) -> (Vec<Denial>, u64) {
        (self.kept, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::DenialLog;
    use ringfence_api::{Denial, DenialEvidence, Operation};

    fn denial(target: String) -> Denial {
        Denial {
            operation: Operation::Create,
            target,
            rule: String::new(),
            origin: String::new(),
            explicit: false,
            pid: 1,
            program: "sh".into(),
            time_ms: 0,
            evidence: DenialEvidence::Kernel,
            count: 1,
            optional: false,
        }
    }

    fn crowd() -> DenialLog {
        let mut denials = DenialLog::default();
        for number in 0..5000 {
            denials.note(denial(format!("/{number}")));
            denials.note(denial("/same".into()));
        }
        denials
    }

    #[test]
    fn they_are_counted_as_they_come_and_bounded() {
        let denials = crowd();
        assert_eq!((denials.kept.len(), denials.known.len()), (1000, 1000));
        assert_eq!((denials.kept[1].count, denials.dropped), (5000, 4001));
    }

    #[test]
    fn two_crowds_lose_none_of_the_count() {
        let (kept, dropped) = crowd().with(crowd()).into_parts();
        assert_eq!(kept.iter().map(|denial| denial.count).sum::<u64>() + dropped, 20_000);
    }

    #[test]
    fn a_denial_stays_optional_only_if_every_attempt_is() {
        for (second, expect) in [(true, true), (false, false)] {
            let mut denials = DenialLog::default();
            denials.note(Denial { optional: true, ..denial("/same".into()) });
            denials.note(Denial { optional: second, ..denial("/same".into()) });
            assert_eq!(denials.into_parts().0[0].optional, expect);
        }
    }

    #[test]
    fn an_explicit_rule_is_not_lost_in_a_crowd() {
        let mut denials = crowd();
        denials.note(Denial { explicit: true, ..denial("/secret".into()) });
        assert!(denials.into_parts().0.iter().any(|denial| denial.explicit));
    }
}
