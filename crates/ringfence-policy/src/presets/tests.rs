use super::*;
use crate::resolve::tests::facts;
use crate::testing::path;

fn roots(rules: &[Rule]) -> Vec<String> {
    rules.iter().map(|rule| format!("{} {}", rule.effect.word(), rule.root)).collect()
}

#[track_caller]
fn check_path(dir: &str, expect: Option<&str>) {
    let installations =
        ["/opt/x", "/opt", "/home/me/.foo", "/home/me/.local", "/home/me", "/home/you"]
            .map(path)
            .into();
    let facts = Facts { path_dirs: vec![path(dir)], installations, ..facts() };
    let rules = path_rules(&facts, &[rule(path("/usr"), Effect::Read, "test")]);
    let expect: Vec<String> = expect.iter().map(|root| format!("read {root}")).collect();
    assert_eq!(roots(&rules), expect, "{dir}");
}

#[test]
fn directories_on_path_are_opened_no_wider_than_a_tool() {
    check_path("/opt/x/bin", Some("/opt/x"));
    check_path("/opt/bin", Some("/opt/bin"));
    check_path("/home/me/other/bin", Some("/home/me/other/bin"));
    check_path("/home/me/.foo/shims", Some("/home/me/.foo"));
    check_path("/home/me/.local/bin", Some("/home/me/.local/bin"));
    check_path("/home/me/bin", Some("/home/me/bin"));
    check_path("/home/you/bin", Some("/home/you/bin"));
    check_path("/opt/tool/scripts", Some("/opt/tool/scripts"));
    check_path("/usr/games", None);
    check_path("/home/me/p/node_modules/.bin", None);
    check_path("/home/me", None);
    check_path("/home", None);
    check_path("/", None);
}

#[test]
fn patterns_apply_in_plain_directories_on_path() {
    let facts = Facts {
        path_dirs: vec![path("/opt/x/bin"), path("/home/me/other/bin")],
        installations: [path("/opt/x")].into(),
        ..facts()
    };
    let holds: Vec<bool> = path_rules(&facts, &[]).iter().map(Rule::patterns_apply).collect();
    assert_eq!(holds, [false, true]);
}

#[test]
fn go_opens_its_programs_and_packages_and_no_sources() {
    let mut facts = facts();
    facts.programs.insert("go".into());
    let found = roots(&rules(&facts));
    assert_eq!(found[..2], ["read /home/me/go/bin", "private /home/me/go/pkg"]);
}

#[test]
fn preset_applies_if_its_program_exists() {
    // Caches without secrets are opened one by one, independent of `PATH`; all others stay closed.
    let always = roots(&rules(&facts()));
    let below: Vec<&str> =
        always.iter().filter_map(|root| root.strip_prefix("private /home/me/.cache/")).collect();
    assert_eq!(below, ["ms-playwright", "puppeteer", "Cypress", "huggingface/hub", "torch"]);
    assert_eq!(always.last().map(String::as_str), Some("private /home/me/.cache"));
    let mut facts = facts();
    facts.programs.insert("rustc".into());
    let found = rules(&facts);
    assert_eq!(
        roots(&found)[..4],
        [
            "read /home/me/.cargo",
            "read /home/me/.rustup",
            "private /home/me/.cargo/registry",
            "private /home/me/.cargo/git",
        ]
    );
    let store = path("/home/me/.cache/ringfence/projects/1/.cargo+registry");
    assert_eq!(found[2].effect, Effect::Private { store, host_beneath: true });
}

#[test]
fn variables_move_directories_but_not_to_home_itself() {
    let mut facts = facts();
    facts.programs.insert("cargo".into());
    facts.variables.insert("CARGO_HOME".into(), "/opt/cargo".into());
    let found = roots(&rules(&facts));
    assert!(
        found.contains(&"read /opt/cargo".to_owned())
            && found.contains(&"deny /opt/cargo/credentials.toml".to_owned())
    );
    for broad in ["/home/me", "/", "relative"] {
        facts.variables.insert("CARGO_HOME".into(), broad.into());
        let found = roots(&rules(&facts));
        assert!(!found.iter().any(|rule| rule == "read /home/me" || rule == "read /"), "{found:?}");
    }
}
