//! The line that names the denials of a failed command.

use std::env;
use std::net::IpAddr;

use ringfence_api::{Denial, DenialEvidence, Operation, Outcome, is_hidden};
use ringfence_audit::RecordFields;
use ringfence_policy::{AbsPath, HostDecision};
use serde_json::Value;

use crate::{messages, output};

/// The maximum number of names in the line.
const NAMES: usize = 2;
/// The maximum length of a name.
const NAME_LENGTH: usize = 80;

/// Denials of a command that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Denied<'a> {
    /// The recorded denials.
    pub(crate) denials: &'a [Denial],
    /// Number of denials that were not recorded one by one.
    pub(crate) dropped: u64,
    /// The home directory, for short names.
    pub(crate) home: Option<&'a AbsPath>,
}

/// True if the user has silenced the line for every command.
pub(crate) fn is_silenced() -> bool {
    env::var_os("RINGFENCE_QUIET").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Prints the line for a command that failed and was `blocked`.
pub(crate) fn report_failure(outcome: &Outcome, home: &AbsPath) {
    if outcome.exit_code() != 0 && outcome.is_blocked() && !is_silenced() {
        Denied { denials: &outcome.denials, dropped: outcome.denials_dropped, home: Some(home) }
            .report();
    }
}

impl Denied<'_> {
    /// Prints the line. The caller has checked that the command failed and was `blocked`.
    pub(crate) fn report(&self) {
        if let Some(text) = self.line() {
            messages::print_line(&text);
        }
    }

    /// `ringfence: 1 host was denied (example.org:443); see: ringfence explain --last`
    fn line(&self) -> Option<String> {
        let mut counted: Vec<&Denial> =
            self.denials.iter().filter(|denial| !denial.is_tolerated()).collect();
        counted.sort_by_key(|denial| denial.report_order());
        let mut found: Vec<Found> = Vec::new();
        for denial in counted {
            let Some(kind) = Kind::from_denial(denial) else { continue };
            let new = Found {
                kind,
                name: self.name(denial, kind),
                address: HostDecision::guarded_address(&denial.rule),
            };
            match found
                .iter_mut()
                .find(|known| known.kind == kind && is_same(&known.name, &new.name, kind))
            {
                // A lookup knows no port; the connection after it does.
                Some(known) if known.name.len() < new.name.len() => *known = new,
                Some(_) => {}
                None => found.push(new),
            }
        }
        let counts: Vec<String> =
            Kind::ALL.iter().filter_map(|kind| kind.counted(&found)).collect();
        if counts.is_empty() {
            return None;
        }
        let names: Vec<String> = found.iter().take(NAMES).map(Found::text).collect();
        let more = if found.len() > NAMES || self.dropped > 0 { ", …" } else { "" };
        let least = if self.dropped > 0 { "at least " } else { "" };
        let verb = if found.len() == 1 && self.dropped == 0 { "was" } else { "were" };
        Some(format!(
            "ringfence: {least}{} {verb} denied ({}{more}); see: ringfence explain --last",
            counts.join(" and "),
            names.join(", ")
        ))
    }

    fn name(&self, denial: &Denial, kind: Kind) -> String {
        match (kind, self.home, AbsPath::new(&denial.target)) {
            (Kind::Path, Some(home), Some(path)) => output::tilde_path(&path, home),
            _ => denial.target.clone(),
        }
    }
}

/// A denied host, path or syscall.
#[derive(Debug)]
struct Found {
    kind: Kind,
    name: String,
    /// The guarded address that an allowed name resolved to.
    address: Option<IpAddr>,
}

impl Found {
    /// `example.org:443`, or `example.org: it resolves to 10.1.2.3, which is not allowed`.
    fn text(&self) -> String {
        match self.address {
            Some(address) => {
                let host = self.name.rsplit_once(':').map_or(self.name.as_str(), |(host, _)| host);
                format!("{}: it resolves to {address}, which is not allowed", shorten(host))
            }
            None => shorten(&self.name),
        }
    }
}

/// The kind of the denied target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Host,
    Path,
    Call,
}

impl Kind {
    const ALL: &[Kind] = &[Kind::Host, Kind::Path, Kind::Call];

    /// `None` for a refused command line: standard error already has the reason.
    fn from_denial(denial: &Denial) -> Option<Self> {
        match denial.operation {
            // A socket of the host has a path.
            Operation::Connect if !denial.target.starts_with('/') => Some(Kind::Host),
            Operation::Call => Some(Kind::Call),
            Operation::Command => None,
            _ => Some(Kind::Path),
        }
    }

