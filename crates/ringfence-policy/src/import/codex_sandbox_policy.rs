//! The sandbox policy of one Codex command, as JSON: the value of `--sandbox-policy`.
//!
//! Stricter than Codex, which ignores unknown and repeated keys: a policy with a typing error must
//! run nothing.

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, parse_to_ast};

use super::reader::{STRICT_JSON, number, position};
use crate::grants::{Mode, NetworkMode};

/// The sandbox policy of one Codex command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodexSandboxPolicy {
    /// Write access to the workspace.
    pub mode: Mode,
    /// Directories that are writable besides the workspace, as written.
    pub writable_roots: Vec<String>,
    /// Network access; `None` in the mode full-access.
    pub network: Option<NetworkMode>,
    /// Keys that ask for something that ringfence does not do.
    pub without_effect: Vec<&'static str>,
}

/// A mistake in a sandbox policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {what}")]
pub struct CodexPolicyError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The problem.
    pub what: String,
    /// The hint.
    pub hint: String,
}

/// A type of sandbox policy.
#[derive(Debug)]
struct PolicyType {
    name: &'static str,
    mode: Mode,
    /// The keys besides `type`.
    keys: &'static [&'static str],
}

const ROOTS: &str = "writable_roots";
const NETWORK: &str = "network_access";
const EXCLUDES: [&str; 2] = ["exclude_tmpdir_env_var", "exclude_slash_tmp"];
/// The key of the type, and its older name.
const TYPE_KEYS: [&str; 2] = ["type", "mode"];

const TYPES: &[PolicyType] = &[
    PolicyType { name: "read-only", mode: Mode::ReadOnly, keys: &[NETWORK] },
    PolicyType {
        name: "workspace-write",
        mode: Mode::WorkspaceWrite,
        keys: &[ROOTS, NETWORK, EXCLUDES[0], EXCLUDES[1]],
    },
    PolicyType { name: "danger-full-access", mode: Mode::FullAccess, keys: &[] },
];

impl CodexSandboxPolicy {
    /// Parses an object with `type`, or the name of a type, with or without quotation marks.
    pub fn parse(text: &str) -> Result<Self, CodexPolicyError> {
        if let Some(known) = TYPES.iter().find(|known| known.name == text.trim()) {
            return Ok(known.policy());
        }
        let reader = PolicyReader { text };
        let parsed =
            parse_to_ast(text, &CollectOptions::default(), &STRICT_JSON).map_err(|error| {
                CodexPolicyError {
                    line: number(error.line_display()),
                    column: number(error.column_display()),
                    what: format!("not valid JSON: {}", error.kind()),
                    hint: forms(),
                }
            })?;
        match &parsed.value {
            Some(Value::Object(object)) => reader.policy(object),
            Some(name @ Value::StringLit(_)) => reader.policy_type(name).map(PolicyType::policy),
            Some(other) => Err(reader.error(other, "a sandbox policy is an object", forms())),
            None => Err(reader.error_at(0, "the sandbox policy is empty", forms())),
        }
    }
}

impl PolicyType {
    fn policy(&self) -> CodexSandboxPolicy {
        CodexSandboxPolicy {
            mode: self.mode,
            writable_roots: Vec::new(),
            network: (self.mode != Mode::FullAccess).then_some(NetworkMode::None),
            without_effect: Vec::new(),
        }
    }
}

fn forms() -> String {
    let types: Vec<&str> = TYPES.iter().map(|known| known.name).collect();
    format!(r#"use for example `{{"type":"read-only"}}`; the types are {}"#, types.join(", "))
}

/// Reads the parsed text, with positions for errors.
struct PolicyReader<'t> {
    text: &'t str,
}

