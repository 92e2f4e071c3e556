//! Plans for Linux, made on any host and compared with golden files.
//!
//! `RINGFENCE_BLESS=1` rewrites the golden files; read the difference before you do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ringfence_api::{CaTrust, GapKind, HostFacts, SecretValue, SettingsCopy};
use ringfence_plan::linux::plan;
use ringfence_plan::{
    BuildSystem, CaseFolding, FileKind, FuseSupport, HostSupport, Overmount, PidAllocation,
    PinReason, PinnedDir, Plan, ProcAccounting, ResolvedRoot, Step, Survey,
};
use ringfence_policy::{
    AbsPath, Facts, Flags, GitLayout, Grants, Mode, NetworkMode, Source, parse, resolve,
};

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

fn facts() -> Facts {
    Facts {
        workspace: path("/home/me/app"),
        home: path("/home/me"),
        user: "me".into(),
        platform: ringfence_policy::Platform::Linux,
        variables: BTreeMap::from([("HOME".into(), "/home/me".into())]),
        path_dirs: ["/usr/local/bin", "/usr/bin", "/home/me/.cargo/bin", "/opt/tool/bin"]
            .map(path)
            .to_vec(),
        installations: BTreeSet::from([path("/opt/tool")]),
        programs: BTreeSet::from(["cargo".into(), "node".into()]),
        git: None,
        remotes: Vec::new(),
        store: path("/home/me/.cache/ringfence/projects/app"),
        state: path("/home/me/.local/state/ringfence"),
    }
}

/// A host with only these directories and files.
fn host(grants: &Grants, directories: &[&str], files: &[&str], links: &[(&str, &str)]) -> Survey {
    let mut survey = Survey {
        builds: BuildSystem::Something,
        walked: vec![grants.workspace.clone()],
        ..Survey::default()
    };
    for rule in &grants.rules {
        let text = rule.root.to_string();
        let found = if let Some((_, target)) = links.iter().find(|(link, _)| *link == text) {
            let real = path("/").join(rule.root.parent().unwrap().join(target).as_path());
            Some(ResolvedRoot {
                links: vec![(rule.root.clone(), PathBuf::from(target))],
                real,
                kind: FileKind::Directory,
            })
        } else if directories.contains(&text.as_str()) {
            Some(ResolvedRoot {
                links: Vec::new(),
                real: rule.root.clone(),
                kind: FileKind::Directory,
            })
        } else if files.contains(&text.as_str()) {
            Some(ResolvedRoot { links: Vec::new(), real: rule.root.clone(), kind: FileKind::File })
        } else {
            None
        };
        if let Some(found) = found {
            if rule.effect == ringfence_policy::Effect::Deny {
                survey.masks.insert(found.real.clone(), Overmount::Deny(found.kind));
            }
            if rule.effect == ringfence_policy::Effect::Protect {
                survey.masks.insert(found.real.clone(), Overmount::ReadOnly);
            }
            survey.found.insert(rule.root.clone(), found);
        }
    }
    survey
}

const DIRECTORIES: &[&str] = &[
    "/usr",
    "/etc/ssl",
    "/home/me/app",
    "/home/me/.cargo",
    "/home/me/.cargo/registry",
    "/home/me/.ssh",
    "/opt/tool",
    "/home/me/app/.vscode",
    "/home/me/data",
];
const FILES: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/shadow",
    "/home/me/.cargo/credentials.toml",
    "/home/me/app/.mcp.json",
];
const LINKS: &[(&str, &str)] = &[("/bin", "usr/bin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")];

fn user() -> HostFacts {
    HostFacts {
        user: "me".into(),
        shell: "/bin/bash".into(),
        resolver: None,
        git_config: Some("[user]\n\tname = Me\n".into()),
        git_ignore: None,
        settings: Vec::new(),
        quarantine: path("/q"),
        secrets: BTreeMap::new(),
        proxies: BTreeMap::new(),
        certificates: None,
        trust: None,
    }
}

const SUPPORT: HostSupport = HostSupport {
    uid: 1000,
    gid: 1000,
    landlock: 7,
    fuse: FuseSupport::Opens,
    accounts: ProcAccounting::Full,
    numbers: PidAllocation::Own,
};

