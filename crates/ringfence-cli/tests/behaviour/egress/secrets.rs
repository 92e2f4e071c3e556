//! Values that are put into requests on the way, and are nowhere inside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence_testkit::{TestNetwork, TestOutput, TestProject, needs, python, soon};

use super::on_a_lan;
use super::records::connections;

/// What nobody inside has. It is searched for everywhere, so it stands nowhere else.
const VALUE: &str = "tulip-47-harbour";
/// The same for `grep`, which does not find itself by it.
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

/// A line that makes a request to `app.test`, and what of the value that host hears.
#[track_caller]
fn put_in(project: &TestProject, lan: &TestNetwork<'_>, line: &str, expect: &str) {
    let before = lan.heard().len();
    let said = TestOutput::of(trusting(project, lan, POLICY).args(["-c", line]), b"").ok();
    assert!(said.contains("hello from https://app.test"), "`{line}`: {said}");
    let heard = lan.heard().split_off(before);
    assert!(heard.contains(expect), "`{line}`: `{expect}` is not in {heard}");
}

const BEARER: &str = "443 app.test app.test Authorization Bearer tulip-47-harbour\n";

/// Promise: P72
#[test]
fn the_host_that_is_meant_gets_the_value_from_whatever_program() {
    on_a_lan(&["curl", "wget"], |project, lan| {
        put_in(
            project,
            lan,
            "curl -sS -H \"Authorization: Bearer $APP_TOKEN\" https://app.test/hello",
            BEARER,
        );
        // GnuTLS is told by no variable.
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

/// Promise: P72
#[test]
fn so_it_does_from_languages() {
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

/// Promise: P72
#[test]
fn nobody_else_gets_it() {
    on_a_lan(&["curl"], |project, lan| {
        let headers = "-H \"Authorization: Bearer $APP_TOKEN\" -H \"X-Key: $APP_TOKEN\" -H \"X-Other: $APP_TOKEN\"";
        let lines = [
            // Another host, another port, in the clear, and another header.
            format!("curl -skS {headers} https://other.test/hello"),
            format!("curl -skS {headers} https://other.test:8443/hello"),
            format!("curl -sS {headers} http://app.test/hello"),
            format!("curl -sS {headers} http://app.test:8080/hello"),
            // Another host behind the same address, or behind the same connection.
            format!("curl -skS {headers} --connect-to other.test:443:app.test:443 https://other.test/hello"),
            format!("curl -sS {headers} -H 'Host: other.test' https://app.test/hello"),
            format!("curl -sS {headers} --request-target https://other.test/hello https://app.test/hello"),
            // Its own body, its own path.
            "curl -sS -d \"$APP_TOKEN\" https://app.test/echo; curl -sS https://app.test/$APP_TOKEN".to_owned(),
        ];
        for line in &lines {
            TestOutput::of(
                trusting(project, lan, POLICY).args(["-c", &format!("{line} || true")]),
                b"",
            )
            .ok();
        }
        assert!(!lan.heard().contains(VALUE), "{}", lan.heard());
        let placeholders =
            lan.heard().matches("Authorization Bearer ringfence-placeholder-APP_TOKEN").count();
        assert_eq!(placeholders, 4, "{}", lan.heard());
        // What the host that is meant says back, it says without it; of other headers none is
        // touched.
        let line = format!("curl -sS {headers} https://app.test/headers");
        let said = TestOutput::of(trusting(project, lan, POLICY).args(["-c", &line]), b"").ok();
        assert!(said.contains("Authorization: Bearer ****************"), "{said}");
        assert!(
            said.contains("X-Key: ringfence-placeholder-APP_TOKEN")
                && said.contains("X-Other: ringfence-placeholder-APP_TOKEN"),
            "{said}"
        );
    });
}

/// Promise: P72
#[test]
fn it_is_nowhere_inside() {
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
            soon(Duration::from_secs(30), || project.has("done")),
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
        // Nor is it on record, while it is that it was sent.
        assert!(project.sh_bare(&format!("grep -rl '{PATTERN}' ~ . || true")).ok().is_empty());
        let told = connections(project);
        assert!(
            told.iter().any(|one| one["target"] == "app.test:443"
                && one["secrets"] == serde_json::json!(["APP_TOKEN"])),
            "{told:?}"
        );
    });
}

/// The processes below `keeper`, which is outside and has the value, that have it as well: in
/// their variables, their arguments or anywhere in their memory.
fn holders(keeper: u32) -> Vec<String> {
    // Whoever is about to start another program is a copy of the keeper for a moment.
    let mut found = Vec::new();
    soon(Duration::from_secs(2), || {
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
    // On the way to ringfence there are programs that lead into the network.
    let mut keeper = keeper;
    while !fs::read_link(format!("/proc/{keeper}/exe"))
        .is_ok_and(|program| program.ends_with("ringfence"))
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

/// All that a process has in its memory, as far as it may be read.
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

/// What a program hears does not depend on whether it guesses right, as long as that is not all.
///
/// Promise: P72
#[test]
fn it_cannot_be_guessed_letter_by_letter() {
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
        let said = TestOutput::of(trusting(project, lan, POLICY).args(["-c", &line]), b"").ok();
        let pieces: Vec<&str> = said.lines().collect();
        assert_eq!((pieces[0], pieces[2], pieces[4]), (pieces[1], pieces[3], pieces[5]), "{said}");
    });
}

/// Promise: P72
#[test]
fn a_host_that_nobody_vouches_for_gets_nothing() {
    on_a_lan(&["curl", "openssl"], |project, lan| {
        lan.served("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout x.key -out x.crt -subj /CN=other").ok();
        project.write("ca.crt", fs::read_to_string(lan.at("x.crt")).unwrap());
        let line = "curl -sS -H \"Authorization: Bearer $APP_TOKEN\" https://app.test/hello";
        let said = TestOutput::of(trusting(project, lan, POLICY).args(["-c", line]), b"").ok();
        assert!(
            said.starts_with("ringfence: TLS or HTTP with app.test failed: ")
                && said.contains("UnknownIssuer"),
            "{said}"
        );
        assert!(!lan.heard().contains("hello"), "{}", lan.heard());
        let told = connections(project);
        assert!(
            told.iter().any(|one| one["result"] == "failed" && one["target"] == "app.test:443"),
            "{told:?}"
        );
    });
}

/// Promise: P72
#[test]
fn by_the_proxy_it_is_the_same() {
    on_a_lan(&["curl"], |project, lan| {
        let policy = POLICY.replacen("[network]\n", "[network]\nproxy-variables = true\n", 1);
        for target in ["https://app.test/hello", "https://other.test/hello"] {
            let line = format!("curl -skS -H \"Authorization: Bearer $APP_TOKEN\" {target}");
            TestOutput::of(trusting(project, lan, &policy).args(["-c", &line]), b"").ok();
        }
        let heard = lan.heard();
        assert!(heard.contains(BEARER) && heard.matches(VALUE).count() == 1, "{heard}");
        // One that looks names up itself.
        let line = "curl -sS --socks5 127.0.0.1:3128 http://app.test:8080/hello";
        let said = TestOutput::of(trusting(project, lan, &policy).args(["-c", line]), b"").ok();
        assert_eq!(said, "hello from http://app.test:8080");
    });
}

/// Promise: P72
#[test]
fn in_a_session_it_is_the_same() {
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
            TestOutput::of(
                command.env("APP_TOKEN", VALUE).env("SSL_CERT_FILE", project.root().join("ca.crt")),
                b"",
            )
        };
        fs::create_dir(&runtime).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        project.user.own(&runtime);
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
        assert_eq!(lan.heard().matches(BEARER).count(), 3, "{}", lan.heard());
    });
}