impl PolicyReader<'_> {
    fn policy(&self, object: &Object<'_>) -> Result<CodexSandboxPolicy, CodexPolicyError> {
        self.refuse_repeated(object)?;
        let mut given = object.properties.iter().filter(|one| is_type_key(one));
        let Some(first) = given.next() else {
            return Err(self.error(object, "the sandbox policy has no `type`", forms()));
        };
        if let Some(second) = given.next() {
            let what = "`type` and `mode` mean the same key";
            return Err(self.error(second, what, "remove one of them".into()));
        }
        let known = self.policy_type(&first.value)?;
        let mut policy = known.policy();
        for property in object.properties.iter().filter(|one| !is_type_key(one)) {
            self.apply(property, known, &mut policy)?;
        }
        Ok(policy)
    }

    fn policy_type(&self, value: &Value<'_>) -> Result<&'static PolicyType, CodexPolicyError> {
        let Some(name) = value.as_string_lit() else {
            return Err(self.error(value, "`type` is not a text", forms()));
        };
        TYPES.iter().find(|known| known.name == name.value).ok_or_else(|| {
            self.error(value, &format!("unknown type of sandbox policy `{}`", name.value), forms())
        })
    }

    fn apply(
        &self,
        property: &ObjectProp<'_>,
        known: &PolicyType,
        policy: &mut CodexSandboxPolicy,
    ) -> Result<(), CodexPolicyError> {
        let name = property.name.as_str();
        let Some(key) = known.keys.iter().copied().find(|key| *key == name) else {
            let keys = [&["type"], known.keys].concat().join(", ");
            return Err(self.error(
                property,
                &format!("unknown key `{name}` in a policy of type `{}`", known.name),
                format!("its keys are {keys}"),
            ));
        };
        match key {
            ROOTS => policy.writable_roots = self.texts(key, &property.value)?,
            NETWORK if self.bool(key, &property.value)? => policy.network = Some(NetworkMode::Full),
            NETWORK => policy.network = Some(NetworkMode::None),
            _ if self.bool(key, &property.value)? => policy.without_effect.push(key),
            _ => {}
        }
        Ok(())
    }

    /// JSON does not define which of two equal keys counts.
    fn refuse_repeated(&self, object: &Object<'_>) -> Result<(), CodexPolicyError> {
        for (index, property) in object.properties.iter().enumerate() {
            let name = property.name.as_str();
            if object.properties[..index].iter().any(|other| other.name.as_str() == name) {
                let what = format!("the key `{name}` occurs twice");
                return Err(self.error(property, &what, "remove one of them".into()));
            }
        }
        Ok(())
    }

    fn bool(&self, key: &str, value: &Value<'_>) -> Result<bool, CodexPolicyError> {
        let found = value.as_boolean_lit().map(|found| found.value);
        found.ok_or_else(|| self.wrong_type(key, value, "true or false"))
    }

    fn texts(&self, key: &str, value: &Value<'_>) -> Result<Vec<String>, CodexPolicyError> {
        const EXPECTED: &str = "a list of texts";
        let list = value.as_array().ok_or_else(|| self.wrong_type(key, value, EXPECTED))?;
        let text = |item: &Value<'_>| {
            let found = item.as_string_lit().map(|found| found.value.to_string());
            found.ok_or_else(|| self.wrong_type(key, item, EXPECTED))
        };
        list.elements.iter().map(text).collect()
    }

    fn wrong_type(&self, key: &str, value: &Value<'_>, expected: &str) -> CodexPolicyError {
        let what = format!("`{key}` is not {expected}");
        self.error(value, &what, format!("write {expected} at `{key}`"))
    }

    fn error(&self, part: &impl Ranged, what: &str, hint: String) -> CodexPolicyError {
        self.error_at(part.start(), what, hint)
    }

    fn error_at(&self, at: usize, what: &str, hint: String) -> CodexPolicyError {
        let (line, column) = position(self.text, at);
        CodexPolicyError { line, column, what: what.to_owned(), hint }
    }
}

