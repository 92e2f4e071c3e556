use super::*;

#[track_caller]
fn check(text: &str, expect: &str) {
    let rule = HostRule::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(rule.to_string(), expect, "{text}");
    assert_eq!(HostRule::parse(expect), Ok(rule), "{text}");
}

#[track_caller]
fn check_refused(text: &str, message: &str, position: Option<usize>, hint: &str) {
    let error = HostRule::parse(text).expect_err(text);
    assert_eq!((error.to_string().as_str(), error.position()), (message, position), "{text}");
    assert!(error.hint().contains(hint), "{text}: {}", error.hint());
}

#[test]
fn every_form_has_one_spelling() {
    check("Example.ORG.", "example.org");
    check("*.Example.org", "*.example.org");
    check("example.org:443", "example.org:443");
    check("*.example.org:8443", "*.example.org:8443");
    check("192.0.2.1", "192.0.2.1");
    check("192.0.2.1/32", "192.0.2.1");
    check("192.0.2.1:80", "192.0.2.1:80");
    check("10.0.0.0/8", "10.0.0.0/8");
    check("10.0.0.0/8:5432", "10.0.0.0/8:5432");
    check("0.0.0.0/0", "0.0.0.0/0");
    check("2001:DB8::1", "2001:db8::1");
    check("[2001:db8::1]", "2001:db8::1");
    check("[2001:db8::1]:443", "[2001:db8::1]:443");
    check("2001:db8::/32", "2001:db8::/32");
    check("2001:db8::/32:443", "2001:db8::/32:443");
    check("2001:db8::1/128:443", "[2001:db8::1]:443");
    check("::ffff:10.0.0.0/104", "10.0.0.0/8");
    check("::ffff:10.0.0.1", "10.0.0.1");
    check("[::ffff:10.0.0.1]:80", "10.0.0.1:80");
    check("::/0", "::/0");
}

#[test]
fn invalid_host_rule_error_has_position_and_hint() {
    check_refused("", "it is empty", None, "remove it");
    check_refused("  ", "it is empty", None, "remove it");
    check_refused("https://me@x.org:8443/a?b", "it is a URL", None, "`x.org:8443`");
    check_refused("*", "it matches every host", None, "full");
    check_refused("*:443", "it matches every host", None, "full");
    check_refused("*.", "it is empty", None, "example.org");
    check_refused("a.*.org", "`*` is only allowed as the first label", Some(2), "*.example.org");
    check_refused("*x.org", "`*` is only allowed as the first label", Some(0), "*.example.org");
    check_refused("*.*.org", "`*` is only allowed as the first label", Some(2), "*.example.org");
    for port in ["0", "65536", "", "+1", "080", "99999999999", "a", " 1", "٣"] {
        check_refused(&format!("x.org:{port}"), &format!("`{port}` is no port"), Some(6), "65535");
    }
    check_refused("10.0.0.0/8:0", "`0` is no port", Some(11), "65535");
    check_refused("[::1]:x", "`x` is no port", Some(6), "65535");
    check_refused("10.0.0.0/33", "`33` is no prefix length", Some(9), "0 to 32");
    check_refused("10.0.0.0/", "`` is no prefix length", Some(9), "0 to 32");
    check_refused("::/129", "`129` is no prefix length", Some(3), "0 to 128");
    check_refused("10.1.2.3/8", "the address has bits set after the prefix", None, "`10.0.0.0/8`");
    check_refused(
        "x.org/path",
        "it has a path, but a rule applies to a whole host",
        Some(5),
        "`x.org`",
    );
    check_refused(
        "github.com/*",
        "it has a path, but a rule applies to a whole host",
        Some(10),
        "`github.com`",
    );
    check_refused(
        "2001:db8:0:0:0:0:0:1:443",
        "an IPv6 address with a port needs brackets",
        Some(0),
        "[2001:db8::1]:443",
    );
    check_refused("[::1", "`[::1` is no address", Some(0), "192.0.2.1");
    check_refused("[::1]x", "`[::1]x` is no address", Some(0), "192.0.2.1");
    check_refused("[x.org]:80", "`x.org` is no address", Some(1), "192.0.2.1");
    check_refused(
        "[fe80::1%eth0]:80",
        "it has a zone (`%`), which names an interface of one machine",
        Some(8),
        "without `%`",
    );
    check_refused("127.1", "it is the address 127.0.0.1, not a name", None, "`127.0.0.1`");
    check_refused("0x7f000001:80", "it is the address 127.0.0.1, not a name", None, "`127.0.0.1`");
    check_refused(
        "1.2.3.256",
        "it ends in a number like an address, but is no valid address",
        None,
        "192.0.2.1",
    );
    check_refused("*.1.2.3.4", "it is the address 1.2.3.4, not a name", None, "`1.2.3.4`");
    check_refused("a b.org", "' ' is not allowed in a host name", Some(1), "letters");
    check_refused("*.a\r\n.org", "'\\r' is not allowed in a host name", Some(3), "letters");
    check_refused("bücher.de", "it is not ASCII", Some(1), "xn--");
}

#[test]
fn host_rule_matches_only_its_hosts() {
    let name = |text: &str| HostName::new(text).unwrap();
    let below = HostRule::parse("*.a.org").unwrap();
    assert!(below.matches_name(&name("x.a.org")) && below.matches_name(&name("x.y.a.org")));
    assert!(
        !below.matches_name(&name("a.org"))
            && !below.matches_name(&name("xa.org"))
            && !below.matches_name(&name("a.org.evil.example"))
    );
    let itself = HostRule::parse("a.org").unwrap();
    assert!(itself.matches_name(&name("A.org.")) && !itself.matches_name(&name("x.a.org")));
    let ten = HostRule::parse("10.0.0.0/8").unwrap();
    assert!(
        ten.matches_address("10.1.1.1".parse().unwrap())
            && !ten.matches_address("64:ff9b::10.1.1.1".parse().unwrap())
    );
    assert!(ten.matches_embedded_address("64:ff9b::10.1.1.1".parse().unwrap()));
}

#[test]
fn host_rule_covers_narrower_rules() {
    let covers =
        |a: &str, b: &str| HostRule::parse(a).unwrap().covers(&HostRule::parse(b).unwrap());
    assert!(covers("a.org", "a.org:443") && !covers("a.org:443", "a.org"));
    assert!(
        covers("*.a.org", "x.a.org")
            && covers("*.a.org", "*.x.a.org:1")
            && !covers("*.a.org", "a.org")
    );
    assert!(
        covers("10.0.0.0/8", "10.1.0.0/16:1")
            && !covers("10.1.0.0/16", "10.0.0.0/8")
            && !covers("::/0", "10.0.0.0/8")
    );
}
