use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

use ringfence_policy::resolve;

use super::*;
use crate::testing::TestHome;

impl TestHome {
    #[track_caller]
    fn check_refused(&self, name: &str, code: &str) {
        let before = fs::read(self.policy()).ok();
        let error = self.allow(name, Access::Read).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(fs::read(self.policy()).ok(), before, "{error}");
        assert!(self.preview(name, Access::Read).is_err(), "{name}");
        self.check_no_draft_left();
    }

    #[track_caller]
    fn check_no_draft_left(&self) {
        let directory = self.policy().parent().unwrap().to_owned();
        let names: Vec<_> = fs::read_dir(directory)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(names.iter().all(|name| name == "policy.toml"), "{names:?}");
    }
}

#[test]
fn grant_overrides_builtin_denial_for_exactly_that_path() {
    let home = TestHome::new();
    for (name, access) in [
        (".ssh/id", Access::Read),
        ("p/.env", Access::Write),
        ("p/.vscode", Access::Write),
        ("notes", Access::Read),
    ] {
        assert!(
            can_allow_permanent(
                &GrantTarget::Path(home.0.join(name), access),
                &PolicyFiles::default(),
                &home.facts()
            ),
            "{name}"
        );
        let allowed = home.allow(name, access).unwrap();
        assert!(allowed.is_new, "{name}");
        let again = home.allow(name, access).unwrap();
        assert_eq!((again.is_new, again.position()), (false, allowed.position()), "{name}");
    }
    let lines = home.read();
    assert_eq!(
        lines,
        "version = 1\n\n[filesystem]\nread = [\"~/.ssh/id\", \"~/notes\"]\nwrite = [\"~/p/.env\", \"~/p/.vscode\"]\n"
    );
    assert!(
        home.allow("notes", Access::Execute)
            .unwrap()
            .position()
            .ends_with("/.config/ringfence/policy.toml:4")
    );
    // Nothing else is allowed.
    let grants = resolve_to_inspect(
        &read_layers(&PolicyFiles::default(), &home.facts()).unwrap(),
        &Flags::none(home.0.join("p")),
        &home.facts(),
    )
    .unwrap();
    for shut in [".ssh", ".ssh/other", "p/x/.env", "p/.env.local"] {
        assert_eq!(grants.verdict(&home.0.join(shut), Access::Read), Verdict::Denied, "{shut}");
    }
    home.check_no_draft_left();
}

#[test]
fn read_then_write_grant_makes_two_entries() {
    let home = TestHome::new();
    home.allow("x", Access::Read).unwrap();
    home.allow("x", Access::Write).unwrap();
    assert!(!home.allow("x", Access::Read).unwrap().is_new);
    assert_eq!(home.read(), "version = 1\n\n[filesystem]\nread = [\"~/x\"]\nwrite = [\"~/x\"]\n");
}

#[test]
fn file_keeps_its_mode_and_new_file_is_private() {
    let mode = |home: &TestHome| fs::metadata(home.policy()).unwrap().permissions().mode() & 0o7777;
    let home = TestHome::new();
    home.allow("x", Access::Read).unwrap();
    assert_eq!(mode(&home), 0o600);
    home.write("version = 1 # é\n");
    fs::set_permissions(home.policy(), fs::Permissions::from_mode(0o640)).unwrap();
    home.allow("x", Access::Read).unwrap();
    assert_eq!((mode(&home), home.read().lines().next()), (0o640, Some("version = 1 # é")));
}

#[test]
fn invalid_file_is_reported_and_left_unchanged() {
    let home = TestHome::new();
    for (text, code, place) in [
        ("version = 1\n[filesystem\n", "policy-syntax", (Some(2), Some(12))),
        ("version = 1\n[filesystem]\nraed = []\n", "policy-unknown-key", (Some(3), Some(1))),
        ("version = 2\n", "policy-bad-version", (Some(1), Some(11))),
    ] {
        home.write(text);
        home.check_refused("x", code);
        let Err(AllowError::Engine(EngineError::Policy(error))) = home.allow("x", Access::Read)
        else {
            panic!("{text}")
        };
        assert_eq!((error.line(), error.column()), place, "{text}");
        assert_eq!(error.file().unwrap().as_path(), home.policy());
    }
    fs::write(home.policy(), b"version = 1 # \xff").unwrap();
    home.check_refused("x", "policy-not-utf8");
}

