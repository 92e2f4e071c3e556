use crate::error::PolicyError;
use crate::facts::{Facts, Flags, GitRemote};
use crate::grants::{Asking, Grants, NetworkMode, PortSelection};
use crate::network::{CA_BUNDLE, HostName, ListedHost, SniCheck};
use crate::resolve::resolve;
use crate::resolve::tests::{check_warns, facts, flags, grants, with};

fn texts(list: &[ListedHost]) -> Vec<String> {
    list.iter().map(|listed| listed.rule.to_string()).collect()
}

/// `[network]` of each layer.
fn sections(texts: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    texts.iter().map(|(who, text)| (*who, format!("[network]\n{text}"))).collect()
}

#[track_caller]
fn ignored(layers: &[(&'static str, &str)], expect: &str) -> Grants {
    let sections = sections(layers);
    check_warns(
        &sections.iter().map(|(who, text)| (*who, text.as_str())).collect::<Vec<_>>(),
        expect,
    )
}

#[track_caller]
fn taken(layers: &[(&'static str, &str)]) -> Grants {
    let sections = sections(layers);
    let grants =
        grants(&sections.iter().map(|(who, text)| (*who, text.as_str())).collect::<Vec<_>>());
    assert_eq!(grants.warnings, Vec::<String>::new());
    grants
}

#[track_caller]
fn flagged(layers: &[(&str, &str)], edit: impl FnOnce(&mut Flags)) -> Result<Grants, PolicyError> {
    let mut flags = flags();
    edit(&mut flags);
    resolve(&with(layers), &flags, &facts())
}

#[test]
fn allow_list_without_mode_implies_allow_list_mode() {
    let listed = taken(&[("user", "allow = [\"a.org\"]")]);
    assert_eq!((listed.network.mode, listed.network.allow.len()), (NetworkMode::AllowList, 1));
    assert_eq!(listed.network.mode_origin.unwrap().line, Some(3));
    assert_eq!(taken(&[("user", "localhost = [1]")]).network.mode, NetworkMode::AllowList);
    assert_eq!(taken(&[("user", "git = true")]).network.mode, NetworkMode::AllowList);
    assert_eq!(taken(&[("user", "allow = []")]).network.mode, NetworkMode::None);
    assert_eq!(taken(&[("user", "localhost = false")]).network.mode, NetworkMode::None);
    let empty = taken(&[("user", "mode = \"allow-list\"")]);
    assert_eq!((empty.network.mode, empty.network.allow.len()), (NetworkMode::AllowList, 0));
    assert!(!empty.network.decide_lookup(&HostName::new("a.org").unwrap()).is_open());
    assert!(empty.network.refuse_empty_list().is_err());
    for more in ["allow = [\"a.org\"]", "localhost = [1]", "bind = [1]", "git = true"] {
        assert_eq!(
            taken(&[("user", &format!("mode = \"allow-list\"\n{more}"))])
                .network
                .refuse_empty_list(),
            Ok(()),
            "{more}"
        );
    }
    assert_eq!(taken(&[("user", "allow = []")]).network.refuse_empty_list(), Ok(()));
    assert_eq!(
        taken(&[("user", "mode = \"none\"\nallow = [\"a.org\"]")]).network.mode,
        NetworkMode::None
    );
}

#[test]
fn prompting_turns_unset_network_into_empty_allow_list() {
    let prompting = |layers: &[(&str, &str)]| {
        flagged(layers, |flags| flags.ask = Some(Asking::Terminal)).unwrap().network
    };
    let list = prompting(&[]);
    assert_eq!(
        (list.mode, list.mode_origin.clone(), list.allow.len()),
        (NetworkMode::AllowList, None, 0)
    );
    assert_eq!(list.without_prompts(), flagged(&[], |_| {}).unwrap().network);
    assert_eq!(prompting(&[("user", "[network]\nmode = \"none\"")]).mode, NetworkMode::None);
    assert_eq!(prompting(&[("managed", "[network]\nlocked = true")]).mode, NetworkMode::None);
    assert_eq!(prompting(&[("user", "[network]\nmode = \"full\"")]).mode, NetworkMode::Full);
}

#[test]
fn project_policy_opens_no_hosts() {
    let rules = ignored(
        &[("project", "allow = [\"b.org\"]")],
        "policy.toml:3:10: `b.org` is ignored: a project's file cannot open hosts",
    );
    assert_eq!((rules.network.mode, rules.network.allow.len()), (NetworkMode::None, 0));
    let rules = ignored(
        &[("user", "allow = [\"*.a.org\"]"), ("project", "allow = [\"a.org\"]")],
        "`a.org` is ignored",
    );
    assert_eq!(texts(&rules.network.allow), ["*.a.org"]);
    let rules = ignored(
        &[("project", "localhost = true")],
        "`localhost = true` is ignored for ports that a project's file cannot open",
    );
    assert_eq!(
        (rules.network.localhost.ports(), rules.network.mode),
        (PortSelection::None, NetworkMode::None)
    );
    let rules = ignored(
        &[("user", "localhost = [1, 2]"), ("project", "localhost = [2, 3]")],
        "`localhost = [2, 3]` is ignored",
    );
    assert_eq!(rules.network.localhost.ports(), PortSelection::Some(vec![2]));
    let rules = ignored(&[("project", "bind = [1]")], "`bind = [1]` is ignored");
    assert!(rules.network.bind.is_empty());
    assert!(!ignored(&[("project", "git = true")], "`git = true` is ignored").network.git);
    assert_eq!(
        ignored(&[("project", "sni = \"off\"")], "`network.sni = off` is ignored").network.sni,
        SniCheck::Check
    );
}

#[test]
fn project_policy_narrows_network() {
    let listed = taken(&[
        ("user", "allow = [\"*.a.org\"]"),
        ("project", "allow = [\"x.a.org:443\"]\ndeny = [\"y.a.org\"]"),
    ]);
    assert_eq!(
        (texts(&listed.network.allow), texts(&listed.network.deny)),
        (vec!["*.a.org".to_owned()], vec!["y.a.org".to_owned()])
    );
    assert_eq!(
        taken(&[("user", "allow = [\"a.org\"]"), ("project", "mode = \"none\"")]).network.mode,
        NetworkMode::None
    );
    let one = taken(&[
        ("user", "localhost = true\nbind = true"),
        ("project", "localhost = [1]\nbind = false"),
    ]);
    assert_eq!(
        (one.network.localhost.ports(), one.network.bind.ports()),
        (PortSelection::Some(vec![1]), PortSelection::None)
    );
    assert!(!taken(&[("user", "git = true"), ("project", "git = false")]).network.git);
    assert_eq!(
        taken(&[("user", "sni = \"off\""), ("project", "sni = \"check\"")]).network.sni,
        SniCheck::Check
    );
    let less = taken(&[
        ("user", "mode = \"full\""),
        ("project", "mode = \"allow-list\"\nallow = [\"b.org\"]\nlocalhost = [1]\ngit = true"),
    ]);
    assert_eq!(
        (less.network.mode, texts(&less.network.allow)),
        (NetworkMode::AllowList, vec!["b.org".to_owned()])
    );
    assert!(less.network.git && less.network.localhost.ports() == PortSelection::Some(vec![1]));
}

#[test]
fn managed_network_settings_are_ceilings() {
    let managed = ("managed", "localhost = [1, 2]\nbind = false\ngit = false\nsni = \"check\"");
    let rules = ignored(
        &[managed, ("user", "localhost = true\nbind = [1]\ngit = true\nsni = \"off\"")],
        "`bind = [1]` is ignored for ports that the managed",
    );
    assert_eq!(
        (rules.network.localhost.ports(), rules.network.bind.ports()),
        (PortSelection::Some(vec![1, 2]), PortSelection::None)
    );
    assert_eq!(
        (rules.network.git, rules.network.sni, rules.warnings.len()),
        (false, SniCheck::Check, 4)
    );
    let layers = [("managed", "[network]\nlocalhost = [1]")];
    let beyond = flagged(&layers, |flags| flags.allow_localhost = vec![1, 2]).unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "--allow-localhost goes beyond what the managed policy allows, `network.localhost`"
    );
    let none = flagged(&[("managed", "[network]\nmode = \"none\"")], |flags| {
        flags.allow_host = vec!["a.org".into()]
    })
    .unwrap_err();
    assert_eq!(none.to_string(), "--allow-host goes beyond what the managed policy allows, `none`");
}

#[test]
fn locked_host_list_cannot_be_extended() {
    let managed = ("managed", "locked = true\nallow = [\"*.corp\"]");
    let rules = ignored(
        &[managed, ("user", "allow = [\"a.corp\", \"a.org\"]\nlocalhost = [1]")],
        "`a.org` is ignored: the managed policy has locked the list",
    );
    assert_eq!(
        (texts(&rules.network.allow), rules.network.localhost.is_empty()),
        (vec!["*.corp".to_owned()], true)
    );
    let decision = rules.network.decide_name(&HostName::new("a.org").unwrap(), 443);
    assert_eq!((decision.is_open(), decision.remedy()), (false, None));
    assert_eq!(
        decision.change_hint().unwrap(),
        "ask the administrator to change /etc/ringfence/policy.toml:3"
    );
    let layers = [("managed", "[network]\nlocked = true")];
    assert_eq!(
        flagged(&layers, |flags| flags.allow_host = vec!["a.org".into()]).unwrap_err().code(),
        "policy-beyond-ceiling"
    );
    assert!(flagged(&layers, |flags| flags.deny_host = vec!["a.org".into()]).is_ok());
    let error = crate::parse::parse(
        "version = 1\n[network]\nlocked = true",
        &crate::testing::path("/f"),
        crate::grants::Source::User,
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "/f:3:10: `locked` is only allowed in the managed policy");
}

#[test]
fn host_flags_add_rules_or_are_refused() {
    let layers = [("user", "[network]\nmode = \"none\"\nlocalhost = [1]")];
    let added = flagged(&layers, |flags| {
        flags.allow_host = vec!["a.org:443".into()];
        flags.deny_host = vec!["b.org".into()];
        flags.allow_localhost = vec![2];
        flags.bind = vec![3];
    });
    let network = added.unwrap().network;
    assert_eq!(
        (network.mode, network.localhost.ports(), network.bind.ports()),
        (NetworkMode::AllowList, PortSelection::Some(vec![1, 2]), PortSelection::Some(vec![3]))
    );
    assert_eq!(
        (texts(&network.allow), texts(&network.deny)),
        (vec!["a.org:443".to_owned()], vec!["b.org".to_owned()])
    );
    assert_eq!(network.allow[0].origin.to_string(), "a flag");
    for text in ["", "a.org:0", "https://a.org", "*"] {
        let error = flagged(&[], |flags| flags.allow_host = vec![text.into()]).unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("`--allow-host {text}` is no host: ")),
            "{error}"
        );
    }
    let full = flagged(&[], |flags| {
        (flags.net, flags.allow_host) = (Some(NetworkMode::Full), vec!["a.org".into()])
    })
    .unwrap();
    assert_eq!(full.warnings, ["--allow-host has no effect: `network.mode = full` is set"]);
}

#[test]
fn remotes_are_opened_for_git() {
    let remote = |name: &str, url: &str| GitRemote { name: name.into(), url: url.into() };
    let remotes = vec![
        remote("origin", "git@github.com:me/x"),
        remote("near", "ssh://10.0.0.1/x"),
        remote("disk", "/srv/x"),
    ];
    let facts = Facts { remotes, ..facts() };
    let shut = resolve(&with(&[]), &flags(), &facts).unwrap();
    assert!(shut.network.allow.is_empty() && shut.network.mode == NetworkMode::None);
    let open = resolve(&with(&[("user", "[network]\ngit = true")]), &flags(), &facts).unwrap();
    assert_eq!(
        (texts(&open.network.allow), open.network.mode),
        (vec!["github.com:22".to_owned(), "github.com:443".to_owned()], NetworkMode::AllowList)
    );
    assert_eq!(open.network.allow[0].origin.text, "github.com:22 (remote origin)");
    assert!(
        open.warnings[0].contains("the remote `near` at 10.0.0.1:22 (private) is not opened"),
        "{:?}",
        open.warnings
    );
}

#[test]
fn secrets_stay_outside_and_reach_only_open_hosts() {
    const SECRET: &str = "[[secrets]]\nenv = \"GITHUB_TOKEN\"\nhosts = [\"api.github.com\"]\nheader = \"Authorization\"\n";
    let user = format!(
        "{SECRET}[network]\nallow = [\"*.github.com\"]\n[environment]\nallow = [\"GITHUB_TOKEN\"]\nset = {{ A = \"1\" }}"
    );
    let unset = check_warns(&[("user", &user)], "the variable GITHUB_TOKEN stays outside");
    assert_eq!((unset.network.secrets.len(), unset.network.secrets[0].origin.line), (1, Some(2)));
    assert!(!unset.environment.decide("GITHUB_TOKEN").passes());
    let (api, other) =
        (HostName::new("api.github.com").unwrap(), HostName::new("x.github.com").unwrap());
    assert_eq!(
        (unset.network.secrets_for(&api, 443).count(), unset.network.terminates_tls()),
        (0, false)
    );
    let rules = resolve(&with(&[("user", &user)]), &flags(), &holding("ghp_1")).unwrap();
    assert_eq!(rules.environment.set["GITHUB_TOKEN"], "ringfence-placeholder-GITHUB_TOKEN");
    assert_eq!(rules.environment.set["NODE_EXTRA_CA_CERTS"], CA_BUNDLE);
    let count = |name, port| rules.network.secrets_for(name, port).count();
    assert_eq!(
        (count(&api, 443), count(&api, 80), count(&other, 443), rules.network.terminates_tls()),
        (1, 0, 0, true)
    );
    let unreachable = |network: &str| {
        resolve(&with(&[("user", &format!("{SECRET}{network}"))]), &flags(), &facts())
            .unwrap()
            .warnings
    };
    let warnings = unreachable("[network]\nallow = [\"github.com\"]").join("\n");
    assert!(
        warnings.ends_with(
            "policy.toml:4:10: `api.github.com` receives a secret, but no entry of `allow` opens it"
        ),
        "{warnings}"
    );
    assert!(unreachable("").is_empty() && unreachable("[network]\nmode = \"full\"").is_empty());
    let project = check_warns(
        &[("project", SECRET)],
        "`GITHUB_TOKEN` is ignored: a project's file cannot send secrets",
    );
    assert!(project.network.secrets.is_empty());
}

#[test]
fn secret_unusable_in_header_is_refused_and_not_shown() {
    const SECRETS: &str = "[[secrets]]\nenv = \"GITHUB_TOKEN\"\nhosts = [\"a.org:8443\"]\nheader = \"X-Key\"\n\
        [[secrets]]\nenv = \"GITHUB_TOKEN\"\nhosts = [\"b.org\"]\nheader = \"X-Key\"\n[network]\nallow = [\"a.org\", \"b.org\"]";
    let with_value = |value| resolve(&with(&[("user", SECRETS)]), &flags(), &holding(value));
    for value in ["ghp_1\r\nX: y", "ghp_1\n", " ghp_1", "ghp_\u{fc}", "ghp\t1"] {
        let error = with_value(value).unwrap_err().to_string();
        assert!(
            error.contains(
                "policy.toml:3:7: the value of `GITHUB_TOKEN` cannot be used in a header: it "
            ),
            "{error}"
        );
        assert!(!error.contains("ghp"), "{error}");
    }
    let rules = with_value("ghp_1").unwrap();
    let of =
        |name: &str, port| rules.network.secrets_for(&HostName::new(name).unwrap(), port).count();
    assert_eq!((of("a.org", 8443), of("a.org", 443), of("b.org", 443)), (1, 0, 1));
    assert_eq!(rules.warnings, Vec::<String>::new());
}

fn holding(value: &str) -> Facts {
    Facts { variables: [("GITHUB_TOKEN".to_owned(), value.to_owned())].into(), ..facts() }
}
