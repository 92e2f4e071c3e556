//! `.yarnrc` of yarn 1 and `.yarnrc.yml` of later versions.

use super::Value::{Number, OneOf, Switch, Url};
use super::{KnownKey, is_scope, known, scoped, unquoted};
use ringfence_policy::redact_url;

const CLASSIC: &[KnownKey] = &[
    ("registry", Url),
    ("proxy", Url),
    ("https-proxy", Url),
    ("strict-ssl", Switch),
    ("network-timeout", Number),
    ("save-prefix", OneOf(&["^", "~", ""])),
];

const BERRY: &[KnownKey] = &[
    ("npmRegistryServer", Url),
    ("httpProxy", Url),
    ("httpsProxy", Url),
    ("enableStrictSsl", Switch),
    ("enableTelemetry", Switch),
    ("enableGlobalCache", Switch),
    ("enableScripts", Switch),
    ("httpRetry", Number),
    ("httpTimeout", Number),
    ("networkConcurrency", Number),
    ("nodeLinker", OneOf(&["pnp", "pnpm", "node-modules"])),
];

/// The copy of a `.yarnrc`: keys and values separated by white space.
pub(super) fn classic(text: &str) -> Option<String> {
    let mut copy = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line
            .split_once(char::is_whitespace)
            .map(|(name, value)| (unquoted(name), unquoted(value)))
        else {
            continue;
        };
        if let Some(value) = scoped(name, value).or_else(|| known(CLASSIC, name, value)) {
            copy.push_str(&format!("\"{name}\" \"{value}\"\n"));
        }
    }
    (!copy.is_empty()).then_some(copy)
}

/// The copy of a `.yarnrc.yml`: top-level values, and the registries of scopes. A file indented by
/// tabs is not YAML.
pub(super) fn berry(text: &str) -> Option<String> {
    let (mut copy, mut scopes) = (String::new(), String::new());
    let (mut is_in_scopes, mut scope) = (false, None);
    for line in
        text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if line.trim_start_matches(' ').starts_with('\t') {
            return None;
        }
        let Some((name, value)) =
            line.trim().split_once(':').map(|(name, value)| (unquoted(name), unquoted(value)))
        else {
            continue;
        };
        match indent {
            0 => {
                (is_in_scopes, scope) = (name == "npmScopes" && value.is_empty(), None);
                if let Some(value) = known(BERRY, name, value) {
                    copy.push_str(&format!("{name}: \"{value}\"\n"));
                }
            }
            2 => {
                scope = Some(name).filter(|name| {
                    is_in_scopes && value.is_empty() && is_scope(&format!("@{name}"))
                })
            }
            4 if name == "npmRegistryServer" => {
                if let Some((scope, value)) = scope.zip(redact_url(value)) {
                    scopes
                        .push_str(&format!("  \"{scope}\":\n    npmRegistryServer: \"{value}\"\n"));
                }
            }
            _ => {}
        }
    }
    if !scopes.is_empty() {
        copy.push_str(&format!("npmScopes:\n{scopes}"));
    }
    (!copy.is_empty()).then_some(copy)
}

#[cfg(test)]
mod tests {
    #[test]
    fn registries_of_yarn_pass_and_tokens_do_not() {
        let file = "# mine\nregistry \"https://registry.example.org/\"\n\"@team:registry\" \"https://npm.team.example/\"\n\
                    \"//registry.example.org/:_authToken\" \"npm_abc\"\nproxy \"http://me:secret@proxy:3128\"\nyarn-path \"./x.js\"\nstrict-ssl false\n";
        let expect = "\"registry\" \"https://registry.example.org/\"\n\"@team:registry\" \"https://npm.team.example/\"\n\"strict-ssl\" \"false\"\n";
        assert_eq!(super::classic(file).as_deref(), Some(expect));
        assert_eq!(super::classic("\"//x/:_authToken\" \"npm_abc\"\n"), None);
    }

    #[test]
    fn registries_of_later_yarn_pass_and_tokens_do_not() {
        let file = "npmRegistryServer: \"https://registry.example.org\"\nnpmAuthToken: abc\nnodeLinker: node-modules\n\
                    npmScopes:\n  team:\n    npmRegistryServer: \"https://npm.team.example\"\n    npmAuthToken: abc\n  other:\n    npmAuthIdent: me:x\n\
                    npmRegistries:\n  \"//x\":\n    npmRegistryServer: \"https://y\"\n    npmAuthToken: abc\nyarnPath: x.cjs\n";
        let expect = "npmRegistryServer: \"https://registry.example.org\"\nnodeLinker: \"node-modules\"\n\
                      npmScopes:\n  \"team\":\n    npmRegistryServer: \"https://npm.team.example\"\n";
        assert_eq!(super::berry(file).as_deref(), Some(expect));
        assert_eq!(super::berry("npmAuthToken: abc\n"), None);
        assert_eq!(
            super::berry("a:\n\tnpmRegistryServer: https://y\nnpmRegistryServer: https://x\n"),
            None
        );
    }
}
