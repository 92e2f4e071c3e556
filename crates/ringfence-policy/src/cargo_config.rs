//! `config.toml` of Cargo, without its secrets.

use toml::{Table, Value};

use crate::public_value::{is_host, is_public_url, looks_random, mentions_secret, redact_url};

/// Part of Cargo's configuration that a sandbox sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CargoConfigView {
    /// The file itself: nothing in it can be a secret.
    Original,
    /// A copy without possible secrets.
    Copy(String),
    /// No setting can be shown.
    Nothing,
    /// The text is not understood, so nothing is shown.
    NotUnderstood,
}

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

/// The keys that are shown of tables with settings of the network.
const NETWORK_KEYS: &[(&str, &[&str])] = &[
    (
        "http",
        &[
            "proxy",
            "debug",
            "timeout",
            "cainfo",
            "proxy-cainfo",
            "check-revoke",
            "low-speed-limit",
            "ssl-version",
            "multiplexing",
        ],
    ),
    ("net", &["retry", "git-fetch-with-cli", "offline", "ssh"]),
    ("registry", &["default", "index"]),
];
/// The same for tables with a table for each registry or source.
const NESTED_NETWORK_KEYS: &[(&str, &[&str])] = &[
    ("registries", &["index", "protocol"]),
    (
        "source",
        &["replace-with", "registry", "local-registry", "directory", "git", "branch", "tag", "rev"],
    ),
];

/// Variables of `[env]` that hold no secret, also with a target's name behind them
/// (`CC_x86_64_unknown_linux_gnu`).
const HARMLESS_VARIABLES: &[&str] = &[
    "AR",
    "ARFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_TERM_COLOR",
    "CC",
    "CFLAGS",
    "CMAKE",
    "CMAKE_GENERATOR",
    "CXX",
    "CXXFLAGS",
    "CXXSTDLIB",
    "LANG",
    "LC_ALL",
    "LD",
    "LDFLAGS",
    "LIBCLANG_PATH",
    "MACOSX_DEPLOYMENT_TARGET",
    "NM",
    "OPENSSL_DIR",
    "OPENSSL_INCLUDE_DIR",
    "OPENSSL_LIB_DIR",
    "OPENSSL_NO_VENDOR",
    "PKG_CONFIG",
    "PKG_CONFIG_ALLOW_CROSS",
    "PKG_CONFIG_LIBDIR",
    "PKG_CONFIG_PATH",
    "PKG_CONFIG_SYSROOT_DIR",
    "PROTOC",
    "PROTOC_INCLUDE",
    "RANLIB",
    "RUSTC_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "RUST_MIN_STACK",
    "RUST_TEST_THREADS",
    "TZ",
];
/// Values of variables with any name.
const SWITCHES: &[&str] = &["0", "1", "false", "no", "off", "on", "true", "yes"];

/// Finds the part of a `config.toml` that can be shown.
pub fn filter_cargo_config(text: &str) -> CargoConfigView {
    let Ok(original) = text.parse::<Table>() else { return CargoConfigView::NotUnderstood };
    let mut config = original.clone();
    config.retain(
        |name, value| {
            if value.is_table() { TABLES.contains(&name) } else { name == "paths" }
        },
    );
    if let Some(Value::Table(variables)) = config.get_mut("env") {
        variables.retain(is_harmless_variable);
    }
    if let Some(Value::Table(http)) = config.get_mut("http") {
        let is_plain = |proxy: &Value| {
            proxy.as_str().is_some_and(|proxy| is_public_url(proxy) || is_host(proxy))
        };
        http.retain(|name, value| name != "proxy" || is_plain(value));
    }
    keep_network_keys(&mut config);
    redact_table(&mut config);
    let Ok(copy) = toml::to_string(&config) else { return CargoConfigView::NotUnderstood };
    if copy.lines().any(mentions_secret) {
        return CargoConfigView::NotUnderstood;
    }
    // The parser drops comments, which may hold a secret. A `#` in a value costs only the layout.
    if config == original && !text.contains('#') {
        CargoConfigView::Original
    } else if copy.is_empty() && !original.is_empty() {
        CargoConfigView::Nothing
    } else {
        CargoConfigView::Copy(copy)
    }
}

/// Removes unknown settings of the network: a registry's own extension may be a secret.
fn keep_network_keys(config: &mut Table) {
    for (table, keys) in NETWORK_KEYS {
        if let Some(Value::Table(settings)) = config.get_mut(*table) {
            settings.retain(|name, _| keys.contains(&name));
        }
    }
    for (table, keys) in NESTED_NETWORK_KEYS {
        let Some(Value::Table(entries)) = config.get_mut(*table) else { continue };
        for settings in entries.iter_mut().filter_map(|(_, entry)| entry.as_table_mut()) {
            settings.retain(|name, _| keys.contains(&name));
        }
    }
}

