use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Glob, GlobCase, GlobError, NameMatch};
use crate::path::AbsPath;

fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

fn glob(text: &str) -> Glob {
    Glob::new(text, Some(&path("/p")), GlobCase::Sensitive).unwrap()
}

#[track_caller]
fn check(text: &str, candidate: &str, expect: bool) {
    assert_eq!(glob(text).matches(&path(candidate)), expect, "{text} on {candidate}");
}

#[track_caller]
fn check_case(text: &str, candidate: &str, expect: bool) {
    let glob = Glob::new(text, None, GlobCase::Insensitive).unwrap();
    assert_eq!(glob.matches(&path(candidate)), expect, "{text} on {candidate}");
}

#[track_caller]
fn check_covers(text: &str, candidate: &str, expect: bool) {
    assert_eq!(glob(text).covers(&path(candidate)), expect, "{text} on {candidate}");
}

#[track_caller]
fn check_name(text: &str, name: &[u8], expect: NameMatch) {
    assert_eq!(glob(text).matches_name(OsStr::from_bytes(name)), expect, "{text}");
}

#[track_caller]
fn check_fault(text: &str, expect: GlobError) {
    let error = Glob::new(text, None, GlobCase::Sensitive).unwrap_err();
    assert_eq!(error, expect, "{text}");
    assert!(!error.hint().is_empty() && error.code().starts_with("glob-"));
}

#[test]
fn name_without_slash_matches_at_any_depth() {
    check(".env", "/.env", true);
    check(".env", "/p/a/b/.env", true);
    check(".env", "/p/a/.env.local", false);
    check("*.pem", "/x/server.pem", true);
    check("*.pem", "/x/server.pem.txt", false);
    check("*", "/anything", true);
    check("a*b*c", "/x/a-b-b-c", true);
    check("a*b*c", "/x/ac", false);
    check("ab*ba", "/x/aba", false);
    check("*a*", "/x/b", false);
    check("a?c", "/x/abc", true);
    check("a?c", "/x/ac", false);
    check("a?c", "/x/aéc", true);
}

#[test]
fn glob_with_slash_is_anchored() {
    check("src/*.rs", "/p/src/a.rs", true);
    check("src/*.rs", "/q/src/a.rs", false);
    check("./notes", "/p/notes", true);
    check("./notes", "/p/a/notes", false);
    check("/etc/*.conf", "/etc/host.conf", true);
    check("/etc/*.conf", "/etc/x/host.conf", false);
    check("**/a/b", "/q/r/a/b", true);
    check("**/a/b", "/a/b", true);
    check("**/a/b", "/a/x/b", false);
    check("dir/", "/p/dir", true);
}

#[test]
fn double_star_spans_directories() {
    check("/a/**/b", "/a/b", true);
    check("/a/**/b", "/a/x/y/b", true);
    check("/a/**/b", "/x/a/b", false);
    check("/a/**", "/a/x/y", true);
    check("/a/**", "/a", false);
    check("/**/m/**/h", "/q/m/x/h", true);
    check("/**/m/**/h", "/q/m/x/h/z", false);
    check("**/m/**/info/attributes", "/p/m/a/b/info/attributes", true);
    check("**", "/x", true);
}

#[test]
fn classes_and_braces() {
    check("[a-c]x", "/bx", true);
    check("[a-c]x", "/dx", false);
    check("[!a-c]x", "/dx", true);
    check("[!a-c]x", "/ax", false);
    check("[]]x", "/]x", true);
    check("[[]x", "/[x", true);
    check("[a-]x", "/-x", true);
    check("*.{rs,p{y,l}}", "/a.pl", true);
    check("*.{rs,p{y,l}}", "/a.pm", false);
    check("{a/b,c}/d", "/p/a/b/d", true);
    check("{a/b,c}/d", "/p/c/d", true);
    check("x{,.bak}", "/x", true);
    check("x[{]y", "/x{y", true);
    check("a,b}", "/a,b}", true);
}

#[test]
fn many_endings_are_kept_together() {
    let many = "*x*.{a,b,c,d,e,f,g,h,tar.gz}";
    check(many, "/p/axb.a", true);
    check(many, "/p/x.tar.gz", true);
    check(many, "/p/x.i", false);
    check(many, "/p/y.a", false);
    check(many, "/p/x.A", false);
    check(many, "/p/x.{a,b,c,d,e,f,g,h,tar.gz}", false);
    check_case("*X*.{a,b,c,d,e,f,g,H}", "/p/éX.h", true);
    check("d/{a,b,c,d,e,f,g,h}", "/p/d/h", true);
    check("d/?{a,b,c,d,e,f,g,h}", "/p/d/xh", true);
    check("{a,b,c,d,e,f,g,}", "/p/g", true);
    check_fault("x**{a,b,c,d,e,f,g,h}", GlobError::DoubleStarInName { at: 1 });
    check_fault("**{a,b,c,d,e,f,g,h}", GlobError::DoubleStarInName { at: 0 });
}

