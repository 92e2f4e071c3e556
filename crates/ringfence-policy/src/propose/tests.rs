use super::*;
use crate::facts::Flags;
use crate::layer::PolicyLayer;
use crate::parse::parse;
use crate::resolve::resolve;
use crate::resolve::tests::facts;
use crate::testing::path;

/// A host with only the listed files.
#[derive(Default)]
struct Host {
    /// Existing paths; a trailing slash marks a directory, a bar a special file.
    there: &'static [&'static str],
    projects: &'static [&'static str],
    links: &'static [(&'static str, &'static str)],
}

impl HostView for Host {
    fn file_kind(&self, at: &AbsPath) -> HostFileKind {
        let found = self.there.iter().find(|entry| path(entry.trim_end_matches(['/', '|'])) == *at);
        match found {
            Some(entry) if entry.ends_with('|') => HostFileKind::Other,
            Some(entry) if !entry.ends_with('/') => HostFileKind::File,
            Some(_) => HostFileKind::Directory,
            None if self
                .there
                .iter()
                .any(|entry| path(entry.trim_end_matches(['/', '|'])).is_within(at)) =>
            {
                HostFileKind::Directory
            }
            None => HostFileKind::Nothing,
        }
    }
    fn resolve_links(&self, at: &AbsPath) -> AbsPath {
        self.links
            .iter()
            .find(|(link, _)| path(link) == *at)
            .map_or_else(|| at.clone(), |(_, to)| path(to))
    }
    fn project_around(&self, at: &AbsPath) -> Option<AbsPath> {
        self.projects.iter().map(|project| path(project)).find(|project| at.is_within(project))
    }
    fn project_below(&self, directory: &AbsPath) -> Option<AbsPath> {
        self.projects
            .iter()
            .map(|project| path(project))
            .find(|project| project.is_within(directory) && project != directory)
    }
}

fn grants(user: &str) -> Grants {
    resolve(&user_layer(user), &Flags::none(path("/home/me/p")), &facts()).unwrap()
}

fn user_layer(text: &str) -> Vec<PolicyLayer> {
    vec![
        parse(
            &format!("version = 1\n{text}"),
            &path("/home/me/.config/ringfence/policy.toml"),
            Source::User,
        )
        .unwrap(),
    ]
}

/// Parses `read PATH`, `write PATH` or `make PATH`; `~` is home.
fn denied_access(text: &str) -> DeniedAccess {
    let (want, at) = text.split_once(' ').unwrap();
    let want = match want {
        "read" => AccessNeed::Read,
        "write" => AccessNeed::Write,
        "make" => AccessNeed::Make,
        other => panic!("{other}"),
    };
    DeniedAccess { path: path(&at.replace('~', "/home/me")), want }
}

/// Rules as `effect text`, with the number of folded paths and the project.
fn lines(proposal: &PolicyProposal) -> Vec<String> {
    let line = |opening: &ProposedRule| {
        let folded = opening.folded.map_or_else(String::new, |things| format!(" ({things})"));
        let project =
            opening.project.as_ref().map_or_else(String::new, |project| format!(" in {project}"));
        format!("{} {}{folded}{project}", opening.effect.word(), opening.text)
    };
    proposal.openings.iter().map(line).collect()
}