fn planned(facts: &Facts, flags: &Flags, more: impl FnOnce(&mut Survey)) -> Plan {
    let grants = resolve(&[], flags, facts).unwrap();
    let mut survey = host(&grants, DIRECTORIES, FILES, LINKS);
    more(&mut survey);
    plan(&grants, &survey, &SUPPORT, &user())
}

fn text(plan: &Plan) -> String {
    let steps = plan.steps.iter().map(|step| match step {
        Step::File { path, content } => format!("write    {path} {content:?}\n"),
        step => format!("{step}\n"),
    });
    let gaps = plan.gaps.iter().map(|gap| format!("GAP      {}: {}\n", gap.what, gap.why));
    steps.chain(gaps).collect()
}

#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the golden files; the crate itself reads nothing")]
fn check(name: &str, plan: &Plan) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let got = text(plan);
    if std::env::var_os("RINGFENCE_BLESS").is_some() {
        std::fs::write(&file, &got).unwrap();
    }
    let expect = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(got, expect, "the plan differs from {}", file.display());
}

fn flags() -> Flags {
    Flags::none(path("/home/me/app"))
}

#[test]
fn workspace_write() {
    check("workspace-write.txt", &planned(&facts(), &flags(), |_| {}));
}

#[test]
fn missing_fuse_is_a_gap_without_loss_of_enforcement() {
    let (grants, with) =
        (resolve(&[], &flags(), &facts()).unwrap(), planned(&facts(), &flags(), |_| {}));
    let survey = host(&grants, DIRECTORIES, FILES, LINKS);
    for (fuse, hint) in [
        (FuseSupport::Shut, "sudo chmod 666 /dev/fuse"),
        (FuseSupport::Absent, "sudo modprobe fuse"),
    ] {
        let without = plan(&grants, &survey, &HostSupport { fuse, ..SUPPORT }, &user());
        let rest: Vec<Step> =
            with.steps.iter().filter(|step| **step != Step::Tripwire).cloned().collect();
        assert_eq!(without.steps, rest);
        let [gap] = without.gaps.as_slice() else { panic!("{:?}", without.gaps) };
        assert_eq!(
            (gap.what.as_str(), gap.kind, gap.refuses_run()),
            ("denials", GapKind::Reporting, false)
        );
        assert!(gap.why.contains("/dev/fuse") && gap.hint.contains(hint), "{gap:?}");
    }
    // A planned tripwire that failed becomes a gap.
    let mut unwired = with.clone();
    unwired.replace_tripwire_by_gap();
    unwired.replace_tripwire_by_gap();
    assert_eq!((unwired.gaps.len(), unwired.has_tripwire(), with.has_tripwire()), (1, false, true));
}

#[test]
fn read_only() {
    check(
        "read-only.txt",
        &planned(&facts(), &Flags { mode: Some(Mode::ReadOnly), ..flags() }, |_| {}),
    );
}

#[test]
fn denied_files_are_masked_except_below_a_denied_directory() {
    let plan = planned(&facts(), &flags(), |survey| {
        survey.masks.insert(path("/home/me/app/.env"), Overmount::Deny(FileKind::File));
        survey.masks.insert(path("/home/me/app/secret"), Overmount::Deny(FileKind::Directory));
        survey.masks.insert(path("/home/me/app/secret/x.pem"), Overmount::Deny(FileKind::File));
        survey.masks.insert(path("/home/me/app/.git/config"), Overmount::ReadOnly);
        survey.guards.push(PinnedDir {
            path: path("/home/me/app/.git"),
            device: 1,
            inode: 2,
            kind: PinReason::Git,
        });
    });
    check("caught.txt", &plan);
}

#[test]
fn nested_and_separate_granted_trees_are_mounted() {
    let flags = Flags {
        read: vec!["/home/me/data".into(), "/home/me/.ssh/known_hosts".into()],
        net: Some(NetworkMode::Full),
        ..flags()
    };
    let plan = planned(&facts(), &flags, |survey| {
        let known_hosts = path("/home/me/.ssh/known_hosts");
        survey.found.insert(
            known_hosts.clone(),
            ResolvedRoot { links: Vec::new(), real: known_hosts, kind: FileKind::File },
        );
    });
    check("opened.txt", &plan);
}

