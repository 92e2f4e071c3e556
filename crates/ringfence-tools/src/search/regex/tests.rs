use std::time::Duration;

use super::*;

fn find(regex: &str, case: RegexCase, line: &[u8]) -> Option<usize> {
    RegexVm::new(regex, case).unwrap().find(line, Instant::now() + Duration::from_secs(600))
}

#[track_caller]
fn check(regex: &str, line: &str, expect: Option<usize>) {
    assert_eq!(find(regex, RegexCase::Sensitive, line.as_bytes()), expect, "{regex} in {line}");
}

#[test]
fn leftmost_match_is_found() {
    check("b+", "aabbb", Some(2));
    check("^fn +main", "fn  main() {}", Some(0));
    check("^main", "fn main", None);
    check(r"\d{2,3}$", "1 22 4444", Some(6));
    check("(foo|bar)baz", "foobar barbaz", Some(7));
    check("a|ab|abc", "xxabc", Some(2));
    check("x*", "aaa", Some(0));
    check(r"\bcat\b", "concat cat", Some(7));
    check(r"\bcat\b", "concat cats", None);
    check("[^a-c]+", "abcd", Some(3));
    check("a.c", "a\tc", Some(0));
    check("(?i)HELLO", "say hello", Some(4));
    check("abcd|bc", "xabce", Some(2));
    check("a.*d|bc", "abcd", Some(0));
    check("", "x", Some(0));
    check("$", "abc", Some(3));
}

#[test]
fn matching_is_by_unicode_characters() {
    check("é", "caffé", Some(4));
    check("^.{5}$", "naïve", Some(0));
    check(r"\w+$", "größe", Some(0));
    assert_eq!(find("b", RegexCase::Sensitive, b"\xff\xfeb"), Some(2));
    assert_eq!(find("^.b", RegexCase::Sensitive, b"\xffb"), None);
    assert_eq!(find("straße", RegexCase::Insensitive, "STRAßE".as_bytes()), Some(0));
}

#[test]
fn pathological_patterns_finish_or_are_refused() {
    let line = "a".repeat(20_000);
    check("(a*)*b", &line, None);
    check("(a|a)*$", &line, Some(0));
    check("(?:a?){50}a{50}$", &line, Some(19_900));
    for regex in ["(a{1000}){1000}", "(((a{100}){100}){100}){100}"] {
        assert_eq!(
            RegexVm::new(regex, RegexCase::Sensitive).err().map(|error| error.code()),
            Some("input")
        );
    }
}

#[test]
fn search_stops_at_the_deadline() {
    let line = "a".repeat(8 << 20);
    assert_eq!(
        RegexVm::new("(?:a?){2000}b", RegexCase::Sensitive)
            .unwrap()
            .find(line.as_bytes(), Instant::now()),
        None
    );
}

#[test]
fn invalid_pattern_is_an_error() {
    for regex in ["(", "[a", "a{2,1}", "*", r"\p{Nothing}", &"(".repeat(200)] {
        assert_eq!(
            RegexVm::new(regex, RegexCase::Sensitive).err().map(|error| error.code()),
            Some("input"),
            "{regex}"
        );
    }
}