/// Promise: P72
#[test]
fn what_cannot_be_done_is_refused_before_anything_runs() {
    if !needs(&["touch"]) {
        return;
    }
    on_a_lan(&[], |project, lan| {
        let refused = |change: &dyn Fn(&mut Command), words: &[&str]| {
            let mut command = trusting(project, lan, POLICY);
            change(&mut command);
            let ran = TestOutput::of(command.args(["-c", "touch ran"]), b"");
            assert_eq!((ran.status, project.has("ran")), (125, false), "{}", ran.talk());
            words.iter().for_each(|word| {
                assert!(ran.talk().contains(word), "`{word}` is not in {}", ran.talk())
            });
            assert!(!ran.talk().contains("tulip"), "{}", ran.talk());
        };
        let certificates = |file: &'static str| {
            move |command: &mut Command| {
                command.env("SSL_CERT_FILE", file);
            }
        };
        let words = [
            "cannot put secrets into requests",
            "/nowhere/ca.crt cannot be read",
            "No such file",
            "let SSL_CERT_FILE name a file",
        ];
        refused(&certificates("/nowhere/ca.crt"), &words);
        refused(&certificates("/etc/hostname"), &["no certificate is in /etc/hostname"]);
        refused(
            &|command| {
                command.env("APP_TOKEN", "tulip\r\nX: y");
            },
            &["policy.toml:5:7: the value of `APP_TOKEN` cannot stand in a header"],
        );
        let full = |command: &mut Command| {
            command.args(["--net", "full"]);
        };
        refused(&full, &["secrets", "nobody stands on the way"]);
        // Where it is not set, there is nothing to put in.
        let mut unset = trusting(project, lan, POLICY);
        unset
            .env_remove("APP_TOKEN")
            .env("SSL_CERT_FILE", "/nowhere")
            .args(["-c", "echo ${APP_TOKEN-unset} ${SSL_CERT_FILE-unset}"]);
        assert_eq!(TestOutput::of(&mut unset, b"").ok(), "unset unset");
    });
}
