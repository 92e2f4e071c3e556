//! Log of denials.

use std::collections::HashMap;

use ringfence_api::Denial;

/// Denials of a run. Repeats become one entry with a count, and the number of entries is limited: a
/// command can be denied a million times. Denials by explicit rules have a limit of their own, so
/// other denials cannot push them out.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    kept: Vec<Denial>,
    /// Number of entries that come from explicit rules.
    explicit: usize,
    known: HashMap<(String, String, &'static str), usize>,
    /// Count of denials without an entry.
    dropped: u64,
}

impl DenialLog {
    pub(crate) fn record(&mut self, denial: Denial) {
        const MAX_KEPT: usize = 1000;
        let key = (denial.target.clone(), denial.program.clone(), denial.operation.word());
        let same_class =
            if denial.explicit { self.explicit } else { self.kept.len() - self.explicit };
        match self.known.get(&key) {
            Some(at) => {
                let kept = &mut self.kept[*at];
                kept.count += denial.count;
                // Optional only if it is optional for every program that tried it.
                kept.optional &= denial.optional;
            }
            None if same_class < MAX_KEPT => {
                self.explicit += usize::from(denial.explicit);
                self.known.insert(key, self.kept.len());
                self.kept.push(denial);
            }
            None => self.dropped += denial.count,
        }
    }

    /// Merges two logs.
    pub(crate) fn merge(mut self, others: DenialLog) -> Self {
        self.dropped += others.dropped;
        others.kept.into_iter().for_each(|denial| self.record(denial));
        self
    }

    /// Amends each entry. Nothing is recorded after that.
    pub(crate) fn amend_each(&mut self, add: impl FnMut(&mut Denial)) {
        self.kept.iter_mut().for_each(add);
    }

    /// The kept entries, and the count of dropped denials.
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

    fn many_denials() -> DenialLog {
        let mut denials = DenialLog::default();
        for number in 0..5000 {
            denials.record(denial(format!("/{number}")));
            denials.record(denial("/same".into()));
        }
        denials
    }

    #[test]
    fn repeats_are_counted_and_entries_are_bounded() {
        let denials = many_denials();
        assert_eq!((denials.kept.len(), denials.known.len()), (1000, 1000));
        assert_eq!((denials.kept[1].count, denials.dropped), (5000, 4001));
    }

    #[test]
    fn merge_keeps_the_total_count() {
        let (kept, dropped) = many_denials().merge(many_denials()).into_parts();
        assert_eq!(kept.iter().map(|denial| denial.count).sum::<u64>() + dropped, 20_000);
    }

    #[test]
    fn a_denial_stays_optional_only_if_every_attempt_is() {
        for (second, expect) in [(true, true), (false, false)] {
            let mut denials = DenialLog::default();
            denials.record(Denial { optional: true, ..denial("/same".into()) });
            denials.record(Denial { optional: second, ..denial("/same".into()) });
            assert_eq!(denials.into_parts().0[0].optional, expect);
        }
    }

    #[test]
    fn explicit_denial_is_never_dropped() {
        let mut denials = many_denials();
        denials.record(Denial { explicit: true, ..denial("/secret".into()) });
        assert!(denials.into_parts().0.iter().any(|denial| denial.explicit));
    }
}
