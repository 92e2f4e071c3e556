//! Hosts in every spelling: a text is parsed to its meaning or refused, and a rule matches all
//! spellings of its host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use ringfence_policy::{
    AbsPath, Facts, Flags, GitRemote, HostName, HostRule, HostTarget, ListedHost, NetworkMode,
    NetworkRules, Origin, Source, guarded_kind, parse, resolve,
};

fn listed(text: &str) -> ListedHost {
    ListedHost { rule: HostRule::parse(text).unwrap(), origin: Origin::new(Source::User, text) }
}

fn rules(allow: &[&str], deny: &[&str]) -> NetworkRules {
    let all = |texts: &[&str]| texts.iter().map(|text| listed(text)).collect();
    NetworkRules {
        mode: NetworkMode::AllowList,
        allow: all(allow),
        deny: all(deny),
        ..NetworkRules::default()
    }
}

/// Valid names that no resolver parses as an address.
fn names() -> impl Strategy<Value = String> {
    "([a-z0-9_]([a-z0-9_-]{0,8}[a-z0-9_])?\\.){0,3}[a-z]{2,8}"
        .prop_filter("not this machine", |name| !name.ends_with("localhost"))
}

/// Other spellings of the same name.
fn spellings(name: String) -> impl Strategy<Value = String> {
    (prop::collection::vec(any::<bool>(), name.len()), any::<bool>()).prop_map(
        move |(upper, dot)| {
            let folded = name
                .chars()
                .zip(upper)
                .map(|(c, upper)| if upper { c.to_ascii_uppercase() } else { c });
            folded.chain(dot.then_some('.')).collect()
        },
    )
}

