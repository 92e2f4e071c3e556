//! Variables that pass if their value contains no secret: certificates, registries and mirrors.

use super::name_matches;
use crate::builtin::ENV_DENY;
use crate::environment::{EnvDecision, EnvReason};
use crate::grants::EnvironmentRules;
use crate::public_value::{
    are_public_urls, is_host, is_public_url, looks_random, redact_url, redact_urls,
};

/// Condition on the value of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueCheck {
    /// The path of a file with only certificates. Only the host can check it.
    Certificates,
    /// A URL without user, password or token.
    Url,
    /// Such URLs separated by whitespace, each with an optional name (`team=https://…`).
    Urls,
    /// Host names separated by whitespace or commas.
    Hosts,
    /// URLs, `direct` and `off`, separated by `,` and `|`.
    GoProxy,
    /// Patterns of Go modules, separated by commas.
    GoModules,
}

const CHECKED: &[(&str, ValueCheck)] = &[
    ("SSL_CERT_FILE", ValueCheck::Certificates),
    ("NIX_SSL_CERT_FILE", ValueCheck::Certificates),
    ("NODE_EXTRA_CA_CERTS", ValueCheck::Certificates),
    ("REQUESTS_CA_BUNDLE", ValueCheck::Certificates),
    ("CURL_CA_BUNDLE", ValueCheck::Certificates),
    ("CARGO_HTTP_CAINFO", ValueCheck::Certificates),
    ("GIT_SSL_CAINFO", ValueCheck::Certificates),
    ("PIP_CERT", ValueCheck::Certificates),
    ("AWS_CA_BUNDLE", ValueCheck::Certificates),
    ("DENO_CERT", ValueCheck::Certificates),
    ("npm_config_cafile", ValueCheck::Certificates),
    ("npm_config_registry", ValueCheck::Url),
    ("YARN_REGISTRY", ValueCheck::Url),
    ("YARN_NPM_REGISTRY_SERVER", ValueCheck::Url),
    ("COREPACK_NPM_REGISTRY", ValueCheck::Url),
    ("PIP_INDEX_URL", ValueCheck::Url),
    ("PIP_EXTRA_INDEX_URL", ValueCheck::Urls),
    ("PIP_TRUSTED_HOST", ValueCheck::Hosts),
    ("UV_INDEX_URL", ValueCheck::Url),
    ("UV_DEFAULT_INDEX", ValueCheck::Urls),
    ("UV_INDEX", ValueCheck::Urls),
    ("UV_EXTRA_INDEX_URL", ValueCheck::Urls),
    ("CARGO_REGISTRIES_*_INDEX", ValueCheck::Url),
    ("RUSTUP_DIST_SERVER", ValueCheck::Url),
    ("RUSTUP_UPDATE_ROOT", ValueCheck::Url),
    ("GOPROXY", ValueCheck::GoProxy),
    ("GOSUMDB", ValueCheck::GoModules),
    ("GOPRIVATE", ValueCheck::GoModules),
    ("GONOPROXY", ValueCheck::GoModules),
    ("GONOSUMDB", ValueCheck::GoModules),
    ("GONOSUMCHECK", ValueCheck::GoModules),
    ("GOINSECURE", ValueCheck::GoModules),
];

impl ValueCheck {
    /// The value without secrets: URLs lose user, password and possible tokens.
    pub fn redact(self, value: &str) -> Option<String> {
        match self {
            ValueCheck::Url => redact_url(value),
            ValueCheck::Urls => redact_urls(value, &[], |_| false),
            ValueCheck::GoProxy => {
                redact_urls(value, &[',', '|'], |word| ["direct", "off"].contains(&word))
            }
            ValueCheck::Certificates | ValueCheck::Hosts | ValueCheck::GoModules => {
                self.accepts(value).then(|| value.to_owned())
            }
        }
    }

