//! The declared needs of a skill or a sandbox request, as a ceiling.

use axum::http::StatusCode;
use ringfence_policy::{
    Effect, Grants, HostRule, Limit, ListedHost, NetworkMode, OpenPorts, Origin, Rule, Source,
};
use ringfence_skills::SkillNeeds;

use crate::error::{ApiError, ApiResult};

/// Narrows `grants` to the declared needs of a skill or of a sandbox request. Without a declaration
/// the tenant's policy stays; a declaration never widens it. `place` names the source of the
/// declaration.
pub(crate) fn narrow(grants: &mut Grants, needs: &SkillNeeds, place: &str) -> ApiResult<()> {
    if let Some(hosts) = &needs.hosts {
        let hosts: Result<Vec<HostRule>, _> =
            hosts.iter().map(|host| HostRule::parse(host)).collect();
        narrow_hosts(grants, &hosts.map_err(|error| unread(&error))?, place);
    }
    if let Some(writes) = &needs.writes {
        narrow_writes(grants, writes, place);
    }
    for (name, amount) in needs.limits.iter().flatten() {
        let limit = Limit::ALL
            .iter()
            .copied()
            .find(|limit| limit.word() == name)
            .ok_or_else(|| unread(&"no such limit"))?;
        let most = limit.parse_amount(amount).ok_or_else(|| unread(&limit.expected_format()))?;
        let least = [grants.limits.get(limit), Some(most)].into_iter().flatten().min();
        grants.limits = grants.limits.with(limit, least);
    }
    Ok(())
}

/// The declaration was valid at upload: an unreadable ceiling is never ignored.
fn unread(why: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(
        StatusCode::CONFLICT,
        "needs",
        format!("cannot read the declared needs of the skill: {why}"),
    )
    .hint("upload the skill again")
}

fn origin(text: String) -> Origin {
    Origin::new(Source::Project, text)
}

fn narrow_hosts(grants: &mut Grants, hosts: &[HostRule], place: &str) {
    let network = &mut grants.network;
    let listed =
        |rule: HostRule| ListedHost { origin: origin(format!("{place}.hosts: {rule}")), rule };
    network.allow = match network.mode {
        NetworkMode::None => Vec::new(),
        NetworkMode::Full => hosts.iter().cloned().map(listed).collect(),
        NetworkMode::AllowList => {
            let both = network
                .allow
                .iter()
                .flat_map(|allowed| hosts.iter().filter_map(|host| allowed.rule.intersect(host)));
            both.map(listed).collect()
        }
    };
    // Access that no host list controls cannot be narrowed by one.
    network.localhost = OpenPorts::default();
    network.git = false;
    network.mode =
        if network.allow.is_empty() { NetworkMode::None } else { NetworkMode::AllowList };
    network.mode_origin = Some(origin(format!("{place}.hosts")));
}

fn narrow_writes(grants: &mut Grants, writes: &[String], place: &str) {
    let workspace = grants.workspace.clone();
    let within: Vec<_> = writes.iter().map(|path| workspace.join(path)).collect();
    let was_writable =
        grants.rules.iter().any(|rule| rule.effect == Effect::Write && rule.root == workspace);
    for rule in grants.rules.iter_mut().filter(|rule| rule.effect == Effect::Write) {
        if !within.iter().any(|path| rule.root.is_within(path)) {
            rule.effect = Effect::Read;
            rule.origin = origin(format!("{place}.writes"));
        }
    }
    if was_writable {
        for root in within {
            let origin = origin(format!("{place}.writes: {root}"));
            grants.rules.push(Rule { root, effect: Effect::Write, origin, locked: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{AbsPath, Access, Facts, Flags, NetworkMode, Verdict, parse, resolve};

    use super::*;

    fn grants(policy: &str) -> Grants {
        let path = |text: &str| AbsPath::new(text).unwrap();
        let facts = Facts::minimal(
            path("/data/skills/u/a/s"),
            path("/data/tenants/u/home"),
            path("/data/tenants/u/store"),
        );
        let layer = parse(policy, &path("/data/policy.toml"), Source::User).unwrap();
        resolve(&[layer], &Flags::none(facts.workspace.clone()), &facts).unwrap()
    }

    fn hosts(list: &[&str]) -> SkillNeeds {
        SkillNeeds {
            hosts: Some(list.iter().map(|host| (*host).to_owned()).collect()),
            ..SkillNeeds::default()
        }
    }

    fn allowed(policy: &str, needs: &SkillNeeds) -> Vec<String> {
        let mut grants = grants(policy);
        narrow(&mut grants, needs, "test").unwrap();
        assert_eq!(grants.network.mode == NetworkMode::None, grants.network.allow.is_empty());
        grants.network.allow.iter().map(|listed| listed.rule.to_string()).collect()
    }

    #[test]
    fn only_hosts_named_by_policy_and_skill_stay_allowed() {
        let tenant = "version = 1\n[network]\nmode = \"allow-list\"\nallow = [\"*.example.org\", \"api.test:443\"]\n";
        assert_eq!(
            allowed(tenant, &hosts(&["a.example.org", "example.org", "evil.test", "api.test"])),
            ["a.example.org", "api.test:443"]
        );
        assert_eq!(
            allowed(tenant, &hosts(&["*.b.example.org:80", "api.test:80"])),
            ["*.b.example.org:80"]
        );
        assert_eq!(allowed(tenant, &hosts(&[])), [""; 0]);
        assert_eq!(
            allowed("version = 1\n[network]\nmode = \"full\"\n", &hosts(&["one.test"])),
            ["one.test"]
        );
        assert_eq!(allowed("version = 1\n", &hosts(&["one.test"])), [""; 0]);
    }

    #[test]
    fn only_declared_paths_stay_writable() {
        let mut grants = grants("version = 1\n");
        narrow(
            &mut grants,
            &SkillNeeds { writes: Some(vec!["out".into()]), ..SkillNeeds::default() },
            "test",
        )
        .unwrap();
        let may = |path: &str, how| {
            grants.decide(&AbsPath::new(path).unwrap(), how).verdict == Verdict::Allowed
        };
        assert!(may("/data/skills/u/a/s/out/x", Access::Write));
        assert!(!may("/data/skills/u/a/s/x", Access::Write));
        assert!(may("/data/skills/u/a/s/x", Access::Read));
    }

    #[test]
    fn declared_limit_never_raises_the_policys() {
        let mut grants = grants("version = 1\n[limits]\nmemory = \"64MiB\"\n");
        let limits = Some(vec![("memory".into(), "1TiB".into()), ("processes".into(), "4".into())]);
        narrow(&mut grants, &SkillNeeds { limits, ..SkillNeeds::default() }, "test").unwrap();
        assert_eq!((grants.limits.memory, grants.limits.processes), (Some(64 << 20), Some(4)));
    }
}
