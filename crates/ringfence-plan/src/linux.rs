//! The plan for Linux: pure, so that it can be shown and tested on any host.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_api::{Gap, GapKind, HostFacts, SettingsCopy};
use ringfence_policy::{
    AbsPath, Access as Wanted, CA_BUNDLE, Effect, Grants, NetworkMode, Observe, Verdict,
};
use tracing::trace_span;

use crate::gaps;
use crate::plan::{
    FileKind, MountAccess, NetworkNamespace, Overmount, PinnedDir, Plan, Step, UserIds,
};
use crate::support::{FuseSupport, HostSupport};
use crate::survey::{BuildSystem, Survey};

/// The plan for `grants` on a host with this `support` and `survey`.
pub fn plan(
    grants: &Grants,
    survey: &Survey,
    support: &HostSupport,
    host_facts: &HostFacts,
) -> Plan {
    let _stage = trace_span!(target: "stage", "plan").entered();
    let mut draft = PlanBuilder {
        grants,
        survey,
        steps: Vec::new(),
        binds: BTreeMap::new(),
        private: BTreeSet::new(),
        copied: BTreeSet::new(),
        gaps: gaps::find_gaps(grants, survey, support),
    };
    let network = if grants.network.mode == NetworkMode::Full {
        NetworkNamespace::Host
    } else {
        NetworkNamespace::Own
    };
    draft.steps.push(Step::Namespaces { network });
    draft.steps.push(Step::Identity(UserIds { uid: support.uid, gid: support.gid }));
    match support.fuse {
        FuseSupport::Opens => draft.steps.push(Step::Tripwire),
        FuseSupport::Shut | FuseSupport::Absent => {
            draft.gaps.push(gaps::missing_tripwire(support.fuse));
            draft.gaps.extend(gaps::missing_hide(grants));
        }
    }
    draft.skeleton(host_facts, support);
    draft.trees();
    draft.links();
    draft.private();
    draft.mount_in_caches();
    draft.trust(host_facts);
    draft.settings(host_facts);
    draft.add_masks();
    draft.final_steps(support);
    Plan { steps: draft.steps, gaps: draft.gaps }
}

/// The first steps of nearly every plan on this host: built-in grants of the system. A plan has
/// them in this order, unless its policy removes one.
///
/// `grants` are [`Grants::system_only`], and `survey` has the roots of their rules.
pub fn standard_steps(grants: &Grants, survey: &Survey) -> Vec<Step> {
    let mut draft = PlanBuilder {
        grants,
        survey,
        steps: Vec::new(),
        binds: BTreeMap::new(),
        private: BTreeSet::new(),
        copied: BTreeSet::new(),
        gaps: Vec::new(),
    };
    draft.steps.push(Step::Devices);
    draft.steps.extend(["/tmp", "/dev/shm"].map(|scratch| Step::Scratch { path: path(scratch) }));
    draft.steps.push(Step::Directory { path: path("/run") });
    draft.trees();
    draft.links();
    draft.steps
}

struct PlanBuilder<'a> {
    grants: &'a Grants,
    survey: &'a Survey,
    steps: Vec<Step>,
    /// Bound trees of the host, by their real paths.
    binds: BTreeMap<AbsPath, MountAccess>,
    /// Private directories of the project.
    private: BTreeSet<AbsPath>,
    /// Files replaced by a copy.
    copied: BTreeSet<AbsPath>,
    gaps: Vec<Gap>,
}

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).expect("written here as an absolute path")
}

