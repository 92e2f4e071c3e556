//! Secret values that ringfence inserts into requests, and that are nowhere inside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence_testkit::{TestNetwork, TestOutput, TestProject, becomes_true, needs, python};

use super::on_a_lan;
use super::records::connections;

/// The value that must not be inside. The tests search for it, so it is written only here.
const VALUE: &str = "tulip-47-harbour";
/// The same as a pattern for `grep` that does not match its own command line.
const PATTERN: &str = "tulip-4[7]-harbour";

const POLICY: &str = "version = 1
[network]
allow = [\"app.test\", \"other.test\"]
[[secrets]]
env = \"APP_TOKEN\"
hosts = [\"app.test\"]
header = \"Authorization\"
[[secrets]]
env = \"APP_TOKEN\"
hosts = [\"app.test:8443\"]
header = \"X-Key\"
";

/// `ringfence run` with the policy and the value, on a machine that trusts the network's authority.
fn trusting(project: &TestProject, lan: &TestNetwork<'_>, policy: &str) -> Command {
    project.write_at(&project.home().join(".config/ringfence/policy.toml"), policy);
    let mut command = lan.command();
    command.arg(project.binary()).arg("run");
    command.env("APP_TOKEN", VALUE).env("SSL_CERT_FILE", project.root().join("ca.crt"));
    command
}

/// Checks what a request of `line` to `app.test` carries when it arrives there.
#[track_caller]
fn put_in(project: &TestProject, lan: &TestNetwork<'_>, line: &str, expect: &str) {
    let before = lan.server_log().len();
    let said = TestOutput::run(trusting(project, lan, POLICY).args(["-c", line]), b"").ok();
    assert!(said.contains("hello from https://app.test"), "`{line}`: {said}");
    let heard = lan.server_log().split_off(before);
    assert!(heard.contains(expect), "`{line}`: `{expect}` is not in {heard}");
}

const BEARER: &str = "443 app.test app.test Authorization Bearer tulip-47-harbour\n";

/// Promise: secret-values
#[test]
fn secret_is_sent_to_its_host_by_every_program() {
    on_a_lan(&["curl", "wget"], |project, lan| {
        put_in(
            project,
            lan,
            "curl -sS -H \"Authorization: Bearer $APP_TOKEN\" https://app.test/hello",
            BEARER,
        );
        // GnuTLS has no variable for a CA bundle.
        put_in(
            project,
            lan,
            "wget -qO- --header=\"Authorization: Bearer $APP_TOKEN\" https://app.test/hello",
            BEARER,
        );
        let basic = "443 app.test app.test Authorization Basic bWU6dHVsaXAtNDctaGFyYm91cg==\n";
        put_in(project, lan, "curl -sS -u \"me:$APP_TOKEN\" https://app.test/hello", basic);
        let key = "8443 app.test app.test:8443 X-Key tulip-47-harbour\n";
        put_in(project, lan, "curl -sS -H \"X-Key: $APP_TOKEN\" https://app.test:8443/hello", key);
    });
}

/// Promise: secret-values
#[test]
fn secret_is_sent_to_its_host_by_every_language() {
    on_a_lan(&["node", "git"], |project, lan| {
        let Some(python) = python() else { return };
        let authorization = "{ headers: { Authorization: `Bearer ${process.env.APP_TOKEN}` } }";
        project.write("ask.mjs", format!("console.log(await (await fetch('https://app.test/hello', {authorization})).text());\n"));
        put_in(project, lan, "node ask.mjs", BEARER);
        project.write(
            "ask.py",
            "import os, requests, urllib.request
headers = {'Authorization': 'Bearer ' + os.environ['APP_TOKEN']}
print(urllib.request.urlopen(urllib.request.Request('https://app.test/hello', headers=headers)).read())
print(requests.get('https://app.test/hello', headers=headers).text)
",
        );
        put_in(project, lan, &format!("{python} ask.py"), BEARER);
        let line = "git -c http.extraHeader=\"Authorization: Bearer $APP_TOKEN\" ls-remote https://app.test/git/none.git; \
            curl -sS https://app.test/hello";
        put_in(project, lan, line, BEARER);
    });
}

/// Promise: secret-values
#[test]
fn secret_is_sent_to_no_other_host_or_header() {
    on_a_lan(&["curl"], |project, lan| {
        let headers = "-H \"Authorization: Bearer $APP_TOKEN\" -H \"X-Key: $APP_TOKEN\" -H \"X-Other: $APP_TOKEN\"";
        let lines = [
            // Another host, another port, plain HTTP, and another header.
            format!("curl -skS {headers} https://other.test/hello"),
            format!("curl -skS {headers} https://other.test:8443/hello"),
            format!("curl -sS {headers} http://app.test/hello"),
            format!("curl -sS {headers} http://app.test:8080/hello"),
            // Another host behind the same address, or behind the same connection.
            format!("curl -skS {headers} --connect-to other.test:443:app.test:443 https://other.test/hello"),
            format!("curl -sS {headers} -H 'Host: other.test' https://app.test/hello"),
            format!("curl -sS {headers} --request-target https://other.test/hello https://app.test/hello"),
            // In the body, and in the path.
            "curl -sS -d \"$APP_TOKEN\" https://app.test/echo; curl -sS https://app.test/$APP_TOKEN".to_owned(),
        ];
        for line in &lines {
            TestOutput::run(
                trusting(project, lan, POLICY).args(["-c", &format!("{line} || true")]),
                b"",
            )
            .ok();
        }
        assert!(!lan.server_log().contains(VALUE), "{}", lan.server_log());
        let placeholders = lan
            .server_log()
            .matches("Authorization Bearer ringfence-placeholder-APP_TOKEN")
            .count();
        assert_eq!(placeholders, 4, "{}", lan.server_log());
        // The value is masked in the response of the right host; other headers are unchanged.
        let line = format!("curl -sS {headers} https://app.test/headers");
        let said = TestOutput::run(trusting(project, lan, POLICY).args(["-c", &line]), b"").ok();
        assert!(said.contains("Authorization: Bearer ****************"), "{said}");
        assert!(
            said.contains("X-Key: ringfence-placeholder-APP_TOKEN")
                && said.contains("X-Other: ringfence-placeholder-APP_TOKEN"),
            "{said}"
        );
    });
}

/// Promise: secret-values
#[test]
fn secret_value_is_nowhere_inside() {
    on_a_lan(&["curl", "grep"], |project, lan| {
        let line = format!(
            "env > variables; curl -sS -H \"Authorization: Bearer $APP_TOKEN\" https://app.test/headers
grep -rl --exclude-dir=sys --exclude-dir=proc '{PATTERN}' /etc /tmp /run /dev/shm /var ~ . 2>&1 | grep -v 'denied\\|No such'
grep -al '{PATTERN}' /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>&1 | grep -v denied
echo done > done; exec sleep 60"
        );
        let child = trusting(project, lan, POLICY)
            .args(["-c", &line])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(
            becomes_true(Duration::from_secs(30), || project.has("done")),
            "it did not come to its end"
        );
        let found = holders(child.id());
        let _ = Command::new("kill").arg(child.id().to_string()).status();
        let said = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout);
        assert!(said.contains("Authorization: Bearer ****************"), "{said}");
        assert!(!said.contains("\n/"), "a file has it: {said}");
        let variables = project.read("variables").unwrap_or_default();
        assert!(variables.contains("\nAPP_TOKEN=ringfence-placeholder-APP_TOKEN\n"), "{variables}");
        assert!(!variables.contains(VALUE), "{variables}");
        assert_eq!(found, Vec::<String>::new(), "processes that have it");
        // It is not in the audit log either, but the fact that it was sent is.
        assert!(project.sh_bare(&format!("grep -rl '{PATTERN}' ~ . || true")).ok().is_empty());
        let report = connections(project);
        assert!(
            report.iter().any(|one| one["target"] == "app.test:443"
                && one["secrets"] == serde_json::json!(["APP_TOKEN"])),
            "{report:?}"
        );
    });
}

/// The descendants of `keeper`, which is outside and has the value, that have it as well: in the
/// environment, the arguments or anywhere in memory.
fn holders(keeper: u32) -> Vec<String> {
    // A forked child is a copy of the keeper until it calls `exec`.
    let mut found = Vec::new();
    becomes_true(Duration::from_secs(2), || {
        found = holders_now(keeper);
        found.is_empty()
    });
    found
}

fn holders_now(keeper: u32) -> Vec<String> {
    let text = |pid: u32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let below = |pid: u32| {
        let children = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let listed = children
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .collect::<Vec<_>>();
        listed
            .join(" ")
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect::<Vec<u32>>()
    };
    // Ringfence is started through programs that enter the test network.
    let mut keeper = keeper;
    while !fs::read_link(format!("/proc/{keeper}/exe"))
        .is_ok_and(|program| program.ends_with("ringfence-e2e"))
    {
        keeper = below(keeper)[0];
    }
    let has = |bytes: &[u8]| bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
    assert!(
        has(&memory(keeper)) || !ringfence_testkit::TestUser::runner_is_root(),
        "nothing is found where it has to be"
    );
    let (mut left, mut found, mut seen) = (below(keeper), Vec::new(), 0);
    while let Some(pid) = left.pop() {
        left.extend(below(pid));
        seen += 1;
        if has(&text(pid, "environ")) || has(&text(pid, "cmdline")) || has(&memory(pid)) {
            found.push(format!("{pid} {}", String::from_utf8_lossy(&text(pid, "comm")).trim()));
        }
    }
    assert!(seen >= 3, "only {seen} processes");
    found
}

/// All readable memory of a process.
fn memory(pid: u32) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Ok(file) = fs::File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let (from, to) =
            (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut piece = vec![0; 4096];
        for at in (from..to).step_by(4096) {
            if file.read_exact_at(&mut piece, at).is_ok() {
                all.extend_from_slice(&piece);
            }
        }
    }
    all
}

/// A response does not show whether a partial guess of the value is right.
///
/// Promise: secret-values
#[test]
fn secret_cannot_be_guessed_letter_by_letter() {
    on_a_lan(&[], |project, lan| {
        let Some(python) = python() else { return };
        project.write(
            "guess.py",
            "import http.client, ssl, sys, time
connection = http.client.HTTPSConnection('app.test')
connection.connect()
connection.sock.settimeout(20)
for guess in sys.argv[1:]:
    body = 'x ' + guess
    connection.sock.sendall(('POST /echo HTTP/1.1\\r\\nHost: app.test\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body)).encode())
    pieces, heard = [], b''
    while not heard.endswith(body.encode()):
        piece = connection.sock.recv(65536)
        heard += piece
        pieces.append(len(piece))
    print(pieces[-1])
",
        );
        let guesses = ["t", "q", "tulip-47-harbou", "qqqqqqqqqqqqqqq", "tulip", "qulip"];
        let line = format!("{python} guess.py {}", guesses.join(" "));
        let said = TestOutput::run(trusting(project, lan, POLICY).args(["-c", &line]), b"").ok();
        let pieces: Vec<&str> = said.lines().collect();
        assert_eq!((pieces[0], pieces[2], pieces[4]), (pieces[1], pieces[3], pieces[5]), "{said}");
    });
}

/// Promise: secret-values
#[test]
fn host_with_an_untrusted_certificate_gets_no_secret() {
    on_a_lan(&["curl", "openssl"], |project, lan| {
        lan.run_as_server("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout x.key -out x.crt -subj /CN=other").ok();
        project.write("ca.crt", fs::read_to_string(lan.at("x.crt")).unwrap());
        let line = "curl -sS -H \"Authorization: Bearer $APP_TOKEN\" https://app.test/hello";
        let said = TestOutput::run(trusting(project, lan, POLICY).args(["-c", line]), b"").ok();
        assert!(
            said.starts_with("ringfence: TLS or HTTP with app.test failed: ")
                && said.contains("UnknownIssuer"),
            "{said}"
        );
        assert!(!lan.server_log().contains("hello"), "{}", lan.server_log());
        let report = connections(project);
        assert!(
            report.iter().any(|one| one["result"] == "failed" && one["target"] == "app.test:443"),
            "{report:?}"
        );
    });
}

/// Promise: secret-values
#[test]
fn secret_is_sent_through_the_proxy() {
    on_a_lan(&["curl"], |project, lan| {
        let policy = POLICY.replacen("[network]\n", "[network]\nproxy-variables = true\n", 1);
        for target in ["https://app.test/hello", "https://other.test/hello"] {
            let line = format!("curl -skS -H \"Authorization: Bearer $APP_TOKEN\" {target}");
            TestOutput::run(trusting(project, lan, &policy).args(["-c", &line]), b"").ok();
        }
        let heard = lan.server_log();
        assert!(heard.contains(BEARER) && heard.matches(VALUE).count() == 1, "{heard}");
        // A client that resolves names itself.
        let line = "curl -sS --socks5 127.0.0.1:3128 http://app.test:8080/hello";
        let said = TestOutput::run(trusting(project, lan, &policy).args(["-c", line]), b"").ok();
        assert_eq!(said, "hello from http://app.test:8080");
    });
}

/// Promise: secret-values
#[test]
fn secret_is_sent_in_a_session() {
    on_a_lan(&["curl"], |project, lan| {
        let file = project.home().join(".config/ringfence/policy.toml");
        project.write_at(&file, POLICY);
        let runtime = project.home().join("run");
        let session = |words: &[&str]| {
            let mut command = lan.command();
            command
                .arg(project.binary())
                .arg("session")
                .args(words)
                .env("XDG_RUNTIME_DIR", &runtime);
            TestOutput::run(
                command.env("APP_TOKEN", VALUE).env("SSL_CERT_FILE", project.root().join("ca.crt")),
                b"",
            )
        };
        fs::create_dir(&runtime).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        project.user.chown(&runtime);
        let id = session(&["start"]).ok();
        let asks = "curl -sS -H \"Authorization: Bearer $APP_TOKEN\" https://app.test/headers";
        let about: serde_json::Value =
            serde_json::from_str(&session(&["inspect", &id]).text()).expect("one object");
        let found = holders(about["pid"].as_u64().expect("a number") as u32);
        let said = [(); 3].map(|()| session(&["exec", &id, "-c", asks]).text());
        session(&["stop", &id]).ok();
        assert_eq!(found, Vec::<String>::new(), "processes that have it");
        assert!(
            said.iter().all(|said| said.contains("Authorization: Bearer ****************")),
            "{said:?}"
        );
        assert_eq!(lan.server_log().matches(BEARER).count(), 3, "{}", lan.server_log());
    });
}

/// Promise: secret-values
#[test]
fn invalid_secret_settings_are_refused_before_anything_runs() {
    if !needs(&["touch"]) {
        return;
    }
    on_a_lan(&[], |project, lan| {
        let refused = |change: &dyn Fn(&mut Command), words: &[&str]| {
            let mut command = trusting(project, lan, POLICY);
            change(&mut command);
            let ran = TestOutput::run(command.args(["-c", "touch ran"]), b"");
            assert_eq!((ran.status, project.has("ran")), (125, false), "{}", ran.stderr_text());
            words.iter().for_each(|word| {
                assert!(
                    ran.stderr_text().contains(word),
                    "`{word}` is not in {}",
                    ran.stderr_text()
                )
            });
            assert!(!ran.stderr_text().contains("tulip"), "{}", ran.stderr_text());
        };
        let certificates = |file: &'static str| {
            move |command: &mut Command| {
                command.env("SSL_CERT_FILE", file);
            }
        };
        let words = [
            "cannot insert secrets into requests",
            "cannot read the certificates in /nowhere/ca.crt",
            "No such file",
            "set SSL_CERT_FILE to a file",
        ];
        refused(&certificates("/nowhere/ca.crt"), &words);
        refused(&certificates("/etc/hostname"), &["no certificate found in /etc/hostname"]);
        refused(
            &|command| {
                command.env("APP_TOKEN", "tulip\r\nX: y");
            },
            &["policy.toml:5:7: the value of `APP_TOKEN` cannot be used in a header"],
        );
        let full = |command: &mut Command| {
            command.args(["--net", "full"]);
        };
        refused(&full, &["secrets", "cannot insert secrets"]);
        // Without the variable there is no value to insert.
        let mut unset = trusting(project, lan, POLICY);
        unset
            .env_remove("APP_TOKEN")
            .env("SSL_CERT_FILE", "/nowhere")
            .args(["-c", "echo ${APP_TOKEN-unset} ${SSL_CERT_FILE-unset}"]);
        assert_eq!(TestOutput::run(&mut unset, b"").ok(), "unset unset");
    });
}
