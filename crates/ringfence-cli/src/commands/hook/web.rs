//! Pages that the agent fetches by itself.

use ringfence_api::{DenialEvidence, Operation};
use ringfence_policy::{HostDecision, Origin};

use super::answer::HookReply;
use super::call::{HookCall, HookRefusal};
use crate::commands::explain::passage;
use crate::error::CliError;

pub(super) fn answer(scene: &HookCall) -> Result<HookReply, CliError> {
    let grants = scene.grants();
    let url = scene.input.text("url")?;
    if !grants.is_confined() {
        return scene.pass(
            Operation::Connect,
            url,
            ("full-access".to_owned(), "the mode".to_owned()),
        );
    }
    let Some(host) = host(url) else {
        return Ok(HookReply::Denied {
            reason: format!("ringfence: `{url}` names no host that could be checked"),
        });
    };
    let passage = match passage(&grants.network, &host) {
        Ok(passage) => passage,
        Err(error) => return Ok(HookReply::Denied { reason: format!("ringfence: {error}") }),
    };
    let rule = (passage.rule().unwrap_or_else(|| "network".to_owned()), origin(&passage));
    if passage.is_open() {
        return scene.pass(Operation::Connect, &passage.target(), rule);
    }
    let more = passage.change().map_or_else(
        || passage.why(),
        |change| format!("{}; to change that: {change}", passage.why()),
    );
    scene.refuse(HookRefusal {
        operation: Operation::Connect,
        target: passage.target(),
        rule,
        evidence: DenialEvidence::Tool,
        more: Some(more),
    })
}

fn origin(passage: &HostDecision) -> String {
    passage.origin().map_or_else(|| "built in".to_owned(), Origin::to_string)
}

/// `HOST:PORT` of a page. Pages are fetched by TLS whatever the URL says, unless it names a port.
fn host(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let is_web = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    // What parsers read in different ways is not read.
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
    fn a_page_is_of_a_host() {
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
