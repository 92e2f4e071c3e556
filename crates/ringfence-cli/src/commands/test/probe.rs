//! A promise, how it is tried, and what came of it.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The script that does the deeds.
pub(super) const SCRIPT: &str = include_str!("probes.sh");

/// A promise of the policy and the deeds that would break it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromiseProbe {
    /// What is promised, in a word or two.
    pub(super) promise: &'static str,
    /// What is tried, for people.
    pub(super) tried: String,
    pub(super) trial: ProbeTrial,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeTrial {
    /// All of it has to work.
    Works(Vec<ProbeAttempt>),
    /// None of it may work.
    Refused(Vec<ProbeAttempt>),
    /// Why nothing is tried.
    Nothing(&'static str),
}

/// One deed on one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeAttempt {
    pub(super) deed: ProbeFunction,
    pub(super) target: OsString,
}

impl ProbeAttempt {
    pub(super) fn new(deed: ProbeFunction, target: impl Into<OsString>) -> Self {
        Self { deed, target: target.into() }
    }
}

/// The functions of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeFunction {
    Look,
    List,
    Make,
    Append,
    Leave,
    Variable,
    Signal,
    Namespaces,
    Connect,
    Interface,
}

impl ProbeFunction {
    fn word(self) -> &'static str {
        match self {
            ProbeFunction::Look => "look",
            ProbeFunction::List => "list",
            ProbeFunction::Make => "make",
            ProbeFunction::Append => "append",
            ProbeFunction::Leave => "leave",
            ProbeFunction::Variable => "variable",
            ProbeFunction::Signal => "signal",
            ProbeFunction::Namespaces => "namespaces",
            ProbeFunction::Connect => "connect",
            ProbeFunction::Interface => "interface",
        }
    }

    /// When it was done.
    fn done(self) -> &'static str {
        match self {
            ProbeFunction::Look => "it was read",
            ProbeFunction::List => "it was listed",
            ProbeFunction::Make => "it was made",
            ProbeFunction::Append => "it was opened",
            ProbeFunction::Leave => "it is on the host",
            ProbeFunction::Variable => "it was passed on",
            ProbeFunction::Signal => "it was killed",
            ProbeFunction::Namespaces => "they were made",
            ProbeFunction::Connect => "it answered",
            ProbeFunction::Interface => "there is one",
        }
    }

    /// When it was not done and no program said why.
    fn not_done(self) -> &'static str {
        match self {
            ProbeFunction::Leave => "not on the host",
            ProbeFunction::Variable => "not passed on",
            ProbeFunction::Interface => "there is none",
            ProbeFunction::Signal => "still alive",
            ProbeFunction::Connect => "no answer",
            ProbeFunction::Look
            | ProbeFunction::List
            | ProbeFunction::Make
            | ProbeFunction::Append
            | ProbeFunction::Namespaces => "refused",
        }
    }

    /// Whether only the host can tell what came of it.
    fn is_seen_from_outside(self) -> bool {
        matches!(self, ProbeFunction::Leave | ProbeFunction::Signal)
    }
}

/// What became of a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeVerdict {
    Held(String),
    Broken(String),
    NotTried(String),
}

/// What a deed answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeReply {
    pub(super) status: i32,
    pub(super) said: String,
}

/// What the host saw of a deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostObservation {
    Trace,
    Nothing,
}

/// The arguments of the script for all acts, numbered as they come.
pub(super) fn arguments<'a>(acts: impl Iterator<Item = &'a ProbeAttempt>) -> Vec<OsString> {
    acts.enumerate()
        .flat_map(|(number, act)| {
            [act.deed.word().into(), number.to_string().into(), act.target.clone()]
        })
        .collect()
}

/// The script's answers by number.
pub(super) fn replies(output: &[u8]) -> BTreeMap<usize, ProbeReply> {
    let one = |record: &[u8]| {
        let mut fields = record
            .splitn(3, |byte| *byte == 0x1f)
            .map(|field| String::from_utf8_lossy(field).into_owned());
        let number = fields.next()?.parse().ok()?;
        Some((number, ProbeReply { status: fields.next()?.parse().ok()?, said: fields.next()? }))
    };
    output.split(|byte| *byte == 0x1e).filter_map(one).collect()
}

impl ProbeTrial {
    pub(super) fn acts(&self) -> &[ProbeAttempt] {
        match self {
            ProbeTrial::Works(acts) | ProbeTrial::Refused(acts) => acts,
            ProbeTrial::Nothing(_) => &[],
        }
    }

    /// Judges what was answered inside and seen outside, one pair for each act.
    ///
    /// A deed without an answer breaks the promise: whoever cannot show that it holds must
    /// not say so.
    pub(super) fn judge(&self, answers: &[(Option<ProbeReply>, HostObservation)]) -> ProbeVerdict {
        let (acts, must_work) = match self {
            ProbeTrial::Nothing(why) => return ProbeVerdict::NotTried((*why).to_owned()),
            ProbeTrial::Works(acts) => (acts, true),
            ProbeTrial::Refused(acts) => (acts, false),
        };
        let mut held = None;
        let mut missing = 0;
        for (act, (reply, seen)) in acts.iter().zip(answers) {
            let Some(reply) = reply else {
                return ProbeVerdict::Broken("no answer from inside".into());
            };
            let is_done = *seen == HostObservation::Trace
                || (reply.status == 0 && !act.deed.is_seen_from_outside());
            match (is_done, must_work) {
                (false, _) if reply.status == 127 => missing += 1,
                (true, true) if *seen == HostObservation::Trace => {
                    return ProbeVerdict::Broken("it was left behind".into());
                }
                (true, true) => held = Some("works".to_owned()),
                (true, false) => return ProbeVerdict::Broken(act.deed.done().to_owned()),
                (false, true) => {
                    return ProbeVerdict::Broken(
                        message(&reply.said).unwrap_or_else(|| "it failed".into()),
                    );
                }
                (false, false) => {
                    held = held.or_else(|| {
                        Some(message(&reply.said).unwrap_or_else(|| act.deed.not_done().into()))
                    })
                }
            }
        }
        match held {
            Some(text) => ProbeVerdict::Held(text),
            None if missing > 0 => ProbeVerdict::NotTried("no tool for it here".into()),
            None => ProbeVerdict::NotTried("nothing to try".into()),
        }
    }
}

