//! Denials guessed from the standard error of a failed command.
//!
//! Used only without a tripwire, or for paths where none can be mounted: in a home or project below
//! `/tmp`. A guess needs two sources: a line with an operating system error and a path, and a
//! policy decision that gives that error for that path. Errors about open paths are ignored.
//!
//! The text is the command's and may be anything, so all work is bounded: bytes read, lines, paths
//! looked up.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use ringfence_api::{Denial, DenialEvidence, Operation, StreamOutput};
use ringfence_plan::{OwnPlaces, Plan};
use ringfence_policy::{AbsPath, Access, DecidingRule, Decision, Grants, Verdict};

use crate::launcher::denial_log::DenialLog;
use crate::launcher::tripwire_server::rule_and_origin_of;
use crate::new_denial::new_denial;

/// Bytes read of each end of standard error.
const READ_BYTES: usize = 256 * 1024;
/// Longest line with an error and a path: a path has at most 4,096 bytes.
const MAX_LINE: usize = 8 * 1024;
/// Most paths that are looked up.
const MAX_PATHS: usize = 1000;
/// Most parts of one line that are tried as paths.
const MAX_PARTS: usize = 32;

/// Error texts of the operating system, in any case, with the access and verdicts that explain
/// them.
const ERRORS: &[(&[u8], Access, &[Verdict])] = &[
    (b"permission denied", Access::Read, &[Verdict::Denied]),
    (b"operation not permitted", Access::Read, &[Verdict::Denied]),
    (b"read-only file system", Access::Write, &[Verdict::ReadOnly, Verdict::Denied]),
    (b"no such file or directory", Access::Read, &[Verdict::Absent]),
];

/// The policy in force, and the working directory of the command.
pub(crate) struct DenialGuesser<'a> {
    grants: &'a Grants,
    cwd: &'a AbsPath,
    own: OwnPlaces,
    /// True if a tripwire reports every denial that is not below a private mount of the sandbox.
    is_wired: bool,
}

impl<'a> DenialGuesser<'a> {
    pub(crate) fn new(plan: &Plan, grants: &'a Grants, cwd: &'a AbsPath) -> Self {
        Self { grants, cwd, own: plan.own_places(grants), is_wired: plan.has_tripwire() }
    }

    /// True if some denied reads are known only from the error text of a command.
    pub(crate) fn is_needed(plan: &Plan, grants: &Grants) -> bool {
        (!plan.has_tripwire() && !plan.is_mediated()) || plan.own_places(grants).has_host_paths()
    }

    /// The denials that `stderr` shows and that are not among the `reported`.
    pub(crate) fn guess(&self, stderr: &StreamOutput, reported: &[Denial]) -> Vec<Denial> {
        let mut guessed = DenialLog::default();
        let mut known: HashSet<String> =
            reported.iter().map(|denial| denial.target.clone()).collect();
        let mut looked_up: HashSet<(AbsPath, usize)> = HashSet::new();
        for (line, error) in lines(stderr).filter_map(|line| Some((line, error_in(line)?))) {
            for path in paths(line).into_iter().map(|path| self.cwd.join(OsStr::from_bytes(path))) {
                if looked_up.len() >= MAX_PATHS {
                    return guessed.into_parts().0;
                }
                if !looked_up.insert((path.clone(), error)) {
                    continue;
                }
                let Some(decision) = self.decision(&path, error) else { continue };
                if known.insert(decision.path.to_string_lossy().into_owned()) {
                    guessed.record(denial(&decision));
                }
            }
        }
        guessed.into_parts().0
    }

    /// The policy decision, if it explains this error at `path`.
    fn decision(&self, path: &AbsPath, error: usize) -> Option<Decision> {
        let (_, wanted, verdicts) = ERRORS[error];
        // A missing path is denied only in a denied directory.
        if fs::symlink_metadata(path.as_path()).is_err() && !self.is_in_denied(path) {
            return None;
        }
        let real = || AbsPath::new(fs::canonicalize(path.as_path()).ok()?);
        let is_unreported = |path: &AbsPath| {
            if self.is_wired {
                self.own.is_host_path_inside(path)
            } else {
                !self.own.contains(path)
            }
        };
        let explains = |decision: &Decision| {
            verdicts.contains(&decision.verdict) && is_unreported(&decision.path)
        };
        let decision = self.grants.decide(path, wanted);
        if explains(&decision) {
            return Some(decision);
        }
        real().map(|real| self.grants.decide(&real, wanted)).filter(explains)
    }
}

impl DenialGuesser<'_> {
    /// True if an existing denied directory contains `path`.
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
    let is_opener = matches!(&decision.rule, Some(DecidingRule::Rule(rule)) if rule.opens());
    let operation =
        if decision.access == Access::Write { Operation::Write } else { Operation::Read };
    let target = decision.path.to_string_lossy().into_owned();
    Denial {
        explicit: decision.verdict != Verdict::Absent && !is_opener,
        evidence: DenialEvidence::Guessed,
        ..new_denial(operation, target, rule_and_origin_of(decision), (0, String::new()))
    }
}

/// The whole lines at both ends of the kept output.
fn lines(output: &StreamOutput) -> impl Iterator<Item = &[u8]> {
    let (head, tail) = (output.head.as_slice(), output.tail.as_slice());
    let (first, rest) = head.split_at(head.len().min(READ_BYTES));
    let last = if tail.is_empty() {
        &rest[rest.len().saturating_sub(READ_BYTES)..]
    } else {
        &tail[tail.len().saturating_sub(READ_BYTES)..]
    };
    // A cut line may show another path.
    let cut = |byte: &u8| *byte == b'\n';
    let is_whole = rest.is_empty() && tail.is_empty();
    let first = if is_whole { first } else { &first[..first.iter().rposition(cut).unwrap_or(0)] };
    let last = &last[last.iter().position(cut).unwrap_or(last.len())..];
    let split = |bytes| <[u8]>::split(bytes, |byte| matches!(byte, b'\n' | b'\r'));
    split(first).chain(split(last)).filter(|line| line.len() <= MAX_LINE)
}

/// The error that a line names: the last one of several.
fn error_in(line: &[u8]) -> Option<usize> {
    let place = |text: &[u8]| {
        line.windows(text.len()).rposition(|window| window.eq_ignore_ascii_case(text))
    };
    (0..ERRORS.len())
        .filter_map(|error| Some((place(ERRORS[error].0)?, error)))
        .max()
        .map(|(_, error)| error)
}

/// Parts that may be a path: text between two quotes, and between two colons all of it or its last
/// word. Other text does not exist as a path, or no rule denies it.
fn paths(line: &[u8]) -> Vec<&[u8]> {
    // Last bytes of the UTF-8 quotes that GNU programs put around names.
    let is_quote = |byte: &u8| matches!(byte, b'\'' | b'"' | b'`' | 0x98 | 0x99);
    let quoted =
        line.split(is_quote).skip(1).map(|part| part.strip_suffix(b"\xe2\x80").unwrap_or(part));
    let bare = line.split(|byte| *byte == b':').map(<[u8]>::trim_ascii).flat_map(|field| {
        let word = field.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        [field, if word.len() == field.len() { b"" } else { word }]
    });
    quoted
        .take(MAX_PARTS)
        .chain(bare.take(MAX_PARTS))
        .filter(|part| !part.is_empty() && !part.contains(&0))
        .collect()
}

#[cfg(test)]
mod tests;