#[test]
fn case_can_be_ignored() {
    check_case("*.pem", "/x/SERVER.PEM", true);
    check_case("*Secret*", "/x/my-sEcReTs.txt", true);
    check_case("ÉTÉ", "/été", true);
    check_case("[a-c]", "/B", true);
    check_case("*key", "/MY-\u{212a}EY", true);
    check_case("*.pem", "/é.PEM", true);
    check_case("a*", "/Ébc", false);
    check("*.pem", "/x/SERVER.PEM", false);
}

#[test]
fn matched_directory_covers_paths_below() {
    check_covers("secrets", "/p/secrets/a/b", true);
    check_covers("secrets", "/p/secrets", true);
    check_covers("secrets", "/p/secrets2/a", false);
    check_covers("/a/*", "/a/b/c", true);
    check_covers("/a/*", "/a", false);
}

#[test]
fn last_component_alone_rules_out_most_files() {
    check_name("*.pem", b"a.pem", NameMatch::Yes);
    check_name("*.pem", b"a.txt", NameMatch::No);
    check_name("**/.git/hooks", b"hooks", NameMatch::Perhaps);
    check_name("**/.git/hooks", b"hook", NameMatch::No);
    check_name("**/.git/**", b"x", NameMatch::Perhaps);
    check_name("**", b"x", NameMatch::Yes);
    check_name("{/a/x,x}", b"x", NameMatch::Yes);
}

#[test]
fn names_that_are_not_utf8_still_match_wildcards() {
    check_name("*.pem", b"\xff\xfe.pem", NameMatch::Yes);
    check_name("a?b", b"a\xffb", NameMatch::Yes);
    check_name("a[!x]b", b"a\xffb", NameMatch::Yes);
    check_name("a[x]b", b"a\xffb", NameMatch::No);
    check_name("*", b"\xe2\x82", NameMatch::Yes);
    let odd = AbsPath::new(Path::new(OsStr::from_bytes(b"/p/\xff[1]"))).unwrap();
    let below = Glob::new("./k*", Some(&odd), GlobCase::Sensitive).unwrap();
    assert!(below.matches(&odd.join("key")));
    assert!(!below.matches(&path("/p/1/key")));
}

#[test]
fn glob_errors_have_positions() {
    check_fault("", GlobError::Empty);
    check_fault("/", GlobError::Empty);
    check_fault("a[bc", GlobError::UnclosedClass { at: 1 });
    check_fault("/a[b/c]", GlobError::UnclosedClass { at: 2 });
    check_fault("é{b,c", GlobError::UnclosedBrace { at: 2 });
    check_fault("a**b", GlobError::DoubleStarInName { at: 1 });
    check_fault("/x/{a,b}**", GlobError::DoubleStarInName { at: 8 });
    check_fault("[z-a]", GlobError::BadRange { at: 1 });
    check_fault("a\0", GlobError::Nul { at: 1 });
    check_fault("a/b", GlobError::NoAnchor);
    check_fault("/a/../b", GlobError::ParentComponent { at: 3 });
    check_fault(&"x".repeat(4097), GlobError::TooLong { limit: 4096 });
    check_fault(&"{a,b}".repeat(10), GlobError::TooManyAlternatives { limit: 1000 });
}

#[test]
fn stars_do_not_multiply() {
    let long = format!("/{}", "a".repeat(4000));
    check("*a*a*a*a*a*a*a*a*a*a*b", &long, false);
    let deep = "/a".repeat(2000);
    check("/**/a/**/a/**/a/**/a/**/b", &deep, false);
}

#[test]
fn escaped_text_matches_itself_and_survives_storage() {
    let text = "we[i]rd{,}*?";
    let escaped = Glob::new(&Glob::escape(text), None, GlobCase::Sensitive).unwrap();
    assert!(escaped.matches(&path(&format!("/x/{text}"))));
    assert!(!escaped.matches(&path("/x/weird")));
    let stored = serde_json::to_string(&escaped).unwrap();
    assert_eq!(serde_json::from_str::<Glob>(&stored).unwrap(), escaped);
    assert!(serde_json::from_str::<Glob>(&stored.replace("[?]", "[")).is_err());
}
