use super::*;
use crate::grants::{Fsync, OnError};
use crate::layer::check_cycle;
use crate::network::SniCheck;
use crate::policy::{Amount, EnvironmentProfile, PortChoice};
use crate::testing::path;

const FILE: &str = "/p/.ringfence/policy.toml";

fn read(text: &str) -> Result<PolicyLayer, PolicyError> {
    parse(text, &path(FILE), Source::Project)
}

/// Checks the first line of the error, and its hint.
#[track_caller]
fn check(text: &str, expect: &str, hint: &str) {
    let error = read(text).unwrap_err();
    assert_eq!(error.to_string(), format!("{FILE}:{expect}"));
    assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
    assert_eq!(error.file(), Some(&path(FILE)));
    assert!(
        error.line().is_some() && error.column().is_some() && error.code().starts_with("policy-")
    );
}

const EVERY_KEY: &str = r#"
version = 1
extends = ["base.toml"]
mode = "read-only"
on-gap = "run"
[sandbox]
enabled = true
enabled-platforms = ["linux"]
fail-if-unavailable = true
allow-unsandboxed-commands = false
auto-allow-bash-if-sandboxed = true
[filesystem]
read = ["~/data", { path = "$X/y", reason = "because" }]
write = ["out"]
deny = [
  "**/.env",
  "*.pem",
]
protect = [".git"]
except = [".env.example"]
[environment]
profile = "clean"
allow = ["A"]
deny = ["B"]
set = { C = "d" }
[network]
mode = "allow-list"
allow = ["github.com", "*.x.org", "h:443", "10.0.0.0/8", "[::1]:80"]
deny = ["evil.com"]
localhost = [3000]
git = true
unix-sockets = ["/run/x"]
bind = true
sni = "off"
proxy-variables = true
[commands]
deny = ["rm -rf *"]
allow-binaries = ["ls"]
deny-arguments = ["--evil"]
anchor-arguments = "."
excluded = ["docker*"]
[tools]
disallowed = ["Write"]
[limits]
wall = "5m"
cpu = 10
memory = "1GiB"
processes = 5
open-files = 6
file-size = 7
disk = "1MB"
output = 9
[audit]
fsync = "end"
on-error = "run"
rotate-size = "1MiB"
[[secrets]]
env = "TOKEN"
hosts = ["api.x.org"]
header = "Authorization"
"#;

#[test]
fn every_key_is_read() {
    let layer = read(EVERY_KEY).unwrap();
    let policy = &layer.policy;
    assert_eq!(policy.environment.profile, Some(EnvironmentProfile::Clean));
    assert_eq!(policy.network.localhost, Some(PortChoice::Some(vec![3000])));
    assert_eq!(policy.network.bind, Some(PortChoice::All(true)));
    assert_eq!((policy.audit.fsync, policy.audit.on_error), (Some(Fsync::End), Some(OnError::Run)));
    assert_eq!(policy.audit.rotate_size.as_ref().and_then(Amount::bytes), Some(1 << 20));
    assert_eq!(
        (policy.network.sni, policy.network.proxy_variables),
        (Some(SniCheck::Off), Some(true))
    );
    assert_eq!((policy.secrets.len(), layer.position("secrets.0.hosts.0").line), (1, Some(59)));
    assert_eq!(policy.filesystem.read[1].path(), "$X/y");
    assert_eq!(layer.extends(), [("base.toml".to_owned(), Some(3))]);
    assert_eq!(layer.position("filesystem.deny.1").line, Some(17));
    assert_eq!(layer.origin("filesystem.read.0", "~/data").line, Some(13));
}

