//! Selects the guarantees of a policy, and the attempts that would break each.
//!
//! Only attempts that succeed without a sandbox are made: a file that the caller cannot read proves
//! nothing.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;

use ringfence_policy::{AbsPath, Access, Effect, Grants, NetworkMode, Verdict};
use ringfence_provider::{PathRole, SandboxDescription};

use super::probe::{ProbeAttempt, ProbeFunction, ProbeTrial, PromiseProbe};
use crate::output::tilde_path;
use crate::provisions::find_provision;

/// The environment variable that must not reach the sandbox.
pub(super) const VARIABLE: &str = "FAKE_TOKEN";

/// The maximum number of files tried for one guarantee.
const ENOUGH: usize = 50;

/// Targets created on the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecoyFiles {
    /// A process.
    pub(super) process: Option<u32>,
    /// A server on the host's loopback.
    pub(super) server: Option<SocketAddr>,
}

pub(super) struct ProbeChooser<'a> {
    pub(super) grants: &'a Grants,
    pub(super) sandbox: &'a SandboxDescription,
    /// A unique name.
    pub(super) name: String,
    pub(super) baits: DecoyFiles,
    /// Files that the sandbox has as copies without secrets: reading them breaks no guarantee.
    pub(super) copies: Vec<AbsPath>,
}

