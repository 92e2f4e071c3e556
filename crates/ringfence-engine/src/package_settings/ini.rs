//! `.npmrc` and `pip.conf`.

use super::Value::{Hosts, Number, OneOf, Switch, Url, Urls};
use super::{KnownKey, known, scoped, unquoted};

const NPM: &[KnownKey] = &[
    ("registry", Url),
    ("proxy", Url),
    ("http-proxy", Url),
    ("https-proxy", Url),
    ("noproxy", Hosts),
    ("strict-ssl", Switch),
    ("audit", Switch),
    ("fund", Switch),
    ("engine-strict", Switch),
    ("ignore-scripts", Switch),
    ("legacy-peer-deps", Switch),
    ("package-lock", Switch),
    ("prefer-offline", Switch),
    ("progress", Switch),
    ("save-exact", Switch),
    ("save-prefix", OneOf(&["^", "~", ""])),
    ("loglevel", OneOf(&["silent", "error", "warn", "notice", "http", "info", "verbose", "silly"])),
    ("fetch-retries", Number),
    ("fetch-timeout", Number),
    ("auto-install-peers", Switch),
    ("shamefully-hoist", Switch),
    ("strict-peer-dependencies", Switch),
    ("node-linker", OneOf(&["isolated", "hoisted", "pnp"])),
];

const PIP: &[KnownKey] = &[
    ("index-url", Url),
    ("extra-index-url", Urls),
    ("trusted-host", Hosts),
    ("proxy", Url),
    ("timeout", Number),
    ("retries", Number),
    ("no-index", Switch),
    ("prefer-binary", Switch),
    ("require-virtualenv", Switch),
    ("disable-pip-version-check", Switch),
    ("no-cache-dir", Switch),
];
const PIP_SECTIONS: &[&str] = &["global", "install", "download", "wheel", "list", "index"];

/// The copy of an `.npmrc`.
pub(super) fn npm(text: &str) -> Option<String> {
    let mut copy = String::new();
    for line in text.lines().map(str::trim) {
        // npm has no sections, so the rest of the file is ignored.
        if line.starts_with('[') {
            break;
        }
        let Some((name, value)) =
            line.split_once('=').map(|(name, value)| (unquoted(name), unquoted(value)))
        else {
            continue;
        };
        if let Some(value) = scoped(name, value).or_else(|| known(NPM, name, value)) {
            copy.push_str(&format!("{name}={value}\n"));
        }
    }
    (!copy.is_empty()).then_some(copy)
}

/// The copy of a `pip.conf`. A value continues on lines that begin with white space.
pub(super) fn pip(text: &str) -> Option<String> {
    let mut copy = String::new();
    let mut section: Option<&str> = None;
    let mut lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with(['#', ';']))
        .peekable();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end().strip_suffix(']').filter(|name| PIP_SECTIONS.contains(name));
            if let Some(section) = section {
                copy.push_str(&format!("[{section}]\n"));
            }
            continue;
        }
        // Python refuses a file that begins with such a line, so there is no copy.
        let (name, first) =
            line.split_once(['=', ':']).filter(|_| !line.starts_with(char::is_whitespace))?;
        let mut values = vec![first.trim()];
        while let Some(more) = lines.next_if(|more| more.starts_with(char::is_whitespace)) {
            values.push(more.trim());
        }
        let name = name.trim().to_ascii_lowercase().replace('_', "-");
        let value = values.join(" ");
        if let Some(value) = known(PIP, &name, value.trim()).filter(|_| section.is_some()) {
            copy.push_str(&format!("{name} = {value}\n"));
        }
    }
    copy.contains('=').then_some(copy)
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(filter: fn(&str) -> Option<String>, text: &str, expect: Option<&str>) {
        assert_eq!(filter(text).as_deref(), expect, "{text}");
    }

    #[test]
    fn registries_of_npm_pass_and_tokens_do_not() {
        let file = "; mine\n//registry.example.org/:_authToken=npm_abc\nregistry = \"https://registry.example.org/\"\n\
                    @team:registry=https://npm.team.example/\n_auth=abc\n//x/:_password=abc\nemail=me@example.org\nalways-auth=true\n\
                    proxy=http://me:secret@proxy:3128\nhttps-proxy=http://proxy:3128\nnoproxy=.example.org,localhost\nstrict-ssl=false\n\
                    cafile=/etc/ca.pem\nkey=\"-----BEGIN\"\nregistry=https://tok@x/\n@a b:registry=https://x/\n[x]\nregistry=https://y/\n";
        check(
            super::npm,
            file,
            Some(
                "registry=https://registry.example.org/\n@team:registry=https://npm.team.example/\nhttps-proxy=http://proxy:3128\n\
                 noproxy=.example.org,localhost\nstrict-ssl=false\nregistry=https://x/\n",
            ),
        );
        check(super::npm, "//registry.example.org/:_authToken=npm_abc\n", None);
        check(super::npm, "registry=${SECRET_URL}\n", None);
        check(super::npm, "registry:_authToken=https://x/\n", None);
    }

    #[test]
    fn indexes_of_pip_pass_and_passwords_do_not() {
        check(
            super::pip,
            "# mine\n[global]\nindex-url = https://pypi.example.org/simple\nextra_index_url =\n    https://a.org/simple\n    https://b.org/simple\n\
             trusted-host = pypi.example.org\ncert = /etc/ca.pem\nclient-cert = /me.pem\npassword = x\n",
            Some(
                "[global]\nindex-url = https://pypi.example.org/simple\nextra-index-url = https://a.org/simple https://b.org/simple\n\
                 trusted-host = pypi.example.org\n",
            ),
        );
        // Without them pip would use the public index.
        let plain = "[global]\nindex-url = https://pypi.example.org/simple\n";
        check(
            super::pip,
            "[global]\nindex-url = https://me:secret@pypi.example.org/simple\n",
            Some(plain),
        );
        let several = "[global]\nextra-index-url = https://a.org/ https://b.org/\n";
        check(
            super::pip,
            "[global]\nextra-index-url =\n  https://a.org/\n  https://me:secret@b.org/\n",
            Some(several),
        );
        check(super::pip, "[other]\nindex-url = https://a.org/\n", None);
        check(super::pip, "  index-url = https://a.org/\n", None);
        check(super::pip, "[global]\nnot a setting\nindex-url = https://a.org/\n", None);
    }
}
