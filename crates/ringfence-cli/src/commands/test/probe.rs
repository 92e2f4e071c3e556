//! A guarantee, its probe, and the verdict.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The script that makes the attempts.
pub(super) const SCRIPT: &str = include_str!("probes.sh");

/// A guarantee of the policy, and the attempts that would break it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromiseProbe {
    /// The guarantee, in a few words.
    pub(super) promise: &'static str,
    /// The attempts, in a few words.
    pub(super) tried: String,
    pub(super) trial: ProbeTrial,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeTrial {
    /// All attempts must succeed.
    Works(Vec<ProbeAttempt>),
    /// All attempts must fail.
    Refused(Vec<ProbeAttempt>),
    /// The reason why nothing is tried.
    Nothing(&'static str),
}

/// One function of the script on one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeAttempt {
    pub(super) function: ProbeFunction,
    pub(super) target: OsString,
}

impl ProbeAttempt {
    pub(super) fn new(function: ProbeFunction, target: impl Into<OsString>) -> Self {
        Self { function, target: target.into() }
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

    /// Returns the result text of an attempt that succeeded.
    fn success_text(self) -> &'static str {
        match self {
            ProbeFunction::Look => "it was read",
            ProbeFunction::List => "it was listed",
            ProbeFunction::Make => "it was created",
            ProbeFunction::Append => "it was opened",
            ProbeFunction::Leave => "it is on the host",
            ProbeFunction::Variable => "it was passed",
            ProbeFunction::Signal => "it was killed",
            ProbeFunction::Namespaces => "they were created",
            ProbeFunction::Connect => "it connected",
            ProbeFunction::Interface => "there is one",
        }
    }

    /// Returns the result text of an attempt that failed without an error message.
    fn failure_text(self) -> &'static str {
        match self {
            ProbeFunction::Leave => "not on the host",
            ProbeFunction::Variable => "not passed",
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

    /// True if only the host can observe the result.
    fn is_seen_from_outside(self) -> bool {
        matches!(self, ProbeFunction::Leave | ProbeFunction::Signal)
    }
}

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeVerdict {
    Held(String),
    Broken(String),
    NotTried(String),
}

/// The reply of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProbeReply {
    pub(super) status: i32,
    pub(super) message: String,
}

/// The result of an attempt, observed on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostObservation {
    Trace,
    Nothing,
}

/// Returns the script's arguments for all attempts, numbered in order.
pub(super) fn script_arguments<'a>(acts: impl Iterator<Item = &'a ProbeAttempt>) -> Vec<OsString> {
    acts.enumerate()
        .flat_map(|(number, act)| {
            [act.function.word().into(), number.to_string().into(), act.target.clone()]
        })
        .collect()
}

/// Parses the script's replies, by number.
pub(super) fn parse_replies(output: &[u8]) -> BTreeMap<usize, ProbeReply> {
    let one = |record: &[u8]| {
        let mut fields = record
            .splitn(3, |byte| *byte == 0x1f)
            .map(|field| String::from_utf8_lossy(field).into_owned());
        let number = fields.next()?.parse().ok()?;
        Some((number, ProbeReply { status: fields.next()?.parse().ok()?, message: fields.next()? }))
    };
    output.split(|byte| *byte == 0x1e).filter_map(one).collect()
}

impl ProbeTrial {
    pub(super) fn attempts(&self) -> &[ProbeAttempt] {
        match self {
            ProbeTrial::Works(acts) | ProbeTrial::Refused(acts) => acts,
            ProbeTrial::Nothing(_) => &[],
        }
    }