fn is_type_key(property: &ObjectProp<'_>) -> bool {
    TYPE_KEYS.contains(&property.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, mode: Mode, roots: &[&str], network: Option<NetworkMode>) {
        let policy = CodexSandboxPolicy::parse(text).unwrap();
        let found = (policy.mode, policy.writable_roots.as_slice(), policy.network);
        let roots: Vec<String> = roots.iter().map(|&root| root.into()).collect();
        assert_eq!(found, (mode, roots.as_slice(), network), "{text}");
    }

    #[test]
    fn every_form_of_codex_is_read() {
        let none = Some(NetworkMode::None);
        let full = Some(NetworkMode::Full);
        check(r#"{"type":"read-only"}"#, Mode::ReadOnly, &[], none);
        check(r#"{"type":"read-only","network_access":true}"#, Mode::ReadOnly, &[], full);
        check(r#"{"type":"workspace-write"}"#, Mode::WorkspaceWrite, &[], none);
        check(
            r#"{"type":"workspace-write","writable_roots":["/a","b"],"network_access":true,"exclude_tmpdir_env_var":false,"exclude_slash_tmp":false}"#,
            Mode::WorkspaceWrite,
            &["/a", "b"],
            full,
        );
        check(
            r#"{"network_access":false,"type":"workspace-write"}"#,
            Mode::WorkspaceWrite,
            &[],
            none,
        );
        check(r#"{"type":"danger-full-access"}"#, Mode::FullAccess, &[], None);
        // The older key of the type.
        check(r#"{"mode":"read-only"}"#, Mode::ReadOnly, &[], none);
        check(r#"{"mode":"danger-full-access"}"#, Mode::FullAccess, &[], None);
        // The names that Codex accepts instead of JSON.
        check("read-only", Mode::ReadOnly, &[], none);
        check(" workspace-write\n", Mode::WorkspaceWrite, &[], none);
        check(r#""read-only""#, Mode::ReadOnly, &[], none);
    }

    #[test]
    fn exclusions_of_the_shared_tmp_are_listed() {
        let text =
            r#"{"type":"workspace-write","exclude_slash_tmp":true,"exclude_tmpdir_env_var":false}"#;
        let policy = CodexSandboxPolicy::parse(text).unwrap();
        assert_eq!(policy.without_effect, ["exclude_slash_tmp"]);
    }

    #[track_caller]
    fn check_error(text: &str, expect: &str, hint: &str) {
        let error = CodexSandboxPolicy::parse(text).unwrap_err();
        assert_eq!(error.to_string(), expect, "{text}");
        assert!(error.hint.contains(hint), "{text}: {}", error.hint);
    }

    #[test]
    fn mistakes_have_a_position_and_name_what_is_known() {
        const TYPES: &str = "the types are read-only, workspace-write, danger-full-access";
        check_error("", "1:1: the sandbox policy is empty", TYPES);
        check_error("[]", "1:1: a sandbox policy is an object", TYPES);
        check_error("{}", "1:1: the sandbox policy has no `type`", TYPES);
        check_error(
            r#"{"type":"read-onyl"}"#,
            "1:9: unknown type of sandbox policy `read-onyl`",
            TYPES,
        );
        check_error(
            r#"{"type":"external-sandbox"}"#,
            "1:9: unknown type of sandbox policy `external-sandbox`",
            TYPES,
        );
        check_error(r#"{"type":1}"#, "1:9: `type` is not a text", TYPES);
        check_error(
            "{\"type\":\"workspace-write\",\n \"writeable_roots\":[]}",
            "2:2: unknown key `writeable_roots` in a policy of type `workspace-write`",
            "type, writable_roots, network_access, exclude_tmpdir_env_var, exclude_slash_tmp",
        );
        check_error(
            r#"{"type":"read-only","writable_roots":["/"]}"#,
            "1:21: unknown key `writable_roots` in a policy of type `read-only`",
            "its keys are type, network_access",
        );
        check_error(
            r#"{"type":"workspace-write","writable_roots":["/a",2]}"#,
            "1:50: `writable_roots` is not a list of texts",
            "write a list of texts",
        );
        check_error(
            r#"{"type":"workspace-write","network_access":"true"}"#,
            "1:44: `network_access` is not true or false",
            "write true or false",
        );
        check_error(
            r#"{"type":"read-only","type":"danger-full-access"}"#,
            "1:21: the key `type` occurs twice",
            "remove one",
        );
        check_error(
            r#"{"type":"read-only","mode":"danger-full-access"}"#,
            "1:21: `type` and `mode` mean the same key",
            "remove one",
        );
    }

    #[test]
    fn only_strict_json_is_read() {
        for (text, position) in [
            (r#"{"type":"read-only",}"#, "1:20"),
            (r#"{type:"read-only"}"#, "1:2"),
            (r#"{'type':"read-only"}"#, "1:2"),
            ("{\n  \"type\": \"read-only\"\n  \"network_access\": true}", "2:22"),
            (r#"{"type":"read-only"} x"#, "1:22"),
            ("read-onyl", "1:1"),
        ] {
            let error = CodexSandboxPolicy::parse(text).unwrap_err().to_string();
            let expect = format!("{position}: not valid JSON: ");
            assert!(error.starts_with(&expect), "{text}: {error}");
        }
    }
}
