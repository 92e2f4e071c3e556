//! Opening something for the rest of a session, in a sandbox that runs.

mod disown;
mod revise;

pub(crate) use revise::ActivePolicy;

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::AskAnswer;
use ringfence_enforce::apply::{LaunchError, MaskedPath, MountGrant, SandboxFds};
use ringfence_enforce::{FileKind, MountAccess as Reach, Overmount, PinnedDir, Survey, survey};
use ringfence_policy::{
    AbsPath, Access, Decision, Effect, Grants, HostRule, ListedHost, NetworkRules, Origin, Rule,
    Source, Verdict,
};
use ringfence_tripwire::{NodeKind, NodeTree};

use super::{AskSubject, ReadTarget, WriteTarget};
use crate::tripwire_server::OwnPids;
use crate::watcher_thread::WatcherRestart;

/// What holds in a sandbox by now, and what it takes to open more of it.
#[derive(Debug)]
pub(crate) struct LivePolicy {
    grants: RwLock<Arc<Grants>>,
    /// What the tripwire shows, where there is one.
    scene: Option<Arc<RwLock<NodeTree>>>,
    own: Arc<OwnPids>,
    /// Not held here: whoever serves the tripwire has this ground until the last mount is
    /// gone, and this would keep the mounts.
    inside: OnceLock<Weak<SandboxFds>>,
    renewal: OnceLock<WatcherRestart>,
    /// One at a time: each builds on what the one before has opened.
    turn: Mutex<()>,
}

impl LivePolicy {
    pub(crate) fn new(grants: Arc<Grants>, scene: Option<NodeTree>) -> Self {
        let (scene, own) = (scene.map(|scene| Arc::new(RwLock::new(scene))), Arc::default());
        Self {
            grants: RwLock::new(grants),
            scene,
            own,
            inside: OnceLock::new(),
            renewal: OnceLock::new(),
            turn: Mutex::default(),
        }
    }

    /// What the tripwire shows.
    pub(crate) fn scene(&self) -> Option<Arc<RwLock<NodeTree>>> {
        self.scene.clone()
    }

    /// Processes of ours.
    pub(crate) fn own(&self) -> Arc<OwnPids> {
        self.own.clone()
    }

    /// The sandbox can be reached into by this.
    pub(crate) fn let_in(&self, inside: &Arc<SandboxFds>) {
        let _ = self.inside.set(Arc::downgrade(inside));
    }

    /// What appears in the sandbox's trees is looked out for.
    pub(crate) fn looked_out_for_by(&self, renewal: WatcherRestart) {
        let _ = self.renewal.set(renewal);
    }