/// Proposes rules under the user's policy, and checks that they allow the needed accesses and open
/// nothing that stays denied.
#[track_caller]
fn proposed(host: &Host, user: &str, accesses: &[&str]) -> PolicyProposal {
    let accesses: Vec<DeniedAccess> = accesses.iter().map(|text| denied_access(text)).collect();
    let before = grants(user);
    let proposal = propose(&before, &facts(), host, &accesses);
    let list = |effect: Effect| {
        let texts = proposal
            .openings
            .iter()
            .filter(|opening| opening.effect == effect)
            .map(|opening| format!("{:?}", opening.text));
        texts.collect::<Vec<_>>().join(", ")
    };
    let learned =
        format!("[filesystem]\nread = [{}]\nwrite = [{}]", list(Effect::Read), list(Effect::Write));
    let layers: Vec<PolicyLayer> =
        user_layer(user).into_iter().chain(user_layer(&learned)).collect();
    let after = resolve(&layers, &Flags::none(path("/home/me/p")), &facts()).unwrap();
    assert_eq!(after.warnings, before.warnings, "{learned}");
    for number in proposal.openings.iter().flat_map(|opening| &opening.accesses) {
        let DeniedAccess { path, want } = &accesses[*number];
        assert_eq!(after.verdict(path, want.access()), Verdict::Allowed, "{path} by {learned}");
    }
    for (number, _) in &proposal.left {
        let DeniedAccess { path, want } = &accesses[*number];
        let is_opened = before.verdict(path, want.access()) != Verdict::Allowed
            && after.verdict(path, want.access()) == Verdict::Allowed;
        assert!(!is_opened, "{path} by {learned}");
    }
    let mut all: Vec<usize> =
        proposal.openings.iter().flat_map(|opening| opening.accesses.clone()).collect();
    all.extend(proposal.left.iter().map(|(number, _)| *number));
    all.sort_unstable();
    assert_eq!(all, (0..accesses.len()).collect::<Vec<_>>(), "every access is decided once");
    proposal
}

#[track_caller]
fn check(host: &Host, accesses: &[&str], expect: &[&str]) {
    assert_eq!(lines(&proposed(host, "", accesses)), expect, "{accesses:?}");
}

/// Checks that an access stays denied, with the reason.
#[track_caller]
fn check_left(host: &Host, user: &str, text: &str, expect: &NotProposed) {
    let proposal = proposed(host, user, &[text]);
    assert_eq!(
        (lines(&proposal), proposal.left.first().map(|(_, why)| why)),
        (vec![], Some(expect)),
        "{text}"
    );
}

#[track_caller]
fn check_on_purpose(host: &Host, text: &str, rule: &str) {
    let proposal = proposed(host, "", &[text]);
    match proposal.left.as_slice() {
        [(0, NotProposed::OnPurpose(decision))] => {
            assert_eq!(
                decision.rule.as_ref().map(|because| because.origin().text.as_str()),
                Some(rule),
                "{text}"
            )
        }
        other => panic!("{text}: {other:?}, {:?}", lines(&proposal)),
    }
}

const DATA: Host = Host {
    there: &[
        "/home/me/d/a",
        "/home/me/d/b",
        "/home/me/d/c",
        "/home/me/d/e",
        "/home/me/d/s/x",
        "/home/me/notes",
        "/opt/t/x",
        "/mnt/s|",
        "/home/me/d/a*b",
        "/home/me/d/$HOME",
        "/home/me/d/a\nb",
        "/home/me/d/{a}",
        "/home/me/d/\u{202e}x",
    ],
    projects: &[],
    links: &[],
};

#[test]
fn single_files_are_proposed_separately() {
    check(
        &DATA,
        &["read ~/notes", "read /opt/t/x", "read ~/d/a"],
        &["read ~/d/a", "read ~/notes", "read /opt/t/x"],
    );
    check(&DATA, &["read ~/notes", "read ~/notes"], &["read ~/notes"]);
    check(&DATA, &["write ~/notes", "read ~/notes"], &["write ~/notes"]);
    check(&DATA, &[], &[]);
}

#[test]
fn several_files_in_directory_fold_into_directory() {
    check(
        &DATA,
        &["read ~/d/a", "read ~/d/b", "read ~/d/c"],
        &["read ~/d/a", "read ~/d/b", "read ~/d/c"],
    );
    check(&DATA, &["read ~/d/a", "read ~/d/b", "read ~/d/c", "read ~/d/e"], &["read ~/d (4)"]);
    check(
        &DATA,
        &["read ~/d/a", "read ~/d/b", "read ~/d/c", "read ~/d/e", "read ~/d/s/x"],
        &["read ~/d (5)"],
    );
    check(&DATA, &["read ~/d", "read ~/d/a", "read ~/d/b"], &["read ~/d"]);
    // Reading several files does not open the directory for writing.
    check(
        &DATA,
        &["read ~/d/a", "read ~/d/b", "read ~/d/c", "read ~/d/e", "write ~/d/a"],
        &["write ~/d/a", "read ~/d/b", "read ~/d/c", "read ~/d/e"],
    );
    check(&DATA, &["read ~/d", "write ~/d/a"], &["read ~/d", "write ~/d/a"]);
}