#[test]
fn grant_without_effect_is_not_written() {
    let home = TestHome::new();
    home.write("version = 1\n[filesystem]\ndeny = [\"~/x\"]\n");
    home.check_refused("x", "allow-shut");
    let error = home.allow("x", Access::Read).unwrap_err().to_string();
    assert!(error.ends_with("policy.toml:3 (user policy))"), "{error}");
    // A denial by a pattern is overridden by an entry with the exact path.
    home.write("version = 1\n[filesystem]\ndeny = [\"*.sqlite\"]\n");
    assert!(home.allow("p/a.sqlite", Access::Read).unwrap().is_new);
    home.write("version = 1\nmode = \"read-only\"\n");
    assert_eq!(home.allow("p/x", Access::Write).unwrap_err().code(), "allow-shut");
}

#[test]
fn ringfence_files_and_unnameable_paths_are_refused() {
    let home = TestHome::new();
    home.check_refused(".config/ringfence/policy.toml", "allow-own");
    home.check_refused(".local/state/ringfence/audit/head", "allow-own");
    for name in ["$HOME", "a*", "a\u{202e}b", "a\nb", "a\u{fffd}"] {
        home.check_refused(name, "allow-unnamed");
    }
}

/// Promise: policy-file-kept
#[test]
fn link_stays_and_its_target_is_replaced() {
    let home = TestHome::new();
    fs::create_dir_all(home.policy().parent().unwrap()).unwrap();
    fs::create_dir(home.0.as_path().join("dotfiles")).unwrap();
    let real = home.0.as_path().join("dotfiles/ringfence.toml");
    symlink("../../dotfiles/ringfence.toml", home.policy()).unwrap();
    home.check_refused("x", "allow-not-written");
    fs::write(&real, "version = 1 # kept\n").unwrap();
    home.allow("x", Access::Read).unwrap();
    assert!(fs::symlink_metadata(home.policy()).unwrap().is_symlink());
    assert_eq!(
        fs::read_to_string(&real).unwrap(),
        "version = 1 # kept\n\n[filesystem]\nread = [\"~/x\"]\n"
    );
    assert_eq!(fs::read_dir(real.parent().unwrap()).unwrap().count(), 1);
}

/// Promise: policy-file-kept
#[test]
fn policy_file_writable_by_commands_is_refused() {
    let home = TestHome::new();
    fs::create_dir_all(home.policy().parent().unwrap()).unwrap();
    let real = home.0.as_path().join("p/ringfence.toml");
    fs::write(&real, "version = 1\n").unwrap();
    symlink(&real, home.policy()).unwrap();
    home.check_refused("x", "allow-exposed");
}

#[test]
fn permanent_grant_is_for_this_project_only() {
    let home = TestHome::new();
    assert!(can_allow_permanent(
        &GrantTarget::Path(home.0.join("notes"), Access::Read),
        &PolicyFiles::default(),
        &home.facts()
    ));
    assert!(!home.own_policy().exists());
    let allowed = home.allow_here("notes", Access::Read).unwrap();
    assert_eq!(
        (allowed.is_new, allowed.position()),
        (true, format!("{}:6", home.own_policy().display()))
    );
    assert!(!home.policy().exists());
    let text = fs::read_to_string(home.own_policy()).unwrap();
    let expect = format!("{}\n[filesystem]\nread = [\"~/notes\"]\n", new_own_policy(&home.facts()));
    assert_eq!(text, expect);
    let elsewhere = Facts { workspace: home.0.join("q"), ..home.facts() };
    let verdict = |facts: &Facts| {
        let layers = read_layers(&PolicyFiles::default(), facts).unwrap();
        resolve(&layers, &Flags::none(facts.workspace.clone()), facts)
            .unwrap()
            .verdict(&home.0.join("notes"), Access::Read)
    };
    assert_eq!((verdict(&home.facts()), verdict(&elsewhere)), (Verdict::Allowed, Verdict::Absent));
    // A path allowed in this project can still be allowed in all projects.
    assert!(!home.allow_here("notes", Access::Read).unwrap().is_new);
    assert!(home.allow("notes", Access::Read).unwrap().is_new);
    assert_eq!(verdict(&elsewhere), Verdict::Allowed);
}

