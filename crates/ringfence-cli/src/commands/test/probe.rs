//! A promise, how it is tried, and what came of it.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The script that does the deeds.
pub(super) const SCRIPT: &str = include_str!("probes.sh");

/// A promise of the policy and the deeds that would break it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Probe {
    /// What is promised, in a word or two.
    pub(super) promise: &'static str,
    /// What is tried, for people.
    pub(super) tried: String,
    pub(super) trial: Trial,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trial {
    /// All of it has to work.
    Works(Vec<Act>),
    /// None of it may work.
    Refused(Vec<Act>),
    /// Why nothing is tried.
    Nothing(&'static str),
}

/// One deed on one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Act {
    pub(super) deed: Deed,
    pub(super) target: OsString,
}

impl Act {
    pub(super) fn new(deed: Deed, target: impl Into<OsString>) -> Self {
        Self { deed, target: target.into() }
    }
}

/// The functions of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
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

impl Deed {
    fn word(self) -> &'static str {
        match self {
            Deed::Look => "look",
            Deed::List => "list",
            Deed::Make => "make",
            Deed::Append => "append",
            Deed::Leave => "leave",
            Deed::Variable => "variable",
            Deed::Signal => "signal",
            Deed::Namespaces => "namespaces",
            Deed::Connect => "connect",
            Deed::Interface => "interface",
        }
    }

    /// When it was done.
    fn done(self) -> &'static str {
        match self {
            Deed::Look => "it was read",
            Deed::List => "it was listed",
            Deed::Make => "it was made",
            Deed::Append => "it was opened",
            Deed::Leave => "it is on the host",
            Deed::Variable => "it was passed on",
            Deed::Signal => "it was killed",
            Deed::Namespaces => "they were made",
            Deed::Connect => "it answered",
            Deed::Interface => "there is one",
        }
    }

    /// When it was not done and no program said why.
    fn not_done(self) -> &'static str {
        match self {
            Deed::Leave => "not on the host",
            Deed::Variable => "not passed on",
            Deed::Interface => "there is none",
            Deed::Signal => "still alive",
            Deed::Connect => "no answer",
            Deed::Look | Deed::List | Deed::Make | Deed::Append | Deed::Namespaces => "refused",
        }
    }

    /// Whether only the host can tell what came of it.
    fn is_seen_from_outside(self) -> bool {
        matches!(self, Deed::Leave | Deed::Signal)
    }
}

/// What became of a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Held(String),
    Broken(String),
    NotTried(String),
}

/// What a deed answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: i32,
    pub(super) said: String,
}

/// What the host saw of a deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Trace,
    Nothing,
}

/// The arguments of the script for all acts, numbered as they come.
pub(super) fn arguments<'a>(acts: impl Iterator<Item = &'a Act>) -> Vec<OsString> {
    acts.enumerate()
        .flat_map(|(number, act)| {
            [act.deed.word().into(), number.to_string().into(), act.target.clone()]
        })
        .collect()
}

/// The script's answers by number.
pub(super) fn replies(output: &[u8]) -> BTreeMap<usize, Reply> {
    let one = |record: &[u8]| {
        let mut fields = record
            .splitn(3, |byte| *byte == 0x1f)
            .map(|field| String::from_utf8_lossy(field).into_owned());
        let number = fields.next()?.parse().ok()?;
        Some((number, Reply { status: fields.next()?.parse().ok()?, said: fields.next()? }))
    };
    output.split(|byte| *byte == 0x1e).filter_map(one).collect()
}

impl Trial {
    pub(super) fn acts(&self) -> &[Act] {
        match self {
            Trial::Works(acts) | Trial::Refused(acts) => acts,
            Trial::Nothing(_) => &[],
        }
    }