#[test]
fn directories_fold_into_their_parent() {
    let host = Host {
        there: &[
            "/home/me/m/a/1",
            "/home/me/m/b/1",
            "/home/me/m/c/1",
            "/home/me/m/d/1",
            "/home/me/m/d/2",
            "/home/me/m/d/3",
            "/home/me/m/d/4",
        ],
        ..Host::default()
    };
    let accesses = [
        "read ~/m/a",
        "read ~/m/b",
        "read ~/m/c",
        "read ~/m/d/1",
        "read ~/m/d/2",
        "read ~/m/d/3",
        "read ~/m/d/4",
    ];
    check(&host, &accesses, &["read ~/m (7)"]);
}

#[test]
fn creating_file_needs_its_directory() {
    check(&DATA, &["make ~/d/new"], &["write ~/d"]);
    check(&DATA, &["make ~/d/new", "read ~/d/a"], &["write ~/d"]);
    check_left(&DATA, "", "make ~/new", &NotProposed::TooBroad(path("/home/me")));
    // A file opened alone can be changed, but not replaced.
    let alone = proposed(&DATA, "[filesystem]\nwrite = [\"~/d/a\"]", &["make ~/d/a"]);
    assert_eq!(lines(&alone), ["write ~/d"]);
}

#[test]
fn readable_user_file_may_be_proposed_for_writing() {
    let read =
        proposed(&DATA, "[filesystem]\nread = [\"~/d\"]", &["write ~/d/a", "make ~/d/s/new"]);
    assert_eq!(lines(&read), ["write ~/d/a", "write ~/d/s"]);
    check_left(&DATA, "", "write /usr/bin/sh", &NotProposed::System);
    check_left(&DATA, "", "make /usr/new", &NotProposed::System);
    check_left(&DATA, "", "read /sys/fs/cgroup/cpu.max", &NotProposed::Kernel);
    check_left(&DATA, "mode = \"read-only\"", "make ~/p/new", &NotProposed::ReadOnly);
    check_left(&DATA, "[tools]\ndisallowed = [\"Write\"]", "write ~/p/x", &NotProposed::ReadOnly);
}

/// Promise: learned-policy
#[test]
fn explicitly_denied_path_is_never_proposed() {
    let host = Host {
        there: &[
            "/home/me/.ssh/id",
            "/home/me/d/.env",
            "/home/me/d/my.key",
            "/home/me/my-secret/x",
            "/home/me/.bashrc",
            "/home/me/plain",
            "/home/me/o/.git/config",
        ],
        projects: &[],
        links: &[("/home/me/plain", "/home/me/.ssh/id"), ("/home/me/d/link", "/home/me/x/.env")],
    };
    check_on_purpose(&host, "read ~/.ssh/id", "~/.ssh");
    check_on_purpose(&host, "read ~/.ssh", "~/.ssh");
    check_on_purpose(&host, "read ~/p/.env", "**/.env");
    // No rule opens the directory, and naming the file would override the pattern.
    check_on_purpose(&host, "read ~/d/.env", "**/.env");
    check_on_purpose(&host, "write ~/d/.env", "**/.env");
    check_on_purpose(&host, "make ~/d/.env", "**/.env");
    check_on_purpose(&host, "read ~/d/my.key", "**/*.key");
    check_on_purpose(&host, "read ~/my-secret/x", "**/*secret*");
    check_on_purpose(&host, "write ~/.bashrc", ".bashrc");
    check_on_purpose(&host, "write ~/p/.mcp.json", ".mcp.json");
    check_on_purpose(&host, "write ~/o/.git/config", "**/.git/config");
    // Through a symlink.
    check_on_purpose(&host, "read ~/plain", "~/.ssh");
    check_on_purpose(&host, "read ~/d/link", "**/.env");
    // Reading a shell startup file is harmless.
    check(&host, &["read ~/.bashrc"], &["read ~/.bashrc"]);
    let own = proposed(&host, "[filesystem]\ndeny = [\"~/d\"]", &["read ~/d/x"]);
    assert!(matches!(own.left.as_slice(), [(0, NotProposed::OnPurpose(_))]), "{own:?}");
}

