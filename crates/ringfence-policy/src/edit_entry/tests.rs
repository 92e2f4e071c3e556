use super::*;
use crate::resolve::tests::facts;
use crate::testing::path;

fn permit(target: &str, access: Access) -> Option<PolicyEntryEdit> {
    PolicyEntryEdit::new(&path(target), access, &facts())
}

fn file() -> AbsPath {
    path("/home/me/.config/ringfence/policy.toml")
}

/// `text` with `/data/x` added to `read`; each line begins with `|`.
#[track_caller]
fn check(text: &str, expect: &str) {
    let lines = |text: &str| {
        text.lines()
            .map(|line| line.trim_start().strip_prefix('|').unwrap_or(line).to_owned() + "\n")
            .collect::<String>()
    };
    let (text, expect) = (lines(text), lines(expect));
    let permit = permit("/data/x", Access::Read).unwrap();
    let amended = edit_policy_entry(Some(&text), &file(), &permit).unwrap().unwrap();
    assert_eq!(amended, expect, "\n{amended}");
    assert_eq!(edit_policy_entry(Some(&amended), &file(), &permit), Ok(None), "once is enough");
    // The same with CRLF line ends.
    let dos = |text: &str| text.replace('\n', "\r\n");
    assert_eq!(edit_policy_entry(Some(&dos(&text)), &file(), &permit).unwrap(), Some(dos(&expect)));
}

#[test]
fn missing_file_is_created_with_entry() {
    let read = permit("/home/me/.ssh/id", Access::Read).unwrap();
    let text = edit_policy_entry(None, &file(), &read).unwrap().unwrap();
    assert_eq!(text, "version = 1\n\n[filesystem]\nread = [\"~/.ssh/id\"]\n");
    let write = permit("/home/me/.ssh/id", Access::Write).unwrap();
    let both = edit_policy_entry(Some(&text), &file(), &write).unwrap().unwrap();
    assert_eq!(
        both,
        "version = 1\n\n[filesystem]\nread = [\"~/.ssh/id\"]\nwrite = [\"~/.ssh/id\"]\n"
    );
}

#[test]
fn new_section_is_appended_to_file() {
    check("version = 1", "version = 1\n|\n[filesystem]\nread = [\"/data/x\"]");
    check(
        "version = 1 # mine\n# the end",
        "version = 1 # mine\n# the end\n|\n[filesystem]\nread = [\"/data/x\"]",
    );
    check(
        "# top\nversion = 1\n\n[audit] # a\nfsync = \"end\" # f\n\n# the end",
        "# top\nversion = 1\n|\n[audit] # a\nfsync = \"end\" # f\n|\n# the end\n|\n[filesystem]\nread = [\"/data/x\"]",
    );
}

#[test]
fn new_list_is_appended_to_section() {
    check(
        "version = 1\n[filesystem] # mine\n# why\ndeny = [\"*.sqlite\"] # no\n\n# net\n[network]\nmode = \"none\"",
        "version = 1\n[filesystem] # mine\n# why\ndeny = [\"*.sqlite\"] # no\nread = [\"/data/x\"]\n|\n# net\n[network]\nmode = \"none\"",
    );
    check(
        "version = 1\nfilesystem = { deny = [\"a\"] } # x",
        "version = 1\nfilesystem = { deny = [\"a\"] , read = [\"/data/x\"] } # x",
    );
    check(
        "version = 1\nfilesystem.deny = [\"a\"] # x",
        "version = 1\nfilesystem.deny = [\"a\"] # x\nfilesystem.read = [\"/data/x\"]",
    );
}

#[test]
fn new_entry_is_appended_to_list() {
    let section = |list: &str| format!("version = 1\n[filesystem]\n{list}\ndeny = [\"b\"] # b");
    for (before, after) in [
        ("read = [] # r", "read = [\"/data/x\"] # r"),
        ("read = [ ] # r", "read = [ \"/data/x\" ] # r"),
        ("read = [\"a\"] # r", "read = [\"a\", \"/data/x\"] # r"),
        ("read = ['a','c',] # r", "read = ['a','c', \"/data/x\",] # r"),
        ("read = [ \"a\" ] # r", "read = [ \"a\", \"/data/x\" ] # r"),
        ("read = [\"a\", ] # r", "read = [\"a\", \"/data/x\", ] # r"),
        ("read = [ # none\n] # r", "read = [ # none\n  \"/data/x\",\n] # r"),
        (
            "read = [\n    \"a\", # one\n    \"c\", # two\n] # r",
            "read = [\n    \"a\", # one\n    \"c\", # two\n    \"/data/x\",\n] # r",
        ),
        (
            "read = [\n\t\"a\", # one\n\t\"c\" # two\n] # r",
            "read = [\n\t\"a\", # one\n\t\"c\", # two\n\t\"/data/x\"\n] # r",
        ),
        (
            "read = [\n  \"a\",\n  # the last\n  ]",
            "read = [\n  \"a\",\n  # the last\n  \"/data/x\",\n  ]",
        ),
        ("read = [\"a\",\n        \"c\"]", "read = [\"a\",\n        \"c\",\n        \"/data/x\"]"),
        (
            "read = [{ path = \"a\", reason = \"é\" }]",
            "read = [{ path = \"a\", reason = \"é\" }, \"/data/x\"]",
        ),
    ] {
        check(&section(before), &section(after));
    }
}

