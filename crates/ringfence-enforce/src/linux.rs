//! The plan for Linux: pure, so that it can be read, shown and tested on any host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ringfence_api::SecretValue;
use ringfence_policy::{
    AbsPath, Access as Wanted, CA_BUNDLE, Effect, Grants, NetworkMode, Observe, Verdict,
};

use crate::gaps;
use crate::plan::{
    FileKind, MountAccess, NetworkNamespace, Overmount, PinnedDir, Plan, Step, UserIds,
};
use crate::support::{FuseSupport, HostSupport};
use crate::survey::{BuildSystem, Survey};

/// A copy of a settings file without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsCopy {
    /// The path of the file, inside and outside.
    pub path: AbsPath,
    /// The lines that can be shown.
    pub content: String,
}

/// Who the command is and what it should find in the files ringfence writes for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxUser {
    /// Login name.
    pub user: String,
    /// Login shell.
    pub shell: String,
    /// The host's `resolv.conf`, where the host's network is used.
    pub resolver: Option<String>,
    /// What of the person's git settings is safe to show.
    pub git_config: Option<String>,
    /// What git ignores everywhere.
    pub git_ignore: Option<String>,
    /// Settings of package managers, without their secrets.
    pub settings: Vec<SettingsCopy>,
    /// Where what had to be moved away is kept.
    pub quarantine: AbsPath,
    /// Values that stay outside, by their variables. No plan has any of them.
    pub sealed: BTreeMap<String, SecretValue>,
    /// What the person's variables say of the proxies of their network, which may have passwords.
    pub proxies: BTreeMap<String, SecretValue>,
    /// The file of those whom the person trusts to vouch for hosts, if it is not the system's.
    pub certificates: Option<PathBuf>,
    /// Whom programs trust, where TLS is ended on the way.
    pub trust: Option<CaTrust>,
}

/// Whom programs trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaTrust {
    /// Certificates of those who vouch for hosts, and of one who vouches for us.
    pub bundle: String,
    /// Where the host keeps its own, which these are to stand in for.
    pub places: Vec<AbsPath>,
}

impl SandboxUser {
    /// Somebody of whom nothing more is known.
    pub fn plain(quarantine: AbsPath) -> Self {
        let (user, shell) = ("somebody".into(), "/bin/sh".into());
        let (resolver, git_config, git_ignore, trust) = (None, None, None, None);
        Self {
            user,
            shell,
            resolver,
            git_config,
            git_ignore,
            settings: Vec::new(),
            quarantine,
            sealed: BTreeMap::new(),
            proxies: BTreeMap::new(),
            certificates: None,
            trust,
        }
    }
}

/// The plan for `grants` on a host with this `support`, where `survey` found what it found.
pub fn plan(grants: &Grants, survey: &Survey, support: &HostSupport, person: &SandboxUser) -> Plan {
    let mut draft = PlanBuilder {
        grants,
        survey,
        steps: Vec::new(),
        binds: BTreeMap::new(),
        private: BTreeSet::new(),
        copied: BTreeSet::new(),
        gaps: gaps::gaps(grants, survey, support),
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
            draft.gaps.push(gaps::untold(support.fuse));
            draft.gaps.extend(gaps::undisguised(grants));
        }
    }
    draft.skeleton(person, support);
    draft.trees();
    draft.links();
    draft.private();
    draft.mount_in_caches();
    draft.trust(person);
    draft.settings(person);
    draft.covers();
    draft.walls(support);
    Plan { steps: draft.steps, gaps: draft.gaps }
}

/// The first steps of nearly every plan on this host: what of the system is opened by what
/// is built in. A plan has them in this order, unless its policy takes one away.
#[cfg(target_os = "linux")]
pub(crate) fn standard() -> Vec<Step> {
    let grants = Grants::of_the_system();
    let survey = crate::survey::look(&grants);
    let mut draft = PlanBuilder {
        grants: &grants,
        survey: &survey,
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
    /// Trees of the host that are bound, by their real paths.
    binds: BTreeMap<AbsPath, MountAccess>,
    /// Places that are the project's own, and what shows through from the host in some.
    private: BTreeSet<AbsPath>,
    /// Files in whose place a copy stands.
    copied: BTreeSet<AbsPath>,
    gaps: Vec<ringfence_api::Gap>,
}

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).expect("written here as an absolute path")
}

