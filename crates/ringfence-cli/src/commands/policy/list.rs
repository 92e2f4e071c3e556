//! Resolved grants as a list of settings, each with its origin.

use ringfence_policy::policy::Amount;
use ringfence_policy::{
    Effect, Grants, HostRule, Limit, Limits, ListedHost, NameRuleEffect, NetworkMode, OpenPorts,
    Origin, PortEntry, PortSelection, SecretRule, Source,
};

use crate::commands::resolve_args::{fsync_word, gap_word, on_error_word};
use crate::origins::PolicyOrigins;
use crate::output::tilde_path;

/// Settings under one heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedSection {
    pub(super) name: &'static str,
    pub(super) entries: Vec<ListedSetting>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedSetting {
    pub(super) text: String,
    pub(super) origin: Origin,
}

impl ListedSetting {
    fn new(text: impl Into<String>, origin: Origin) -> Self {
        Self { text: text.into(), origin }
    }
}

/// Lists all of `grants`, in the order of a policy file; omits empty sections.
pub(super) fn sections(grants: &Grants, origins: &PolicyOrigins<'_>) -> Vec<ListedSection> {
    let mut sections = vec![ListedSection { name: "settings", entries: settings(grants, origins) }];
    for (name, effect) in [
        ("write", "write"),
        ("private", "private"),
        ("read", "read"),
        ("deny", "deny"),
        ("protect", "protect"),
    ] {
        sections.push(ListedSection { name, entries: paths(grants, effect) });
    }
    sections.push(ListedSection {
        name: "except",
        entries: grants
            .exceptions
            .iter()
            .map(|entry| ListedSetting::new(entry.glob.text(), entry.origin.clone()))
            .collect(),
    });
    sections.push(ListedSection { name: "environment", entries: environment(grants, origins) });
    sections.push(ListedSection { name: "network", entries: network(grants, origins) });
    sections.push(ListedSection { name: "secrets", entries: secrets(grants) });
    sections.push(ListedSection { name: "commands", entries: commands(grants) });
    sections.push(ListedSection { name: "limits", entries: limits(&grants.limits, origins) });
    sections.push(ListedSection { name: "audit", entries: audit(grants, origins) });
    sections.retain(|section| !section.entries.is_empty());
    sections
}

fn settings(grants: &Grants, origins: &PolicyOrigins<'_>) -> Vec<ListedSetting> {
    let flags = origins.flags();
    let flag = |name: &'static str, is_given: bool| is_given.then_some(name);
    vec![
        ListedSetting::new(
            format!("mode = {}", grants.mode.word()),
            origins.setting_origin("mode", flag("--mode", flags.mode.is_some()), |policy| {
                policy.mode == Some(grants.mode)
            }),
        ),
        ListedSetting::new(
            format!("sandbox.enabled = {}", grants.enabled),
            match &grants.sandbox.off {
                Some(off) => off.clone(),
                None => origins.setting_origin("sandbox.enabled", None, |policy| {
                    policy.sandbox.enabled == Some(true)
                }),
            },
        ),
        ListedSetting::new(
            format!("sandbox.provider = {}", grants.sandbox.provider),
            grants.sandbox.provider_origin.clone(),
        ),
        ListedSetting::new(
            format!("on-gap = {}", gap_word(grants.on_gap)),
            origins.setting_origin("on-gap", flag("--on-gap", flags.on_gap.is_some()), |policy| {
                policy.on_gap == Some(grants.on_gap)
            }),
        ),
        ListedSetting::new(
            format!("observe = {}", grants.observe.word()),
            origins.setting_origin(
                "observe",
                flag("--observe", flags.observe.is_some()),
                |policy| policy.observe == Some(grants.observe),
            ),
        ),
        ListedSetting::new(
            format!("ask = {}", grants.ask.word()),
            origins.setting_origin("ask", flag("--ask", flags.ask.is_some()), |policy| {
                policy.ask == Some(grants.ask)
            }),
        ),
    ]
}