    /// Judges the replies from inside and the observations from outside, one pair per attempt.
    ///
    /// An attempt without a reply counts as a broken guarantee: nothing shows that it holds.
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
                return ProbeVerdict::Broken("no reply from inside".into());
            };
            let is_done = *seen == HostObservation::Trace
                || (reply.status == 0 && !act.function.is_seen_from_outside());
            match (is_done, must_work) {
                (false, _) if reply.status == 127 => missing += 1,
                (true, true) if *seen == HostObservation::Trace => {
                    return ProbeVerdict::Broken("it was not removed".into());
                }
                (true, true) => held = Some("works".to_owned()),
                (true, false) => {
                    return ProbeVerdict::Broken(act.function.success_text().to_owned());
                }
                (false, true) => {
                    return ProbeVerdict::Broken(
                        message(&reply.message).unwrap_or_else(|| "it failed".into()),
                    );
                }
                (false, false) => {
                    held = held.or_else(|| {
                        Some(
                            message(&reply.message)
                                .unwrap_or_else(|| act.function.failure_text().into()),
                        )
                    })
                }
            }
        }
        match held {
            Some(text) => ProbeVerdict::Held(text),
            None if missing > 0 => ProbeVerdict::NotTried("no tool for it".into()),
            None => ProbeVerdict::NotTried("nothing to try".into()),
        }
    }
}

/// Returns `Permission denied` from `cat: FILE: Permission denied`.
fn message(output: &str) -> Option<String> {
    let line = output.lines().rev().find(|line| !line.trim().is_empty())?;
    let last = line.rsplit(": ").next().unwrap_or(line).trim();
    // Python writes the errno in front.
    let last = last
        .split_once("] ")
        .filter(|(number, _)| number.starts_with("[Errno"))
        .map_or(last, |(_, text)| text);
    Some(last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: i32, message: &str) -> (Option<ProbeReply>, HostObservation) {
        (Some(ProbeReply { status, message: message.into() }), HostObservation::Nothing)
    }

    fn refused(function: ProbeFunction) -> ProbeTrial {
        ProbeTrial::Refused(vec![ProbeAttempt::new(function, "/x")])
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
    fn every_attempt_can_break_its_guarantee() {
        use ProbeFunction::*;
        for function in [Look, List, Make, Append, Leave, Variable, Signal, Namespaces, Connect] {
            let (done, _) = reply(0, "");
            let seen = if function.is_seen_from_outside() {
                HostObservation::Trace
            } else {
                HostObservation::Nothing
            };
            check(
                &refused(function),
                (done, seen),
                ProbeVerdict::Broken(function.success_text().into()),
            );
            check(
                &refused(function),
                (None, HostObservation::Nothing),
                ProbeVerdict::Broken("no reply from inside".into()),
            );
            check(
                &refused(function),
                reply(1, "x: y: Permission denied\n"),
                ProbeVerdict::Held("Permission denied".into()),
            );
            check(
                &refused(function),
                reply(1, ""),
                ProbeVerdict::Held(function.failure_text().into()),
            );
        }
    }

    #[test]
    fn trace_on_the_host_overrides_the_reply_from_inside() {
        check(
            &refused(ProbeFunction::Make),
            (reply(1, "denied").0, HostObservation::Trace),
            ProbeVerdict::Broken("it was created".into()),
        );
        check(
            &refused(ProbeFunction::Leave),
            reply(0, ""),
            ProbeVerdict::Held("not on the host".into()),
        );
    }

    #[test]
    fn one_readable_file_breaks_the_guarantee() {
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
    fn failing_work_is_a_broken_guarantee() {
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
            ProbeVerdict::Broken("it was not removed".into()),
        );
    }

    #[test]
    fn missing_tool_is_not_a_success() {
        check(
            &refused(ProbeFunction::Connect),
            reply(127, ""),
            ProbeVerdict::NotTried("no tool for it".into()),
        );
        check(
            &ProbeTrial::Nothing("nothing there"),
            reply(0, ""),
            ProbeVerdict::NotTried("nothing there".into()),
        );
    }

    #[test]
    fn replies_are_found_by_their_numbers() {
        let found = parse_replies(b"1\x1f2\x1fcat: x: no\nway\x1e0\x1f0\x1f\x1enoise");
        assert_eq!(found[&1], ProbeReply { status: 2, message: "cat: x: no\nway".into() });
        assert_eq!(found[&0].status, 0);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn message_drops_the_program_and_the_file() {
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
