use super::*;
use crate::testing::path;

fn document<'a>(text: Option<&'a str>, file: &'a AbsPath) -> PolicyDocument<'a> {
    PolicyDocument { text, file, source: &Source::User }
}

#[track_caller]
fn check_set(text: Option<&str>, key: &str, value: &str, expect: &str) {
    let set = document(text, &path("/u")).set(&SettingKey::parse(key).unwrap(), value);
    assert_eq!(set.as_ref().map(|text| text.as_deref()), Ok(Some(expect)), "{key} {value}");
    // A second edit changes nothing.
    assert_eq!(
        document(Some(expect), &path("/u")).set(&SettingKey::parse(key).unwrap(), value),
        Ok(None),
        "{key} {value}"
    );
}

#[track_caller]
fn check_unset(text: &str, key: &str, expect: Option<&str>) {
    let unset = document(Some(text), &path("/u")).unset(&SettingKey::parse(key).unwrap());
    assert_eq!(unset.as_ref().map(|text| text.as_deref()), Ok(expect), "{key}");
}

#[track_caller]
fn check_error(text: &str, key: &str, value: &str, says: &str) {
    let error = SettingKey::parse(key)
        .and_then(|key| document(Some(text), &path("/u")).set(&key, value))
        .unwrap_err();
    let message = format!("{error}; {}", error.hint().unwrap_or_default());
    assert!(message.contains(says), "{key} {value}: {message}");
}

#[test]
fn setting_is_inserted_in_its_section() {
    check_set(None, "sandbox.enabled", "true", "version = 1\n\n[sandbox]\nenabled = true\n");
    check_set(None, "mode", "read-only", "version = 1\nmode = \"read-only\"\n");
    check_set(None, "limits.wall", "5m", "version = 1\n\n[limits]\nwall = \"5m\"\n");
    check_set(None, "limits.processes", "64", "version = 1\n\n[limits]\nprocesses = 64\n");
    check_set(
        None,
        "environment.set.N",
        "1",
        "version = 1\n\n[environment]\nset = { N = \"1\" }\n",
    );
    check_set(
        None,
        "network.allow",
        "[\"a.org\"]",
        "version = 1\n\n[network]\nallow = [\"a.org\"]\n",
    );
    check_set(
        None,
        "network.localhost",
        "[3000]",
        "version = 1\n\n[network]\nlocalhost = [3000]\n",
    );
    check_set(None, "tools.allowed", "[]", "version = 1\n\n[tools]\nallowed = []\n");
}

/// Promise: configure
#[test]
fn setting_change_keeps_rest_of_file() {
    let text = "# mine\nversion = 1 # one\n\n# why not\n[sandbox] # s\n  enabled = false   # for now\n# end of it\n\n[limits]\nwall = 5\n# last";
    check_set(Some(text), "sandbox.enabled", "true", &text.replace("= false ", "= true "));
    check_set(
        Some(text),
        "mode",
        "read-only",
        &text.replace("# one\n", "# one\nmode = \"read-only\"\n"),
    );
    check_set(
        Some(text),
        "tools.disallowed",
        "['Write']",
        &format!("{text}\n\n[tools]\ndisallowed = ['Write']\n"),
    );
    let dotted = "version = 1\nsandbox.enabled = true # x\n";
    check_set(
        Some(dotted),
        "sandbox.enabled",
        "false",
        "version = 1\nsandbox.enabled = false # x\n",
    );
    let inline = "version = 1\nsandbox = { enabled = true }\n";
    check_set(
        Some(inline),
        "sandbox.enabled",
        "false",
        "version = 1\nsandbox = { enabled = false }\n",
    );
    check_set(
        Some("version = 1\r\n[sandbox]\r\n"),
        "sandbox.enabled",
        "true",
        "version = 1\r\n[sandbox]\r\nenabled = true\r\n",
    );
}

#[test]
fn unset_removes_setting_and_keeps_comments() {
    let text = "version = 1\n# a\nmode = \"read-only\" # b\n# c\nask = \"never\"\n\n[sandbox]\n# d\nenabled = true\n\n[limits]\nwall = 5\n";
    check_unset(
        text,
        "mode",
        Some(
            "version = 1\n# a\n# c\nask = \"never\"\n\n[sandbox]\n# d\nenabled = true\n\n[limits]\nwall = 5\n",
        ),
    );
    check_unset(
        text,
        "sandbox.enabled",
        Some(
            "version = 1\n# a\nmode = \"read-only\" # b\n# c\nask = \"never\"\n\n[sandbox]\n# d\n\n[limits]\nwall = 5\n",
        ),
    );
    check_unset(text, "limits.cpu", None);
    check_unset(
        "version = 1\n[environment]\nset = { A = \"b\", C = \"d\" }\n",
        "environment.set.A",
        Some("version = 1\n[environment]\nset = { C = \"d\" }\n"),
    );
}

#[test]
fn invalid_value_error_names_typed_text() {
    let empty = "version = 1\n";
    check_error(
        empty,
        "sandbox.enabeld",
        "true",
        "unknown key `sandbox.enabeld`; did you mean `sandbox.enabled`?",
    );
    check_error(empty, "sandbx.enabled", "true", "did you mean `sandbox.enabled`?");
    check_error(empty, "enabled", "true", "did you mean `sandbox.enabled`?");
    check_error(empty, "sandbox", "true", "`sandbox` is a section, with enabled, ");
    check_error(empty, "sandbox.enabled.x", "true", "unknown key");
    check_error(empty, "version", "2", "cannot be changed");
    check_error(empty, "secrets", "[]", "edit the file");
    check_error(empty, "", "x", "unknown key");
    check_error(
        empty,
        "sandbox.enabled",
        "yes",
        "`yes` is not a value for `sandbox.enabled`: invalid type",
    );
    check_error(empty, "mode", "readonly", "`readonly` is not a value for `mode`");
    check_error(empty, "limits.wall", "5 parsecs", "write a duration");
    check_error(empty, "filesystem.deny", "~/x", "not a value for `filesystem.deny`");
    check_error(empty, "filesystem.deny", "[\"a[\"]", "bad glob");
    check_error(
        empty,
        "filesystem.deny",
        "[{ path = \"x\", locked = true }]",
        "only allowed in the managed policy",
    );
    check_error(empty, "network.allow", "[\"http://x\"]", "is no host");
    check_error("version = 1\nmdoe = 1\n", "mode", "read-only", "/u:2:1: unknown key `mdoe`");
}

#[test]
fn settings_are_shown_as_typed() {
    let text = "version = 1\nmode = \"read-only\" # x\n[filesystem]\ndeny = [ 'a', \"b\" ] # y\n[environment]\nset = { A = \"b c\" }\n";
    let file = path("/u");
    let document = document(Some(text), &file);
    let expect = [
        ("mode", "read-only"),
        ("filesystem.deny", "[ 'a', \"b\" ]"),
        ("environment.set.A", "b c"),
    ];
    assert_eq!(
        document.settings().unwrap(),
        expect.map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
    assert_eq!(document.get(&SettingKey::parse("ask").unwrap()), Ok(None));
}
