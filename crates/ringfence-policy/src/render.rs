//! Renders a policy as TOML.

use std::fmt::Write;

use toml::Value;

use crate::keys::{KEYS, SECRET_KEYS};
use crate::layer::PolicyLayer;
use crate::policy::Policy;

/// The text of a policy file; it parses back to the same policy.
pub fn render(policy: &Policy) -> String {
    render_with(policy, &|_| None)
}

/// Like [`render`], with `# from FILE:LINE` after every setting with a known position.
pub fn render_with_origins(layer: &PolicyLayer) -> String {
    render_with(&layer.policy, &|key| {
        let place = layer.position(key);
        Some(format!("from {}:{}", layer.file, place.line?))
    })
}

/// Like [`render`], with a comment for each key such as `mode` or `filesystem.deny.2`.
pub fn render_with(policy: &Policy, comment: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    // Every value of the policy types has a TOML form.
    let Ok(Value::Table(table)) = Value::try_from(policy) else { return out };
    for (section, keys) in KEYS {
        let values = if section.is_empty() {
            Some(&table)
        } else {
            table.get(*section).and_then(Value::as_table)
        };
        let Some(values) = values else { continue };
        if !section.is_empty() {
            let _ = writeln!(out, "\n[{section}]");
        }
        let is_section = |key: &str| {
            section.is_empty() && (key == SECRETS || KEYS.iter().any(|(name, _)| *name == key))
        };
        for key in keys.iter().filter(|key| !is_section(key)) {
            if let Some(value) = values.get(*key) {
                let full =
                    if section.is_empty() { (*key).to_owned() } else { format!("{section}.{key}") };
                write_setting(&mut out, key, value, &full, comment);
            }
        }
    }
    for (i, secret) in
        table.get(SECRETS).and_then(Value::as_array).into_iter().flatten().enumerate()
    {
        let _ = writeln!(out, "\n[[{SECRETS}]]");
        for key in SECRET_KEYS {
            if let Some(value) = secret.get(key) {
                write_setting(&mut out, key, value, &format!("{SECRETS}.{i}.{key}"), comment);
            }
        }
    }
    out
}

/// The only list of tables.
const SECRETS: &str = "secrets";

fn write_setting(
    out: &mut String,
    key: &str,
    value: &Value,
    full: &str,
    comment: &dyn Fn(&str) -> Option<String>,
) {
    match value {
        Value::Array(items) if items.len() > 1 || comment(&format!("{full}.0")).is_some() => {
            let _ = writeln!(out, "{key} = [");
            for (i, item) in items.iter().enumerate() {
                let _ = writeln!(
                    out,
                    "  {},{}",
                    inline(item),
                    trailing(comment(&format!("{full}.{i}")))
                );
            }
            out.push_str("]\n");
        }
        other => {
            let _ = writeln!(out, "{key} = {}{}", inline(other), trailing(comment(full)));
        }
    }
}

fn trailing(comment: Option<String>) -> String {
    comment.map_or_else(String::new, |text| format!(" # {}", text.replace(['\n', '\r'], " ")))
}

/// Renders a value on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Table(table) => {
            let pairs =
                table.iter().map(|(key, value)| format!("{} = {}", quoted_key(key), inline(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

fn quoted_key(key: &str) -> String {
    let bare =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { quoted(key) }
}

/// Renders a basic string on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::Source;
    use crate::parse::parse;
    use crate::testing::path;

    #[track_caller]
    fn check(text: &str) {
        let layer = parse(text, &path("/f"), Source::Managed).unwrap();
        let rendered = render(&layer.policy);
        let again = parse(&rendered, &path("/f"), Source::Managed).unwrap();
        assert_eq!(again.policy, layer.policy, "{rendered}");
        let annotated = render_with_origins(&layer);
        assert_eq!(
            parse(&annotated, &path("/f"), Source::Managed).unwrap().policy,
            layer.policy,
            "{annotated}"
        );
    }

    #[test]
    fn rendered_policy_parses_back() {
        check("version = 1");
        check(
            "version = 1\nextends = [\"a.toml\", \"codex\"]\nmode = \"read-only\"\non-gap = \"run\"\nobserve = \"all\"\n[sandbox]\nenabled = false\nenabled-platforms = [\"wsl\"]",
        );
        check(
            "version = 1\n[filesystem]\ndeny = [\"a\\\"b\\\\c\\n\\u0001d\", { path = \"x\", locked = true, reason = \"é\" }]\nread = [\"one\"]",
        );
        check(
            "version = 1\n[environment]\nprofile = \"clean\"\nset = { \"we ird\" = \"1\", B = \"'\" }",
        );
        check(
            "version = 1\n[network]\nlocalhost = [1, 2]\nbind = false\ngit = true\nallow = [\"a\", \"b\"]",
        );
        check(
            "version = 1\n[network]\nmode = \"allow-list\"\nsni = \"off\"\nproxy-variables = true\ndeny = [\"*.a:1\", \"10.0.0.0/8:2\"]",
        );
        check(
            "version = 1\n[[secrets]]\nenv = \"A\"\nhosts = [\"a.org\"]\nheader = \"X-Key\"\n[[secrets]]\nenv = \"B\"\nhosts = [\"*.b.org:443\", \"b.org\"]\nheader = \"authorization\"\n[audit]\nfsync = \"end\"",
        );
        check("version = 1\nsecrets = [{ env = \"A\", hosts = [\"a.org\"], header = \"X-Key\" }]");
        check(
            "version = 1\n[limits]\nwall = \"5m\"\nmemory = 5\nprocesses = 3\n[tools]\ndisallowed = [\"Write\"]",
        );
        check(
            "version = 1\n[audit]\nfsync = \"always\"\non-error = \"run\"\nrotate-size = \"64MiB\"",
        );
        check("version = 1\n[commands]\nexcluded = [\"docker*\"]\nanchor-arguments = \".\"");
    }

    #[test]
    fn origins_are_rendered_after_entries() {
        let layer = parse(
            "version = 1\nmode = \"read-only\"\n[filesystem]\ndeny = [\n\"a\"]",
            &path("/f"),
            Source::User,
        )
        .unwrap();
        let expect = "version = 1 # from /f:1\nmode = \"read-only\" # from /f:2\n\n[filesystem]\ndeny = [\n  \"a\", # from /f:5\n]\n";
        assert_eq!(render_with_origins(&layer), expect);
    }
}
