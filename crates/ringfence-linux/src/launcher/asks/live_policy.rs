//! Grants for the rest of a session, in a running sandbox.

mod disown;
mod revise;

pub(crate) use revise::ActivePolicy;

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::apply::{LaunchError, MaskedPath, MountGrant, SandboxFds};
use crate::fuse::{NodeKind, NodeTree};
use crate::locks::{lock, read_lock, write_lock};
use ringfence_api::AskAnswer;
use ringfence_plan::{FileKind, MountAccess as Reach, Overmount, PinnedDir, Survey};
use ringfence_policy::{
    AbsPath, Access, Decision, Effect, Grants, HostRule, ListedHost, NetworkRules, Origin, Rule,
    Source, Verdict,
};
use ringfence_survey::survey;

use super::{AskSubject, ReadTarget, WriteTarget};
use crate::launcher::tripwire_server::OwnPids;
use crate::launcher::watcher_thread::WatcherRestart;

/// The policy in force in a sandbox, and the means to grant more.
#[derive(Debug)]
pub(crate) struct LivePolicy {
    grants: RwLock<Arc<Grants>>,
    /// Nodes that the tripwire shows, if there is a tripwire.
    tree: Option<Arc<RwLock<NodeTree>>>,
    own: Arc<OwnPids>,
    /// Weak: the thread that serves the tripwire holds this policy until the last mount is gone,
    /// and a strong reference would keep the mounts.
    fds: OnceLock<Weak<SandboxFds>>,
    renewal: OnceLock<WatcherRestart>,
    /// Serializes changes: each builds on the grants before it.
    turn: Mutex<()>,
}

impl LivePolicy {
    pub(crate) fn new(grants: Arc<Grants>, tree: Option<NodeTree>) -> Self {
        let (tree, own) = (tree.map(|tree| Arc::new(RwLock::new(tree))), Arc::default());
        Self {
            grants: RwLock::new(grants),
            tree,
            own,
            fds: OnceLock::new(),
            renewal: OnceLock::new(),
            turn: Mutex::default(),
        }
    }

    /// Nodes that the tripwire shows.
    pub(crate) fn tree(&self) -> Option<Arc<RwLock<NodeTree>>> {
        self.tree.clone()
    }

    /// Pids of ringfence's own helpers.
    pub(crate) fn own_pids(&self) -> Arc<OwnPids> {
        self.own.clone()
    }

    /// Sets the fds that reach into the sandbox.
    pub(crate) fn set_sandbox_fds(&self, fds: &Arc<SandboxFds>) {
        let _ = self.fds.set(Arc::downgrade(fds));
    }

    /// Sets the handle that restarts the watcher.
    pub(crate) fn set_watcher_restart(&self, renewal: WatcherRestart) {
        let _ = self.renewal.set(renewal);
    }