impl PlanBuilder<'_> {
    /// Files and directories that every sandbox has.
    fn skeleton(&mut self, host_facts: &HostFacts, support: &HostSupport) {
        // `/proc` checks the writer's uid, not capabilities, so root inside could change kernel
        // settings.
        let access = if support.uid == 0 { MountAccess::ReadOnly } else { MountAccess::ReadWrite };
        self.steps.extend([Step::Processes { access }, Step::Devices]);
        for scratch in ["/tmp", "/dev/shm"] {
            self.steps.push(Step::Scratch { path: path(scratch) });
        }
        self.steps.push(Step::Directory { path: path("/run") });
        for (link, target) in [("/var/run", "/run"), ("/var/tmp", "/tmp")] {
            // A link cannot have mounts below it.
            let is_needed =
                self.survey.found.values().any(|found| found.real.is_within(&path(link)));
            if !is_needed {
                self.steps.push(Step::Symlink { path: path(link), target: target.into() });
            } else if link == "/var/tmp" {
                self.steps.push(Step::Scratch { path: path(link) });
            }
        }
        self.steps.push(Step::Directory { path: self.grants.home.clone() });
        let HostSupport { uid, gid, .. } = support;
        let (user, home, shell) = (&host_facts.user, &self.grants.home, &host_facts.shell);
        let others = if *uid == 0 { "" } else { "root:x:0:0:root:/:/sbin/nologin\n" };
        let other_groups = if *gid == 0 { "" } else { "root:x:0:\n" };
        let resolver = match &host_facts.resolver {
            _ if self.grants.network.needs_egress() => {
                "nameserver 127.0.0.1\noptions timeout:30\n".into()
            }
            Some(resolver) => resolver.clone(),
            // No name exists, so a resolver that ignores the answer waits only one second.
            None => "# ringfence: no network\noptions timeout:1 attempts:1\n".into(),
        };
        let mut file =
            |at: AbsPath, content: String| self.steps.push(Step::File { path: at, content });
        file(
            path("/etc/passwd"),
            format!(
                "{others}{user}:x:{uid}:{gid}:{user}:{home}:{shell}\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
            ),
        );
        file(path("/etc/group"), format!("{other_groups}{user}:x:{gid}:\nnogroup:x:65534:\n"));
        file(
            path("/etc/hosts"),
            "127.0.0.1 localhost ringfence\n::1 localhost ip6-localhost ip6-loopback\n".into(),
        );
        file(path("/etc/hostname"), "ringfence\n".into());
        file(path("/etc/resolv.conf"), resolver);
        if let Some(config) = &host_facts.git_config {
            file(self.grants.home.join(".gitconfig"), config.clone());
        }
        if let Some(trust) = &host_facts.trust {
            file(path(CA_BUNDLE), trust.bundle.clone());
        }
        // Git looks here several times per command; the settings are in the file above.
        let git = self.grants.home.join(".config/git");
        match &host_facts.git_ignore {
            Some(ignore) => file(git.join("ignore"), ignore.clone()),
            None => self.steps.push(Step::Directory { path: git }),
        }
    }

    /// The granted trees, outer before inner; a tree within an equally granted one is not bound
    /// again.
    fn trees(&mut self) {
        let mut opened: Vec<(AbsPath, FileKind)> = self
            .grants
            .rules
            .iter()
            .filter(|rule| matches!(rule.effect, Effect::Read | Effect::Write))
            .map(|rule| &rule.root)
            .chain(&self.grants.network.unix_sockets)
            .filter_map(|root| self.survey.found.get(root))
            .map(|found| (found.real.clone(), found.kind))
            .collect();
        opened.sort_by(|(a, _), (b, _)| a.depth().cmp(&b.depth()).then_with(|| a.cmp(b)));
        opened.dedup();
        for (real, kind) in opened {
            let access = match self.grants.verdict(&real, Wanted::Write) {
                Verdict::Allowed => MountAccess::ReadWrite,
                Verdict::ReadOnly => MountAccess::ReadOnly,
                // A socket named by the policy is granted, regardless of its surroundings.
                Verdict::Absent if self.grants.network.unix_sockets.contains(&real) => {
                    MountAccess::ReadOnly
                }
                Verdict::Absent | Verdict::Denied => continue,
            };
            if self.enclosing(&real) == Some(access) {
                continue;
            }
            self.steps.push(Step::Bind { path: real.clone(), access, kind });
            self.binds.insert(real, access);
        }
    }

    /// Access to `path` through the tree it is in, if any.
    fn enclosing(&self, path: &AbsPath) -> Option<MountAccess> {
        let bound = self.binds.iter().map(|(bind, access)| (bind, *access));
        let private = self.private.iter().map(|place| (place, MountAccess::ReadWrite));
        bound
            .chain(private)
            .filter(|(root, _)| path.is_within(root))
            .max_by_key(|(root, _)| root.depth())
            .map(|(_, access)| access)
    }

    /// Links on the way to granted trees, unless a bound tree contains them.
    fn links(&mut self) {
        let mut made = BTreeSet::new();
        for rule in self.grants.rules.iter().filter(|rule| rule.opens()) {
            let Some(found) = self.survey.found.get(&rule.root) else { continue };
            for (at, target) in &found.links {
                if self.enclosing(at).is_none() && made.insert(at.clone()) {
                    self.steps.push(Step::Symlink { path: at.clone(), target: target.clone() });
                }
            }
        }
    }

    /// Replaces the host's CA bundles at the paths where programs find them by default.
    fn trust(&mut self, host_facts: &HostFacts) {
        for place in host_facts.trust.iter().flat_map(|trust| &trust.bundle_paths) {
            if self.enclosing(place).is_some() {
                self.steps.push(Step::Instead { path: place.clone(), with: path(CA_BUNDLE) });
            }
        }
    }

    /// Copies of settings, where the files themselves are not visible: outside the granted trees,
    /// and in place of a masked file in a read-only tree.
    fn settings(&mut self, host_facts: &HostFacts) {
        let masked = Some(&Overmount::Deny(FileKind::File));
        for (number, SettingsCopy { path: at, content }) in host_facts.settings.iter().enumerate() {
            let file = |path| Step::File { path, content: content.clone() };
            match self.enclosing(at) {
                None => self.steps.push(file(at.clone())),
                Some(MountAccess::ReadOnly) if self.survey.masks.get(at) == masked => {
                    let with = path(&format!("/etc/ringfence/settings-{number}"));
                    let replacement = Step::Instead { path: at.clone(), with: with.clone() };
                    self.steps.extend([file(with), replacement]);
                }
                Some(_) => continue,
            }
            self.copied.insert(at.clone());
        }
    }

    /// Caches that tools must write.
    fn private(&mut self) {
        let mut rules: Vec<_> = self
            .grants
            .rules
            .iter()
            .filter(|rule| matches!(rule.effect, Effect::Private { .. }))
            .collect();
        rules.sort_by(|a, b| a.root.depth().cmp(&b.root.depth()).then_with(|| a.root.cmp(&b.root)));
        for rule in rules {
            let Effect::Private { store, host_beneath } = &rule.effect else { continue };
            let found = self.survey.found.get(&rule.root);
            let at = found.map_or(&rule.root, |found| &found.real).clone();
            if self.grants.verdict(&at, Wanted::Write) != Verdict::Allowed {
                continue;
            }
            // Without network and without a build system, the host's own cache is enough, and the
            // overlay is saved.
            let is_idle = *host_beneath
                && self.grants.network.mode == NetworkMode::None
                && self.survey.builds == BuildSystem::Nothing;
            match at.parent().and_then(|above| self.enclosing(&above)) {
                _ if found.is_some() => {}
                None => {}
                // The tree gets a mount point when it is mounted.
                Some(MountAccess::ReadOnly) if !is_idle => {}
                Some(_) => continue,
            }
            let beneath = found.filter(|_| *host_beneath);
            if let Some(found) = beneath
                && is_idle
            {
                if self.enclosing(&at).is_none() || self.is_in_cache(&at) {
                    self.steps.push(Step::Bind {
                        path: at.clone(),
                        access: MountAccess::ReadOnly,
                        kind: found.kind,
                    });
                    self.binds.insert(at, MountAccess::ReadOnly);
                }
                continue;
            }
            let beneath = beneath.map(|_| at.clone());
            self.private.insert(at.clone());
            self.steps.push(Step::Private {
                path: at,
                store: store.clone(),
                beneath,
                beside: None,
            });
        }
    }

    /// True if a path is below a private cache.
    fn is_in_cache(&self, path: &AbsPath) -> bool {
        self.private.iter().any(|cache| path != cache && path.is_within(cache))
    }

    /// Moves binds below a private cache behind it: they are mounted on top.
    fn mount_in_caches(&mut self) {
        let is_inner = |step: &Step| match step {
            Step::Bind { path, .. } => self.is_in_cache(path),
            _ => false,
        };
        if !self.steps.iter().any(is_inner) {
            return;
        }
        let is_meant = |step: &Step| matches!(step, Step::Private { .. }) || is_inner(step);
        let (mut inner, others): (Vec<Step>, Vec<Step>) =
            self.steps.iter().cloned().partition(is_meant);
        inner.sort_by_key(|step| match step {
            Step::Private { path, .. } | Step::Bind { path, .. } => path.depth(),
            _ => 0,
        });
        self.steps = others;
        self.steps.append(&mut inner);
    }

    /// Denied and protected paths in the granted trees, and denied ones outside.
    fn add_masks(&mut self) {
        let mut done: Option<AbsPath> = None;
        for (at, mask) in &self.survey.masks {
            // Sorted by path: paths below a denied directory follow it.
            if done.as_ref().is_some_and(|above| at.is_within(above)) {
                continue;
            }
            if self.copied.contains(at) {
                continue;
            }
            let opened_below = self
                .binds
                .keys()
                .chain(&self.private)
                .chain(&self.copied)
                .any(|opened| opened != at && opened.is_within(at));
            match (self.enclosing(at), mask) {
                (Some(_), Overmount::Deny(_)) if opened_below => {
                    self.gaps.push(Gap {
                        what: "filesystem.deny".into(),
                        why: format!(
                            "a path below {at} is granted, and ringfence cannot keep it reachable below a denied directory in a granted tree"
                        ),
                        hint: format!("deny the other entries of {at} by name"),
                        kind: GapKind::Enforcement,
                    });
                }
                (Some(_), Overmount::Deny(_)) => {
                    self.steps.push(Step::Mask { path: at.clone(), mask: *mask });
                    done = Some(at.clone());
                }
                (Some(MountAccess::ReadWrite), _) => {
                    self.steps.push(Step::Mask { path: at.clone(), mask: *mask })
                }
                (Some(MountAccess::ReadOnly), _) => {}
                (None, Overmount::Deny(FileKind::Directory)) if opened_below => {
                    self.steps.push(Step::Passage { path: at.clone() })
                }
                (None, Overmount::Deny(kind)) => {
                    self.steps.push(Step::Denied { path: at.clone(), kind: *kind });
                    done = Some(at.clone());
                }
                (None, Overmount::ReadOnly | Overmount::Shallow) => {}
            }
        }
    }

    /// Files of `/proc` that only root can read and that reveal all processes of the machine. Other
    /// root-only files there also need a capability.
    fn kernel_files(&mut self) {
        for name in [
            "kpagecount",
            "kpageflags",
            "kpagecgroup",
            "slabinfo",
            "vmallocinfo",
            "pagetypeinfo",
            "timer_list",
            "latency_stats",
        ] {
            self.steps.push(Step::Mask {
                path: path("/proc").join(name),
                mask: Overmount::Deny(FileKind::File),
            });
        }
    }

    /// Protects a home in a scratch tmpfs, where written files would be lost silently.
    fn home(&mut self) {
        let home = &self.grants.home;
        let is_scratch = self.steps.iter().any(
            |step| matches!(step, Step::Scratch { path } if home.is_within(path) && home != path),
        );
        if is_scratch && self.enclosing(home).is_none() {
            self.steps.push(Step::Mask { path: home.clone(), mask: Overmount::Shallow });
        }
    }

    /// Steps after the mounts.
    fn final_steps(&mut self, support: &HostSupport) {
        self.home();
        if support.uid == 0 {
            self.kernel_files();
        }
        if !self.survey.walked.is_empty() {
            self.steps.push(Step::Watcher { trees: self.survey.walked.clone() });
        }
        self.steps.extend([Step::Seal, Step::Lock]);
        if self.binds.values().any(|access| *access == MountAccess::ReadWrite) {
            let guards: Vec<PinnedDir> = self.survey.guards.clone();
            self.steps.push(Step::Guards(guards));
        }
        if support.has_landlock_scopes() {
            self.steps.push(Step::Landlock);
        }
        if self.grants.network.needs_egress() {
            self.steps.push(Step::Egress);
        }
        if self.grants.network.terminates_tls() {
            let kept = self.grants.network.secrets.iter().filter(|secret| secret.is_set);
            self.steps.extend(kept.map(|secret| Step::Secret {
                env: secret.env.clone(),
                header: secret.header.clone(),
                hosts: secret.hosts.iter().map(ToString::to_string).collect(),
            }));
        }
        if self.grants.network.needs_egress() && self.grants.network.proxy_variables {
            self.steps.push(Step::Proxy);
        }
        if self.grants.observe == Observe::All {
            self.steps.push(Step::Observe);
        }
        self.steps.extend(
            self.grants
                .limits
                .set_limits()
                .into_iter()
                .map(|(limit, most)| Step::Limit { limit, most }),
        );
        self.steps.push(Step::Seccomp);
    }
}