/// Lists rules on paths, then on names.
fn paths(grants: &Grants, effect: &str) -> Vec<ListedSetting> {
    let lock = |is_locked: bool| if is_locked { " (locked)" } else { "" };
    let rules = grants.rules.iter().filter(|rule| rule.effect.word() == effect).map(|rule| {
        let kept = match &rule.effect {
            Effect::Private { store, host_beneath: true } => {
                format!(" over the host's, kept in {}", tilde_path(store, &grants.home))
            }
            Effect::Private { store, host_beneath: false } => {
                format!(" kept in {}", tilde_path(store, &grants.home))
            }
            _ => String::new(),
        };
        ListedSetting::new(
            format!("{}{kept}{}", rule.root, lock(rule.is_locked())),
            rule.origin.clone(),
        )
    });
    let patterns =
        grants.patterns.iter().filter(|pattern| NameRuleEffect::word(pattern.effect) == effect);
    let patterns = patterns.map(|pattern| {
        ListedSetting::new(
            format!("{}{}", pattern.glob.text(), lock(pattern.is_locked())),
            pattern.origin.clone(),
        )
    });
    rules.chain(patterns).collect()
}

fn environment(grants: &Grants, origins: &PolicyOrigins<'_>) -> Vec<ListedSetting> {
    let rules = &grants.environment;
    let mut entries = Vec::new();
    if rules.clean {
        entries.push(ListedSetting::new(
            "profile = clean",
            origins.setting_origin("environment.profile", None, |policy| {
                policy.environment.profile.is_some()
            }),
        ));
    }
    entries.extend(
        rules
            .set
            .keys()
            .map(|name| ListedSetting::new(format!("set {name}"), origins.variable_origin(name))),
    );
    entries.extend(rules.named.iter().map(|name| {
        ListedSetting::new(format!("allow {name} (named)"), origins.variable_origin(name))
    }));
    let allow = |glob: &String| {
        ListedSetting::new(
            format!("allow {glob}"),
            origins.entry_origin("environment.allow", |policy| &policy.environment.allow, glob),
        )
    };
    let deny = |glob: &String| {
        ListedSetting::new(
            format!("deny {glob}"),
            origins.entry_origin("environment.deny", |policy| &policy.environment.deny, glob),
        )
    };
    entries.extend(rules.allow.iter().map(allow));
    entries.extend(rules.deny.iter().map(deny));
    entries
}

fn network(grants: &Grants, origins: &PolicyOrigins<'_>) -> Vec<ListedSetting> {
    let rules = &grants.network;
    let built_in = || Origin::new(Source::BuiltIn, "network.mode");
    let mut entries = vec![ListedSetting::new(
        format!("mode = {}", rules.mode.word()),
        rules.mode_origin.clone().unwrap_or_else(built_in),
    )];
    entries.extend(
        rules.locked.iter().map(|origin| ListedSetting::new("locked = true", origin.clone())),
    );
    let entry = |word: &str, listed: &ListedHost| {
        ListedSetting::new(format!("{word} {}", listed.origin.text), listed.origin.clone())
    };
    entries.extend(rules.allow.iter().map(|listed| entry("allow", listed)));
    entries.extend(rules.deny.iter().map(|listed| entry("deny", listed)));
    entries.extend(ports("localhost", &rules.localhost));
    if rules.git {
        entries.push(ListedSetting::new(
            "git = true",
            origins.setting_origin("network.git", None, |policy| policy.network.git == Some(true)),
        ));
    }
    let sockets = origins.setting_origin("network.unix-sockets", None, |policy| {
        !policy.network.unix_sockets.is_empty()
    });
    entries.extend(
        rules
            .unix_sockets
            .iter()
            .map(|socket| ListedSetting::new(format!("unix-socket {socket}"), sockets.clone())),
    );
    entries.extend(ports("bind", &rules.bind));
    if rules.mode == NetworkMode::AllowList {
        let origin = origins
            .setting_origin("network.sni", None, |policy| policy.network.sni == Some(rules.sni));
        entries.push(ListedSetting::new(format!("sni = {}", rules.sni.word()), origin));
    }
    if rules.proxy_variables {
        let origin = origins.setting_origin("network.proxy-variables", None, |policy| {
            policy.network.proxy_variables == Some(true)
        });
        entries.push(ListedSetting::new("proxy-variables = true", origin));
    }
    entries
}

