//! Marks denials that the program runs without.

use std::fs::File;
use std::io::Read;

use ringfence_api::{Attempt, Denial, Operation};
use ringfence_policy::{AbsPath, Disguise, Effect, Grants};

/// Marks a denial as optional if its program makes such attempts by itself and runs without them.
///
/// Call it while the process waits for an answer, or soon after: its command line is read.
pub(crate) fn mark_optional(mut denial: Denial, grants: &Grants) -> Denial {
    denial.optional = is_optional(&denial, grants);
    denial
}

fn is_optional(denial: &Denial, grants: &Grants) -> bool {
    if is_disguised_read(denial, grants) {
        return true;
    }
    if is_made_in_cache(denial, grants) {
        return false;
    }
    let attempt = Attempt {
        operation: denial.operation,
        target: &denial.target,
        program: &denial.program,
        explicit: denial.explicit,
        home: grants.home.as_path(),
        workspace: grants.workspace.as_path(),
    };
    attempt.is_optional(|| command_line(denial.pid))
}

/// True if the program saw an absent or empty file instead of an error. Loaders look for such files
/// at every start, and the policy says that a command runs without.
fn is_disguised_read(denial: &Denial, grants: &Grants) -> bool {
    let path = || AbsPath::new(&denial.target);
    denial.operation == Operation::Read
        && path().is_some_and(|path| grants.disguise(&path) != Disguise::Deny)
}

/// True if the program was denied to create a file in its own cache. The policy lets it write
/// there, so it relies on that.
fn is_made_in_cache(denial: &Denial, grants: &Grants) -> bool {
    let is_cache = |path: AbsPath| {
        grants.opening_rule(&path).is_some_and(|rule| matches!(rule.effect, Effect::Private { .. }))
    };
    denial.operation == Operation::Create && AbsPath::new(&denial.target).is_some_and(is_cache)
}

/// Arguments of a process, as in /proc; empty if it is gone. The command chooses their length, so
/// only the first 64 KiB are read.
fn command_line(pid: u32) -> Vec<u8> {
    const MAX_BYTES: u64 = 64 * 1024;
    let mut line = Vec::new();
    let read = File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut line));
    if read.is_err() {
        line.clear();
    }
    line
}

#[cfg(test)]
mod tests {
    use ringfence_api::{Denial, DenialEvidence, Operation};
    use ringfence_policy::{AbsPath, Effect, Facts, Flags, Grants, Origin, Rule, Source, resolve};

    use super::mark_optional;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    fn grants(effect: Effect) -> Grants {
        let facts = Facts::minimal(path("/home/me/app"), path("/home/me"), path("/home/me/store"));
        let mut grants = resolve(&[], &Flags::none(path("/home/me/app")), &facts).unwrap();
        let origin = Origin::new(Source::BuiltIn, "cargo");
        grants.rules.push(Rule {
            root: path("/home/me/.cargo/registry"),
            effect,
            origin,
            locked: false,
        });
        grants
    }

    /// True if cargo runs without an operation on a path.
    fn is_optional(grants: &Grants, operation: Operation, target: &str) -> bool {
        let denial = Denial {
            operation,
            target: target.into(),
            rule: Denial::NO_RULE_ALLOWS.into(),
            origin: String::new(),
            explicit: false,
            pid: 0,
            program: "/usr/bin/cargo".into(),
            time_ms: 0,
            evidence: DenialEvidence::Kernel,
            count: 1,
            optional: false,
        };
        mark_optional(denial, grants).optional
    }

    #[test]
    fn refused_create_in_a_private_cache_is_never_optional() {
        let private =
            grants(Effect::Private { store: path("/home/me/store/registry"), host_beneath: true });
        assert!(!is_optional(&private, Operation::Create, "/home/me/.cargo/registry"));
        assert!(!is_optional(&private, Operation::Create, "/home/me/.cargo/registry/cache/x"));
        // Outside the cache, and without one, it is optional.
        assert!(is_optional(&private, Operation::Create, "/home/me/.cargo/other"));
        assert!(is_optional(
            &grants(Effect::Read),
            Operation::Create,
            "/home/me/.cargo/registry/cache/x"
        ));
    }
}