#[test]
fn tenants_of_a_service_have_one_policy() {
    let home = TestHome::new();
    let service = home.0.join("service.toml");
    fs::write(service.as_path(), "version = 1\n").unwrap();
    let files = PolicyFiles { service: Some(service), ..PolicyFiles::default() };
    let allowed = allow_permanent(&home.0.join("x"), Access::Read, &files, &home.facts()).unwrap();
    assert!(
        allowed.position().ends_with("/.config/ringfence/policy.toml:4"),
        "{}",
        allowed.position()
    );
    assert!(!home.own_policy().exists());
}

#[test]
fn several_hosts_and_variables_are_allowed() {
    let home = TestHome::new();
    let facts = home.facts();
    fn write(subject: Permitted<'_>, facts: &Facts) -> Option<bool> {
        Amendment { subject, scope: PolicyScope::OwnProject, files: &PolicyFiles::default(), facts }
            .write()
            .map(|allowed| allowed.is_new)
            .ok()
    }
    for rule in ["example.org", "*.example.org", "10.0.0.0/8:5432", "db.example.org:5432"] {
        let opening = GrantTarget::Host(HostRule::parse(rule).unwrap());
        let expect = rule != "db.example.org:5432";
        assert_eq!(write(Permitted::Opening(&opening), &facts), Some(expect), "{rule}");
        assert_eq!(write(Permitted::Opening(&opening), &facts), Some(false), "{rule}");
    }
    assert_eq!(write(Permitted::Variable("HOME"), &facts), Some(false));
    assert_eq!(write(Permitted::Variable("GITHUB_TOKEN"), &facts), Some(true));
    assert_eq!(write(Permitted::Variable("GITHUB_TOKEN"), &facts), Some(false));
    let text = fs::read_to_string(home.own_policy()).unwrap();
    assert!(text.ends_with("\n[environment]\nallow = [\"GITHUB_TOKEN\"]\n"), "{text}");
    home.write("version = 1\n[environment]\nprofile = \"clean\"\n");
    assert_eq!(
        write(Permitted::Variable("GITHUB_TOKEN"), &facts),
        Some(false),
        "a name beats the profile"
    );
}

/// Promise: policy-file-kept
#[test]
fn concurrent_grants_are_all_kept() {
    let home = TestHome::new();
    let facts = home.facts();
    // A draft left by a crash is reused.
    let own = home.own_policy();
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    let draft = own.with_file_name(format!(".{}.new", own.file_name().unwrap().to_str().unwrap()));
    fs::write(&draft, "left, and longer than what is written over it".repeat(100)).unwrap();
    thread::scope(|scope| {
        for writer in 0..8 {
            let (home, facts) = (&home, &facts);
            scope.spawn(move || {
                for number in 0..10 {
                    allow_permanent(
                        &home.0.join(format!("{writer}-{number}")),
                        Access::Read,
                        &PolicyFiles::default(),
                        facts,
                    )
                    .unwrap();
                }
            });
        }
    });
    let layers = read_layers(&PolicyFiles::default(), &facts).unwrap();
    let entries: BTreeSet<&str> =
        layers[0].policy.filesystem.read.iter().map(|entry| entry.path()).collect();
    assert_eq!((entries.len(), layers[0].policy.filesystem.read.len()), (80, 80));
    assert_eq!(fs::read_dir(own.parent().unwrap()).unwrap().count(), 1);
}
