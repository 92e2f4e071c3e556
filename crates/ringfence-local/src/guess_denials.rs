//! Denials that nobody told of, from the standard error of a command that failed.
//!
//! Only where there is no tripwire, or none can lie: in a home or project below `/tmp`. A guess
//! takes two that agree: a line with an error of the operating system and a path, and the policy,
//! which must answer that very path with that very error. What a program says of a path that is
//! open is its own business.
//!
//! The text is the command's and may be anything, so all work is bounded: so much of it is
//! read, so many lines are looked at, so many paths are looked up.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use ringfence_api::{Denial, DenialEvidence, Operation, StreamOutput};
use ringfence_enforce::{OwnPlaces, Plan};
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Grants, Verdict};

use crate::denial_log::DenialLog;
use crate::tripwire_server::because;

/// How much of the first and of the last of standard error is read.
const READ: usize = 256 * 1024;
/// The longest line that an error with a path takes: a path has at most 4,096 bytes.
const LONGEST: usize = 8 * 1024;
/// How many different paths are asked about.
const ASKED: usize = 1000;
/// How many parts of one line are taken for paths.
const PARTS: usize = 32;

/// What the operating system says, in every program's spelling, and what is wanted and
/// answered where the sandbox is why.
const ERRORS: &[(&[u8], Access, &[Verdict])] = &[
    (b"permission denied", Access::Read, &[Verdict::Denied]),
    (b"operation not permitted", Access::Read, &[Verdict::Denied]),
    (b"read-only file system", Access::Write, &[Verdict::ReadOnly, Verdict::Denied]),
    (b"no such file or directory", Access::Read, &[Verdict::Absent]),
];

/// Who guesses: the policy as it held, and where the command started.
pub(crate) struct DenialGuesser<'a> {
    grants: &'a Grants,
    cwd: &'a AbsPath,
    own: OwnPlaces,
    /// True if a tripwire tells of everything that is not surrounded by places of the sandbox's
    /// own.
    is_wired: bool,
}

impl<'a> DenialGuesser<'a> {
    pub(crate) fn new(plan: &Plan, grants: &'a Grants, cwd: &'a AbsPath) -> Self {
        Self { grants, cwd, own: plan.own_places(grants), is_wired: plan.is_wired() }
    }

    /// True if some denied reads are known only from what a command says of them.
    pub(crate) fn is_needed(plan: &Plan, grants: &Grants) -> bool {
        !plan.is_wired() || plan.own_places(grants).surround_any()
    }

    /// What was refused, as far as `stderr` shows and it is not among the `told`.
    pub(crate) fn at(&self, stderr: &StreamOutput, told: &[Denial]) -> Vec<Denial> {
        let mut guessed = DenialLog::default();
        let mut known: HashSet<String> = told.iter().map(|denial| denial.target.clone()).collect();
        let mut asked: HashSet<(AbsPath, usize)> = HashSet::new();
        for (line, error) in lines(stderr).filter_map(|line| Some((line, error_in(line)?))) {
            for path in paths(line).into_iter().map(|path| self.cwd.join(OsStr::from_bytes(path))) {
                if asked.len() >= ASKED {
                    return guessed.into_parts().0;
                }
                if !asked.insert((path.clone(), error)) {
                    continue;
                }
                let Some(decision) = self.decision(&path, error) else { continue };
                if known.insert(decision.path.to_string_lossy().into_owned()) {
                    guessed.note(denial(&decision));
                }
            }
        }
        guessed.into_parts().0
    }