/// Removes the keys whose names or values may stand for a secret, and tables that are empty then.
fn redact_table(table: &mut Table) {
    table.retain(|name, value| {
        let lower = name.to_ascii_lowercase();
        let is_secret =
            mentions_secret(name) || ["credential", "pass"].iter().any(|word| lower.contains(word));
        // The key of a source or a patch may be a URL.
        let is_plain = !name.contains([':', '@', '?']) || is_public_url(name);
        !is_secret && is_plain && redact(value)
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
    let is_secret = mentions_secret(text) || text.split_whitespace().any(may_be_password);
    (!is_secret).then(|| text.to_owned())
}

/// True for a word of a command line or of flags that may be a password: `user:password`, or letters
/// of both cases with digits.
fn may_be_password(word: &str) -> bool {
    let has_user = word.split(['=', ',']).any(|part| {
        part.split_once(':').is_some_and(|(user, rest)| {
            !user.is_empty() && !rest.is_empty() && !rest.starts_with(['/', ':'])
        })
    });
    let is_mixed = |part: &str| {
        let has = |of: fn(&char) -> bool| part.chars().any(|found| of(&found));
        has(char::is_ascii_digit) && has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase)
    };
    has_user || word.split(['=', ',', '/']).any(|part| looks_random(part) || is_mixed(part))
}

/// True for a variable whose name and value are known to be harmless.
fn is_harmless_variable(name: &str, variable: &mut Value) -> bool {
    let value = variable.get("value").unwrap_or(variable);
    let Some(text) = value.as_str() else { return false };
    let is_known = HARMLESS_VARIABLES.iter().any(|known| {
        name.strip_prefix(known).is_some_and(|target| target.is_empty() || is_target(target))
    });
    let is_random = text.split(['/', ' ', ':', '=']).any(looks_random);
    SWITCHES.contains(&text) || (is_known && !is_random)
}

/// True for the end of a variable's name that names a target: `_x86_64_unknown_linux_gnu`.
fn is_target(end: &str) -> bool {
    end.strip_prefix('_').is_some_and(|target| target.matches(['_', '-']).count() >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_of_cargo_pass_and_tokens_do_not() {
        let file = "\
# token = \"s3cret\"
include = \"s3cret.toml\"
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
MY_PAT = \"s3cret\"
RUST_LOG = \"debug\"
CC_x86_64_unknown_linux_gnu = \"clang\"
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
RUST_LOG = \"debug\"
CC_x86_64_unknown_linux_gnu = \"clang\"
[target.x86_64-unknown-linux-gnu]
rustflags = [\"-C\", \"link-arg=-fuse-ld=mold\"]
"
        .parse()
        .unwrap();
        let CargoConfigView::Copy(copy) = filter_cargo_config(file) else { panic!("no copy") };
        assert_eq!(copy.parse::<Table>().unwrap(), expect);
        assert!(!copy.contains("s3cret"), "{copy}");
    }

    #[test]
    fn free_words_and_unknown_keys_that_may_be_secrets_are_left_out() {
        let file = "\
[registry]
token = \"s3cret\"
[alias]
up = \"publish --user deploy:Hunter2pw\"
key = [\"run\", \"--key\", \"a8Gd93kfP0q2mZx7\"]
t = \"test --workspace\"
[target.x86_64-unknown-linux-gnu]
runner = [\"sshpass\", \"-p\", \"Hunter2pw\", \"ssh\"]
linker = \"clang\"
[http]
user-agent = \"corp Hunter2pw\"
timeout = 30
passphrase = \"s3cret\"
[http.x]
auth = \"s3cret\"
[source.\"u:Hunter2pw@host\"]
registry = \"https://crates.example.org/\"
[patch.\"https://dl.example.io/?t=TOKEN\"]
a = { path = \"a\" }
";
        let CargoConfigView::Copy(copy) = filter_cargo_config(file) else { panic!("no copy") };
        let expect = "[alias]\nt = \"test --workspace\"\n[target.x86_64-unknown-linux-gnu]\nlinker = \"clang\"\n[http]\ntimeout = 30\n";
        assert_eq!(copy.parse::<Table>().unwrap(), expect.parse().unwrap(), "{copy}");
    }

    #[track_caller]
    fn check(text: &str, expect: CargoConfigView) {
        assert_eq!(filter_cargo_config(text), expect, "{text}");
    }

    #[test]
    fn config_with_a_token_only_has_no_copy() {
        check("[registry]\ntoken = \"s3cret\"\n", CargoConfigView::Nothing);
        check("url = \"sparse+https://me:s3cret@crates.example.org/\"\n", CargoConfigView::Nothing);
        check(
            "[registries.corp]\nindex = \"file:///home/me:s3cret@x\"\n",
            CargoConfigView::Nothing,
        );
        check("[http]\nproxy = \"me:s3cret@proxy:3128\"\n", CargoConfigView::Nothing);
        check("[env]\nMY_PAT = \"s3cret\"\n", CargoConfigView::Nothing);
        check("[env]\nA = \"\"\"\n# https://u:s3cret@h\n\"\"\"\n", CargoConfigView::Nothing);
        check("[registry]\n\"tok\\u0065n\" = \"s3cret\"\n", CargoConfigView::Nothing);
    }

    #[test]
    fn secret_in_a_comment_is_not_shown() {
        let plain = "[net]\nretry = 3\n";
        check(plain, CargoConfigView::Original);
        check("", CargoConfigView::Original);
        check("# s3cret\n", CargoConfigView::Copy(String::new()));
        check(&format!("# s3cret\n{plain}"), CargoConfigView::Copy(plain.into()));
        check(
            "[source.mirror]\nregistry = \"https://h.example/?t=s3cret\"\n",
            CargoConfigView::Copy("[source.mirror]\nregistry = \"https://h.example/\"\n".into()),
        );
    }

    #[test]
    fn config_that_is_not_understood_is_left_out() {
        check("token = s3cret\n", CargoConfigView::NotUnderstood);
    }
}