impl ProbeChooser<'_> {
    pub(super) fn probes(&self) -> Vec<PromiseProbe> {
        let mut probes = vec![self.project()];
        probes.extend(self.secrets());
        probes.extend([
            self.project_secrets(),
            self.neighbours(),
            self.home(),
            self.protected(),
            self.scratch(),
        ]);
        probes.extend([
            self.environment(),
            self.network(),
            self.loopback(),
            self.process(),
            namespaces(),
        ]);
        probes
    }

    fn project(&self) -> PromiseProbe {
        let file = self.grants.workspace.join(format!(".{}", self.name));
        let acts = vec![ProbeAttempt::new(ProbeFunction::Make, file.as_path())];
        match self.grants.verdict(&file, Access::Write) {
            Verdict::Allowed => {
                probe("project is writable", "make and remove a file here", ProbeTrial::Works(acts))
            }
            _ => probe("read-only project", "make a file here", ProbeTrial::Refused(acts)),
        }
    }

    /// Probes paths denied outside the project; the ssh keys get their own line.
    fn secrets(&self) -> Vec<PromiseProbe> {
        let denied = self.grants.rules.iter().filter(|rule| {
            rule.effect == Effect::Deny && !rule.root.is_within(&self.grants.workspace)
        });
        let mut acts: Vec<ProbeAttempt> = Vec::new();
        for rule in denied.filter(|rule| self.is_denied(&rule.root)) {
            acts.extend(readable(&rule.root, &self.copies).filter(|act| !acts.contains(act)));
        }
        let ssh = self.grants.home.join(".ssh");
        let (keys, mut others): (Vec<ProbeAttempt>, Vec<ProbeAttempt>) =
            acts.into_iter().partition(|act| Path::new(&act.target).starts_with(ssh.as_path()));
        others.truncate(ENOUGH);
        let read = |promise, acts: Vec<ProbeAttempt>| {
            probe(promise, format!("read {}", self.listed(&acts)), ProbeTrial::Refused(acts))
        };
        match (keys.is_empty(), others.is_empty()) {
            (true, true) => vec![probe(
                "your secrets",
                "read keys and tokens in ~",
                ProbeTrial::Nothing("no such files"),
            )],
            (true, false) => vec![read("your secrets", others)],
            (false, true) => vec![read("your ssh keys", keys)],
            (false, false) => vec![read("your ssh keys", keys), read("your other secrets", others)],
        }
    }

    /// Probes files that a pattern denies in the project, and a new file that it would deny.
    fn project_secrets(&self) -> PromiseProbe {
        let caught = self.paths_with_role(&PathRole::Masked);
        let mut acts: Vec<ProbeAttempt> =
            caught.filter_map(|path| readable(path, &self.copies)).take(ENOUGH).collect();
        let mut tried =
            if acts.is_empty() { String::new() } else { format!("read {}", self.listed(&acts)) };
        let newcomer = self.grants.workspace.join(format!(".env.{}", self.name));
        if self.grants.verdict(&newcomer, Access::Write) == Verdict::Denied {
            acts.push(ProbeAttempt::new(ProbeFunction::Make, newcomer.as_path()));
            tried.push_str(if tried.is_empty() { "make a new .env.*" } else { ", a new one" });
        }
        probe("project's secrets", tried, refused_or(acts, "no pattern denies any"))
    }

    /// Probes a directory that no rule allows.
    fn neighbours(&self) -> PromiseProbe {
        let siblings =
            self.grants.workspace.parent().into_iter().flat_map(|above| directories(&above));
        let others = directories(&self.grants.home)
            .into_iter()
            .chain(siblings)
            .chain(directories(&AbsPath::root()));
        let is_absent = |path: &AbsPath| {
            self.grants.verdict(path, Access::Read) == Verdict::Absent
                && find_provision(self.sandbox, path).is_none()
        };
        let found = others
            .filter(|path| {
                path.name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
            })
            .find(is_absent);
        let act = found.as_ref().map(|path| ProbeAttempt::new(ProbeFunction::List, path.as_path()));
        let tried = act.as_ref().map_or_else(
            || "list another directory".into(),
            |act| format!("list {}", self.shown(act)),
        );
        probe("everything else", tried, refused_or(act.into_iter().collect(), "no other directory"))
    }

    fn home(&self) -> PromiseProbe {
        let file = self.grants.home.join(format!(".{}", self.name));
        let is_open = self.grants.verdict(&file, Access::Write) == Verdict::Allowed;
        // A home below /tmp is in the sandbox's own /tmp: only a file visible on the host counts.
        let deed = if find_provision(self.sandbox, &file).is_some() {
            ProbeFunction::Leave
        } else {
            ProbeFunction::Make
        };
        let acts = if is_open { Vec::new() } else { vec![ProbeAttempt::new(deed, file.as_path())] };
        probe("your home", "make a file in ~", refused_or(acts, "allowed by the policy"))
    }

    /// Probes read-only paths, first those that make git run programs.
    fn protected(&self) -> PromiseProbe {
        let one = |path: &AbsPath| match path.as_path().is_dir() {
            true => ProbeAttempt::new(ProbeFunction::Make, path.join(&self.name).as_path()),
            false => ProbeAttempt::new(ProbeFunction::Append, path.as_path()),
        };
        let masked: Vec<&AbsPath> =
            self.paths_with_role(&PathRole::Protected).take(ENOUGH).collect();
        let first = masked
            .iter()
            .find(|path| path.name().is_some_and(|name| name == "hooks"))
            .or(masked.first());
        let tried = match first {
            Some(first) => format!("write {}{}", self.in_project(first), more(masked.len() - 1)),
            None => "write a git hook".into(),
        };
        let acts = masked.into_iter().map(one).collect();
        probe("git hooks, settings", tried, refused_or(acts, "none in this project"))
    }

    fn scratch(&self) -> PromiseProbe {
        let file = AbsPath::root().join("tmp").join(&self.name);
        let is_shared = self.grants.verdict(&file, Access::Write) == Verdict::Allowed;
        let acts = if is_shared {
            Vec::new()
        } else {
            vec![ProbeAttempt::new(ProbeFunction::Leave, file.as_path())]
        };
        probe("private /tmp", "leave a file in /tmp", refused_or(acts, "allowed by the policy"))
    }

    fn environment(&self) -> PromiseProbe {
        let passes = self.grants.environment.decide(VARIABLE).passes();
        let acts = if passes {
            Vec::new()
        } else {
            vec![ProbeAttempt::new(ProbeFunction::Variable, VARIABLE)]
        };
        probe(
            "your environment",
            format!("look for {VARIABLE}"),
            refused_or(acts, "allowed by the policy"),
        )
    }

    fn network(&self) -> PromiseProbe {
        let is_open = self.grants.network.mode == NetworkMode::Full;
        let acts = if is_open {
            Vec::new()
        } else {
            vec![ProbeAttempt::new(ProbeFunction::Interface, "")]
        };
        probe("the network", "look for an interface", refused_or(acts, "allowed by the policy"))
    }

    fn loopback(&self) -> PromiseProbe {
        let is_open = self.grants.network.mode == NetworkMode::Full;
        let acts = match self.baits.server {
            Some(server) if !is_open => {
                vec![ProbeAttempt::new(
                    ProbeFunction::Connect,
                    format!("{} {}", server.ip(), server.port()),
                )]
            }
            _ => Vec::new(),
        };
        probe(
            "your local servers",
            "connect to one on localhost",
            refused_or(acts, if is_open { "allowed by the policy" } else { "no server to try" }),
        )
    }

    fn process(&self) -> PromiseProbe {
        let acts: Vec<ProbeAttempt> = self
            .baits
            .process
            .map(|pid| ProbeAttempt::new(ProbeFunction::Signal, pid.to_string()))
            .into_iter()
            .collect();
        probe("your processes", "kill one of them", refused_or(acts, "no process to try"))
    }

    fn is_denied(&self, path: &AbsPath) -> bool {
        self.grants.verdict(path, Access::Read) == Verdict::Denied
    }

    /// The paths of the project with this role.
    fn paths_with_role(&self, role: &PathRole) -> impl Iterator<Item = &AbsPath> {
        let workspace = &self.grants.workspace;
        let paths = self.sandbox.paths.iter().filter(move |described| described.role == *role);
        paths.map(|described| &described.path).filter(|path| path.is_within(workspace))
    }

    fn listed(&self, acts: &[ProbeAttempt]) -> String {
        format!("{}{}", self.shown(&acts[0]), more(acts.len() - 1))
    }

    fn shown(&self, act: &ProbeAttempt) -> String {
        AbsPath::new(&act.target).map_or_else(
            || act.target.to_string_lossy().into_owned(),
            |path| self.in_project(&path),
        )
    }

    fn in_project(&self, path: &AbsPath) -> String {
        match path.relative_to(&self.grants.workspace) {
            Some(below) => below.display().to_string(),
            None => tilde_path(path, &self.grants.home),
        }
    }
}

