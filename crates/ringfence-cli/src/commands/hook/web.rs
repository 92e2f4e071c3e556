//! Checks the agent's WebFetch tool.

use ringfence_api::{DenialEvidence, Operation};
use ringfence_policy::{HostDecision, Origin};

use super::answer::HookReply;
use super::call::{HookCall, HookRefusal};
use crate::commands::explain::decide_host;
use crate::error::CliError;

pub(super) fn answer(hook_call: &HookCall) -> Result<HookReply, CliError> {
    let grants = hook_call.grants();
    let url = hook_call.input.string_argument("url")?;
    if !grants.is_confined() {
        return hook_call.allow_unchanged(
            Operation::Connect,
            url,
            ("full-access".to_owned(), "the mode".to_owned()),
        );
    }
    let Some(host) = host(url) else {
        return Ok(HookReply::Denied {
            reason: format!("ringfence: `{url}` has no host to check"),
        });
    };
    let decision = match decide_host(&grants.network, &host) {
        Ok(decision) => decision,
        Err(error) => return Ok(HookReply::Denied { reason: format!("ringfence: {error}") }),
    };
    let rule = (decision.rule().unwrap_or_else(|| "network".to_owned()), origin(&decision));
    if decision.is_open() {
        return hook_call.allow_unchanged(Operation::Connect, &decision.target(), rule);
    }
    let more = decision.change_hint().map_or_else(
        || decision.why(),
        |change| format!("{}; to change that: {change}", decision.why()),
    );
    hook_call.record_refusal(HookRefusal {
        operation: Operation::Connect,
        target: decision.target(),
        rule,
        evidence: DenialEvidence::Tool,
        more: Some(more),
    })
}

fn origin(decision: &HostDecision) -> String {
    decision.origin().map_or_else(|| "built in".to_owned(), Origin::to_string)
}

/// Returns `HOST:PORT` of a URL. The agent uses TLS for every scheme, unless the URL has a port.
fn host(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let is_web = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    // Characters that parsers treat differently are refused.
    let is_odd = |c: char| c == '\\' || c == '@' || c.is_control() || c.is_whitespace();
    let authority = rest
        .split(['/', '?', '#'])
        .next()
        .filter(|authority| is_web && !authority.is_empty() && !authority.contains(is_odd))?;
    let has_port = authority.rsplit_once(':').is_some_and(|(host, port)| {
        !host.ends_with(':') && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    Some(if has_port && !authority.ends_with(']') {
        authority.to_owned()
    } else {
        format!("{authority}:443")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_taken_from_the_url() {
        for (url, expect) in [
            ("https://example.com/a?b#c", Some("example.com:443")),
            ("http://example.com", Some("example.com:443")),
            ("HTTPS://Example.com:8443/x", Some("Example.com:8443")),
            ("https://[::1]/x", Some("[::1]:443")),
            ("https://[::1]:80/x", Some("[::1]:80")),
            ("https://good.org@evil.org/", None),
            ("https://good.org\\@evil.org/", None),
            ("https:///x", None),
            ("file:///etc/passwd", None),
            ("example.com", None),
            ("https://a b/", None),
        ] {
            assert_eq!(host(url).as_deref(), expect, "{url}");
        }
    }
}
