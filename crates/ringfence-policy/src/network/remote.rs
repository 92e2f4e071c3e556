//! Hosts of a project's git remotes.

use super::name::HostTarget;
use super::range::IpRange;
use super::rule::{HostPattern, HostRule};

/// The rules that git needs to reach a remote: the port in the URL, and the ports of https and ssh,
/// because git is often configured to replace one with the other. Empty for a path or the address
/// of a helper program.
pub fn remote_rules(url: &str) -> Vec<HostRule> {
    let Some((host, own)) = host_and_port(url) else { return Vec::new() };
    let subject = match HostTarget::new(host) {
        Ok(HostTarget::Name(name)) if !name.is_localhost() => HostPattern::Name(name),
        Ok(HostTarget::Address(address)) => HostPattern::Range(IpRange::single(address)),
        Ok(HostTarget::Name(_)) | Err(_) => return Vec::new(),
    };
    let others = [HTTPS, SSH].into_iter().filter(|port| *port != own);
    [own]
        .into_iter()
        .chain(others)
        .map(|port| HostRule { subject: subject.clone(), port: Some(port) })
        .collect()
}

const HTTPS: u16 = 443;
const SSH: u16 = 22;

fn host_and_port(url: &str) -> Option<(&str, u16)> {
    let Some((scheme, rest)) = url.split_once("://") else { return parse_scp_url(url) };
    let usual = match scheme.to_ascii_lowercase().as_str() {
        "https" => HTTPS,
        "http" => 80,
        "ssh" | "git+ssh" | "ssh+git" => SSH,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    split_port(without_user(authority), usual)
}

/// scp syntax: `git@host:path`, `host:path`, `git@[host:2222]:path`, with a colon before any slash.
fn parse_scp_url(url: &str) -> Option<(&str, u16)> {
    let end = url.find('/').unwrap_or(url.len());
    let before = without_user(&url[..end]);
    if let Some(inner) = before.strip_prefix('[') {
        let (inner, rest) = inner.split_once(']')?;
        rest.strip_prefix(':')?;
        return if inner.matches(':').count() > 1 {
            Some((inner, SSH))
        } else {
            split_port(inner, SSH)
        };
    }
    let (host, path) = before.split_once(':')?;
    // `helper::address` is the address of a helper program.
    (!path.starts_with(':')).then_some((host, SSH))
}

fn without_user(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

fn split_port(text: &str, usual: u16) -> Option<(&str, u16)> {
    let bracket = text.rfind(']').unwrap_or(0);
    match text[bracket..].rfind(':').map(|at| text.split_at(bracket + at)) {
        None => Some((text, usual)),
        Some((host, ":")) => Some((host, usual)),
        Some((host, port)) => {
            let is_number = port[1..].bytes().all(|byte| byte.is_ascii_digit());
            let port = port[1..].parse().ok().filter(|&port: &u16| is_number && port != 0)?;
            Some((host, port))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expect: &str) {
        let rules: Vec<String> = remote_rules(url).iter().map(HostRule::to_string).collect();
        assert_eq!(rules.join(" "), expect, "{url}");
    }

    #[test]
    fn all_git_remote_syntaxes_are_parsed() {
        check("https://GitHub.com/me/x.git", "github.com:443 github.com:22");
        check(
            "https://me:token@git.example:8443/x",
            "git.example:8443 git.example:443 git.example:22",
        );
        check("http://git.example/x", "git.example:80 git.example:443 git.example:22");
        check(
            "ssh://git@git.example:2222/~me/x",
            "git.example:2222 git.example:443 git.example:22",
        );
        check("ssh://git.example", "git.example:22 git.example:443");
        check("git@github.com:me/x.git", "github.com:22 github.com:443");
        check("github.com:x", "github.com:22 github.com:443");
        check("git@[git.example:2222]:me/x", "git.example:2222 git.example:443 git.example:22");
        check("[2606:4700::1]:x", "[2606:4700::1]:22 [2606:4700::1]:443");
        check(
            "https://[2606:4700::1]:8443/x",
            "[2606:4700::1]:8443 [2606:4700::1]:443 [2606:4700::1]:22",
        );
        check("ssh://0x7f000001/x", "127.0.0.1:22 127.0.0.1:443");
        check("https://git.example:/x", "git.example:443 git.example:22");
    }

    #[test]
    fn remote_without_host_opens_nothing() {
        for url in [
            "",
            "/srv/x.git",
            "../x",
            "./a:b",
            "file:///srv/x",
            "git://git.example/x",
            "ext::sh -c evil",
            "https://",
            "https:///x",
        ] {
            check(url, "");
        }
        for url in [
            "ssh://-oProxyCommand=evil/x",
            "-oProxyCommand=evil:x",
            "https://a b/x",
            "https://x:0/",
            "https://x:65536/",
            "https://x:+1/",
        ] {
            check(url, "");
        }
        check("https://localhost/x", "");
        check("https://evil.example#@github.com/x", "evil.example:443 evil.example:22");
        check("https://github.com@evil.example/x", "evil.example:443 evil.example:22");
    }
}
