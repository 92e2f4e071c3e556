//! Network clients of the shell.

use super::{inside, on_a_lan};

/// The URL and the response of every server.
const PLACES: [(&str, &str); 4] = [
    ("http://app.test/hello", "hello from http://app.test"),
    ("http://app.test:8080/hello", "hello from http://app.test:8080"),
    ("https://app.test/hello", "hello from https://app.test"),
    ("https://app.test:8443/hello", "hello from https://app.test:8443"),
];

/// Promise: allowed-hosts
#[test]
fn no_proxy_variables_are_set() {
    on_a_lan(&["env"], |_, lan| {
        let said = inside(lan, "env").to_lowercase();
        assert!(said.contains("path=") && !said.contains("proxy"), "{said}");
    });
}

/// Promise: allowed-hosts
#[test]
fn curl_reaches_an_allowed_host() {
    on_a_lan(&["curl"], |_, lan| {
        for (place, said) in PLACES {
            assert_eq!(inside(lan, &format!("curl -sS --cacert ca.crt {place}")), said);
        }
        assert!(
            lan.server_log().contains("443 app.test GET app.test /hello"),
            "{}",
            lan.server_log()
        );
        // Several at once, several on one connection, and more than fits into a buffer.
        let many = "curl -sS --cacert ca.crt --parallel https://app.test/hello https://app.test:8443/hello http://app.test/hello http://app.test/hello | sort";
        assert_eq!(inside(lan, many).lines().count(), 4);
        for place in [
            "https://app.test/echo",
            "https://app.test:8443/echo",
            "http://app.test/echo",
            "http://app.test:8080/echo",
        ] {
            // With a content length, chunked, and without waiting for `100 Continue`.
            for how in ["", "-H 'Transfer-Encoding: chunked'", "-H Expect:"] {
                let line = format!(
                    "head -c 3000000 /dev/urandom > sent; curl -sS --cacert ca.crt {how} --data-binary @sent {place} | cmp - sent"
                );
                inside(lan, &line);
            }
        }
    });
}

/// Promise: allowed-hosts
#[test]
fn curl_works_over_ipv4_and_ipv6() {
    on_a_lan(&["curl"], |_, lan| {
        for kind in ["-4", "-6"] {
            for (place, said) in PLACES {
                assert_eq!(
                    inside(lan, &format!("curl -sS {kind} --cacert ca.crt {place}")),
                    said,
                    "{kind}"
                );
            }
        }
        // A host with one kind of address is reached whatever the program prefers.
        for kind in ["-4", "-6"] {
            let line = format!("curl -sS {kind} http://six.test:8080/hello");
            assert_eq!(
                lan.run(&["--allow-host", "six.test", "-c", &line]).ok(),
                "hello from http://six.test:8080"
            );
        }
        assert_eq!(
            inside(lan, "curl -sS --connect-timeout 4 http://APP.test.:8080/hello"),
            "hello from http://APP.test.:8080"
        );
    });
}

/// Promise: allowed-hosts
#[test]
fn wget_reaches_an_allowed_host() {
    on_a_lan(&["wget"], |_, lan| {
        for (place, said) in PLACES {
            assert_eq!(inside(lan, &format!("wget -q -O- --ca-certificate=ca.crt {place}")), said);
        }
    });
}

/// Promise: allowed-hosts
#[test]
fn nc_reaches_an_allowed_host() {
    on_a_lan(&["nc"], |_, lan| {
        assert_eq!(inside(lan, "echo one line | nc -N app.test 7"), "ONE LINE");
        assert_eq!(
            lan.run(&[
                "--allow-host",
                "11.22.33.0/24:7",
                "-c",
                "echo by address | nc -N 11.22.33.9 7"
            ])
            .ok(),
            "BY ADDRESS"
        );
        inside(lan, "nc -z app.test 8080");
    });
}

/// Promise: allowed-hosts
#[test]
fn bash_dev_tcp_reaches_an_allowed_host() {
    on_a_lan(&["bash"], |_, lan| {
        let line = "bash -c 'exec 3<>/dev/tcp/app.test/7; echo from bash >&3; head -1 <&3'";
        assert_eq!(inside(lan, line), "FROM BASH");
    });
}
