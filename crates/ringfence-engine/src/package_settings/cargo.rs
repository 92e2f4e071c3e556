//! `config.toml` of Cargo.

use ringfence_policy::environment::looks_secret;
use ringfence_policy::{is_host, is_public_url, looks_random, mentions_secret, redact_url};
use toml::{Table, Value};

use super::NOT_UNDERSTOOD;

/// The tables that are shown, without their secrets.
const TABLES: &[&str] = &[
    "alias",
    "build",
    "cache",
    "cargo-new",
    "doc",
    "env",
    "future-incompat-report",
    "http",
    "install",
    "net",
    "patch",
    "profile",
    "registries",
    "registry",
    "resolver",
    "source",
    "target",
    "term",
    "unstable",
];

/// The copy of a `config.toml`; an error if the file is not understood.
pub(super) fn config(text: &str) -> Result<Option<String>, &'static str> {
    let mut config: Table = text.parse().map_err(|_| NOT_UNDERSTOOD)?;
    config.retain(|name, value| TABLES.contains(&name) && value.is_table());
    if let Some(Value::Table(variables)) = config.get_mut("env") {
        variables.retain(|name, value| !looks_secret(name) && !is_random(value));
    }
    if let Some(Value::Table(http)) = config.get_mut("http") {
        let is_plain = |proxy: &Value| {
            proxy.as_str().is_some_and(|proxy| is_public_url(proxy) || is_host(proxy))
        };
        http.retain(|name, value| name != "proxy" || is_plain(value));
    }
    redact_table(&mut config);
    let copy = toml::to_string(&config).map_err(|_| NOT_UNDERSTOOD)?;
    // The survey masks such a file.
    if copy.lines().any(mentions_secret) {
        return Err(NOT_UNDERSTOOD);
    }
    Ok((!copy.is_empty()).then_some(copy))
}

/// Removes the keys whose names or values may stand for a secret, and tables that are empty then.
fn redact_table(table: &mut Table) {
    table.retain(|name, value| {
        let is_secret = mentions_secret(name) || name.to_ascii_lowercase().contains("credential");
        !is_secret && redact(value)
    });
}

/// Removes the secret parts of a value; false if it cannot be shown.
fn redact(value: &mut Value) -> bool {
    match value {
        Value::String(text) => {
            let shown = redact_text(text);
            let is_shown = shown.is_some();
            *text = shown.unwrap_or_default();
            is_shown
        }
        // A list without one of its entries has another meaning.
        Value::Array(entries) => entries.iter_mut().all(redact),
        Value::Table(table) => {
            redact_table(table);
            !table.is_empty()
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => true,
    }
}

fn redact_text(text: &str) -> Option<String> {
    if let Some((scheme, rest)) = text.split_once("://") {
        // Not a secret: `ssh://git@host/path`.
        let rest = rest.strip_prefix("git@").unwrap_or(rest);
        let is_plain = ["ssh", "git", "file"].contains(&scheme)
            && rest.chars().all(|c| c.is_ascii_alphanumeric() || "-._~:/+".contains(c))
            && !rest.split('/').any(looks_random);
        let shown = if is_plain { Some(text.to_owned()) } else { redact_url(text) };
        return shown.filter(|shown| !mentions_secret(shown));
    }
    // `user:password@host`
    let has_user = |word: &str| word.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let is_secret = mentions_secret(text) || text.split_whitespace().any(has_user);
    (!is_secret).then(|| text.to_owned())
}

/// True if the value of a variable is probably a token.
fn is_random(variable: &Value) -> bool {
    let value = variable.get("value").unwrap_or(variable);
    value.as_str().is_some_and(|text| text.split(['/', ' ', ':', '=']).any(looks_random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_of_cargo_pass_and_tokens_do_not() {
        let file = "\
# token = \"s3cret\"
paths = [\"/s3cret\"]
[registries.corp]
index = \"sparse+https://me:s3cret@crates.example.org/index/\"
token = \"s3cret\"
credential-provider = [\"cargo:token-from-stdout\", \"echo\", \"s3cret\"]
[registries.other]
index = \"ssh://git@git.example.org/index.git\"
[registry]
default = \"corp\"
token = \"s3cret\"
global-credential-providers = [\"cargo:token\"]
[source.crates-io]
replace-with = \"mirror\"
[source.mirror]
registry = \"https://crates.example.org/?token=s3cret\"
[http]
proxy = \"me:s3cret@proxy.example.org:3128\"
cainfo = \"/etc/ca.pem\"
[net]
git-fetch-with-cli = true
[env]
CORP_API_KEY = \"s3cret\"
CORP_LOGIN = { value = \"a8Gd93kfP0q2mZx7\", force = true }
CORP_REGION = \"eu\"
[target.x86_64-unknown-linux-gnu]
rustflags = [\"-C\", \"link-arg=-fuse-ld=mold\"]
runner = [\"env\", \"PASSWORD=s3cret\"]
[unknown]
value = \"s3cret\"
";
        let expect: Table = "\
[registries.corp]
index = \"sparse+https://crates.example.org/index/\"
[registries.other]
index = \"ssh://git@git.example.org/index.git\"
[registry]
default = \"corp\"
[source.crates-io]
replace-with = \"mirror\"
[source.mirror]
registry = \"https://crates.example.org/\"
[http]
cainfo = \"/etc/ca.pem\"
[net]
git-fetch-with-cli = true
[env]
CORP_REGION = \"eu\"
[target.x86_64-unknown-linux-gnu]
rustflags = [\"-C\", \"link-arg=-fuse-ld=mold\"]
"
        .parse()
        .unwrap();
        let copy = config(file).unwrap().unwrap();
        assert_eq!(copy.parse::<Table>().unwrap(), expect);
        assert!(!copy.contains("s3cret"), "{copy}");
    }

    #[test]
    fn config_with_a_token_only_has_no_copy() {
        assert_eq!(config("[registry]\ntoken = \"s3cret\"\n"), Ok(None));
        assert_eq!(config("url = \"sparse+https://me:s3cret@crates.example.org/\"\n"), Ok(None));
        assert_eq!(config("[registries.corp]\nindex = \"file:///home/me:s3cret@x\"\n"), Ok(None));
    }

    #[test]
    fn config_that_is_not_understood_is_left_out() {
        assert_eq!(config("token = s3cret\n"), Err(NOT_UNDERSTOOD));
    }
}