fn secrets(grants: &Grants) -> Vec<ListedSetting> {
    let text = |secret: &SecretRule| {
        let hosts: Vec<String> = secret.hosts.iter().map(HostRule::to_string).collect();
        format!("{} for {} in {}", secret.env, hosts.join(", "), secret.header)
    };
    grants
        .network
        .secrets
        .iter()
        .map(|secret| ListedSetting::new(text(secret), secret.origin.clone()))
        .collect()
}

fn ports<'a>(key: &'a str, open: &'a OpenPorts) -> impl Iterator<Item = ListedSetting> + 'a {
    open.entries.iter().filter_map(move |PortEntry { ports, origin }| {
        let word = match ports {
            PortSelection::None => return None,
            PortSelection::All => "true".to_owned(),
            PortSelection::Some(ports) => format!("{ports:?}"),
        };
        Some(ListedSetting::new(format!("{key} = {word}"), origin.clone()))
    })
}

fn commands(grants: &Grants) -> Vec<ListedSetting> {
    let rules = &grants.commands;
    let mut entries = Vec::new();
    let mut list =
        |word: &str, rules: &[Origin]| {
            entries.extend(rules.iter().map(|origin| {
                ListedSetting::new(format!("{word} {}", origin.text), origin.clone())
            }));
        };
    list("deny", &rules.deny);
    list("allow-binary", &rules.allow_binaries);
    list("deny-argument", &rules.deny_arguments);
    list("excluded", &rules.excluded);
    let anchor = rules.anchor_arguments.iter();
    entries.extend(anchor.map(|anchor| {
        ListedSetting::new(format!("anchor-arguments {}", anchor.root), anchor.origin.clone())
    }));
    entries.extend(grants.tools.disallowed.iter().map(|rule| {
        ListedSetting::new(format!("disallowed-tool {}", rule.name), rule.origin.clone())
    }));
    entries.extend(grants.tools.allowed.iter().map(|list| {
        ListedSetting::new(format!("tools {}", list.rule.name), list.rule.origin.clone())
    }));
    entries
}

fn audit(grants: &Grants, origins: &PolicyOrigins<'_>) -> Vec<ListedSetting> {
    let rules = &grants.audit;
    let directory = ListedSetting::new(
        format!("directory = {}", rules.directory),
        Origin::new(Source::BuiltIn, "audit"),
    );
    vec![
        directory,
        ListedSetting::new(
            format!("fsync = {}", fsync_word(rules.fsync)),
            origins.setting_origin("audit.fsync", None, |policy| {
                policy.audit.fsync == Some(rules.fsync)
            }),
        ),
        ListedSetting::new(
            format!("on-error = {}", on_error_word(rules.on_error)),
            origins.setting_origin("audit.on-error", None, |policy| {
                policy.audit.on_error == Some(rules.on_error)
            }),
        ),
        ListedSetting::new(
            format!("rotate-size = {} bytes", rules.rotate_bytes),
            origins.setting_origin("audit.rotate-size", None, |policy| {
                policy.audit.rotate_size.as_ref().and_then(Amount::bytes)
                    == Some(rules.rotate_bytes)
            }),
        ),
    ]
}

fn limits(limits: &Limits, origins: &PolicyOrigins<'_>) -> Vec<ListedSetting> {
    let one = |(limit, most): (Limit, u64)| {
        let sets_limit = |policy: &ringfence_policy::Policy| match limit {
            Limit::Wall => policy.limits.wall.is_some(),
            Limit::Cpu => policy.limits.cpu.is_some(),
            Limit::Memory => policy.limits.memory.is_some(),
            Limit::Processes => policy.limits.processes.is_some(),
            Limit::OpenFiles => policy.limits.open_files.is_some(),
            Limit::FileSize => policy.limits.file_size.is_some(),
            Limit::Disk => policy.limits.disk.is_some(),
            Limit::Output => policy.limits.output.is_some(),
        };
        ListedSetting::new(
            format!("{limit} = {}", limit.format_amount(most)),
            origins.setting_origin(&format!("limits.{limit}"), None, sets_limit),
        )
    };
    limits.set_limits().into_iter().map(one).collect()
}