#[test]
fn linked_worktree_grants_its_repository() {
    let git = GitLayout {
        git_dir: path("/home/me/main/.git/worktrees/app"),
        common_dir: path("/home/me/main/.git"),
    };
    let facts = Facts { git: Some(git), ..facts() };
    let grants = resolve(&[], &flags(), &facts).unwrap();
    let directories: Vec<&str> = DIRECTORIES
        .iter()
        .copied()
        .chain([
            "/home/me/main/.git",
            "/home/me/main/.git/hooks",
            "/home/me/main/.git/worktrees/app",
        ])
        .collect();
    let files: Vec<&str> =
        FILES.iter().copied().chain(["/home/me/main/.git/config", "/home/me/app/.git"]).collect();
    check(
        "worktree.txt",
        &plan(&grants, &host(&grants, &directories, &files, LINKS), &SUPPORT, &user()),
    );
}

#[test]
fn unenforceable_policy_is_a_gap() {
    let policy = "version = 1\n[network]\nallow = [\"example.com\"]\nlocalhost = true\n[limits]\nmemory = \"1GiB\"\n[commands]\ndeny = [\"rm\"]\n";
    let layer =
        parse(policy, &path("/home/me/.config/ringfence/policy.toml"), Source::User).unwrap();
    let grants = resolve(&[layer], &flags(), &facts()).unwrap();
    let plan = plan(
        &grants,
        &host(&grants, DIRECTORIES, FILES, LINKS),
        &HostSupport { landlock: 0, accounts: ProcAccounting::Nothing, ..SUPPORT },
        &user(),
    );
    check("gaps.txt", &Plan { steps: Vec::new(), ..plan });
}

#[test]
fn secrets_add_a_ca_bundle_and_stay_out_of_the_plan() {
    const POLICY: &str = "version = 1\n[network]\nallow = [\"a.org\"]\n[[secrets]]\nenv = \"TOKEN\"\nhosts = [\"a.org\"]\nheader = \"X-Key\"";
    let layer =
        parse(POLICY, &path("/home/me/.config/ringfence/policy.toml"), Source::User).unwrap();
    let mut facts = facts();
    facts.variables.insert("TOKEN".into(), "s3cret".into());
    let grants = resolve(&[layer], &flags(), &facts).unwrap();
    let places = vec![path("/etc/ssl/certs/ca-certificates.crt"), path("/opt/unseen.crt")];
    let trust = Some(CaTrust { bundle: "us\n".into(), bundle_paths: places });
    let user = HostFacts {
        trust,
        secrets: [("TOKEN".into(), SecretValue::new("s3cret".into()))].into(),
        ..user()
    };
    let survey = host(&grants, DIRECTORIES, FILES, LINKS);
    let plan = plan(&grants, &survey, &SUPPORT, &user);
    let text = text(&plan);
    for line in [
        "write    /etc/ringfence/ca-bundle.crt \"us\\n\"",
        "replace  /etc/ssl/certs/ca-certificates.crt (by /etc/ringfence/ca-bundle.crt)",
        "secret   TOKEN is inserted into X-Key for a.org",
    ] {
        assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} in {text}");
    }
    assert!(!text.contains("unseen") && !format!("{plan:?}").contains("s3cret"), "{text}");
    assert_eq!(plan.gaps, []);
}