#[test]
fn array_of_tables_gets_one_more_table() {
    check(
        "version = 1\n[[filesystem.read]] # one\npath = \"a\" # p\nreason = \"r\"\n\n[audit]",
        "version = 1\n[[filesystem.read]] # one\npath = \"a\" # p\nreason = \"r\"\n|\n[[filesystem.read]]\npath = \"/data/x\"\n|\n[audit]",
    );
}

/// A deterministic random number generator.
struct EntryRng(u64);

impl EntryRng {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// A list of entries with comments, each of them `#N`.
fn any_list(dice: &mut EntryRng, number: &mut usize) -> String {
    let mut list = String::from("[");
    let count = dice.roll(4);
    for at in 0..count {
        *number += 1;
        list.push_str(dice.pick(&["", " ", "\n", "\n\n    ", "\n  #N alone\n  ", " #N above\n\t"]));
        let entry = format!("e{number}");
        list.push_str(&match dice.roll(3) {
            0 => format!("'{entry}'"),
            1 => format!("{{path=\"{entry}\",reason = \"# no comment ]\"}}"),
            _ => format!("\"{entry}\""),
        });
        list.push_str(dice.pick(&["", " ", "\n", " #N behind\n"]));
        if at + 1 < count || dice.roll(2) == 0 {
            list.push(',');
        }
    }
    list + dice.pick(&["", " ", "\n", " #N tail, with \"]\"\n  ", "\n#N é ] [filesystem]\n"]) + "]"
}

/// A policy file with unique comments.
fn any_file(dice: &mut EntryRng) -> String {
    let mut number = 0;
    let comment = |dice: &mut EntryRng| dice.pick(&["", " #N behind = \"x\"", "\t#N"]).to_owned();
    let mut text =
        dice.pick(&["", "#N top\n", "\n\n"]).to_owned() + "version = 1" + &comment(dice) + "\n";
    let inline = dice.roll(5);
    if inline < 2 {
        let list = any_list(dice, &mut number);
        let key = dice.pick(&["read", "deny"]);
        text += &if inline == 0 {
            format!("filesystem.{key} = {list}\n")
        } else {
            format!("filesystem = {{ {key} = {list} }}\n")
        };
    }
    for section in ["network", "filesystem", "audit"] {
        if dice.roll(3) == 0 || (section == "filesystem" && inline < 2) {
            continue;
        }
        text += dice.pick(&["", "\n", "#N above\n", "\n#N above\n\n"]);
        text += &format!("[{section}]{}\n", comment(dice));
        match section {
            "network" => text += "  mode  =  'none'\n",
            "audit" => text += "fsync=\"end\"\n",
            _ => {
                for key in ["write", "read", "deny"].into_iter().skip(dice.roll(3)) {
                    let list = any_list(dice, &mut number);
                    text += &format!(
                        "{}{key} = {list}{}\n",
                        dice.pick(&["", "#N of it\n", "  "]),
                        comment(dice)
                    );
                }
            }
        }
    }
    text += dice.pick(&["", "#N the end", "\n#N the end\n\n"]);
    let mut parts = text.split("#N");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.enumerate().fold(first, |text, (number, part)| format!("{text}#c{number}.{part}"))
}

/// Each comment with the text before it on its line. A comment after the end of a list is about the
/// whole list.
fn comments(text: &str) -> Vec<(String, String)> {
    let marks =
        |line: &str| line.find("#c").map(|at| (line[..at].to_owned(), line[at..].to_owned()));
    let plain = |before: String| before.replace([' ', ',', '\t'], "");
    let plain = |before: String| {
        if plain(before.clone()).ends_with(']') { "]".into() } else { plain(before) }
    };
    text.lines().filter_map(marks).map(|(before, comment)| (plain(before), comment)).collect()
}

/// Promise: policy-file-kept
#[test]
fn adding_entry_changes_nothing_else_in_any_file() {
    let mut dice = EntryRng(4);
    let mut tried = 0;
    for _ in 0..10_000 {
        let text = any_file(&mut dice);
        if parse(&text, &file(), Source::User).is_err() {
            continue;
        }
        tried += 1;
        let permit = permit("/home/me/x y", [Access::Read, Access::Write][dice.roll(2)]).unwrap();
        let amended = edit_policy_entry(Some(&text), &file(), &permit)
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
            .unwrap();
        let solid = |text: &str| {
            text.chars().filter(|c| !c.is_whitespace() && *c != ',').collect::<String>()
        };
        // All characters are there in their order: the edit only inserted text.
        let (before, after) = (solid(&text), solid(&amended));
        let mut rest = after.chars();
        assert!(
            before.chars().all(|c| rest.any(|other| other == c)),
            "from\n{text}\nto\n{amended}"
        );
        assert!(
            after.len() <= before.len() + "[filesystem]write=[]\"~/xy\"".len(),
            "from\n{text}\nto\n{amended}"
        );
        // A comment stays after its entry.
        assert_eq!(comments(&text), comments(&amended), "from\n{text}\nto\n{amended}");
        assert_eq!(edit_policy_entry(Some(&amended), &file(), &permit), Ok(None));
    }
    assert!(tried > 5_000, "{tried}");
}

#[test]
fn invalid_file_error_has_position() {
    let permit = permit("/data/x", Access::Read).unwrap();
    let place = |text: &str| {
        edit_policy_entry(Some(text), &file(), &permit)
            .map_err(|error| (error.code(), error.line(), error.column()))
    };
    assert_eq!(place("version = 1\n[filesystem\n"), Err(("policy-syntax", Some(2), Some(12))));
    assert_eq!(
        place("version = 1\n[filesystem]\n  raed = []"),
        Err(("policy-unknown-key", Some(3), Some(3)))
    );
    assert_eq!(place("mode = 'read-only'"), Err(("policy-no-version", Some(1), Some(1))));
    assert_eq!(place("version = 1\n[filesystem]\nread = 'x'").unwrap_err().0, "policy-wrong-type");
}

/// Promise: permanent-grant
#[test]
fn entry_means_exactly_its_path_or_is_none() {
    let text = |target: &str| {
        permit(target, Access::Execute).map(|permit| (permit.key(), permit.text().to_owned()))
    };
    assert_eq!(text("/home/me/x"), Some(("read", "~/x".into())));
    // Not relative to the project: that would be another path in the next project.
    assert_eq!(text("/home/me/p/.env"), Some(("read", "~/p/.env".into())));
    assert_eq!(text("/home/me/~/x \"'\\y"), Some(("read", "~/~/x \"'\\y".into())));
    assert_eq!(text("/data/$"), Some(("read", "/data/$".into())));
    for odd in [
        "/data/$HOME/x",
        "/data/${HOME}",
        "/data/*",
        "/data/[a]",
        "/data/a?",
        "/data/{a,b}",
        "/data/**",
        "/d\u{202e}x",
        "/d\nx",
        "/d\u{fffd}",
    ] {
        assert_eq!(text(odd), None, "{odd:?}");
    }
}

#[test]
fn host_entry_is_added_to_network_allow() {
    let permit = PolicyEntryEdit::host(&HostRule::parse("A.org:443").unwrap());
    let text = "version = 1\n\n[network] # n\nallow = [\n  \"b.org\", # b\n]\n\n[[secrets]]\nenv = \"T\"\nhosts = [\"b.org\"]\nheader = \"X\"\n";
    let amended = edit_policy_entry(Some(text), &file(), &permit).unwrap().unwrap();
    assert_eq!(amended, text.replace("# b\n", "# b\n  \"a.org:443\",\n"));
    assert_eq!(edit_policy_entry(Some(&amended), &file(), &permit), Ok(None));
    let begun = edit_policy_entry(
        Some("version = 1\n[[secrets]]\nenv = \"T\"\nhosts = [\"b.org\"]\nheader = \"X\"\n"),
        &file(),
        &permit,
    )
    .unwrap()
    .unwrap();
    assert!(begun.ends_with("header = \"X\"\n\n[network]\nallow = [\"a.org:443\"]\n"), "{begun}");
}

#[test]
fn port_is_added_to_list_of_ports() {
    let permit = PolicyEntryEdit::localhost(3000, &[5432, 3000]);
    for (text, expect) in [
        ("version = 1\n", "version = 1\n\n[network]\nlocalhost = [3000, 5432]\n"),
        (
            "version = 1\n[network]\nlocalhost = [80] # w\n",
            "version = 1\n[network]\nlocalhost = [80, 3000] # w\n",
        ),
    ] {
        let amended = edit_policy_entry(Some(text), &file(), &permit).unwrap().unwrap();
        assert_eq!(amended, expect);
        assert_eq!(edit_policy_entry(Some(&amended), &file(), &permit), Ok(None));
    }
    let all = "version = 1\n[network]\nlocalhost = true\n";
    assert_eq!(edit_policy_entry(Some(all), &file(), &permit), Ok(None));
    // The user closed them: that line is the user's to change.
    let none = "version = 1\n[network]\nlocalhost = false\n";
    assert!(edit_policy_entry(Some(none), &file(), &permit).is_err());
}
