use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::*;
use crate::testing::{grants, grants_with_builtins};

/// A deterministic random number generator: failures repeat.
struct NameRng(u64);

impl NameRng {
    fn roll(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn name(&mut self) -> OsString {
        const PIECES: &[&[u8]] = &[
            b".env",
            b".ENV",
            b"secret",
            b"SeCrEt",
            b"s",
            b".pem",
            b".key",
            b".",
            b"a",
            b"B",
            b"config",
            b"hooks",
            b"credentials",
            b".json",
            b"\xc3\xa9",
            b"\xc3\x89",
            b"\xff",
            b"\xe2\x84\xaa",
            b"ey",
            b"x",
            b"lock",
            b".git",
        ];
        let mut bytes = Vec::new();
        for _ in 0..=self.roll(4) {
            bytes.extend_from_slice(PIECES[self.roll(PIECES.len())]);
        }
        OsString::from_vec(bytes)
    }
}

#[track_caller]
fn check(grants: &Grants, name: &str, expect: bool) {
    assert_eq!(NameIndex::new(grants).may_match(OsStr::new(name)), expect, "{name}");
}

#[test]
fn names_in_patterns_and_rules_are_interesting() {
    let grants = grants_with_builtins(
        "user deny /p/only/This\nuser deny [ab]?c\nuser protect **/x/{one,two}",
    );
    for name in [
        ".env",
        ".Env.local",
        "my-SECRETS",
        "a.PEM",
        "hooks",
        "this",
        "This",
        "axc",
        "one",
        "two",
        "id_rsa.key",
    ] {
        check(&grants, name, true);
    }
    for name in ["main.rs", "environment", "axx", "three", "", "src", "node_modules", "keyboard"] {
        check(&grants, name, false);
    }
}

#[test]
fn name_index_has_no_false_negatives() {
    let more = "user deny *é*\nuser deny [a-c]*.pem\nuser protect {x,.git}*\nuser deny /p/K\nproject deny **/a/?ey";
    let grants = grants_with_builtins(more);
    let index = NameIndex::new(&grants);
    let mut dice = NameRng(42);
    let mut hits = 0;
    for _ in 0..50_000 {
        let name = dice.name();
        let by_pattern =
            grants.patterns.iter().any(|pattern| pattern.glob.matches_name(&name) != NameMatch::No);
        if by_pattern {
            hits += 1;
            assert!(index.may_match(&name), "{name:?}");
        }
    }
    assert!((10_000..49_000).contains(&hits), "the generator should give both kinds: {hits}");
}

#[test]
fn long_names_are_found_too() {
    let long = "x".repeat(80);
    check(&grants(&format!("user deny {long}")), &long, true);
    check(&grants(&format!("user deny {long}")), &"x".repeat(81), false);
    check(&grants("user deny *secret"), &format!("{}secret", "x".repeat(300)), true);
}

#[test]
fn a_pattern_on_everything_makes_everything_interesting() {
    check(&grants("user deny **/private/**"), "x", true);
    check(&grants("user deny *"), "x", true);
    check(&grants("user read /x"), "x", false);
}