#[test]
fn policy_errors_have_line_and_column() {
    check(
        "version = 1\n[filesytem]\nread = []",
        "2:2: unknown key `filesytem`",
        "did you mean `filesystem`?",
    );
    check(
        "version = 1\n[filesystem]\nraed = []",
        "3:1: unknown key `raed`",
        "did you mean `read`?",
    );
    check(
        "version = 1\nallow-binaries = []",
        "2:1: unknown key `allow-binaries`",
        "commands.allow-binaries",
    );
    check("version = 1\nzzz = 1", "2:1: unknown key `zzz`", "policy schema");
    check(
        "version = 1\n[filesystem]\ndeny = [{ path = \"x\", lokced = true }]",
        "3:23: unknown key `lokced`",
        "did you mean `locked`?",
    );
    check("version = 2\nnew-key = 1", "1:11: version 2 is not supported", "version = 1");
    check(
        "version = 99999999999999999999",
        "1:11: version 99999999999999999999 is not supported",
        "version = 1",
    );
    check("version = 0x2", "1:11: version 0x2 is not supported", "version = 1");
    check(
        "mode = \"read-only\"",
        "1:1: the policy has no `version`",
        "`version = 1` on the first line",
    );
    check("", "1:1: the policy has no `version`", "`version = 1` on the first line");
    check("# nothing yet\n", "1:1: the policy has no `version`", "`version = 1` on the first line");
    check(
        "version = 1\nextends = [\"base.toml\",\n\"claude\"]",
        "3:1: `claude` in `extends` is neither a file nor a known tool",
        "known tools: `claude-code`, `codex`, `uds`, `synapse`; write `./claude` for a file",
    );
    check("version = 1\nmode = 3", "2:8: wanted string or table", "schema");
    check(
        "version = 1\n[limits]\nwall = \"5 parsecs\"",
        "3:8: `5 parsecs` is not a value for `limits.wall`",
        "a duration such as",
    );
    check(
        "version = 1\n[limits]\ndisk = \"5m\"",
        "3:8: `5m` is not a value for `limits.disk`",
        "a size such as",
    );
    check(
        "version = 1\n[audit]\nfsnyc = \"end\"",
        "3:1: unknown key `fsnyc`",
        "did you mean `fsync`?",
    );
    check(
        "version = 1\n[audit]\nrotate-size = \"1KiB\"",
        "3:15: `1KiB` is not a value for `audit.rotate-size`",
        "at least 64 KiB",
    );
    check(
        "version = 1\n[audit]\nrotate-size = \"5m\"",
        "3:15: `5m` is not a value for `audit.rotate-size`",
        "a size",
    );
    check(
        "version = 1\n[filesystem]\ndeny = [\"a[bc\"]",
        "3:11: bad glob `a[bc`",
        "close it with `]`",
    );
    check("version = 1\n[filesystem]\ndeny = [\"\"]", "3:9: bad glob ``", "write a path");
    check(
        "version = 1\n[filesystem]\ndeny = [{ path = \"x\", locked = true }]",
        "3:9: `locked` is only allowed in the managed policy",
        "/etc/ringfence/policy.toml",
    );
    check(
        "version = 1\n[network]\nallow = [\"https://x.org\"]",
        "3:10: `https://x.org` is no host: it is a URL",
        "`x.org`",
    );
    check(
        "version = 1\n[network]\nallow = [\"*\"]",
        "3:10: `*` is no host: it matches every host",
        "full",
    );
    check(
        "version = 1\n[network]\ndeny = [\"a\", \"x.org:0\"]",
        "3:21: `x.org:0` is no host: `0` is no port",
        "65535",
    );
    check("version = 1\n[network]\ndeny = [\"\"]", "3:9: `` is no host: it is empty", "remove it");
}

#[track_caller]
fn check_kind(text: &str, code: &str, line: u32) {
    let error = read(text).unwrap_err();
    assert_eq!((error.code(), error.line()), (code, Some(line)), "{error}");
}

#[test]
fn broken_toml_and_wrong_types_have_a_line() {
    check_kind("version = 1\nmode = ", "policy-syntax", 2);
    check_kind("version = 1\nversion = 1", "policy-syntax", 2);
    check_kind("version = 1\nmode = \"wild\"", "policy-wrong-type", 2);
    check_kind("version = 1\n[audit]\nfsync = \"sometimes\"", "policy-wrong-type", 3);
    check_kind("version = 1\n[network]\nlocalhost = \"yes\"", "policy-wrong-type", 3);
    check_kind("version = 1\n[network]\nlocalhost = [70000]", "policy-wrong-type", 3);
    check_kind("version = 1\n[filesystem]\nread = [3]", "policy-wrong-type", 3);
    check_kind("version = 1\nfilesystem = 3", "policy-wrong-type", 2);
    check_kind("version = 1\n[filesystem]\nread = \"x\"", "policy-wrong-type", 3);
    check_kind("version = \"1\"", "policy-wrong-type", 1);
    check_kind("version = 1\n[[filesystem]]\nread = []", "policy-wrong-type", 2);
}

#[test]
fn text_that_is_not_utf8_is_named_with_its_byte() {
    let error = parse_bytes(b"version = 1\n# \xff", &path(FILE), Source::User).unwrap_err();
    assert_eq!(error.to_string(), format!("{FILE}:2:3: not UTF-8 at byte 14"));
    assert!(parse_bytes("version = 1 # é".as_bytes(), &path(FILE), Source::User).is_ok());
}