/// Probes the creation of namespaces, which would allow undoing mounts.
fn namespaces() -> PromiseProbe {
    probe(
        "the sandbox itself",
        "unshare user and mounts",
        ProbeTrial::Refused(vec![ProbeAttempt::new(ProbeFunction::Namespaces, "")]),
    )
}

fn probe(promise: &'static str, tried: impl Into<String>, trial: ProbeTrial) -> PromiseProbe {
    PromiseProbe { promise, tried: tried.into(), trial }
}

fn refused_or(acts: Vec<ProbeAttempt>, why_not: &'static str) -> ProbeTrial {
    if acts.is_empty() { ProbeTrial::Nothing(why_not) } else { ProbeTrial::Refused(acts) }
}

fn more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(", {count} more") }
}

/// Returns an attempt to read `path`, or a file in it, if the caller itself can.
fn readable(path: &AbsPath, copies: &[AbsPath]) -> Option<ProbeAttempt> {
    if copies.contains(path) {
        return None;
    }
    let Ok(entries) = fs::read_dir(path.as_path()) else {
        return File::open(path.as_path())
            .is_ok()
            .then(|| ProbeAttempt::new(ProbeFunction::Look, path.as_path()));
    };
    let files =
        entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut files: Vec<AbsPath> = files.map(|entry| path.join(entry.file_name())).collect();
    files.sort_by_key(|file| {
        (!file.name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"id_")), file.clone())
    });
    let file =
        files.into_iter().find(|file| !copies.contains(file) && File::open(file.as_path()).is_ok());
    Some(file.map_or_else(
        || ProbeAttempt::new(ProbeFunction::List, path.as_path()),
        |file| ProbeAttempt::new(ProbeFunction::Look, file.as_path()),
    ))
}

/// Returns the directories in `path` that the caller can list.
fn directories(path: &AbsPath) -> Vec<AbsPath> {
    let Ok(entries) = fs::read_dir(path.as_path()) else { return Vec::new() };
    let mut found: Vec<AbsPath> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| path.join(entry.file_name()))
        .filter(|directory| fs::read_dir(directory.as_path()).is_ok())
        .collect();
    found.sort();
    found
}