    /// The policy's answer, if it is why this error was met at `path`.
    fn decision(&self, path: &AbsPath, error: usize) -> Option<Decision> {
        let (_, wanted, verdicts) = ERRORS[error];
        // A path that the host does not have is denied only in a denied directory.
        if fs::symlink_metadata(path.as_path()).is_err() && !self.is_in_denied(path) {
            return None;
        }
        let real = || AbsPath::new(fs::canonicalize(path.as_path()).ok()?);
        let is_untold = |path: &AbsPath| {
            if self.is_wired { self.own.surround(path) } else { !self.own.contain(path) }
        };
        let is_why =
            |decision: &Decision| verdicts.contains(&decision.verdict) && is_untold(&decision.path);
        let decision = self.grants.decide(path, wanted);
        if is_why(&decision) {
            return Some(decision);
        }
        real().map(|real| self.grants.decide(&real, wanted)).filter(is_why)
    }
}

impl DenialGuesser<'_> {
    /// True if a directory that is denied, and is there, has `path` in it.
    fn is_in_denied(&self, path: &AbsPath) -> bool {
        let mut around = path.parent();
        while let Some(directory) = around {
            if self.grants.verdict(&directory, Access::Read) != Verdict::Denied {
                return false;
            }
            if directory.as_path().is_dir() {
                return true;
            }
            around = directory.parent();
        }
        false
    }
}

fn denial(decision: &Decision) -> Denial {
    let (rule, origin) = because(decision);
    let is_opener = matches!(&decision.rule, Some(DecidingRule::Rule(rule)) if rule.opens());
    let operation =
        if decision.access == Access::Write { Operation::Write } else { Operation::Read };
    Denial {
        operation,
        target: decision.path.to_string_lossy().into_owned(),
        rule,
        origin,
        explicit: decision.verdict != Verdict::Absent && !is_opener,
        pid: 0,
        program: String::new(),
        time_ms: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64),
        evidence: DenialEvidence::Guessed,
        count: 1,
        optional: false,
    }
}

/// The whole lines at both ends of what was kept.
fn lines(output: &StreamOutput) -> impl Iterator<Item = &[u8]> {
    let (head, tail) = (output.head.as_slice(), output.tail.as_slice());
    let (first, rest) = head.split_at(head.len().min(READ));
    let last = if tail.is_empty() {
        &rest[rest.len().saturating_sub(READ)..]
    } else {
        &tail[tail.len().saturating_sub(READ)..]
    };
    // A line that was cut may name another path than the one that was meant.
    let cut = |byte: &u8| *byte == b'\n';
    let is_whole = rest.is_empty() && tail.is_empty();
    let first = if is_whole { first } else { &first[..first.iter().rposition(cut).unwrap_or(0)] };
    let last = &last[last.iter().position(cut).unwrap_or(last.len())..];
    let split = |bytes| <[u8]>::split(bytes, |byte| matches!(byte, b'\n' | b'\r'));
    split(first).chain(split(last)).filter(|line| line.len() <= LONGEST)
}

/// Which error a line speaks of: the last, where several are named.
fn error_in(line: &[u8]) -> Option<usize> {
    let place = |text: &[u8]| {
        line.windows(text.len()).rposition(|window| window.eq_ignore_ascii_case(text))
    };
    (0..ERRORS.len())
        .filter_map(|error| Some((place(ERRORS[error].0)?, error)))
        .max()
        .map(|(_, error)| error)
}

/// What may be a path: whatever stands between two quotes, and between two colons all of it
/// or its last word. What is none is not there, or no rule shuts it.
fn paths(line: &[u8]) -> Vec<&[u8]> {
    // The last two bytes of the quotes that GNU's programs put around names.
    let is_quote = |byte: &u8| matches!(byte, b'\'' | b'"' | b'`' | 0x98 | 0x99);
    let quoted =
        line.split(is_quote).skip(1).map(|part| part.strip_suffix(b"\xe2\x80").unwrap_or(part));
    let bare = line.split(|byte| *byte == b':').map(<[u8]>::trim_ascii).flat_map(|field| {
        let word = field.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        [field, if word.len() == field.len() { b"" } else { word }]
    });
    quoted
        .take(PARTS)
        .chain(bare.take(PARTS))
        .filter(|part| !part.is_empty() && !part.contains(&0))
        .collect()
}

#[cfg(test)]
mod tests;
