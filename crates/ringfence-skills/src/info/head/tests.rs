use super::*;

fn parse(head: &str) -> SkillFrontMatter {
    SkillFrontMatter::parse(format!("---\n{head}\n---\nbody\n").as_bytes(), "my-skill")
}

const GOOD: &str = "name: my-skill\ndescription: x";

/// The warnings, each with its line.
#[track_caller]
fn check(head: &str, expect: &[&str]) {
    let warnings = parse(head).warnings;
    let shown: Vec<String> = warnings
        .iter()
        .map(|warning| format!("{}: {}", warning.line.unwrap_or(0), warning.what))
        .collect();
    assert_eq!(shown.len(), expect.len(), "{shown:?}");
    assert!(
        shown.iter().zip(expect).all(|(shown, expect)| shown.starts_with(expect)),
        "{shown:?} {expect:?}"
    );
}

#[track_caller]
fn check_needs(metadata: &str, expect: &str) {
    let head = parse(&format!("{GOOD}\nmetadata:\n{metadata}"));
    let shown = match head.needs {
        Ok(needs) => serde_json::to_string(&needs).unwrap(),
        Err(error) => error.to_string(),
    };
    assert!(shown.starts_with(expect), "{metadata}\n{shown}");
}

#[test]
fn complete_head_is_parsed() {
    let head = parse(&format!(
        "{GOOD}\nlicense: MIT\ncompatibility: Python 3\nallowed-tools: Bash(git add:*) Read, Edit\nmetadata:\n  z: 1\n  a:\n    - b\n  m:\n    k: v"
    ));
    assert_eq!(head.warnings, []);
    assert_eq!(
        (head.name.as_deref(), head.license.as_deref(), head.compatibility.as_deref()),
        (Some("my-skill"), Some("MIT"), Some("Python 3"))
    );
    assert_eq!(head.allowed_tools, ["Bash(git add:*)", "Read", "Edit"]);
    assert_eq!(
        serde_json::to_string(&head.metadata).unwrap(),
        r#"{"z":"1","a":["b"],"m":{"k":"v"}}"#
    );
    assert_eq!(head.needs, Ok(SkillNeeds::default()));
    let text = format!("---\n{GOOD}\n---\n");
    assert_eq!(
        SkillFrontMatter::parse(format!("{text}body").as_bytes(), "my-skill").length,
        text.len() as u64
    );
}

#[test]
fn deviations_are_reported_with_their_line() {
    check(GOOD, &[]);
    check("description: x", &["1: `name` is missing"]);
    check("name: my-skill", &["1: `description` is missing"]);
    check("description: x\nname: other", &["3: `name` differs from the directory"]);
    check(
        "name: My_Skill\ndescription: x",
        &["2: `name` must consist of lower case", "2: `name` differs from"],
    );
    check(
        &format!("name: {}\ndescription: x", "a".repeat(65)),
        &["2: `name` has 65 characters", "2: `name` differs from"],
    );
    check(
        &format!("name: my-skill\ndescription: {}", "x".repeat(1025)),
        &["3: `description` has 1025"],
    );
    check(&format!("{GOOD}\ncompatibility: {}", "x".repeat(501)), &["4: `compatibility` has 501"]);
    check(&format!("{GOOD}\nversion: 1"), &["4: `version` is not a known key"]);
    check(&format!("{GOOD}\nallowed-tools: [Read]"), &["4: `allowed-tools` is a list"]);
    check(
        "name: my-skill\ndescription: Use when: \"x\" y",
        &["3: `description` is not plain YAML"],
    );
    check(
        "name: my-skill\ndescription:",
        &["3: `description` is empty", "1: `description` is missing"],
    );
    check(&format!("{GOOD}\nmetadata: what"), &["4: `metadata` is not a valid map"]);
    check("name: a\nname: b", &["1: cannot parse its head"]);
    let bare = SkillFrontMatter::parse(b"# Just text\nhosts: everywhere\n", "my-skill");
    assert!(bare.needs.is_ok() && bare.warnings.len() == 1);
    assert_eq!(
        SkillFrontMatter::parse(b"---\nname: my-skill\ndescription: \xff\n---\n", "my-skill")
            .warnings[0]
            .what,
        "it is not UTF-8"
    );
    let json = parse(&format!("{GOOD}\nmetadata: {{\"tool\": {{\"emoji\": \"x\"}}}}"));
    assert_eq!(
        (json.metadata.len(), json.warnings, json.needs),
        (1, Vec::new(), Ok(SkillNeeds::default()))
    );
}