/// Spellings of this address that inet_aton accepts.
fn spelt(address: u32) -> impl Strategy<Value = String> {
    (1usize..=4, prop::collection::vec(0u8..4, 4), prop::collection::vec(0usize..3, 4)).prop_map(
        move |(parts, radix, zeros)| {
            let left = 8 * (5 - parts as u32);
            let head = (0..parts - 1).map(|i| address >> (24 - 8 * i) & 255);
            let last = if left == 32 { address } else { address & ((1 << left) - 1) };
            let number = |(i, number): (usize, u32)| match radix[i] {
                0 => number.to_string(),
                1 => format!("0{}{number:o}", "0".repeat(zeros[i])),
                2 => format!("0x{}{number:x}", "0".repeat(zeros[i])),
                _ => format!("0X{number:X}"),
            };
            head.chain([last]).enumerate().map(number).collect::<Vec<_>>().join(".")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>(), host in "[ -~]{0,30}", odd in "[0-9a-fx:./*%\\[\\]-]{0,24}") {
        for text in [text, host, odd] {
            let _ = (HostName::new(&text), HostTarget::new(&text), HostName::from_bytes(text.as_bytes()));
            if let Err(error) = HostRule::parse(&text) {
                prop_assert!(error.position().is_none_or(|at| text.get(..at).is_some()), "{text:?} {error:?}");
                prop_assert!(!error.hint().is_empty());
            }
            let quoted = toml_text(&text);
            let file = AbsPath::new("/f").unwrap();
            let _ = parse(&format!("version = 1\n[network]\nallow = [{quoted}]\ndeny = [{quoted}]"), &file, Source::User);
            let _ = parse(&format!("version = 1\n[[secrets]]\nenv = {quoted}\nhosts = [{quoted}]\nheader = {quoted}"), &file, Source::User);
            let directory = AbsPath::new("/p").unwrap();
            let facts = Facts { remotes: vec![GitRemote { name: "x".into(), url: text }], ..Facts::minimal(directory.clone(), AbsPath::new("/h").unwrap(), AbsPath::new("/s").unwrap()) };
            let layer = parse("version = 1\n[network]\ngit = true", &file, Source::User).unwrap();
            prop_assert!(resolve(&[layer], &Flags::none(directory), &facts).is_ok());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(name) = HostName::from_bytes(&bytes) {
            prop_assert!(bytes.is_ascii() && name.as_str().len() <= HostName::LONGEST);
        }
    }

    #[test]
    fn canonical_host_is_stable(text in "[ -~]{0,30}", name in names(), odd in "[0-9a-fx:./*-]{0,24}") {
        for text in [text, name, odd] {
            if let Ok(name) = HostName::new(&text) {
                prop_assert_eq!(HostName::new(name.as_str()), Ok(name.clone()));
                prop_assert!(name.as_str().parse::<IpAddr>().is_err() && !name.as_str().ends_with('.'));
                prop_assert_eq!(name.as_str().to_ascii_lowercase(), name.as_str());
            }
            if let Ok(host) = HostTarget::new(&text) {
                prop_assert_eq!(HostTarget::new(&host.to_string()), Ok(host));
            }
            if let Ok(rule) = HostRule::parse(&text) {
                prop_assert_eq!(HostRule::parse(&rule.to_string()), Ok(rule));
            }
        }
    }

    #[test]
    fn a_denied_name_is_denied_in_every_spelling((name, spelt) in names().prop_flat_map(|name| (Just(name.clone()), spellings(name))), port in 1u16.., address in any::<u32>()) {
        let name_of = HostName::new(&spelt).unwrap();
        let above = name.split_once('.').map_or(String::new(), |(_, rest)| format!("*.{rest}"));
        let allow = [name.as_str(), if above.is_empty() { "a.org" } else { &above }, "0.0.0.0/0"];
        let shut = rules(&allow, &[&name]);
        prop_assert!(!shut.decide_lookup(&name_of).is_open());
        prop_assert!(!shut.decide_name(&name_of, port).is_open());
        prop_assert!(!shut.decide_address(Ipv4Addr::from(address).into(), port, Some(&name_of), &[]).is_open());
        let one = rules(&allow, &[&format!("{name}:{port}")]);
        prop_assert!(!one.decide_name(&name_of, port).is_open());
        prop_assert!(rules(&allow, &[]).decide_name(&name_of, port).is_open());
    }

    #[test]
    fn subdomain_pattern_does_not_match_name_itself(name in names(), label in "[a-z0-9]{1,8}", port in 1u16..) {
        let below = rules(&[&format!("*.{name}")], &[]);
        let open = |parts: &[&str]| below.decide_name(&HostName::new(&parts.concat()).unwrap(), port).is_open();
        prop_assert!(!open(&[&name]));
        prop_assert!(open(&[&label, ".", &name]) && open(&["x.", &label, ".", &name]));
        prop_assert!(!open(&[&label, &name]) && !open(&[&name, ".", &label, "9z"]));
        let child = HostName::new(&[&label, ".", &name].concat()).unwrap();
        prop_assert!(!rules(&[&name], &[]).decide_name(&child, port).is_open());
    }

    #[test]
    fn address_is_recognised_in_every_spelling((address, text) in any::<u32>().prop_flat_map(|address| (Just(address), spelt(address))), port in 1u16..) {
        let real = Ipv4Addr::from(address);
        prop_assert_eq!(HostTarget::new(&text), Ok(HostTarget::Address(real.into())), "{}", text);
        prop_assert!(HostName::new(&text).is_err());
        let mapped = IpAddr::V6(real.to_ipv6_mapped());
        let shut = rules(&["0.0.0.0/0", &real.to_string()], &[&real.to_string()]);
        prop_assert!(!shut.decide_address(real.into(), port, None, &[]).is_open());
        prop_assert!(!shut.decide_address(mapped, port, None, &[]).is_open());
    }

    #[test]
    fn embedded_address_is_guarded_like_itself(address in any::<u32>(), tail in any::<u64>()) {
        let real = Ipv4Addr::from(address);
        let [a, b] = [(address >> 16) as u16, address as u16];
        let [.., t0, t1, t2] = Ipv6Addr::from(u128::from(tail)).segments();
        let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b);
        let six_to_four = Ipv6Addr::new(0x2002, a, b, t0, t1, t2, 1, 1);
        for wrapped in [real.to_ipv6_mapped(), nat64, six_to_four] {
            prop_assert_eq!(guarded_kind(IpAddr::V6(wrapped)), guarded_kind(IpAddr::V4(real)), "{}", wrapped);
        }
        let teredo = Ipv6Addr::new(0x2001, 0, 0x808, 0x808, t0, t1, !a, !b);
        prop_assert_eq!(guarded_kind(teredo.into()).is_some(), guarded_kind(real.into()).is_some());
        let shut = rules(&["::/0"], &[&real.to_string()]);
        prop_assert!(!shut.decide_address(nat64.into(), 443, None, &[]).is_open());
    }

    #[test]
    fn no_guarded_address_is_opened_by_the_internet_or_a_name(address in any::<u32>(), wide in any::<u128>(), port in 1u16..) {
        let open = rules(&["a.org", "0.0.0.0/0", "::/0"], &[]);
        let name = HostName::new("a.org").unwrap();
        for address in [IpAddr::V4(address.into()), IpAddr::V6(wide.into())] {
            for name in [None, Some(&name)] {
                let decision = open.decide_address(address, port, name, &[]);
                prop_assert_eq!(decision.is_open(), guarded_kind(address).is_none(), "{}", address);
            }
            prop_assert!(!open.decide_address(address, port, Some(&name), &[address.to_canonical()]).is_open());
        }
    }
}

/// A basic TOML string.
fn toml_text(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}