#[test]
fn copy_of_settings_replaces_a_masked_file_of_a_read_only_tree() {
    let copy = |at: &str| SettingsCopy { path: path(at), content: "copy\n".into() };
    let places = ["/home/me/.cargo/config.toml", "/home/me/.npmrc", "/home/me/app/.npmrc"];
    let user = HostFacts { settings: places.map(copy).to_vec(), ..user() };
    let grants = resolve(&[], &flags(), &facts()).unwrap();
    let mut survey = host(&grants, DIRECTORIES, FILES, LINKS);
    for place in places {
        survey.masks.insert(path(place), Overmount::Deny(FileKind::File));
    }
    let masked = text(&plan(&grants, &survey, &SUPPORT, &user));
    for line in [
        "write    /etc/ringfence/settings-0 \"copy\\n\"",
        "replace  /home/me/.cargo/config.toml (by /etc/ringfence/settings-0)",
        "write    /home/me/.npmrc \"copy\\n\"",
    ] {
        assert_eq!(masked.lines().filter(|found| *found == line).count(), 1, "{line} in {masked}");
    }
    let of = |place: &str| masked.lines().filter(|line| line.contains(place)).count();
    assert_eq!((of("/home/me/.cargo/config.toml"), of("settings-2")), (1, 0), "{masked}");
    survey.masks.clear();
    let open = text(&plan(&grants, &survey, &SUPPORT, &user));
    assert!(!open.contains("/home/me/.cargo/config.toml"), "{open}");
}

#[test]
fn deny_on_the_host_network_is_a_gap() {
    let policy = "version = 1\n[network]\nmode = \"full\"\ndeny = [\"example.com\"]\n";
    let layer =
        parse(policy, &path("/home/me/.config/ringfence/policy.toml"), Source::User).unwrap();
    let grants = resolve(&[layer], &flags(), &facts()).unwrap();
    let plan = plan(&grants, &host(&grants, DIRECTORIES, FILES, LINKS), &SUPPORT, &user());
    assert_eq!(plan.gaps.iter().map(|gap| gap.what.as_str()).collect::<Vec<_>>(), ["network.deny"]);
}

#[test]
fn hidden_case_folding_is_a_gap() {
    let gaps = |folding: CaseFolding| {
        planned(&facts(), &flags(), |survey| survey.folding = folding).gaps.len()
    };
    assert_eq!([CaseFolding::None, CaseFolding::Known, CaseFolding::Hidden].map(gaps), [0, 0, 1]);
}

#[test]
fn plan_without_landlock_has_no_landlock_step() {
    let grants = resolve(&[], &flags(), &facts()).unwrap();
    let plan = plan(
        &grants,
        &host(&grants, DIRECTORIES, FILES, LINKS),
        &HostSupport { landlock: 0, ..SUPPORT },
        &user(),
    );
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::Landlock)));
}

#[test]
fn proc_is_read_only_for_root() {
    let grants = resolve(&[], &flags(), &facts()).unwrap();
    let plan = plan(
        &grants,
        &host(&grants, DIRECTORIES, FILES, LINKS),
        &HostSupport { uid: 0, gid: 0, ..SUPPORT },
        &user(),
    );
    check("root.txt", &plan);
}

#[test]
fn denied_path_below_a_private_cache_is_masked() {
    let flags = Flags {
        deny: vec!["/home/me/.npm/token".into(), "/home/me/.cargo/registry/index".into()],
        ..flags()
    };
    let plan = planned(&facts(), &flags, |survey| {
        for (root, kind) in [
            ("/home/me/.npm/token", FileKind::File),
            ("/home/me/.cargo/registry/index", FileKind::Directory),
        ] {
            survey.masks.insert(path(root), Overmount::Deny(kind));
        }
    });
    check("denied-in-a-cache.txt", &plan);
    let at = |found: &dyn Fn(&Step) -> bool| plan.steps.iter().position(found).unwrap();
    let private = at(
        &|step| matches!(step, Step::Private { path, .. } if path.to_string().ends_with(".cargo/registry")),
    );
    let mask = at(
        &|step| matches!(step, Step::Mask { path, .. } if path.to_string().ends_with("registry/index")),
    );
    assert!(private < mask);
}

#[test]
fn host_caches_are_used_without_a_build_system() {
    let plan = planned(&facts(), &flags(), |survey| survey.builds = BuildSystem::Nothing);
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::Private { beneath: Some(_), .. })));
    let open = planned(&facts(), &Flags { net: Some(NetworkMode::Full), ..flags() }, |survey| {
        survey.builds = BuildSystem::Nothing
    });
    assert!(open.steps.iter().any(|step| matches!(step, Step::Private { beneath: Some(_), .. })));
}
