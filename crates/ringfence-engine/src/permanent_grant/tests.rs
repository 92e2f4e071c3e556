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
        self.check_tidy();
    }

    #[track_caller]
    fn check_tidy(&self) {
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
fn what_is_built_in_is_opened_for_that_very_path() {
    let home = TestHome::new();
    for (name, access) in [
        (".ssh/id", Access::Read),
        ("p/.env", Access::Write),
        ("p/.vscode", Access::Write),
        ("notes", Access::Read),
    ] {
        assert!(
            could_open(
                &GrantTarget::Path(home.0.join(name), access),
                &PolicyFiles::default(),
                &home.facts()
            ),
            "{name}"
        );
        let allowed = home.allow(name, access).unwrap();
        assert!(allowed.is_new, "{name}");
        let again = home.allow(name, access).unwrap();
        assert_eq!((again.is_new, again.place()), (false, allowed.place()), "{name}");
    }
    let lines = home.read();
    assert_eq!(
        lines,
        "version = 1\n\n[filesystem]\nread = [\"~/.ssh/id\", \"~/notes\"]\nwrite = [\"~/p/.env\", \"~/p/.vscode\"]\n"
    );
    assert!(
        home.allow("notes", Access::Execute)
            .unwrap()
            .place()
            .ends_with("/.config/ringfence/policy.toml:4")
    );
    // Nothing beside it.
    let grants = resolve_to_inspect(
        &layers(&PolicyFiles::default(), &home.facts()).unwrap(),
        &Flags::none(home.0.join("p")),
        &home.facts(),
    )
    .unwrap();
    for shut in [".ssh", ".ssh/other", "p/x/.env", "p/.env.local"] {
        assert_eq!(grants.verdict(&home.0.join(shut), Access::Read), Verdict::Denied, "{shut}");
    }
    home.check_tidy();
}

#[test]
fn reading_first_and_writing_later_are_two_lines() {
    let home = TestHome::new();
    home.allow("x", Access::Read).unwrap();
    home.allow("x", Access::Write).unwrap();
    assert!(!home.allow("x", Access::Read).unwrap().is_new);
    assert_eq!(home.read(), "version = 1\n\n[filesystem]\nread = [\"~/x\"]\nwrite = [\"~/x\"]\n");
}

#[test]
fn the_file_keeps_its_mode_and_a_new_one_is_the_persons_alone() {
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
fn a_file_with_a_mistake_is_told_of_and_stays() {
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
fn what_would_stay_shut_is_not_written() {
    let home = TestHome::new();
    home.write("version = 1\n[filesystem]\ndeny = [\"~/x\"]\n");
    home.check_refused("x", "allow-shut");
    let error = home.allow("x", Access::Read).unwrap_err().to_string();
    assert!(error.ends_with("policy.toml:3 (user policy))"), "{error}");
    // What a name of their own shuts, their own word opens.
    home.write("version = 1\n[filesystem]\ndeny = [\"*.sqlite\"]\n");
    assert!(home.allow("p/a.sqlite", Access::Read).unwrap().is_new);
    home.write("version = 1\nmode = \"read-only\"\n");
    assert_eq!(home.allow("p/x", Access::Write).unwrap_err().code(), "allow-shut");
}

#[test]
fn what_is_our_own_or_has_no_name_is_not_opened() {
    let home = TestHome::new();
    home.check_refused(".config/ringfence/policy.toml", "allow-own");
    home.check_refused(".local/state/ringfence/audit/head", "allow-own");
    for name in ["$HOME", "a*", "a\u{202e}b", "a\nb", "a\u{fffd}"] {
        home.check_refused(name, "allow-unnamed");
    }
}

/// Promise: P45
#[test]
fn a_link_stays_and_what_it_leads_to_is_written() {
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

/// Promise: P45
#[test]
fn nothing_is_written_where_commands_could_change_it() {
    let home = TestHome::new();
    fs::create_dir_all(home.policy().parent().unwrap()).unwrap();
    let real = home.0.as_path().join("p/ringfence.toml");
    fs::write(&real, "version = 1\n").unwrap();
    symlink(&real, home.policy()).unwrap();
    home.check_refused("x", "allow-exposed");
}

#[test]
fn permanent_permission_is_for_this_project_alone() {
    let home = TestHome::new();
    assert!(could_open(
        &GrantTarget::Path(home.0.join("notes"), Access::Read),
        &PolicyFiles::default(),
        &home.facts()
    ));
    assert!(!home.own_policy().exists());
    let allowed = home.allow_here("notes", Access::Read).unwrap();
    assert_eq!(
        (allowed.is_new, allowed.place()),
        (true, format!("{}:6", home.own_policy().display()))
    );
    assert!(!home.policy().exists());
    let text = fs::read_to_string(home.own_policy()).unwrap();
    let expect = format!("{}\n[filesystem]\nread = [\"~/notes\"]\n", new_own_policy(&home.facts()));
    assert_eq!(text, expect);
    let elsewhere = Facts { workspace: home.0.join("q"), ..home.facts() };
    let verdict = |facts: &Facts| {
        let layers = layers(&PolicyFiles::default(), facts).unwrap();
        resolve(&layers, &Flags::none(facts.workspace.clone()), facts)
            .unwrap()
            .verdict(&home.0.join("notes"), Access::Read)
    };
    assert_eq!((verdict(&home.facts()), verdict(&elsewhere)), (Verdict::Allowed, Verdict::Absent));
    // What is open here may still be opened everywhere.
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
    assert!(allowed.place().ends_with("/.config/ringfence/policy.toml:4"), "{}", allowed.place());
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

/// Promise: P45
#[test]
fn of_many_at_once_none_is_lost() {
    let home = TestHome::new();
    let facts = home.facts();
    // What a crash left is taken over.
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
    let layers = layers(&PolicyFiles::default(), &facts).unwrap();
    let entries: BTreeSet<&str> =
        layers[0].policy.filesystem.read.iter().map(|entry| entry.path()).collect();
    assert_eq!((entries.len(), layers[0].policy.filesystem.read.len()), (80, 80));
    assert_eq!(fs::read_dir(own.parent().unwrap()).unwrap().count(), 1);
}