#[test]
fn managed_rules_may_be_locked() {
    let text = "version = 1\n[filesystem]\ndeny = [{ path = \"x\", locked = true }]";
    assert!(
        parse(text, &path("/etc/ringfence/policy.toml"), Source::Managed)
            .unwrap()
            .policy
            .filesystem
            .deny[0]
            .is_locked()
    );
}

#[test]
fn extends_cycle_is_reported() {
    let (a, b, c) = (path("/a"), path("/b"), path("/c"));
    assert!(check_cycle(&[a.clone(), b.clone()], &c).is_ok());
    let error = check_cycle(&[c, a.clone(), b], &a).unwrap_err();
    assert_eq!(error.to_string(), "policy files extend each other in a circle: /a → /b → /a");
}

#[test]
fn invalid_hosts_and_ports_are_refused() {
    let network = |line: &str| format!("version = 1\n[network]\n{line}");
    check(
        &network("allow = [\"localhost:3000\"]"),
        "3:10: `localhost:3000` is not a value for `network.allow`",
        "`localhost = [PORT]`",
    );
    check(
        &network("allow = [\n  \"a.org\",\n  \"a b\"\n]"),
        "5:5: `a b` is no host: ' ' is not allowed in a host name",
        "letters",
    );
    check(
        &network("localhost = [1, 0]"),
        "3:17: `0` is not a value for `network.localhost`",
        "65535",
    );
    check(&network("bind = [0]"), "3:9: `0` is not a value for `network.bind`", "65535");
    check(&network("bind = [65536]"), "3:8: expected true, false or a list of ports", "schema");
    check(
        &network("sni = \"on\""),
        "3:7: unknown variant `on`, expected `check` or `off`",
        "schema",
    );
    check(
        &network("proxy_variables = true"),
        "3:1: unknown key `proxy_variables`",
        "`proxy-variables`",
    );
    assert!(
        parse(
            &network("mode = \"allow-list\"\nallow = []\ndeny = [\"localhost\"]"),
            &path("/f"),
            Source::User
        )
        .is_ok()
    );
}

#[test]
fn secret_needs_variable_hosts_and_header() {
    let secret = |env: &str, hosts: &str, header: &str| {
        format!("version = 1\n[[secrets]]\nenv = \"{env}\"\nhosts = {hosts}\nheader = \"{header}\"")
    };
    assert!(
        parse(
            &secret("A_1", "[\"a.org\", \"*.b.org:443\"]", "X-Api-Key"),
            &path("/f"),
            Source::User
        )
        .is_ok()
    );
    check(
        &secret("", "[\"a.org\"]", "X"),
        "3:7: `` is not a value for `secrets.env`",
        "GITHUB_TOKEN",
    );
    check(
        &secret("1A", "[\"a.org\"]", "X"),
        "3:7: `1A` is not a value for `secrets.env`",
        "GITHUB_TOKEN",
    );
    check(
        &secret("A=B", "[\"a.org\"]", "X"),
        "3:7: `A=B` is not a value for `secrets.env`",
        "GITHUB_TOKEN",
    );
    check(
        &secret("A", "[]", "X"),
        "4:9: `[]` is not a value for `secrets.hosts`",
        "api.github.com",
    );
    check(
        &secret("A", "[\"a.org\", \"*.org\"]", "X"),
        "4:19: `*.org` is not a value for `secrets.hosts`",
        "narrower",
    );
    check(
        &secret("A", "[\"1.2.3.4\"]", "X"),
        "4:10: `1.2.3.4` is not a value for `secrets.hosts`",
        "certificate",
    );
    check(
        &secret("A", "[\"a.org:0\"]", "X"),
        "4:17: `a.org:0` is no host: `0` is no port",
        "65535",
    );
    check(&secret("A", "[\"*\"]", "X"), "4:10: `*` is no host: it matches every host", "full");
    check(
        &secret("A", "[\"a.org\"]", "X: y"),
        "5:10: `X: y` is not a value for `secrets.header`",
        "Authorization",
    );
    check(
        &secret("A", "[\"a.org\"]", "content-length"),
        "5:10: `content-length` is not a value for `secrets.header`",
        "another",
    );
    check("version = 1\n[[secrets]]\nenv = \"A\"\nhost = []", "4:1: unknown key `host`", "`hosts`");
    check("version = 1\n[[secrets]]\nenv = \"A\"", "2:1: missing field `hosts`", "schema");
    check(
        "version = 1\n[secrets]\nenv = \"A\"",
        "2:1: invalid type: map, expected a sequence",
        "schema",
    );
}