    pub(crate) fn decide(&self, path: &AbsPath, access: Access) -> Decision {
        self.read(|grants| grants.decide(path, access))
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&Grants) -> T) -> T {
        look(&read_lock(&self.grants))
    }

    /// Answers that the user may give about `matter`, except a denial.
    pub(crate) fn answer_options(&self, matter: &AskSubject) -> Vec<AskAnswer> {
        let (path, access, effect) = match matter {
            AskSubject::Read(target) => (&target.path, Access::Read, Effect::Read),
            AskSubject::Write(place) => (&place.path, Access::Write, Effect::Write),
            // The host rule is checked when the connect is granted.
            AskSubject::Connect(_) => {
                return vec![
                    AskAnswer::AllowOnce,
                    AskAnswer::AllowSession,
                    AskAnswer::AllowPermanent,
                ];
            }
        };
        let rule = session_rule(path, effect);
        let is_opened_by_it =
            self.read(|grants| with_rule(grants, &rule).verdict(path, access) == Verdict::Allowed);
        let hides = match &self.tree {
            Some(tree) => read_lock(tree).has_open_below(path),
            // A path in no opened tree has no mount point.
            None => self.read(|grants| grants.opening_rule(path).is_none()),
        };
        // A writable directory would need a scan for files that git obeys.
        let is_directory_write =
            matches!(matter, AskSubject::Write(WriteTarget { kind: FileKind::Directory, .. }));
        if is_directory_write {
            return vec![AskAnswer::AllowOnce];
        }
        if is_opened_by_it && !hides && self.fds().is_some() {
            vec![AskAnswer::AllowOnce, AskAnswer::AllowSession, AskAnswer::AllowPermanent]
        } else {
            vec![AskAnswer::AllowOnce]
        }
    }

    /// Waits for the fds: a command may need a grant before the supervisor has sent them.
    fn fds(&self) -> Option<Arc<SandboxFds>> {
        const MAX_WAIT: Duration = Duration::from_millis(500);
        let begun = Instant::now();
        while self.fds.get().is_none() && begun.elapsed() < MAX_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
        self.fds.get()?.upgrade()
    }

    /// Makes a file writable for the rest of the session; false if that fails. `ready` returns the
    /// file's identity and may create it; the notify handler knows the new rule by then.
    pub(crate) fn grant_write(
        &self,
        place: &WriteTarget,
        ready: impl FnOnce() -> Option<(u64, u64)>,
    ) -> bool {
        let _turn = lock(&self.turn);
        let Some(fds) = self.fds() else { return false };
        if self.decide(&place.path, Access::Write).verdict == Verdict::Allowed {
            return true;
        }
        let rules = vec![session_rule(&place.path, Effect::Write)];
        let before = self.decide(&place.path, Access::Write).verdict;
        let identity = fds.add_rules(rules.clone(), Vec::new()).ok().and_then(|()| ready());
        let delivery = identity.map(|identity| MountGrant {
            path: place.path.clone(),
            identity,
            access: Reach::ReadWrite,
            masks: Vec::new(),
        });
        let is_open =
            delivery.is_some_and(|delivery| self.grant_mount(&fds, place.kind, &delivery, rules));
        if !is_open {
            // Revoke the rule: of two rules on one path the stricter one wins.
            let effect = if before == Verdict::ReadOnly { Effect::Protect } else { Effect::Deny };
            let _ = fds.add_rules(vec![session_rule(&place.path, effect)], Vec::new());
        }
        is_open
    }

    /// Makes `target` readable for the rest of the session; false if that fails.
    pub(crate) fn grant_read(&self, target: &ReadTarget) -> bool {
        let _turn = lock(&self.turn);
        let Some(fds) = self.fds().filter(|_| target.open().is_some()) else { return false };
        let rule = session_rule(&target.path, Effect::Read);
        let grants = self.read(|grants| with_rule(grants, &rule));
        if self.decide(&target.path, Access::Read).verdict == Verdict::Allowed {
            return true;
        }
        let StillDenied { masks, guards, mut rules } = StillDenied::within(target, &grants);
        let masks = self.mask_nodes(masks);
        let delivery = MountGrant {
            path: target.path.clone(),
            identity: target.identity,
            access: Reach::ReadOnly,
            masks,
        };
        rules.push(rule);
        // The notify handler learns the rules before the mount appears.
        let is_open = fds.add_rules(rules.clone(), guards).is_ok()
            && self.grant_mount(&fds, target.kind, &delivery, rules);
        if is_open {
            // A denied name may appear in the directory later.
            let _ = self
                .renewal
                .get()
                .filter(|_| target.kind == FileKind::Directory)
                .map(WatcherRestart::request);
        }
        is_open
    }

    /// Opens a host for the rest of the session.
    pub(crate) fn grant_host(&self, rule: &HostRule) {
        let _turn = lock(&self.turn);
        let mut grants = write_lock(&self.grants);
        let allow = &mut Arc::make_mut(&mut grants).network.allow;
        if allow.iter().all(|listed| !listed.rule.covers(rule)) {
            allow.push(session_host(rule));
        }
    }

    /// Reads the network rules, with one more rule for this caller.
    pub(crate) fn network<T>(
        &self,
        also: Option<&HostRule>,
        look: impl FnOnce(&NetworkRules) -> T,
    ) -> T {
        self.read(|grants| match also {
            None => look(&grants.network),
            Some(rule) => {
                let mut rules = grants.network.clone();
                rules.allow.push(session_host(rule));
                look(&rules)
            }
        })
    }

    /// Mounts a read-only mask over a protected file that replaced another. Without the mask, only
    /// the notify handler protects it.
    pub(crate) fn mask_read_only(&self, path: &AbsPath) {
        let masks = vec![MaskedPath { path: path.clone(), mask: Overmount::ReadOnly, node: None }];
        if let Some(fds) = self.fds() {
            let _ = self.with_own_pid(|begun| fds.mask_paths(masks, begun));
        }
    }

    /// Mounts `delivery` in the sandbox and adds `rules` to the policy in force.
    fn grant_mount(
        &self,
        fds: &SandboxFds,
        kind: FileKind,
        delivery: &MountGrant,
        rules: Vec<Rule>,
    ) -> bool {
        let is_open = self.mount_in_sandbox(fds, kind, delivery).is_ok();
        if is_open {
            Arc::make_mut(&mut write_lock(&self.grants)).rules.extend(rules);
        }
        is_open
    }

    /// Mounts `delivery` in the sandbox.
    fn mount_in_sandbox(
        &self,
        fds: &SandboxFds,
        kind: FileKind,
        delivery: &MountGrant,
    ) -> Result<(), LaunchError> {
        if let Some(tree) = &self.tree {
            // A node at the path, as the mount point.
            write_lock(tree).ensure_mount_point(&delivery.path, denied(kind));
        }
        self.with_own_pid(|begun| fds.mount_grant(delivery, begun))
    }

    /// Counts the mount agent that `work` starts among ringfence's own pids meanwhile.
    fn with_own_pid<T>(&self, work: impl FnOnce(&dyn Fn(i32)) -> T) -> T {
        let agent = Cell::new(0);
        let done = work(&|pid| {
            self.own.add(pid);
            agent.set(pid);
        });
        // The kernel may reuse the pid soon.
        self.own.remove(agent.get());
        done
    }

    /// Tripwire nodes for denied paths.
    fn mask_nodes(&self, masks: Vec<(AbsPath, Overmount)>) -> Vec<MaskedPath> {
        let mut tree = self.tree.as_ref().map(|tree| write_lock(tree));
        let masked = masks.into_iter().map(|(path, mask)| {
            let node = match (&mut tree, mask) {
                (Some(tree), Overmount::Deny(kind)) => {
                    tree.add_mask(&path, denied(kind)).parse().ok()
                }
                _ => None,
            };
            MaskedPath { path, mask, node }
        });
        masked.collect()
    }
}

