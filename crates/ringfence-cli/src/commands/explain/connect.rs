//! Hosts and sockets.

use std::net::IpAddr;
use std::path::Path;

use ringfence_engine::plan;
use ringfence_local::Local;
use ringfence_policy::{AbsPath, Access, Grants, NetworkMode, Verdict};

use super::{Answer, Fate};
use crate::commands::words::{Meant, below_home};
use crate::error::CliError;
use crate::origins::Origins;

pub(super) fn explain(target: &str, meant: &Meant, origins: &Origins<'_>) -> Result<Answer, CliError> {
    let grants = &meant.resolved.grants;
    if !grants.is_confined() {
        return Ok(Answer::new(target, "allowed", Fate::Allowed).line("why", "nothing is confined"));
    }
    if target.contains('/') {
        return Ok(socket(&below_home(Path::new(target).as_os_str(), &meant.cwd, &grants.home), grants, origins));
    }
    let gap = plan(&Local::default(), &meant.resolved)?.gaps.into_iter().find(|gap| gap.what.starts_with("network."));
    let from = origins.network(grants.network.mode).to_string();
    let ruled = |answer: Answer, word: &str| answer.line("rule", format!("network mode = {word}")).line("from", from.clone());
    let refused = || Answer::new(target, "denied", Fate::Refused);
    let is_own = is_loopback(host(target));
    Ok(match grants.network.mode {
        NetworkMode::Full => {
            let answer = ruled(Answer::new(target, "allowed", Fate::Allowed), "full");
            answer.line("why", "the network is the host's own: every host can be reached")
        }
        NetworkMode::None if is_own => ruled(refused(), "none")
            .line("why", "the sandbox has a loopback of its own: its own servers answer there, the host's do not")
            .line("change", "ringfence run --net full"),
        NetworkMode::None => ruled(refused(), "none").line("why", "the network is shut").line("change", "ringfence run --net full"),
        NetworkMode::AllowList => match gap {
            Some(gap) => ruled(refused(), "allow-list").line("why", gap.why).line("change", gap.hint),
            None => ruled(refused(), "allow-list").line("why", "the list is asked when the connection is made"),
        },
    })
}

/// A socket of the host by its path: it has to be listed, and what it stands in has to be open.
fn socket(path: &AbsPath, grants: &Grants, origins: &Origins<'_>) -> Answer {
    let target = path.to_string();
    let refused = Answer::new(&target, "denied", Fate::Refused);
    if !grants.network.unix_sockets.contains(path) {
        return refused
            .line("why", "sockets of the host are shut unless they are listed")
            .line("change", "add it to `unix-sockets` under [network] in ~/.config/ringfence/policy.toml");
    }
    let origin = origins.setting("network.unix-sockets", None, |policy| !policy.network.unix_sockets.is_empty());
    let ruled = |answer: Answer| answer.line("rule", format!("unix-sockets {path}")).line("from", origin.to_string());
    if grants.verdict(path, Access::Read) != Verdict::Allowed {
        return ruled(refused)
            .line("why", "it is listed, but no rule opens what it stands in")
            .line("change", format!("ringfence run --read {path}"));
    }
    ruled(Answer::new(&target, "allowed", Fate::Allowed))
}

/// Without the port: `host`, `host:port`, `[v6]:port`, and a bare v6 address.
fn host(target: &str) -> &str {
    if target.parse::<IpAddr>().is_ok() {
        return target;
    }
    if let Some((address, _)) = target.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    target.rsplit_once(':').map_or(target, |(host, _)| host)
}

fn is_loopback(host: &str) -> bool {
    let is_name = host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost");
    is_name || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{host, is_loopback};

    #[track_caller]
    fn check(target: &str, expect: &str, loopback: bool) {
        assert_eq!((host(target), is_loopback(host(target))), (expect, loopback), "{target}");
    }

    #[test]
    fn a_port_is_no_part_of_the_host() {
        check("example.com", "example.com", false);
        check("example.com:443", "example.com", false);
        check("localhost:8080", "localhost", true);
        check("127.0.0.1:1", "127.0.0.1", true);
        check("::1", "::1", true);
        check("[::1]:80", "::1", true);
        check("[2001:db8::1]", "2001:db8::1", false);
    }
}