    /// `2 paths`; `None` if there are none.
    fn counted(self, found: &[Found]) -> Option<String> {
        let count = found.iter().filter(|found| found.kind == self).count();
        let word = match self {
            Kind::Host => "host",
            Kind::Path => "path",
            Kind::Call => "call",
        };
        (count > 0).then(|| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
    }
}

/// True for the same name, and for a host with and without a port.
fn is_same(left: &str, right: &str, kind: Kind) -> bool {
    let is_with_port = |whole: &str, host: &str| {
        whole.strip_prefix(host).is_some_and(|rest| rest.starts_with(':') && !host.contains(':'))
    };
    left == right
        || (kind == Kind::Host && (is_with_port(left, right) || is_with_port(right, left)))
}

/// The name without control characters, cut in the middle if it is long.
fn shorten(name: &str) -> String {
    let escaped: Vec<char> = name.chars().flat_map(escape).collect();
    if escaped.len() <= NAME_LENGTH {
        return escaped.into_iter().collect();
    }
    let half = NAME_LENGTH / 2;
    let (head, tail) = (&escaped[..half - 1], &escaped[escaped.len() - half..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

/// `\n`, `\u{1b}`; any other character is itself.
fn escape(c: char) -> Vec<char> {
    if is_hidden(c) { c.escape_default().collect() } else { vec![c] }
}

/// The denial of a record in the audit log; `None` if the command itself was refused.
pub(crate) fn from_record(record: &RecordFields) -> Option<Denial> {
    let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let word = text("operation");
    let known = [
        Operation::Read,
        Operation::Write,
        Operation::Create,
        Operation::Rename,
        Operation::Execute,
        Operation::Connect,
    ];
    Some(Denial {
        operation: known.into_iter().find(|operation| operation.word() == word)?,
        target: text("target"),
        rule: text("policy"),
        origin: text("origin"),
        explicit: record.get("explicit") == Some(&Value::Bool(true)),
        pid: 0,
        program: text("program"),
        time_ms: 0,
        evidence: DenialEvidence::Kernel,
        count: record.get("count").and_then(Value::as_u64).unwrap_or(1),
        optional: record.get("optional") == Some(&Value::Bool(true)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(operation: Operation, target: &str) -> Denial {
        Denial {
            operation,
            target: target.into(),
            rule: "r".into(),
            origin: "o".into(),
            explicit: true,
            pid: 1,
            program: "p".into(),
            time_ms: 0,
            evidence: DenialEvidence::Kernel,
            count: 1,
            optional: false,
        }
    }

    fn line(denials: &[Denial], dropped: u64) -> Option<String> {
        let home = AbsPath::new("/home/me").unwrap();
        Denied { denials, dropped, home: Some(&home) }.line()
    }

    #[track_caller]
    fn check(denials: &[(Operation, &str)], expect: &str) {
        let denials: Vec<Denial> =
            denials.iter().map(|(operation, target)| denial(*operation, target)).collect();
        assert_eq!(
            line(&denials, 0).as_deref(),
            Some(format!("ringfence: {expect}; see: ringfence explain --last").as_str())
        );
    }

    #[test]
    fn hosts_and_paths_are_counted_once_each() {
        use Operation::{Connect, Create, Read, Write};
        check(&[(Connect, "a.org:443")], "1 host was denied (a.org:443)");
        check(
            &[(Connect, "a.org"), (Connect, "a.org:443"), (Connect, "a.org:443")],
            "1 host was denied (a.org:443)",
        );
        check(
            &[(Connect, "a.org"), (Connect, "a.org.uk")],
            "2 hosts were denied (a.org, a.org.uk)",
        );
        check(
            &[(Connect, "[fd00::1]:80"), (Connect, "[fd00::1]:81")],
            "2 hosts were denied ([fd00::1]:80, [fd00::1]:81)",
        );
        check(&[(Read, "/home/me/.ssh/id_rsa")], "1 path was denied (~/.ssh/id_rsa)");
        check(
            &[(Read, "/home/me/.ssh/id_rsa"), (Write, "/home/me/.ssh/id_rsa")],
            "1 path was denied (~/.ssh/id_rsa)",
        );
        check(&[(Read, "/a"), (Write, "/b"), (Create, "/c")], "3 paths were denied (/a, /b, …)");
        check(&[(Connect, "/run/docker.sock")], "1 path was denied (/run/docker.sock)");
        check(&[(Read, "/a"), (Connect, "a.org")], "1 host and 1 path were denied (a.org, /a)");
        check(&[(Operation::Call, "bpf")], "1 call was denied (bpf)");
    }

    #[test]
    fn address_that_an_allowed_name_resolves_to_is_named() {
        let rule = "it stands for 203.0.113.80 (documentation), which must be allowed by address"
            .to_owned();
        let guarded = Denial { rule, ..denial(Operation::Connect, "pypi.org:443") };
        let line = line(&[guarded], 0).unwrap();
        let expected = "1 host was denied (pypi.org: it resolves to 203.0.113.80, which is not allowed); see: ringfence explain --last";
        assert_eq!(line, format!("ringfence: {expected}"));
    }

    #[test]
    fn line_omits_optional_denials_and_refused_command_lines() {
        let optional = Denial { optional: true, ..denial(Operation::Read, "/home/me/.profile") };
        assert_eq!(line(std::slice::from_ref(&optional), 0), None);
        assert_eq!(line(&[denial(Operation::Command, "rm -rf /")], 0), None);
        let both = line(&[optional, denial(Operation::Read, "/a")], 0).unwrap();
        assert!(both.starts_with("ringfence: 1 path was denied (/a);"), "{both}");
    }

    #[test]
    fn likely_reason_is_named_first() {
        let noise = Denial { explicit: false, ..denial(Operation::Create, "/noise") };
        let line = line(&[noise, denial(Operation::Connect, "a.org")], 0).unwrap();
        assert!(line.contains("(a.org, /noise)"), "{line}");
    }

    #[test]
    fn names_are_bounded_and_hold_no_control_character() {
        let line =
            line(&[denial(Operation::Read, &format!("/\x1b[31m\n{}/end", "é".repeat(9000)))], 7)
                .unwrap();
        assert!(
            line.starts_with("ringfence: at least 1 path were denied (/\\u{1b}[31m\\né"),
            "{line}"
        );
        assert!(
            line.contains("…é") && line.ends_with("/end, …); see: ringfence explain --last"),
            "{line}"
        );
        assert!(line.chars().count() < 200 && !line.contains(is_hidden), "{line}");
    }
}
