//! Steps to apply a changed policy to a live sandbox, on an invented host.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_api::HostFacts;
use ringfence_plan::linux::plan;
use ringfence_plan::{
    FileKind, FuseSupport, HostSupport, Overmount, PidAllocation, PolicyView, ProcAccounting,
    ResolvedRoot, Survey, revise,
};
use ringfence_policy::{
    AbsPath, Access, Effect, Facts, Flags, Grants, NameRuleEffect, Source, Verdict, parse, resolve,
};

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

fn grants(text: &str) -> Grants {
    let facts = Facts {
        workspace: path("/home/me/app"),
        home: path("/home/me"),
        user: "me".into(),
        platform: ringfence_policy::Platform::Linux,
        variables: BTreeMap::new(),
        path_dirs: Vec::new(),
        installations: BTreeSet::new(),
        programs: BTreeSet::new(),
        git: None,
        remotes: Vec::new(),
        store: path("/home/me/.cache/ringfence/projects/app"),
        state: path("/home/me/.local/state/ringfence"),
    };
    let layer = parse(
        &format!("version = 1\n[filesystem]\n{text}\n"),
        &path("/home/me/p.toml"),
        Source::User,
    )
    .unwrap();
    resolve(&[layer], &Flags::none(path("/home/me/app")), &facts).unwrap()
}

const DIRECTORIES: &[&str] = &[
    "/usr",
    "/home/me/app",
    "/home/me/app/sub",
    "/home/me/data",
    "/home/me/data/deep",
    "/home/me/out",
    "/home/me/.ssh",
];
const FILES: &[&str] = &[
    "/home/me/app/a.sqlite",
    "/home/me/app/sub/.env",
    "/home/me/app/Makefile",
    "/home/me/notes.txt",
];

/// The relevant part of the host.
fn survey(grants: &Grants) -> Survey {
    let mut survey = Survey::default();
    let kind = |root: &AbsPath| {
        let is_in = |list: &[&str]| list.iter().any(|known| path(known) == *root);
        is_in(DIRECTORIES).then_some(FileKind::Directory).or(is_in(FILES).then_some(FileKind::File))
    };
    for rule in &grants.rules {
        if let Some(kind) = kind(&rule.root) {
            survey.found.insert(
                rule.root.clone(),
                ResolvedRoot { links: Vec::new(), real: rule.root.clone(), kind },
            );
            if rule.effect == Effect::Deny
                && grants.verdict(&rule.root, Access::Read) == Verdict::Denied
            {
                survey.masks.insert(rule.root.clone(), Overmount::Deny(kind));
            }
            if rule.effect == Effect::Protect {
                survey.masks.entry(rule.root.clone()).or_insert(Overmount::ReadOnly);
            }
        }
    }
    for (file, pattern) in FILES
        .iter()
        .map(|file| path(file))
        .filter_map(|file| Some((file.clone(), grants.pattern_for(&file)?.effect)))
    {
        survey.masks.insert(
            file,
            if pattern == NameRuleEffect::Deny {
                Overmount::Deny(FileKind::File)
            } else {
                Overmount::ReadOnly
            },
        );
    }
    // Created by a command: both surveys find it, and no policy rule names it.
    survey.masks.insert(path("/home/me/app/socket"), Overmount::Deny(FileKind::File));
    survey
}

/// `+` is granted, `-` denied, `=` protected, `!` a pending narrowing, `?` a change for the next
/// run.
#[track_caller]
fn check(old: &str, new: &str, expect: &[&str]) {
    let (old, new) = (grants(old), grants(new));
    let (was, is) = (survey(&old), survey(&new));
    let support = HostSupport {
        uid: 1000,
        gid: 1000,
        fuse: FuseSupport::Opens,
        landlock: 6,
        accounts: ProcAccounting::Full,
        numbers: PidAllocation::Own,
    };
    let plan = plan(&old, &was, &support, &HostFacts::without_settings(path("/q")));
    let revision = revise(
        PolicyView { grants: &old, survey: &was },
        PolicyView { grants: &new, survey: &is },
        &plan,
    );
    let shown = |change: &Option<ringfence_policy::PolicyChange>| {
        change.as_ref().map_or_else(String::new, |change| format!(" {}", change.rule))
    };
    let open = revision.open.iter().map(|act| format!("+ {}{}", act.path, shown(&act.change)));
    let shut = revision.shut.iter().map(|act| {
        let word = if matches!(act.what, Overmount::Deny(_)) { '-' } else { '=' };
        format!("{word} {}{}", act.path, shown(&act.change))
    });
    let left = revision.not_applicable.iter().map(|change| {
        format!("{} {}", if change.is_pending_narrowing() { '!' } else { '?' }, change.rule)
    });
    assert_eq!(open.chain(shut).chain(left).collect::<Vec<_>>(), expect);
}

#[test]
fn unchanged_policy_needs_no_steps() {
    check("", "", &[]);
    let text = "read = [\"~/data\"]\ndeny = [\"*.sqlite\"]\nprotect = [\"Makefile\"]";
    check(text, &format!("# the same\n\n{text}"), &[]);
}

#[test]
fn granted_tree_is_mounted_as_a_whole() {
    check(
        "",
        "read = [\"~/data\", \"~/data/deep\", \"~/notes.txt\"]",
        &["+ /home/me/data read ~/data", "+ /home/me/notes.txt read ~/notes.txt"],
    );
    check("read = [\"~/data/deep\"]", "read = [\"~/data\"]", &["? read ~/data"]);
    check("", "read = [\"~/absent\"]", &["? read ~/absent"]);
    check("", "read = [\"~/.ssh\"]", &["+ /home/me/.ssh read ~/.ssh"]);
}

/// Promise: live-policy
#[test]
fn denied_path_is_masked_and_unmasked() {
    check(
        "",
        "deny = [\"*.sqlite\", \"~/app/sub\"]",
        &["- /home/me/app/a.sqlite deny *.sqlite", "- /home/me/app/sub deny ~/app/sub"],
    );
    check(
        "deny = [\"*.sqlite\", \"~/app/sub\"]",
        "",
        &["+ /home/me/app/a.sqlite deny *.sqlite", "+ /home/me/app/sub deny ~/app/sub"],
    );
    check("", "except = [\".env\"]", &["+ /home/me/app/sub/.env deny **/.env"]);
    check("", "protect = [\"Makefile\"]", &["= /home/me/app/Makefile protect Makefile"]);
    // It was not granted before.
    check("", "deny = [\"~/data\"]", &[]);
}

/// Promise: pending-narrowing
#[test]
fn path_no_longer_granted_is_masked() {
    check("read = [\"~/data\"]", "", &["- /home/me/data read ~/data"]);
    check("read = [\"~/data\", \"~/data/deep\"]", "read = [\"~/data\"]", &[]);
    check("read = [\"~/data\", \"~/data/deep\"]", "read = [\"~/data/deep\"]", &["! read ~/data"]);
    check("write = [\"~/out\"]", "", &["- /home/me/out write ~/out"]);
    check("write = [\"~/out\"]", "read = [\"~/out\"]", &["! write ~/out"]);
}
