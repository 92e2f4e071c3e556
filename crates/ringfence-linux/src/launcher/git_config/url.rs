//! URLs that git can fetch from without running a program that the URL names.

/// True if git treats a value as a plain URL: one of a known scheme, `host:path`, or a path.
/// `ext::` and other helpers are programs; a leading dash is an option.
pub(super) fn is_plain(address: &str) -> bool {
    const SCHEMES: [&str; 6] = ["https", "http", "ssh", "git", "file", "git+ssh"];
    let is_text = !address.is_empty() && !address.chars().any(|c| c.is_control());
    let is_known = match address.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            SCHEMES.contains(&scheme) && !rest.starts_with('-') && !host.starts_with('-')
        }
        None => true,
    };
    // `user@-option:path` reaches ssh as an option.
    let is_option = address.starts_with('-')
        || address.split(['@', ':', '/']).next().is_some_and(|first| first.starts_with('-'));
    is_text && is_known && !is_option && !address.contains("::") && !address.contains("@-")
}

/// The URL of a submodule, with a relative one resolved against `base` as git does.
pub(super) fn resolve(base: &str, written: &str) -> Option<String> {
    if !is_relative(written) {
        return Some(written.to_owned());
    }
    let (mut base, mut rest) = (base.trim_end_matches('/').to_owned(), written);
    let mut separator = '/';
    loop {
        if let Some(below) = rest.strip_prefix("../") {
            let at = base.rfind(['/', ':'])?;
            separator = if base[at..].starts_with(':') { ':' } else { '/' };
            base.truncate(at);
            rest = below;
        } else if let Some(below) = rest.strip_prefix("./") {
            rest = below;
        } else {
            break;
        }
    }
    Some(format!("{base}{separator}{}", rest.trim_end_matches('/')))
}

fn is_relative(address: &str) -> bool {
    address.starts_with("./") || address.starts_with("../")
}

#[cfg(test)]
mod tests {
    use super::{is_plain, resolve};

    #[test]
    fn programs_and_options_are_not_plain_urls() {
        for good in [
            "https://a.org/x.git",
            "git@a.org:x/y.git",
            "ssh://me@a.org:22/x",
            "/srv/x",
            "../x",
            "file:///srv/x",
            "a.org:x",
        ] {
            assert!(is_plain(good), "{good}");
        }
        for bad in [
            "",
            "ext::sh -c x",
            "EXT::x",
            "-upload",
            "ssh://-oProxyCommand=x/y",
            "ssh://a@-o/x",
            "x@-oProxyCommand=y:z",
            "fd::3",
            "a\nb",
            "foo://x",
        ] {
            assert!(!is_plain(bad), "{bad}");
        }
    }

    #[test]
    fn relative_urls_resolve_as_in_git() {
        for (base, written, expected) in [
            ("https://a.org/me/x.git", "../lib.git", "https://a.org/me/lib.git"),
            ("https://a.org/me/x.git/", "../../you/lib", "https://a.org/you/lib"),
            ("git@a.org:x.git", "../lib", "git@a.org:lib"),
            ("/srv/x", "./lib", "/srv/x/lib"),
            ("/srv/x", "../lib/", "/srv/lib"),
            ("/srv/x", "https://b.org/y", "https://b.org/y"),
        ] {
            assert_eq!(resolve(base, written).as_deref(), Some(expected), "{base} {written}");
        }
        assert_eq!(resolve("x", "../../y"), None);
    }
}