#[test]
fn needs_can_be_texts_lists_or_maps() {
    check_needs("  author: x", r#"{"hosts":null,"writes":null,"limits":null}"#);
    check_needs(
        "  hosts: a.org, *.b.org:443 10.0.0.0/8",
        r#"{"hosts":["a.org","*.b.org:443","10.0.0.0/8"],"#,
    );
    check_needs("  hosts:\n    - a.org\n    - b.org", r#"{"hosts":["a.org","b.org"],"#);
    check_needs("  hosts: []", r#"{"hosts":[],"#);
    check_needs("  hosts:", r#"{"hosts":[],"#);
    check_needs("  writes: out, ./cache/x/, .", r#"{"hosts":null,"writes":["out","cache/x","."],"#);
    check_needs(
        "  limits: wall=60s, memory=512MiB",
        r#"{"hosts":null,"writes":null,"limits":[["wall","60s"],["memory","512MiB"]]}"#,
    );
    check_needs(
        "  limits:\n    wall: 60s\n    processes: 4",
        r#"{"hosts":null,"writes":null,"limits":[["wall","60s"],["processes","4"]]}"#,
    );
}

/// Promise: skill-rights
#[test]
fn ambiguous_needs_are_an_error() {
    check_needs("  hosts: https://a.org/", "line 5: `https://a.org/` is not a valid host");
    check_needs("  hosts: \"*\"", "line 5: `*` is not a valid host");
    check_needs("  hosts:\n    - a.org\n    - a b", "line 7: `a b` is not a valid host");
    check_needs("  hosts:\n    a: b", "line 6: `hosts` is neither");
    for path in ["/etc", "../x", "a/../b", "~/x", "$HOME", "a*", "a//b", "\"a\\\\b\"", "@x"] {
        check_needs(&format!("  writes: {path}"), "line 5: `");
    }
    check_needs("  limits: wall", "line 5: `wall` is not a valid limit");
    check_needs("  limits: wal=60s", "line 5: `wal=60s` is not a valid limit");
    check_needs("  limits: wall=soon", "line 5: `wall=soon` is not a valid limit");
    check_needs("  limits: wall=1s, wall=2h", "line 5: `wall=2h` is not a valid limit");
    check_needs("  Hosts: a.org", "line 5: `Hosts` is not allowed here");
    // In a head that cannot be parsed, or at a wrong position.
    check_needs(
        "  hosts: a.org\n  x: {y: z}",
        "line 5: `hosts` is in a head that cannot be parsed",
    );
    check_needs(
        "  hosts: a.org\n  hosts: b.org",
        "line 5: `hosts` is in a head that cannot be parsed",
    );
    assert!(parse(&format!("{GOOD}\nhosts: a.org")).needs.is_err());
    assert!(parse(&format!("{GOOD}\nmetadata: {{\"hosts\": \"a.org\"}}")).needs.is_err());
    assert!(parse(&format!("{GOOD}\nmetadata: [hosts]")).needs.is_err());
    assert!(parse(&format!("{GOOD}\nmetadata:\n  hosts: a.org\nmetadata:\n  x: y")).needs.is_err());
    assert!(SkillFrontMatter::parse(b"---\nmetadata:\n  hosts: a.org\n", "x").needs.is_err());
    // Behind so many comments that the reader stops before it.
    let long =
        format!("---\n{}metadata:\n  hosts: a.org\n---\n", "# no word of it\n".repeat(30_000));
    assert!(super::super::needs_of(long.as_bytes(), "x").is_err());
    assert!(
        SkillFrontMatter::parse(
            b"\xef\xbb\xbf---\r\nname: a\r\nname: b\r\nmetadata:\r\n  limits: wall=1s\r\n---\r\n",
            "x"
        )
        .needs
        .is_err()
    );
}