impl PlanBuilder<'_> {
    /// What every sandbox has: our own files and directories.
    fn skeleton(&mut self, person: &SandboxUser, support: &HostSupport) {
        // Files of /proc steer the kernel by the writer's user id, not by capabilities, and
        // root inside is root to them.
        let access = if support.uid == 0 { MountAccess::ReadOnly } else { MountAccess::ReadWrite };
        self.steps.extend([Step::Processes { access }, Step::Devices]);
        for scratch in ["/tmp", "/dev/shm"] {
            self.steps.push(Step::Scratch { path: path(scratch) });
        }
        self.steps.push(Step::Directory { path: path("/run") });
        for (link, target) in [("/var/run", "/run"), ("/var/tmp", "/tmp")] {
            // A link cannot be passed by what is mounted below it.
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
        let (user, home, shell) = (&person.user, &self.grants.home, &person.shell);
        let others = if *uid == 0 { "" } else { "root:x:0:0:root:/:/sbin/nologin\n" };
        let other_groups = if *gid == 0 { "" } else { "root:x:0:\n" };
        let resolver = match &person.resolver {
            _ if self.grants.network.has_a_border() => {
                "nameserver 127.0.0.1\noptions timeout:30\n".into()
            }
            Some(resolver) => resolver.clone(),
            // No name exists, so a resolver that ignores the answer waits for a second only.
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
        if let Some(config) = &person.git_config {
            file(self.grants.home.join(".gitconfig"), config.clone());
        }
        if let Some(trust) = &person.trust {
            file(path(CA_BUNDLE), trust.bundle.clone());
        }
        // Git looks here several times in every command; settings are in the file above.
        let git = self.grants.home.join(".config/git");
        match &person.git_ignore {
            Some(ignore) => file(git.join("ignore"), ignore.clone()),
            None => self.steps.push(Step::Directory { path: git }),
        }
    }

    /// The opened trees, outer before inner; what an outer one already gives is not bound again.
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
                // A socket that the policy names is opened, whatever is around it.
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

    /// What may be done at `path` because of the tree it stands in.
    fn enclosing(&self, path: &AbsPath) -> Option<MountAccess> {
        let bound = self.binds.iter().map(|(bind, access)| (bind, *access));
        let private = self.private.iter().map(|place| (place, MountAccess::ReadWrite));
        bound
            .chain(private)
            .filter(|(root, _)| path.is_within(root))
            .max_by_key(|(root, _)| root.depth())
            .map(|(_, access)| access)
    }

    /// Links on the way to opened trees, where no bound tree brings them along.
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

    /// What programs find where they look for those whom the host trusts, without being told.
    fn trust(&mut self, person: &SandboxUser) {
        for place in person.trust.iter().flat_map(|trust| &trust.places) {
            if self.enclosing(place).is_some() {
                self.steps.push(Step::Instead { path: place.clone(), with: path(CA_BUNDLE) });
            }
        }
    }

    /// Copies of settings, where nothing shows the files themselves.
    fn settings(&mut self, person: &SandboxUser) {
        for SettingsCopy { path, content } in &person.settings {
            if self.enclosing(path).is_none() {
                self.steps.push(Step::File { path: path.clone(), content: content.clone() });
                self.copied.insert(path.clone());
            }
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
            // Nothing comes in over a network that is shut, and nothing here is built: the
            // host's own cache will do, and an overlay is not made for nothing.
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

    /// Tells whether a path lies below a private cache.
    fn is_in_cache(&self, path: &AbsPath) -> bool {
        self.private.iter().any(|cache| path != cache && path.is_within(cache))
    }

    /// Moves binds of what lies below a private cache behind it: they are mounted on top.
    fn mount_in_caches(&mut self) {
        let is_inner = |step: &Step| match step {
            Step::Bind { path, .. } => self.is_in_cache(path),
            _ => false,
        };
        if !self.steps.iter().any(is_inner) {
            return;
        }
        let is_meant = |step: &Step| matches!(step, Step::Private { .. }) || is_inner(step);
        let (mut meant, others): (Vec<Step>, Vec<Step>) =
            self.steps.iter().cloned().partition(is_meant);
        meant.sort_by_key(|step| match step {
            Step::Private { path, .. } | Step::Bind { path, .. } => path.depth(),
            _ => 0,
        });
        self.steps = others;
        self.steps.append(&mut meant);
    }

    /// What is denied or protected in the opened trees, and what is denied beside them.
    fn covers(&mut self) {
        let mut done: Option<AbsPath> = None;
        for (at, cover) in &self.survey.covers {
            // Sorted by path: what lies below a denied directory follows it.
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
            match (self.enclosing(at), cover) {
                (Some(_), Overmount::Deny(_)) if opened_below => {
                    self.gaps.push(ringfence_api::Gap {
                        what: "filesystem.deny".into(),
                        why: format!(
                            "something below {at} is opened, and a denied directory in an opened tree cannot be passed through yet"
                        ),
                        hint: format!("deny what else is in {at} by name"),
                        loss: ringfence_api::GapKind::Enforcement,
                    });
                }
                (Some(_), Overmount::Deny(_)) => {
                    self.steps.push(Step::Cover { path: at.clone(), cover: *cover });
                    done = Some(at.clone());
                }
                (Some(MountAccess::ReadWrite), _) => {
                    self.steps.push(Step::Cover { path: at.clone(), cover: *cover })
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

    /// Files of `/proc` that root alone may read, and that tell of all processes of the
    /// machine. What else is root's there asks for a capability as well.
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
            self.steps.push(Step::Cover {
                path: path("/proc").join(name),
                cover: Overmount::Deny(FileKind::File),
            });
        }
    }

    /// What is written into a home that lies in scratch would vanish without a word.
    fn home(&mut self) {
        let home = &self.grants.home;
        let is_scratch = self.steps.iter().any(
            |step| matches!(step, Step::Scratch { path } if home.is_within(path) && home != path),
        );
        if is_scratch && self.enclosing(home).is_none() {
            self.steps.push(Step::Cover { path: home.clone(), cover: Overmount::Shallow });
        }
    }

    /// What stands behind the mounts.
    fn walls(&mut self, support: &HostSupport) {
        self.home();
        if support.uid == 0 {
            self.kernel_files();
        }
        if !self.survey.walked.is_empty() {
            self.steps.push(Step::Lookout { trees: self.survey.walked.clone() });
        }
        self.steps.extend([Step::Seal, Step::Lock]);
        if self.binds.values().any(|access| *access == MountAccess::ReadWrite) {
            let guards: Vec<PinnedDir> = self.survey.guards.clone();
            self.steps.push(Step::Guards(guards));
        }
        if support.scopes() {
            self.steps.push(Step::Landlock);
        }
        if self.grants.network.has_a_border() {
            self.steps.push(Step::Egress);
        }
        if self.grants.network.ends_tls() {
            let kept = self.grants.network.secrets.iter().filter(|secret| secret.is_set);
            self.steps.extend(kept.map(|secret| Step::Secret {
                env: secret.env.clone(),
                header: secret.header.clone(),
                hosts: secret.hosts.iter().map(ToString::to_string).collect(),
            }));
        }
        if self.grants.network.has_a_border() && self.grants.network.proxy_variables {
            self.steps.push(Step::Proxy);
        }
        if self.grants.observe == Observe::All {
            self.steps.push(Step::Observe);
        }
        self.steps.extend(
            self.grants.limits.asked().into_iter().map(|(limit, most)| Step::Limit { limit, most }),
        );
        self.steps.push(Step::Seccomp);
    }
}
