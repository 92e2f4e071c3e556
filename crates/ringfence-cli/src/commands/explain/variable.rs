//! Explains environment variables.

use ringfence_engine::{ResolvedPolicy, value_decision};
use ringfence_policy::builtin::ENV_DENY;
use ringfence_policy::{EnvDecision, EnvReason, Origin, Source};

use super::{ExplainVerdict, Explanation};
use crate::origins::PolicyOrigins;

pub(super) fn explain(
    name: &str,
    resolved: &ResolvedPolicy,
    origins: &PolicyOrigins<'_>,
) -> Explanation {
    let grants = &resolved.grants;
    if !grants.is_confined() {
        return Explanation::new(name, "passes", ExplainVerdict::Allowed)
            .line("why", "nothing is confined");
    }
    let rules = &grants.environment;
    if let Some(secret) = grants.network.secrets.iter().find(|secret| secret.env == name) {
        let hosts: Vec<String> = secret.hosts.iter().map(ToString::to_string).collect();
        let why = format!(
            "the value stays outside; ringfence puts it into {} for requests to {}",
            secret.header,
            hosts.join(", ")
        );
        let why = if secret.is_set {
            format!("the sandbox sees a placeholder; {why}")
        } else {
            "it is not set".into()
        };
        return Explanation::new(name, "filtered", ExplainVerdict::Refused)
            .line("rule", "[[secrets]]")
            .line("from", secret.origin.to_string())
            .line("why", why);
    }
    match value_decision(resolved, name) {
        Some(Ok(shown)) => {
            let is_whole = resolved
                .surroundings
                .variables
                .iter()
                .any(|(known, value)| known == name && value.to_str() == Some(&shown));
            let why = if is_whole {
                "its value contains no secret".into()
            } else {
                format!("without the parts that may be secret: {shown}")
            };
            return Explanation::new(name, "passes", ExplainVerdict::Allowed)
                .line("from", "built in")
                .line("why", why);
        }
        Some(Err(why)) => {
            let change =
                format!("ringfence run --env {name}, or add it to `allow` under [environment]");
            return Explanation::new(name, "filtered", ExplainVerdict::Refused)
                .line("from", "built in")
                .line("why", why)
                .line("change", change);
        }
        None => {}
    }
    match rules.decide(name) {
        EnvDecision::Passes { because } => passes(name, &because, origins),
        EnvDecision::Filtered { because } => filtered(name, &because, origins),
    }
}

fn passes(name: &str, because: &EnvReason, origins: &PolicyOrigins<'_>) -> Explanation {
    let answer = Explanation::new(name, "passes", ExplainVerdict::Allowed);
    match because {
        EnvReason::Set => answer
            .line("rule", format!("set {name}"))
            .line("from", origins.variable_origin(name).to_string()),
        EnvReason::Named => answer
            .line("rule", format!("allow {name}"))
            .line("from", origins.variable_origin(name).to_string())
            .line("why", "allowed by name"),
        EnvReason::Allowed(glob) => {
            let origin =
                origins.entry_origin("environment.allow", |policy| &policy.environment.allow, glob);
            answer.line("rule", format!("allow {glob}")).line("from", origin.to_string())
        }
        EnvReason::Clean | EnvReason::Denied(_) | EnvReason::Unlisted => {
            answer.line("why", "one of the six variables of the clean profile")
        }
    }
}

fn filtered(name: &str, because: &EnvReason, origins: &PolicyOrigins<'_>) -> Explanation {
    let answer = Explanation::new(name, "filtered", ExplainVerdict::Refused);
    let answer = match because {
        EnvReason::Denied(glob) => {
            let origin =
                origins.entry_origin("environment.deny", |policy| &policy.environment.deny, glob);
            let why = reason(&origin);
            answer
                .line("rule", format!("deny {glob}"))
                .line("from", origin.to_string())
                .line_if_some("why", why)
        }
        EnvReason::Clean => {
            let origin = origins.setting_origin("environment.profile", None, |policy| {
                policy.environment.profile.is_some()
            });
            answer
                .line("rule", "profile = clean")
                .line("from", origin.to_string())
                .line("why", "only six variables pass")
        }
        EnvReason::Unlisted | EnvReason::Set | EnvReason::Named | EnvReason::Allowed(_) => {
            answer.line("why", "no list allows it, and only listed variables pass")
        }
    };
    answer.line(
        "change",
        format!("ringfence run --env {name}, or for good: ringfence allow env {name}"),
    )
}

fn reason(origin: &Origin) -> Option<String> {
    let entry = ENV_DENY.iter().find(|entry| entry.text == origin.text);
    entry.filter(|_| origin.source == Source::BuiltIn).map(|entry| entry.reason.to_owned())
}