#[test]
fn denied_file_stays_denied_in_proposed_directory() {
    let host = Host {
        there: &["/home/me/d/.env", "/home/me/d/a", "/home/me/d/b", "/home/me/d/c", "/home/me/d/e"],
        ..Host::default()
    };
    let proposal = proposed(
        &host,
        "",
        &["read ~/d/a", "read ~/d/b", "read ~/d/.env", "read ~/d/c", "read ~/d/e"],
    );
    assert_eq!((lines(&proposal), proposal.left.len()), (vec!["read ~/d (4)".to_owned()], 1));
}

/// Promise: learned-policy
#[test]
fn too_broad_directory_is_never_proposed() {
    let host = Host {
        there: &[
            "/home/me/.config/a",
            "/home/me/.config/b",
            "/home/me/.config/c",
            "/home/me/.config/d",
            "/home/me/1",
            "/home/me/2",
            "/home/me/3",
            "/home/me/4",
            "/etc/1",
            "/etc/2",
            "/etc/3",
            "/etc/4",
            "/srv/",
        ],
        ..Host::default()
    };
    check_left(&host, "", "read /", &NotProposed::TooBroad(path("/")));
    check_left(&host, "", "read ~", &NotProposed::TooBroad(path("/home/me")));
    check_left(&host, "", "read /home", &NotProposed::TooBroad(path("/home")));
    check_left(&host, "", "read /srv", &NotProposed::TooBroad(path("/srv")));
    let proposal = proposed(&host, "", &["read ~/.config"]);
    assert!(
        matches!(&proposal.left[..], [(0, NotProposed::AroundDenied(denied))] if denied.is_within(&path("/home/me/.config"))),
        "{proposal:?}"
    );
    check(
        &host,
        &["read ~/1", "read ~/2", "read ~/3", "read ~/4"],
        &["read ~/1", "read ~/2", "read ~/3", "read ~/4"],
    );
    check(
        &host,
        &["read /etc/1", "read /etc/2", "read /etc/3", "read /etc/4"],
        &["read /etc/1", "read /etc/2", "read /etc/3", "read /etc/4"],
    );
    let config = ["read ~/.config/a", "read ~/.config/b", "read ~/.config/c", "read ~/.config/d"];
    check(&host, &config, &config);
}

/// Promise: learned-policy
#[test]
fn other_projects_stay_closed_and_their_files_are_marked() {
    let host = Host {
        there: &[
            "/home/me/code/o/a",
            "/home/me/code/o/b",
            "/home/me/code/o/c",
            "/home/me/code/o/d",
            "/home/me/code/x",
        ],
        projects: &["/home/me/code/o"],
        links: &[],
    };
    check_left(&host, "", "read ~/code", &NotProposed::Project(path("/home/me/code/o")));
    check_left(&host, "", "read ~/code/o", &NotProposed::Project(path("/home/me/code/o")));
    check_left(&host, "", "make ~/code/o/new", &NotProposed::Project(path("/home/me/code/o")));
    check(&host, &["read ~/code/o/a"], &["read ~/code/o/a in /home/me/code/o"]);
    let all = ["read ~/code/o/a", "read ~/code/o/b", "read ~/code/o/c", "read ~/code/o/d"];
    assert_eq!(lines(&proposed(&host, "", &all)).len(), 4);
}

#[test]
fn inexpressible_access_is_returned() {
    check_left(&DATA, "", "read /mnt/s", &NotProposed::NoFile);
    check_left(
        &Host { there: &["/run/u/bus|"], ..Host::default() },
        "",
        "read /run/u/bus",
        &NotProposed::NoFile,
    );
    for name in
        ["read ~/d/a*b", "read ~/d/$HOME", "read ~/d/a\nb", "read ~/d/{a}", "read ~/d/\u{202e}x"]
    {
        check_left(&DATA, "", name, &NotProposed::Unwritable);
    }
    check_left(&DATA, "[filesystem]\nread = [\"~/d\"]", "read ~/d/a", &NotProposed::Allowed);
    check_left(&DATA, "", "read ~/d/gone", &NotProposed::Gone);
    check_left(&DATA, "", "make ~/gone/new", &NotProposed::Gone);
}