    pub(crate) fn decide(&self, path: &AbsPath, wanted: Access) -> Decision {
        self.read(|grants| grants.decide(path, wanted))
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&Grants) -> T) -> T {
        look(&self.grants.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What may be answered about `matter`, but for a refusal.
    pub(crate) fn offers(&self, matter: &AskSubject) -> Vec<AskAnswer> {
        let (path, access, effect) = match matter {
            AskSubject::Read(target) => (&target.path, Access::Read, Effect::Read),
            AskSubject::Write(place) => (&place.path, Access::Write, Effect::Write),
            // Whether it is opened by an entry is looked at when it is let through.
            AskSubject::Connect(_) => {
                return vec![
                    AskAnswer::AllowOnce,
                    AskAnswer::AllowSession,
                    AskAnswer::AllowPermanent,
                ];
            }
        };
        let rule = rule(path, effect);
        let is_opened_by_it =
            self.read(|grants| with(grants, &rule).verdict(path, access) == Verdict::Allowed);
        let hides = match &self.scene {
            Some(scene) => scene.read().unwrap_or_else(PoisonError::into_inner).holds_more(path),
            // What is in no opened tree has nothing to stand on.
            None => self.read(|grants| grants.opener(path).is_none()),
        };
        // In a directory that can be written, whatever git obeys would have to be looked for.
        let is_too_much =
            matches!(matter, AskSubject::Write(WriteTarget { kind: FileKind::Directory, .. }));
        if is_too_much {
            return vec![AskAnswer::AllowOnce];
        }
        if is_opened_by_it && !hides && self.inside().is_some() {
            vec![AskAnswer::AllowOnce, AskAnswer::AllowSession, AskAnswer::AllowPermanent]
        } else {
            vec![AskAnswer::AllowOnce]
        }
    }

    /// A command may want something before we have heard all of how its sandbox was made.
    fn inside(&self) -> Option<Arc<SandboxFds>> {
        const PATIENCE: Duration = Duration::from_millis(500);
        let begun = Instant::now();
        while self.inside.get().is_none() && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        self.inside.get()?.upgrade()
    }

    /// Opens a file to be written for the rest of the session; answers whether that could be
    /// done. `ready` answers which file it is, and may make it: whoever judges has heard by then
    /// that it is open.
    pub(crate) fn open_to_write(
        &self,
        place: &WriteTarget,
        ready: impl FnOnce() -> Option<(u64, u64)>,
    ) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(inside) = self.inside() else { return false };
        if self.decide(&place.path, Access::Write).verdict == Verdict::Allowed {
            return true;
        }
        let rules = vec![rule(&place.path, Effect::Write)];
        let before = self.decide(&place.path, Access::Write).verdict;
        let identity = inside.add(rules.clone(), Vec::new()).ok().and_then(|()| ready());
        let delivery = identity.map(|identity| MountGrant {
            path: place.path.clone(),
            identity,
            access: Reach::ReadWrite,
            covers: Vec::new(),
        });
        let is_open =
            delivery.is_some_and(|delivery| self.deliver(&inside, place.kind, &delivery, rules));
        if !is_open {
            // Taken back: of two rules on one path the stricter counts.
            let effect = if before == Verdict::ReadOnly { Effect::Protect } else { Effect::Deny };
            let _ = inside.add(vec![rule(&place.path, effect)], Vec::new());
        }
        is_open
    }

    /// Opens `target` to be read for the rest of the session; answers whether that could be
    /// done.
    pub(crate) fn open_to_read(&self, target: &ReadTarget) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(inside) = self.inside().filter(|_| target.open().is_some()) else { return false };
        let rule = rule(&target.path, Effect::Read);
        let grants = self.read(|grants| with(grants, &rule));
        if self.decide(&target.path, Access::Read).verdict == Verdict::Allowed {
            return true;
        }
        let StillDenied { covers, guards, mut rules } = StillDenied::within(target, &grants);
        let covers = self.nodes(covers);
        let delivery = MountGrant {
            path: target.path.clone(),
            identity: target.identity,
            access: Reach::ReadOnly,
            covers,
        };
        rules.push(rule);
        // Known to those who judge before anything is there to be judged.
        let is_open = inside.add(rules.clone(), guards).is_ok()
            && self.deliver(&inside, target.kind, &delivery, rules);
        if is_open {
            // In a directory, something that is denied may appear later.
            let _ = self
                .renewal
                .get()
                .filter(|_| target.kind == FileKind::Directory)
                .map(WatcherRestart::wanted);
        }
        is_open
    }

    /// Opens hosts for the rest of the session.
    pub(crate) fn open_host(&self, rule: &HostRule) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut grants = self.grants.write().unwrap_or_else(PoisonError::into_inner);
        let allow = &mut Arc::make_mut(&mut grants).network.allow;
        if allow.iter().all(|listed| !listed.rule.covers(rule)) {
            allow.push(listed(rule));
        }
    }

    /// What holds of the network, for somebody who was allowed one thing more.
    pub(crate) fn network<T>(
        &self,
        also: Option<&HostRule>,
        look: impl FnOnce(&NetworkRules) -> T,
    ) -> T {
        self.read(|grants| match also {
            None => look(&grants.network),
            Some(rule) => {
                let mut rules = grants.network.clone();
                rules.allow.push(listed(rule));
                look(&rules)
            }
        })
    }

    /// Puts a read-only cover over a protected file that took the place of another. Without one,
    /// the notify handler alone protects it.
    pub(crate) fn protect_again(&self, path: &AbsPath) {
        let covers =
            vec![MaskedPath { path: path.clone(), cover: Overmount::ReadOnly, node: None }];
        if let Some(inside) = self.inside() {
            let _ = self.as_own(|begun| inside.shut(covers, begun));
        }
    }

    /// Brings something in, and knows by `rules` that it is open.
    fn deliver(
        &self,
        inside: &SandboxFds,
        kind: FileKind,
        delivery: &MountGrant,
        rules: Vec<Rule>,
    ) -> bool {
        let is_open = self.bring(inside, kind, delivery).is_ok();
        if is_open {
            Arc::make_mut(&mut self.grants.write().unwrap_or_else(PoisonError::into_inner))
                .rules
                .extend(rules);
        }
        is_open
    }

    /// Mounts it in the sandbox.
    fn bring(
        &self,
        inside: &SandboxFds,
        kind: FileKind,
        delivery: &MountGrant,
    ) -> Result<(), LaunchError> {
        if let Some(scene) = &self.scene {
            // For the whole to be mounted over.
            scene
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .stand(&delivery.path, denied(kind));
        }
        self.as_own(|begun| inside.deliver(delivery, begun))
    }

    /// Whom it starts to do something is one of ours meanwhile.
    fn as_own<T>(&self, work: impl FnOnce(&dyn Fn(i32)) -> T) -> T {
        let porter = Cell::new(0);
        let done = work(&|pid| {
            self.own.add(pid);
            porter.set(pid);
        });
        // Its number may soon be another's.
        self.own.remove(porter.get());
        done
    }

    /// Nodes of the tripwire for what is denied.
    fn nodes(&self, covers: Vec<(AbsPath, Overmount)>) -> Vec<MaskedPath> {
        let mut scene =
            self.scene.as_ref().map(|scene| scene.write().unwrap_or_else(PoisonError::into_inner));
        let covered = covers.into_iter().map(|(path, cover)| {
            let node = match (&mut scene, cover) {
                (Some(scene), Overmount::Deny(kind)) => {
                    scene.cover(&path, denied(kind)).parse().ok()
                }
                _ => None,
            };
            MaskedPath { path, cover, node }
        });
        covered.collect()
    }
}

