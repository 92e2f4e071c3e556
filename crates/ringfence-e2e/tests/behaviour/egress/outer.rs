//! An upstream proxy, named by environment variables of the user.

use ringfence_testkit::{TestNetwork, TestOutput};

use super::on_a_lan;
use super::records::connections;

/// The upstream proxy for all protocols.
const PROXY: &str = "http://me:hush@11.22.33.9:3128";
const BY_PROXY: &[(&str, &str)] = &[("HTTPS_PROXY", PROXY), ("http_proxy", PROXY)];

/// The tunnels that the proxy was asked for.
fn tunnels(lan: &TestNetwork<'_>) -> Vec<String> {
    lan.server_log().lines().filter(|line| line.contains(" CONNECT ")).map(str::to_owned).collect()
}

/// Promise: upstream-proxy
#[test]
fn hosts_are_reached_through_the_upstream_proxy() {
    on_a_lan(&["curl", "env"], |project, lan| {
        let run = |words: &[&str]| {
            lan.run_with(BY_PROXY, &[&["--allow-host", "far.test"], words].concat())
        };
        // Passed through directly, and inspected in both ways.
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
        // Inspected connections are still inspected.
        run(&["-c", "! curl -sSf -H 'Host: other.test' http://far.test/hello"]).ok();
        assert!(!lan.server_log().contains("GET other.test"), "{}", lan.server_log());
        // Through the proxy inside.
        project.write_at(
            &project.home().join("proxied.toml"),
            "version = 1\n[network]\nproxy-variables = true\n",
        );
        let policy = project.home().join("proxied.toml").to_string_lossy().into_owned();
        let line = "curl -sS --cacert ca.crt https://far.test/hello && curl -sS http://far.test:8080/hello";
        let said = run(&["--policy", &policy, "-c", line]).ok();
        assert_eq!(said, "hello from https://far.test\nhello from http://far.test:8080");
        // A listed address; the upstream proxy shows neither inside nor in the audit log.
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

/// Promise: upstream-proxy
#[test]
fn upstream_proxy_reaches_only_allowed_hosts() {
    on_a_lan(&["curl"], |project, lan| {
        for host in ["far.test:8080", "app.test:8080", "11.22.33.9:3128", "11.22.33.2:8080"] {
            lan.run_with(
                BY_PROXY,
                &["--allow-host", "six.test", "-c", &format!("! curl -sS http://{host}/")],
            )
            .ok();
        }
        assert_eq!(tunnels(lan), [""; 0]);
        let report = connections(project);
        assert!(
            !report.is_empty() && report.iter().all(|one| one["result"] == "blocked"),
            "{report:?}"
        );
    });
}

/// Promise: upstream-proxy
#[test]
fn no_proxy_hosts_are_reached_directly() {
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
        // Hosts on this machine are not reached through it.
        let here = "curl -sS http://127.0.0.1:8080/hello";
        assert_eq!(
            lan.run_with(BY_PROXY, &["--allow-localhost=8080", "-c", here]).ok(),
            "hello from http://127.0.0.1:8080"
        );
        assert_eq!(tunnels(lan).len(), 2);
    });
}

/// Promise: upstream-proxy
#[test]
fn upstream_proxy_errors_are_audited() {
    on_a_lan(&["curl"], |project, lan| {
        let cases = [
            ("http://me:hush@11.22.33.9:3129", "requires a user name and a password (407)"),
            ("http://11.22.33.9:3130", "answered 502 Bad Gateway"),
            ("http://11.22.33.9:9", "cannot be reached: Connection refused"),
            ("http://nowhere.test:3128", "the upstream proxy: the name has no address"),
        ];
        for (count, (proxy, said)) in cases.into_iter().enumerate() {
            for port in ["8080", "80"] {
                let line = format!("! curl -sS http://far.test:{port}/hello");
                let variables = [("ALL_PROXY", proxy)];
                lan.run_with(&variables, &["--allow-host", "far.test", "-c", &line]).ok();
            }
            let report = connections(project);
            let of_these: Vec<_> = report.iter().skip(2 * count).collect();
            assert_eq!(of_these.len(), 2, "{report:?}");
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

/// Promise: upstream-proxy
#[test]
fn invalid_proxy_variable_is_refused_before_anything_runs() {
    on_a_lan(&[], |project, lan| {
        for (variable, value) in [
            ("HTTPS_PROXY", "socks5://me:hush@11.22.33.9:1080"),
            ("https_proxy", "https://me:hush@11.22.33.9"),
            ("all_proxy", "http://me:hush@11.22.33.9:port"),
            ("HTTP_PROXY", "http://me:hush@"),
        ] {
            let run = |words: &[&str]| -> TestOutput { lan.run_with(&[(variable, value)], words) };
            let ran = run(&["--allow-host", "app.test", "touch", "ran"]);
            ran.expect_status(125);
            assert!(
                ran.stderr_text().contains(&format!("{variable} "))
                    && ran.stderr_text().contains("hint: "),
                "{}",
                ran.stderr_text()
            );
            assert!(
                !ran.stderr_text().contains("hush") && !project.has("ran"),
                "{}",
                ran.stderr_text()
            );
            // Without a network the variable is ignored.
            run(&["--net", "none", "true"]).ok();
        }
    });
}