/// Paths below an opened directory that stay denied.
struct StillDenied {
    masks: Vec<(AbsPath, Overmount)>,
    guards: Vec<PinnedDir>,
    rules: Vec<Rule>,
}

impl StillDenied {
    fn within(target: &ReadTarget, grants: &Grants) -> Self {
        if target.kind == FileKind::File {
            return Self { masks: Vec::new(), guards: Vec::new(), rules: Vec::new() };
        }
        // Other trees need no new survey.
        let mut grants = grants.clone();
        grants.rules.retain(|rule| {
            !rule.opens() || rule.root.is_within(&target.path) || target.path.is_within(&rule.root)
        });
        let Survey { masks, guards, rules, .. } = survey(&grants);
        let is_below = |path: &AbsPath| path.is_within(&target.path);
        Self {
            masks: outermost(masks.into_iter().filter(|(path, _)| is_below(path))),
            guards: guards.into_iter().filter(|guard| is_below(&guard.path)).collect(),
            rules: rules.into_iter().filter(|rule| is_below(&rule.root)).collect(),
        }
    }
}

/// Drops paths that lie below a denied directory.
fn outermost(masks: impl Iterator<Item = (AbsPath, Overmount)>) -> Vec<(AbsPath, Overmount)> {
    let mut kept: Vec<(AbsPath, Overmount)> = Vec::new();
    let mut shut: Option<AbsPath> = None;
    for (path, mask) in masks {
        // Sorted by path: entries below a denied directory follow it.
        if shut.as_ref().is_some_and(|above| path.is_within(above)) {
            continue;
        }
        if matches!(mask, Overmount::Deny(_)) {
            shut = Some(path.clone());
        }
        kept.push((path, mask));
    }
    kept
}

fn denied(kind: FileKind) -> NodeKind {
    match kind {
        FileKind::Directory => NodeKind::DeniedDirectory,
        FileKind::File => NodeKind::DeniedFile,
    }
}

fn session_rule(path: &AbsPath, effect: Effect) -> Rule {
    Rule {
        root: path.clone(),
        effect,
        origin: Origin::new(Source::Session, path.to_string_lossy()),
        locked: false,
    }
}

fn session_host(rule: &HostRule) -> ListedHost {
    ListedHost { rule: rule.clone(), origin: Origin::new(Source::Session, rule.to_string()) }
}

fn with_rule(grants: &Grants, rule: &Rule) -> Grants {
    let mut grants = grants.clone();
    grants.rules.push(rule.clone());
    grants
}