/// What of the host's directory stays shut although the directory is opened.
struct StillDenied {
    covers: Vec<(AbsPath, Overmount)>,
    guards: Vec<PinnedDir>,
    rules: Vec<Rule>,
}

impl StillDenied {
    fn within(target: &ReadTarget, grants: &Grants) -> Self {
        if target.kind == FileKind::File {
            return Self { covers: Vec::new(), guards: Vec::new(), rules: Vec::new() };
        }
        // Other trees need not be looked through again.
        let mut grants = grants.clone();
        grants.rules.retain(|rule| {
            !rule.opens() || rule.root.is_within(&target.path) || target.path.is_within(&rule.root)
        });
        let Survey { covers, guards, rules, .. } = survey(&grants);
        let is_below = |path: &AbsPath| path.is_within(&target.path);
        Self {
            covers: outermost(covers.into_iter().filter(|(path, _)| is_below(path))),
            guards: guards.into_iter().filter(|guard| is_below(&guard.path)).collect(),
            rules: rules.into_iter().filter(|rule| is_below(&rule.root)).collect(),
        }
    }
}

/// Without what lies below something that is denied as a whole.
fn outermost(covers: impl Iterator<Item = (AbsPath, Overmount)>) -> Vec<(AbsPath, Overmount)> {
    let mut kept: Vec<(AbsPath, Overmount)> = Vec::new();
    let mut shut: Option<AbsPath> = None;
    for (path, cover) in covers {
        // Sorted by path: what lies below a denied directory follows it.
        if shut.as_ref().is_some_and(|above| path.is_within(above)) {
            continue;
        }
        if matches!(cover, Overmount::Deny(_)) {
            shut = Some(path.clone());
        }
        kept.push((path, cover));
    }
    kept
}

fn denied(kind: FileKind) -> NodeKind {
    match kind {
        FileKind::Directory => NodeKind::DeniedDirectory,
        FileKind::File => NodeKind::DeniedFile,
    }
}

fn rule(path: &AbsPath, effect: Effect) -> Rule {
    Rule {
        root: path.clone(),
        effect,
        origin: Origin::new(Source::Session, path.to_string_lossy()),
        locked: false,
    }
}

fn listed(rule: &HostRule) -> ListedHost {
    ListedHost { rule: rule.clone(), origin: Origin::new(Source::Session, rule.to_string()) }
}

fn with(grants: &Grants, rule: &Rule) -> Grants {
    let mut grants = grants.clone();
    grants.rules.push(rule.clone());
    grants
}