    /// Judges what was answered inside and seen outside, one pair for each act.
    ///
    /// A deed without an answer breaks the promise: whoever cannot show that it holds must
    /// not say so.
    pub(super) fn judge(&self, answers: &[(Option<Reply>, Seen)]) -> Verdict {
        let (acts, must_work) = match self {
            Trial::Nothing(why) => return Verdict::NotTried((*why).to_owned()),
            Trial::Works(acts) => (acts, true),
            Trial::Refused(acts) => (acts, false),
        };
        let mut held = None;
        let mut missing = 0;
        for (act, (reply, seen)) in acts.iter().zip(answers) {
            let Some(reply) = reply else { return Verdict::Broken("no answer from inside".into()) };
            let is_done =
                *seen == Seen::Trace || (reply.status == 0 && !act.deed.is_seen_from_outside());
            match (is_done, must_work) {
                (false, _) if reply.status == 127 => missing += 1,
                (true, true) if *seen == Seen::Trace => {
                    return Verdict::Broken("it was left behind".into());
                }
                (true, true) => held = Some("works".to_owned()),
                (true, false) => return Verdict::Broken(act.deed.done().to_owned()),
                (false, true) => {
                    return Verdict::Broken(
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
            Some(text) => Verdict::Held(text),
            None if missing > 0 => Verdict::NotTried("no tool for it here".into()),
            None => Verdict::NotTried("nothing to try".into()),
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

    fn reply(status: i32, said: &str) -> (Option<Reply>, Seen) {
        (Some(Reply { status, said: said.into() }), Seen::Nothing)
    }

    fn refused(deed: Deed) -> Trial {
        Trial::Refused(vec![Act::new(deed, "/x")])
    }

    #[track_caller]
    fn check(trial: &Trial, answer: (Option<Reply>, Seen), expect: Verdict) {
        assert_eq!(trial.judge(&[answer]), expect);
    }

    #[test]
    fn every_deed_can_break_its_promise() {
        use Deed::*;
        for deed in [Look, List, Make, Append, Leave, Variable, Signal, Namespaces, Connect] {
            let (done, _) = reply(0, "");
            let seen = if deed.is_seen_from_outside() { Seen::Trace } else { Seen::Nothing };
            check(&refused(deed), (done, seen), Verdict::Broken(deed.done().into()));
            check(
                &refused(deed),
                (None, Seen::Nothing),
                Verdict::Broken("no answer from inside".into()),
            );
            check(
                &refused(deed),
                reply(1, "x: y: Permission denied\n"),
                Verdict::Held("Permission denied".into()),
            );
            check(&refused(deed), reply(1, ""), Verdict::Held(deed.not_done().into()));
        }
    }

    #[test]
    fn a_trace_on_the_host_counts_more_than_the_word_from_inside() {
        check(
            &refused(Deed::Make),
            (reply(1, "denied").0, Seen::Trace),
            Verdict::Broken("it was made".into()),
        );
        check(&refused(Deed::Leave), reply(0, ""), Verdict::Held("not on the host".into()));
    }

    #[test]
    fn one_open_file_breaks_the_promise_for_all() {
        let trial = Trial::Refused(vec![Act::new(Deed::Look, "/a"), Act::new(Deed::Look, "/b")]);
        assert_eq!(
            trial.judge(&[reply(1, "denied"), reply(0, "")]),
            Verdict::Broken("it was read".into())
        );
        assert_eq!(
            trial.judge(&[reply(1, "denied"), reply(1, "other")]),
            Verdict::Held("denied".into())
        );
    }

    #[test]
    fn work_that_fails_is_a_broken_promise() {
        let works = Trial::Works(vec![Act::new(Deed::Make, "/x")]);
        check(&works, reply(0, ""), Verdict::Held("works".into()));
        check(
            &works,
            reply(1, "sh: cannot create /x: Read-only file system"),
            Verdict::Broken("Read-only file system".into()),
        );
        check(&works, (reply(0, "").0, Seen::Trace), Verdict::Broken("it was left behind".into()));
    }

    #[test]
    fn a_missing_tool_is_no_success() {
        check(
            &refused(Deed::Connect),
            reply(127, ""),
            Verdict::NotTried("no tool for it here".into()),
        );
        check(
            &Trial::Nothing("nothing there"),
            reply(0, ""),
            Verdict::NotTried("nothing there".into()),
        );
    }

    #[test]
    fn answers_are_found_by_their_numbers() {
        let found = replies(b"1\x1f2\x1fcat: x: no\nway\x1e0\x1f0\x1f\x1enoise");
        assert_eq!(found[&1], Reply { status: 2, said: "cat: x: no\nway".into() });
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