    /// True if the value contains no secret. The caller must also read the file of
    /// [`ValueCheck::Certificates`].
    pub fn accepts(self, value: &str) -> bool {
        let items = |separators: &[char]| {
            value
                .split(|c: char| c.is_whitespace() || separators.contains(&c))
                .filter(|item| !item.is_empty())
                .collect::<Vec<_>>()
        };
        let all = |separators: &[char], is_public: &dyn Fn(&str) -> bool| {
            let items = items(separators);
            !items.is_empty() && items.into_iter().all(is_public)
        };
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 64
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        match self {
            ValueCheck::Certificates => value.starts_with('/'),
            ValueCheck::Url => is_public_url(value),
            ValueCheck::Urls => all(&[], &|item| match item.split_once('=') {
                Some((name, url)) if is_name(name) => is_public_url(url),
                _ => is_public_url(item),
            }),
            ValueCheck::Hosts => all(&[','], &is_host),
            ValueCheck::GoProxy => all(&[',', '|'], &|item| {
                ["direct", "off"].contains(&item) || are_public_urls(item, &[])
            }),
            ValueCheck::GoModules => all(&[','], &|item| {
                item.chars().all(|c| c.is_ascii_alphanumeric() || "-._*/".contains(c))
                    && !item.split('/').any(looks_random)
            }),
        }
    }
}

impl EnvironmentRules {
    /// The check by which `name` passes although no list allows it; `None` if other rules decide.
    pub fn value_check(&self, name: &str) -> Option<ValueCheck> {
        // Found first: most names have no check, and the lists of a policy are long.
        let (_, check) = CHECKED.iter().find(|(glob, _)| name_matches(glob, name))?;
        match self.decide(name) {
            EnvDecision::Filtered { because: EnvReason::Unlisted } => Some(*check),
            EnvDecision::Filtered { because: EnvReason::Denied(glob) }
                if ENV_DENY.iter().any(|entry| entry.text == glob) =>
            {
                Some(*check)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, value: &str, expect: bool) {
        let passes = EnvironmentRules::built_in()
            .value_check(name)
            .is_some_and(|check| check.accepts(value));
        assert_eq!(passes, expect, "{name}={value}");
    }

    #[test]
    fn registries_pass_without_a_password() {
        check("PIP_INDEX_URL", "https://pypi.example.org/simple", true);
        check("PIP_INDEX_URL", "https://me:secret@pypi.example.org/simple", false);
        check("NPM_CONFIG_REGISTRY", "https://npm.example.org/", true);
        check("npm_config__authToken", "https://npm.example.org/", false);
        check("UV_INDEX", "team=https://a.org/simple https://b.org/simple", true);
        check("UV_INDEX", "team=https://me:x@a.org/simple", false);
        check("UV_INDEX_TEAM_PASSWORD", "https://a.org", false);
        check("CARGO_REGISTRIES_TEAM_INDEX", "sparse+https://cargo.example.org/", true);
        check("CARGO_REGISTRIES_TEAM_TOKEN", "https://a.org", false);
        check("GOPROXY", "https://goproxy.example.org,direct", true);
        check("GOPROXY", "https://me:x@goproxy.example.org|direct", false);
        check("GOPRIVATE", "git.example.org/*,*.corp.example", true);
        check("GOPRIVATE", "git.example.org/a8Gd93kfP0q2mZx7", false);
        check("PIP_TRUSTED_HOST", "pypi.example.org:8443", true);
    }

    #[test]
    fn certificates_are_named_by_a_full_path() {
        check("SSL_CERT_FILE", "/etc/company/ca.pem", true);
        check("AWS_CA_BUNDLE", "/etc/company/ca.pem", true);
        check("SSL_CERT_FILE", "ca.pem", false);
        check("AWS_SECRET_ACCESS_KEY", "/etc/company/ca.pem", false);
    }

    #[test]
    fn rules_of_the_user_decide_first() {
        let mut rules = EnvironmentRules::built_in();
        rules.deny.insert(0, "PIP_*".into());
        assert_eq!(rules.value_check("PIP_INDEX_URL"), None);
        rules.clean = true;
        assert_eq!(rules.value_check("GOPROXY"), None);
        assert_eq!(EnvironmentRules::built_in().value_check("PATH"), None);
    }
}
