//! A network that is left by a proxy: the variables of whoever runs ringfence name it.

use ringfence_testkit::{TestNetwork, TestOutput};

use super::on_a_lan;
use super::records::connections;

/// The proxy of the network, by the way that it is reached for everything.
const PROXY: &str = "http://me:hush@11.22.33.9:3128";
const BY_PROXY: &[(&str, &str)] = &[("HTTPS_PROXY", PROXY), ("http_proxy", PROXY)];

/// What the proxy was asked for.
fn tunnels(lan: &TestNetwork<'_>) -> Vec<String> {
    lan.heard().lines().filter(|line| line.contains(" CONNECT ")).map(str::to_owned).collect()
}

/// Promise: P73
#[test]
fn hosts_are_reached_by_the_proxy_of_the_network() {
    on_a_lan(&["curl", "env"], |project, lan| {
        let run = |words: &[&str]| {
            lan.run_with(BY_PROXY, &[&["--allow-host", "far.test"], words].concat())
        };
        // Handed over, and looked at on the way in both manners.
        let places = [
            "http://far.test:8080",
            "https://far.test:8443",
            "https://far.test",
            "http://far.test",
        ];
        for place in places {
            assert_eq!(
                run(&["-c", &format!("curl -sS --cacert ca.crt {place}/hello")]).ok(),
                format!("hello from {place}")
            );
        }
        let ports = ["8080", "8443", "443", "80"];
        assert_eq!(
            tunnels(lan),
            ports.map(|port| format!("3128 CONNECT far.test:{port} basic bwu6ahvzaa=="))
        );
        // What is looked at is looked at all the same.
        run(&["-c", "! curl -sSf -H 'Host: other.test' http://far.test/hello"]).ok();
        assert!(!lan.heard().contains("GET other.test"), "{}", lan.heard());
        // By the proxy inside.
        project.write_at(
            &project.home().join("proxied.toml"),
            "version = 1\n[network]\nproxy-variables = true\n",
        );
        let policy = project.home().join("proxied.toml").to_string_lossy().into_owned();
        let line = "curl -sS --cacert ca.crt https://far.test/hello && curl -sS http://far.test:8080/hello";
        let said = run(&["--policy", &policy, "-c", line]).ok();
        assert_eq!(said, "hello from https://far.test\nhello from http://far.test:8080");
        // An address that is listed, and nothing of the proxy inside or on record.
        let address = "curl -sS http://11.22.33.2:8080/hello";
        assert_eq!(
            lan.run_with(BY_PROXY, &["--allow-host", "11.22.33.2", "-c", address]).ok(),
            "hello from http://11.22.33.2:8080"
        );
        assert!(
            tunnels(lan).iter().any(|line| line.contains(" 11.22.33.2:8080 ")),
            "{:?}",
            tunnels(lan)
        );
        let variables = run(&["env"]).ok();
        assert!(
            !variables.to_lowercase().contains("proxy") && !variables.contains("hush"),
            "{variables}"
        );
        assert!(!format!("{:?}", connections(project)).contains("hush"));
    });
}

/// Promise: P73
#[test]
fn the_proxy_of_the_network_reaches_nobody_who_is_not_listed() {
    on_a_lan(&["curl"], |project, lan| {
        for host in ["far.test:8080", "app.test:8080", "11.22.33.9:3128", "11.22.33.2:8080"] {
            lan.run_with(
                BY_PROXY,
                &["--allow-host", "six.test", "-c", &format!("! curl -sS http://{host}/")],
            )
            .ok();
        }
        assert_eq!(tunnels(lan), [""; 0]);
        let told = connections(project);
        assert!(!told.is_empty() && told.iter().all(|one| one["result"] == "blocked"), "{told:?}");
    });
}

/// Promise: P73
#[test]
fn what_no_proxy_names_is_reached_without() {
    on_a_lan(&["curl"], |_, lan| {
        let line = "curl -sS http://app.test:8080/hello";
        for (no_proxy, expected) in [
            ("app.test", 0),
            (".test,other.example", 0),
            ("*", 0),
            ("app.test:8080", 0),
            ("pp.test", 1),
            ("other.test", 2),
        ] {
            let variables = [BY_PROXY, &[("no_proxy", no_proxy)]].concat();
            assert_eq!(
                lan.run_with(&variables, &["--allow-host", "app.test", "-c", line]).ok(),
                "hello from http://app.test:8080"
            );
            assert_eq!(tunnels(lan).len(), expected, "{no_proxy}");
        }
        // Nothing on this machine is reached by it.
        let here = "curl -sS http://127.0.0.1:8080/hello";
        assert_eq!(
            lan.run_with(BY_PROXY, &["--allow-localhost=8080", "-c", here]).ok(),
            "hello from http://127.0.0.1:8080"
        );
        assert_eq!(tunnels(lan).len(), 2);
    });
}

/// Promise: P73
#[test]
fn what_the_proxy_of_the_network_says_is_on_record() {
    on_a_lan(&["curl"], |project, lan| {
        let cases = [
            ("http://me:hush@11.22.33.9:3129", "wants a name and a password (407)"),
            ("http://11.22.33.9:3130", "said 502 Bad Gateway"),
            ("http://11.22.33.9:9", "was not reached: Connection refused"),
            ("http://nowhere.test:3128", "the proxy of this network: the name has no address"),
        ];
        for (count, (proxy, said)) in cases.into_iter().enumerate() {
            for port in ["8080", "80"] {
                let line = format!("! curl -sS http://far.test:{port}/hello");
                let variables = [("ALL_PROXY", proxy)];
                lan.run_with(&variables, &["--allow-host", "far.test", "-c", &line]).ok();
            }
            let told = connections(project);
            let of_these: Vec<_> = told.iter().skip(2 * count).collect();
            assert_eq!(of_these.len(), 2, "{told:?}");
            for one in of_these {
                assert!(
                    one["result"] == "failed"
                        && one["reason"].as_str().is_some_and(|why| why.contains(said)),
                    "{one}"
                );
                assert!(!one.to_string().contains("hush"), "{one}");
            }
        }
    });
}

/// Promise: P73
#[test]
fn a_variable_that_names_no_proxy_is_refused_before_anything_runs() {
    on_a_lan(&[], |project, lan| {
        for (variable, value) in [
            ("HTTPS_PROXY", "socks5://me:hush@11.22.33.9:1080"),
            ("https_proxy", "https://me:hush@11.22.33.9"),
            ("all_proxy", "http://me:hush@11.22.33.9:port"),
            ("HTTP_PROXY", "http://me:hush@"),
        ] {
            let run = |words: &[&str]| -> TestOutput { lan.run_with(&[(variable, value)], words) };
            let ran = run(&["--allow-host", "app.test", "touch", "ran"]);
            ran.ends(125);
            assert!(
                ran.talk().contains(&format!("{variable} ")) && ran.talk().contains("hint: "),
                "{}",
                ran.talk()
            );
            assert!(!ran.talk().contains("hush") && !project.has("ran"), "{}", ran.talk());
            // Where nobody is reached, it is nobody's business.
            run(&["--net", "none", "true"]).ok();
        }
    });
}