/// What is left of `cat: FILE: Permission denied` without the program and the file.
fn message(said: &str) -> Option<String> {
    let line = said.lines().rev().find(|line| !line.trim().is_empty())?;
    let last = line.rsplit(": ").next().unwrap_or(line).trim();
    // Python writes the number in front.
    let last = last
        .split_once("] ")
        .filter(|(number, _)| number.starts_with("[Errno"))
        .map_or(last, |(_, text)| text);
    Some(last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: i32, said: &str) -> (Option<ProbeReply>, HostObservation) {
        (Some(ProbeReply { status, said: said.into() }), HostObservation::Nothing)
    }

    fn refused(deed: ProbeFunction) -> ProbeTrial {
        ProbeTrial::Refused(vec![ProbeAttempt::new(deed, "/x")])
    }

    #[track_caller]
    fn check(
        trial: &ProbeTrial,
        answer: (Option<ProbeReply>, HostObservation),
        expect: ProbeVerdict,
    ) {
        assert_eq!(trial.judge(&[answer]), expect);
    }

    #[test]
    fn every_deed_can_break_its_promise() {
        use ProbeFunction::*;
        for deed in [Look, List, Make, Append, Leave, Variable, Signal, Namespaces, Connect] {
            let (done, _) = reply(0, "");
            let seen = if deed.is_seen_from_outside() {
                HostObservation::Trace
            } else {
                HostObservation::Nothing
            };
            check(&refused(deed), (done, seen), ProbeVerdict::Broken(deed.done().into()));
            check(
                &refused(deed),
                (None, HostObservation::Nothing),
                ProbeVerdict::Broken("no answer from inside".into()),
            );
            check(
                &refused(deed),
                reply(1, "x: y: Permission denied\n"),
                ProbeVerdict::Held("Permission denied".into()),
            );
            check(&refused(deed), reply(1, ""), ProbeVerdict::Held(deed.not_done().into()));
        }
    }

    #[test]
    fn a_trace_on_the_host_counts_more_than_the_word_from_inside() {
        check(
            &refused(ProbeFunction::Make),
            (reply(1, "denied").0, HostObservation::Trace),
            ProbeVerdict::Broken("it was made".into()),
        );
        check(
            &refused(ProbeFunction::Leave),
            reply(0, ""),
            ProbeVerdict::Held("not on the host".into()),
        );
    }

    #[test]
    fn one_open_file_breaks_the_promise_for_all() {
        let trial = ProbeTrial::Refused(vec![
            ProbeAttempt::new(ProbeFunction::Look, "/a"),
            ProbeAttempt::new(ProbeFunction::Look, "/b"),
        ]);
        assert_eq!(
            trial.judge(&[reply(1, "denied"), reply(0, "")]),
            ProbeVerdict::Broken("it was read".into())
        );
        assert_eq!(
            trial.judge(&[reply(1, "denied"), reply(1, "other")]),
            ProbeVerdict::Held("denied".into())
        );
    }

    #[test]
    fn work_that_fails_is_a_broken_promise() {
        let works = ProbeTrial::Works(vec![ProbeAttempt::new(ProbeFunction::Make, "/x")]);
        check(&works, reply(0, ""), ProbeVerdict::Held("works".into()));
        check(
            &works,
            reply(1, "sh: cannot create /x: Read-only file system"),
            ProbeVerdict::Broken("Read-only file system".into()),
        );
        check(
            &works,
            (reply(0, "").0, HostObservation::Trace),
            ProbeVerdict::Broken("it was left behind".into()),
        );
    }

    #[test]
    fn a_missing_tool_is_no_success() {
        check(
            &refused(ProbeFunction::Connect),
            reply(127, ""),
            ProbeVerdict::NotTried("no tool for it here".into()),
        );
        check(
            &ProbeTrial::Nothing("nothing there"),
            reply(0, ""),
            ProbeVerdict::NotTried("nothing there".into()),
        );
    }

    #[test]
    fn answers_are_found_by_their_numbers() {
        let found = replies(b"1\x1f2\x1fcat: x: no\nway\x1e0\x1f0\x1f\x1enoise");
        assert_eq!(found[&1], ProbeReply { status: 2, said: "cat: x: no\nway".into() });
        assert_eq!(found[&0].status, 0);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn messages_lose_the_program_and_the_file() {
        assert_eq!(
            message("OSError: [Errno 101] Network is unreachable").as_deref(),
            Some("Network is unreachable")
        );
        assert_eq!(
            message("bash: line 1: /dev/tcp/1/2: Connection refused\n").as_deref(),
            Some("Connection refused")
        );
        assert_eq!(message(" \n"), None);
    }
}
