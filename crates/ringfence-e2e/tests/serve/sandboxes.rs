//! Sandboxes over HTTP: commands, files, isolation and end.

use std::fs;
use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestUser, becomes_true, each_user, processes_with};
use serde_json::{Value, json};

use crate::client::HttpTestClient;
use crate::socket::{Socket, SocketMessage};
use crate::stage::Service;

const ALL: &str = "/v1/sandboxes";

/// Creates a sandbox and returns its path.
#[track_caller]
fn make(client: &HttpTestClient, how: &Value) -> String {
    let made = client.post(ALL, how).is(201);
    format!("{ALL}/{}", made["id"].as_str().expect("an id"))
}

#[track_caller]
fn exec(client: &HttpTestClient, at: &str, line: &str) -> Value {
    client.post(&format!("{at}/exec"), &json!({ "command": line })).is(200)
}

fn workspace(client: &HttpTestClient, at: &str) -> PathBuf {
    client.get(at).is(200)["workspace"].as_str().expect("a path").into()
}

/// Promise: http-sandboxes
#[test]
fn shell_state_persists_across_requests() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        let first = exec(&alice, &at, "mkdir sub; cd sub; export WORD=kept; f() { echo by f; }");
        assert!(first["cwd"].as_str().is_some_and(|cwd| cwd.ends_with("/sub")), "{first}");
        let second = exec(&alice, &at, "basename $PWD; echo $WORD; f; touch ~/there && echo home");
        assert_eq!(second["stdout"], "sub\nkept\nby f\nhome\n", "{second}");
        let fed = alice
            .post(
                &format!("{at}/exec"),
                &json!({ "command": "read line; echo got $line; exit 3", "stdin": "this\n" }),
            )
            .is(200);
        assert_eq!(
            (fed["stdout"].as_str(), fed["exitCode"].as_i64()),
            (Some("got this\n"), Some(3)),
            "{fed}"
        );
        let late = alice
            .post(&format!("{at}/exec"), &json!({ "command": "sleep 30", "timeoutMs": 200 }))
            .is(200);
        assert_eq!(
            (late["timedOut"].as_bool(), late["exitCode"].as_i64()),
            (Some(true), Some(124)),
            "{late}"
        );
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        let streamed = alice.send(
            "POST",
            &format!("{at}/exec"),
            &headers,
            json!({ "command": "echo one; echo two >&2" }).to_string().as_bytes(),
        );
        let kinds: Vec<String> = streamed
            .text()
            .lines()
            .filter_map(|line| line.strip_prefix("event: ").map(str::to_owned))
            .collect();
        assert_eq!(kinds.first().map(String::as_str), Some("begun"));
        assert_eq!(kinds.last().map(String::as_str), Some("result"));
        assert!(kinds.contains(&"stdout".into()) && kinds.contains(&"stderr".into()), "{kinds:?}");
        for wrong in [
            json!({ "command": "" }),
            json!({ "command": "ls", "timeoutMs": 0 }),
            json!({ "command": "ls", "timeoutMs": 300_001 }),
        ] {
            assert_eq!(alice.post(&format!("{at}/exec"), &wrong).status, 400, "{wrong}");
        }
    });
}

/// Promise: http-sandboxes
#[test]
fn commands_are_queued_and_a_disconnect_cancels_one() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        thread::scope(|scope| {
            for _ in 0..8 {
                let (alice, at) = (&alice, &at);
                scope.spawn(move || {
                    exec(
                        alice,
                        at,
                        "n=$(cat n 2>/dev/null || echo 0); sleep 0.02; echo $((n + 1)) > n",
                    )
                });
            }
        });
        assert_eq!(exec(&alice, &at, "cat n")["stdout"], "8\n");
        let marker = format!("left-{}", service.pid());
        let body =
            json!({ "command": format!("export KEPT=yes; bash -c 'sleep 100; : {marker}'") });
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        let mut stream = alice
            .begin("POST", &format!("{at}/exec"), &headers, body.to_string().as_bytes())
            .unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let runs = || !processes_with(&marker).is_empty();
        assert!(becomes_true(Duration::from_secs(10), runs), "it never ran");
        drop(stream);
        assert!(
            becomes_true(Duration::from_secs(10), || !runs()),
            "it still runs after the client disconnected"
        );
        assert_eq!(exec(&alice, &at, "echo $KEPT")["stdout"], "yes\n");
        // Another client can interrupt it once it runs; before that, it would never start.
        thread::scope(|scope| {
            let ended =
                scope.spawn(|| exec(&alice, &at, &format!("bash -c 'sleep 100; : {marker}'")));
            assert!(becomes_true(Duration::from_secs(10), runs), "it never ran");
            alice.post(&format!("{at}/interrupt"), &json!({})).is(202);
            assert_eq!(ended.join().unwrap()["exitCode"], 130);
        });
        alice.post(&format!("{at}/interrupt"), &json!({})).fails(409, "idle");
    });
}

#[test]
fn files_are_written_listed_read_and_removed() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        let file = |path: &str| format!("{at}/files?path={path}");
        let bytes: Vec<u8> = (0..=255).collect();
        let put = alice.send("PUT", &file("deep/er/x.bin"), &[], &bytes).is(200);
        assert_eq!(put, json!({ "path": "deep/er/x.bin", "created": true, "size": 256 }));
        assert_eq!(
            alice
                .send("GET", &file("deep/er/x.bin"), &[("Accept", "application/octet-stream")], b"")
                .body,
            bytes
        );
        assert!(alice.get(&file("deep/er/x.bin")).is(200)["base64"].is_string());
        assert_eq!(
            exec(&alice, &at, "wc -c < deep/er/x.bin; echo text > deep/y")["stdout"],
            "256\n"
        );
        assert_eq!(alice.get(&file("deep/y")).is(200)["text"], "text\n");
        let listed = alice.get(&format!("{}&depth=9", file("deep"))).is(200);
        let names: Vec<&str> = listed["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["path"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["er", "er/x.bin", "y"]);
        alice.delete(&file("deep")).fails(409, "system");
        alice.delete(&file("deep/y")).is(204);
        alice.delete(&file("deep/er/x.bin")).is(204);
        alice.delete(&file("deep/er")).is(204);
        alice.get(&file("deep/y")).fails(404, "not-found");
        alice.delete(&file("")).fails(400, "input");
        // Uploads cannot fill the sandbox's disk either.
        let small = make(&alice, &json!({ "limits": { "disk": "1MiB" } }));
        let half = vec![0; 600 << 10];
        alice.send("PUT", &format!("{small}/files?path=a"), &[], &half).is(200);
        alice.send("PUT", &format!("{small}/files?path=b"), &[], &half).fails(507, "disk");
    });
}

/// Promise: http-files
#[test]
fn file_requests_cannot_leave_the_workspace() {
    each_user(|user| {
        let service = Service::start(user);
        let (alice, bob) =
            (service.token("alice", &["sandboxes"]), service.token("bob", &["sandboxes"]));
        let (at, other) = (make(&alice, &json!({})), make(&bob, &json!({})));
        let data = service.data();
        bob.send("PUT", &format!("{other}/files?path=private"), &[], b"bob's").is(200);
        let theirs = workspace(&bob, &other).join("private");
        let line = format!(
            "ln -s {0} l1; ln -s /etc/hostname l2; ln -s ../../.. l3; ln -s {1} l4; mkdir d; ln -s / d/root",
            theirs.display(),
            data.join("tokens.json").display()
        );
        assert_eq!(exec(&alice, &at, &line)["exitCode"], 0);
        let ways = [
            "l1",
            "l2",
            "l3/key",
            "l4",
            "d/root/etc/hostname",
            "../../../key",
            "/etc/hostname",
            "../../bob",
            "l3",
            "d/root",
        ];
        for way in ways {
            let path = format!("{at}/files?path={way}");
            alice.get(&path).fails(422, "denied");
            alice
                .send("GET", &path, &[("Accept", "application/octet-stream")], b"")
                .fails(422, "denied");
            let written = alice.send("PUT", &path, &[], b"mine");
            assert!(written.status == 422, "{way}: {}", written.text());
            assert_eq!(alice.get(&format!("{at}/watch?path={way}")).status, 404, "{way}");
        }
        assert_eq!(fs::read(&theirs).unwrap(), b"bob's");
        // The link itself can be removed; its target stays.
        alice.delete(&format!("{at}/files?path=l1")).is(204);
        alice.delete(&format!("{at}/files?path=l3/key")).fails(422, "denied");
        assert!(theirs.exists() && data.join("key").exists());
        // Commands do not get there either, whatever the answer.
        let open = make(&alice, &json!({ "ask": true }));
        let line = format!(
            "cat {} {}/key; ls {}/sandboxes/bob",
            theirs.display(),
            data.display(),
            data.display()
        );
        let tried = exec(&alice, &open, &line);
        assert!(tried["stdout"] == "" && tried["exitCode"] != 0, "{tried}");
        for resource in [theirs.display().to_string(), data.display().to_string(), "/".into()] {
            let wanted = json!({ "access": "read", "resource": resource });
            service.post(&format!("{at}/grants"), &wanted).fails(403, "ceiling");
        }
        // Also if the policy opens a parent directory.
        let policy = format!("version = 1\n[filesystem]\nread = [{:?}]\n", data.parent().unwrap());
        service.put("/v1/tenants/alice/policy", &json!({ "policy": policy })).is(200);
        let around = make(&alice, &json!({}));
        let tried = exec(&alice, &around, &line);
        assert!(tried["stdout"] == "" && tried["exitCode"] != 0, "{tried}");
    });
}

/// Promise: http-files
#[test]
fn tenant_has_its_own_sandboxes_within_its_policy() {
    each_user(|user| {
        let service = Service::start(user);
        let (alice, bob) =
            (service.token("alice", &["sandboxes", "asks"]), service.token("bob", &["sandboxes"]));
        let at = make(&alice, &json!({ "limits": { "memory": "64MiB", "wall": "1h" } }));
        let shown = alice.get(&at).is(200);
        assert_eq!(
            (shown["limits"]["memory"].as_u64(), shown["limits"]["wall"].as_u64()),
            (Some(64 << 20), Some(300_000)),
            "{shown}"
        );
        for reply in [
            bob.get(&at),
            bob.delete(&at),
            bob.post(&format!("{at}/exec"), &json!({ "command": "ls" })),
            bob.get(&format!("{at}/files")),
        ] {
            reply.fails(404, "no-such-sandbox");
        }
        assert_eq!(bob.get(ALL).is(200)["sandboxes"], json!([]));
        bob.post(ALL, &json!({ "userId": "alice" })).fails(403, "other-tenant");
        service.post(ALL, &json!({})).fails(400, "user");
        service.token("alice", &["execute"]).get(ALL).fails(403, "scope");
        for (wrong, code) in [
            (json!({ "ttlSeconds": 0 }), "ttl"),
            (json!({ "ttlSeconds": 86_401 }), "ttl"),
            (json!({ "limits": { "luck": 1 } }), "limit"),
            (json!({ "limits": { "memory": "some" } }), "limit"),
            (json!({ "network": { "allow": ["a b"] } }), "host"),
        ] {
            alice.post(ALL, &wrong).fails(400, code);
        }
        // Allowed hosts are the intersection of both lists.
        let policy = "version = 1\n[network]\nmode = \"allow-list\"\nallow = [\"one.test:443\", \"two.test:443\"]\n";
        service.put("/v1/tenants/alice/policy", &json!({ "policy": policy })).is(200);
        let few = make(&alice, &json!({ "network": { "allow": ["one.test", "three.test"] } }));
        assert_eq!(alice.get(&few).is(200)["hosts"], json!(["one.test:443"]));
        // Access that was removed can be granted again, up to the policy, by a token with the
        // scope to answer.
        let grants = format!("{few}/grants");
        alice
            .post(&grants, &json!({ "access": "connect", "resource": "three.test:443" }))
            .fails(403, "ceiling");
        alice
            .post(&grants, &json!({ "access": "read", "resource": "/root" }))
            .fails(403, "ceiling");
        assert_eq!(
            alice
                .post(&grants, &json!({ "access": "connect", "resource": "two.test:443" }))
                .is(200)["status"],
            "granted"
        );
        assert_eq!(alice.get(&grants).is(200)["grants"][0]["resource"], "two.test:443");
        service
            .token("alice", &["sandboxes"])
            .post(&grants, &json!({ "access": "read", "resource": "x" }))
            .fails(403, "scope");
        // The quota limits the number of sandboxes.
        service.put("/v1/tenants/bob/quotas", &json!({ "sandboxes": 1 })).is(200);
        let one = make(&bob, &json!({}));
        bob.post(ALL, &json!({})).fails(429, "quota");
        bob.delete(&one).is(204);
        make(&bob, &json!({}));
    });
}

/// Promise: http-files
#[test]
fn operator_can_grant_beyond_the_tenants_ceiling() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes", "asks"]);
        let at = make(&alice, &json!({}));
        let shared = service.project().home().join("shared");
        service.project().make_directories(&shared);
        service.project().write_at(&shared.join("file"), "for all\n");
        let line = format!("cat {}/file", shared.display());
        assert_ne!(exec(&alice, &at, &line)["exitCode"], 0);
        let wanted = json!({ "access": "read", "resource": shared });
        alice.post(&format!("{at}/grants"), &wanted).fails(403, "ceiling");
        assert_eq!(service.post(&format!("{at}/grants"), &wanted).is(200)["status"], "granted");
        assert_eq!(exec(&alice, &at, &line)["stdout"], "for all\n");
    });
}

#[test]
fn denied_access_waits_for_an_answer() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes", "asks"]);
        let at = make(&alice, &json!({ "ask": true }));
        let file = service.project().home().join("asked");
        service.project().write_at(&file, "after a yes\n");
        thread::scope(|scope| {
            let runs = scope.spawn(|| exec(&alice, &at, &format!("cat {}", file.display())));
            let waiting = || alice.get("/v1/asks").is(200)["asks"].as_array().unwrap().clone();
            assert!(becomes_true(Duration::from_secs(10), || !waiting().is_empty()));
            let ask = &waiting()[0];
            assert!(at.ends_with(ask["about"].as_str().unwrap()), "{ask}");
            let (way, yes) = (
                format!("/v1/asks/{}", ask["id"].as_str().unwrap()),
                json!({ "answer": "allow_once" }),
            );
            let refused = alice.post(&way, &yes);
            service.post(&way, &yes).is(204);
            refused.fails(403, "ceiling");
            assert_eq!(runs.join().unwrap()["stdout"], "after a yes\n");
        });
    });
}

/// Returns the terminal output up to its end, and the closing messages.
fn screen(socket: &mut Socket) -> (String, Vec<SocketMessage>) {
    let (mut shown, mut last) = (Vec::new(), Vec::new());
    loop {
        match socket.hear() {
            SocketMessage::Bytes(bytes) => shown.extend(bytes),
            close @ SocketMessage::Close(_) => {
                last.push(close);
                return (String::from_utf8_lossy(&shown).into_owned(), last);
            }
            text @ SocketMessage::Text(_) => last.push(text),
        }
    }
}

/// Promise: http-sandboxes
#[test]
fn terminal_works_over_a_web_socket() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        let path = format!("{at}/terminal");
        let (mut socket, _) =
            Socket::open(&alice, &format!("{path}?columns=91&rows=19"), &[]).unwrap();
        socket.bytes(b"stty size; tty\n");
        socket.text("{\"resize\": {\"columns\": 101, \"rows\": 29}}");
        socket.bytes(b"stty size; exit 7\n");
        let (shown, last) = screen(&mut socket);
        assert!(shown.contains("101") && shown.contains("/dev/pts/"), "{shown}");
        assert_eq!(
            last,
            [SocketMessage::Text("{\"exitCode\":7}".into()), SocketMessage::Close(1000)]
        );
        // A page cannot set headers: the token is one of the subprotocols, and never in the URL.
        let stranger = alice.without();
        let token = alice.token.clone().unwrap();
        let offered = format!("ringfence, ringfence.token.{token}");
        let (mut socket, head) =
            Socket::open(&stranger, &path, &[("Sec-WebSocket-Protocol", &offered)]).unwrap();
        assert!(head.contains(&"sec-websocket-protocol: ringfence".to_owned()), "{head:?}");
        assert!(!head.iter().any(|line| line.contains(&token.to_ascii_lowercase())));
        assert_eq!(Socket::open(&stranger, &format!("{path}?token={token}"), &[]).err(), Some(401));
        let unasked = [("Sec-WebSocket-Protocol", offered.as_str())];
        assert_eq!(stranger.send("GET", ALL, &unasked, b"").status, 401);
        // A disconnect ends the shell.
        let marker = format!("typed-{}", service.pid());
        socket.bytes(format!("bash -c 'sleep 100; : {marker}'\n").as_bytes());
        assert!(becomes_true(Duration::from_secs(10), || !processes_with(&marker).is_empty()));
        drop(socket);
        assert!(becomes_true(Duration::from_secs(15), || processes_with(&marker).is_empty()));
        assert_eq!(exec(&alice, &at, "echo on")["stdout"], "on\n");
    });
}

/// Promise: http-files
#[test]
fn watch_reports_changes_and_follows_no_links() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        exec(&alice, &at, "mkdir -p w/a; ln -s /tmp w/out");
        let mut stream = alice.begin("GET", &format!("{at}/watch?path=w"), &[], b"").unwrap();
        let mut line = String::new();
        while !line.contains("watching") {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0);
        }
        exec(
            &alice,
            &at,
            "echo 1 > w/a/f; mkdir w/b; echo 2 > w/b/g; echo 3 > w/out/h; echo 4 > w/.env; rm w/a/f",
        );
        alice.delete(&at).is(204);
        // It ends with the sandbox.
        let mut events = String::new();
        stream.read_to_string(&mut events).unwrap();
        for expected in ["w/a/f", "w/b", "w/b/g"] {
            assert!(events.contains(&format!("\"path\":\"{expected}\"")), "{expected}: {events}");
        }
        assert!(!events.contains("out/h") && !events.contains(".env"), "{events}");
        let order: Vec<&str> =
            events.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert!(
            order.contains(&"created") && order.contains(&"changed") && order.contains(&"removed"),
            "{order:?}"
        );
    });
}

/// Promise: sandbox-end
#[test]
fn sandbox_ends_by_timeout_or_request_and_leaves_nothing() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let short = make(&alice, &json!({ "ttlSeconds": 1 }));
        let longer = make(&alice, &json!({ "ttlSeconds": 1 }));
        let place = workspace(&alice, &short);
        assert_eq!(alice.patch(&longer, &json!({ "ttlSeconds": 600 })).status, 200);
        assert!(becomes_true(Duration::from_secs(10), || alice.get(&short).status == 404));
        assert!(!place.exists());
        assert_eq!(exec(&alice, &longer, "echo here")["stdout"], "here\n");
        // During a command, with one process tree that ignores signals and one that keeps running.
        let (marker, place) = (format!("stays-{}", service.pid()), workspace(&alice, &longer));
        exec(
            &alice,
            &longer,
            &format!("mkdir -p a/b; touch a/b/c; chmod 0 a/b a; bash -c 'sleep 100; : {marker}' &"),
        );
        thread::scope(|scope| {
            let runs = scope.spawn(|| {
                alice.post(&format!("{longer}/exec"), &json!({ "command": "sleep 100" }))
            });
            assert!(becomes_true(Duration::from_secs(10), || alice.get(&longer).is(200)["busy"]
                == true));
            let waits = scope.spawn(|| {
                alice.post(&format!("{longer}/exec"), &json!({ "command": "echo never > never" }))
            });
            thread::sleep(Duration::from_millis(100));
            alice.delete(&longer).is(204);
            for reply in [runs.join().unwrap(), waits.join().unwrap()] {
                assert!(matches!(reply.status, 409 | 410), "{} {}", reply.status, reply.text());
            }
        });
        assert!(!place.exists() && processes_with(&marker).is_empty());
        alice.get(&longer).fails(404, "no-such-sandbox");
        let records = service.audit("alice", "&operation=manage");
        let said = |what: &str| {
            records
                .iter()
                .filter(|record| {
                    record["reason"].as_str().is_some_and(|reason| reason.ends_with(what))
                })
                .count()
        };
        assert_eq!((said("was made"), said("expired"), said("deleted")), (2, 1, 1), "{records:#?}");
    });
}

/// Promise: sandbox-end
#[test]
fn sandboxes_end_with_the_service() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        let (marker, place) = (format!("ends-{}", service.pid()), workspace(&alice, &at));
        exec(&alice, &at, &format!("bash -c 'sleep 100; : {marker}' & mkdir d; chmod 0 d"));
        let begun = Instant::now();
        let (project, _) = service.end();
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        assert!(processes_with(&marker).is_empty() && !place.exists());
        // A killed service leaves no processes; the next removes its files and reports it.
        let service = Service::start_in(project, &[]);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        let place = workspace(&alice, &at);
        exec(
            &alice,
            &at,
            &format!("bash -c 'sleep 100; : {marker}' & mkdir d; touch d/x; chmod 0 d"),
        );
        let project = service.kill();
        assert!(becomes_true(Duration::from_secs(10), || processes_with(&marker).is_empty()));
        assert!(place.exists());
        let service = Service::start_in(project, &[]);
        assert!(!place.exists());
        let records = service.audit("alice", "&operation=manage");
        let is_it = |record: &Value| at.ends_with(record["session"].as_str().unwrap_or("?"));
        let last = records.iter().rfind(|record| is_it(record)).expect("it is on record");
        assert!(
            last["reason"].as_str().unwrap().ends_with("the service ended while it stood"),
            "{last}"
        );
        assert_eq!(service.get("/v1/audit/verify?userId=alice").is(200)["intact"], true);
    });
}

/// Promise: http-sandboxes
#[test]
fn fifty_sandboxes_run_at_the_same_time() {
    let service = Service::start(TestUser::User);
    service.put("/v1/tenants/alice/quotas", &json!({ "sandboxes": 50 })).is(200);
    let alice = service.token("alice", &["sandboxes"]);
    let all: Vec<String> = (0..50).map(|_| make(&alice, &json!({}))).collect();
    for (number, at) in all.iter().enumerate() {
        exec(&alice, at, &format!("echo {number} > own; N={number}"));
    }
    for (number, at) in all.iter().enumerate() {
        assert_eq!(
            exec(&alice, at, "cat own; ls | wc -l; echo $N")["stdout"],
            format!("{number}\n1\n{number}\n")
        );
    }
    assert!(service.get("/metrics").text().contains("ringfence_sandboxes 50\n"));
    let (_, said) = service.end();
    assert!(!said.contains("\"level\":\"error\""), "{said}");
}

/// Promise: sandbox-end
#[test]
fn every_command_is_audited_with_its_tenant() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        exec(&alice, &at, "echo x > .env; echo recorded");
        alice.send("PUT", &format!("{at}/files?path=x"), &[], b"x").is(200);
        let records = service.audit("alice", "");
        let own: Vec<&Value> = records
            .iter()
            .filter(|record| at.ends_with(record["session"].as_str().unwrap_or("?")))
            .collect();
        let has = |operation: &str| {
            own.iter().any(|record| {
                record["operation"] == operation && record["agent"] == "alice/sandbox"
            })
        };
        assert!(has("execute") && has("exit") && has("manage") && has("create"), "{own:#?}");
        assert!(own.iter().any(|record| record["result"] == "blocked"), "{own:#?}");
    });
}

#[test]
fn link_to_the_services_data_is_not_granted() {
    each_user(|user| {
        let service = Service::start(user);
        let at = make(&service, &json!({ "userId": "alice" }));
        let data = service.data();
        exec(
            &service,
            &at,
            &format!(
                "ln -s {} link; ln -s link/tenants again; mkdir own; ln -s own fine",
                data.display()
            ),
        );
        for path in ["link", "link/tenants", "again", "again/none/yet"] {
            for access in ["read", "write"] {
                let reply = service
                    .post(&format!("{at}/grants"), &json!({ "access": access, "resource": path }));
                reply.fails(403, "ceiling");
            }
        }
        let fine = service
            .post(&format!("{at}/grants"), &json!({ "access": "read", "resource": "fine" }))
            .is(200);
        assert_eq!(fine["status"], "granted", "{fine}");
        assert_eq!(
            service.get(&format!("{at}/grants")).is(200)["grants"].as_array().map(Vec::len),
            Some(1)
        );
    });
}

#[test]
fn sandbox_keeps_its_environment_directory_and_labels() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let how = json!({ "env": { "GREETING": "hello there", "HOME": "/tmp" }, "cwd": "project/src", "labels": { "ticket": "T-1", "a": "" } });
        let at = make(&alice, &how);
        let shown = alice.get(&at).is(200);
        assert_eq!(shown["labels"], json!({ "ticket": "T-1", "a": "" }), "{shown}");
        let ran = exec(&alice, &at, "echo $GREETING; pwd; touch here");
        let workspace = workspace(&alice, &at);
        assert_eq!(
            ran["stdout"],
            format!("hello there\n{}\n", workspace.join("project/src").display()),
            "{ran}"
        );
        // File paths are relative to the sandbox's directory, whatever the working directory of
        // commands; a new shell has the same settings.
        assert_eq!(alice.get(&format!("{at}/files?path=project/src/here")).is(200)["kind"], "file");
        exec(&alice, &at, "unset GREETING; cd /; exit");
        assert_eq!(
            exec(&alice, &at, "echo $GREETING; basename $PWD")["stdout"],
            "hello there\nsrc\n"
        );
        make(&alice, &json!({}));
        let found = |query: &str| {
            alice.get(&format!("{ALL}?{query}")).is(200)["sandboxes"].as_array().map_or(0, Vec::len)
        };
        assert_eq!(
            (found("label=ticket=T-1"), found("label=ticket=T-2"), found("label=a"), found("")),
            (1, 0, 1, 2)
        );
        for wrong in [
            json!({ "env": { "A=B": "x" } }),
            json!({ "env": { "": "x" } }),
            json!({ "env": { "A": "x\0y" } }),
            json!({ "env": { "RINGFENCE_X": "x" } }),
            json!({ "cwd": "../out" }),
            json!({ "cwd": "/etc" }),
            json!({ "labels": { "a b": "x" } }),
        ] {
            assert_eq!(alice.post(ALL, &wrong).status, 400, "{wrong}");
        }
    });
}

#[test]
fn background_command_does_not_block_the_shell_and_can_be_ended() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        let begun = alice
            .post(&format!("{at}/exec"), &json!({ "command": "echo up; python3 -c 'import time; time.sleep(183)'", "background": true }));
        let id = begun.is(202)["id"].as_str().unwrap().to_owned();
        assert_eq!(begun.header("location"), Some(format!("/v1/executions/{id}").as_str()));
        assert!(
            becomes_true(Duration::from_secs(10), || !processes_with("time.sleep(183)").is_empty())
        );
        assert_eq!(exec(&alice, &at, "echo free")["stdout"], "free\n", "the shell is not held up");
        let status = alice.get(&format!("/v1/executions/{id}")).is(200);
        assert_eq!(
            (status["state"].as_str(), status["sandboxId"].as_str()),
            (Some("running"), at.rsplit('/').next()),
            "{status}"
        );
        alice.delete(&format!("/v1/executions/{id}")).is(202);
        assert!(
            becomes_true(Duration::from_secs(10), || processes_with("time.sleep(183)").is_empty())
        );
        assert!(becomes_true(Duration::from_secs(10), || alice
            .get(&format!("/v1/executions/{id}"))
            .is(200)["state"]
            == "ended"));
        assert_eq!(alice.get(&format!("/v1/executions/{id}")).is(200)["result"]["stdout"], "up\n");
        // It ends with its sandbox at the latest.
        alice.post(&format!("{at}/exec"), &json!({ "command": "python3 -c 'import time; time.sleep(184)'", "background": true })).is(202);
        assert!(
            becomes_true(Duration::from_secs(10), || !processes_with("time.sleep(184)").is_empty())
        );
        alice.delete(&at).is(204);
        assert!(processes_with("time.sleep(184)").is_empty());
    });
}

#[test]
fn background_commands_of_a_tenant_are_limited_by_its_quota() {
    let service = Service::start(TestUser::all()[0]);
    service.put("/v1/tenants/alice/quotas", &json!({ "executions": 1 })).is(200);
    let (alice, bob) =
        (service.token("alice", &["sandboxes"]), service.token("bob", &["sandboxes"]));
    let (one, two, of_bob) =
        (make(&alice, &json!({})), make(&alice, &json!({})), make(&bob, &json!({})));
    let sleeps =
        json!({ "command": "python3 -c 'import time; time.sleep(188)'", "background": true });
    let id = alice.post(&format!("{one}/exec"), &sleeps).is(202)["id"].as_str().unwrap().to_owned();
    for at in [&one, &two] {
        alice.post(&format!("{at}/exec"), &sleeps).fails(429, "background");
        assert_eq!(exec(&alice, at, "echo free")["stdout"], "free\n", "the shell is not held up");
    }
    bob.post(&format!("{of_bob}/exec"), &sleeps).is(202);
    alice.delete(&format!("/v1/executions/{id}")).is(202);
    assert!(becomes_true(Duration::from_secs(10), || alice
        .get(&format!("/v1/executions/{id}"))
        .is(200)["state"]
        == "ended"));
    alice.post(&format!("{two}/exec"), &sleeps).is(202);
}

#[test]
fn sandbox_commands_are_listed_as_executions() {
    let service = Service::start(TestUser::all()[0]);
    let alice = service.token("alice", &["sandboxes", "execute"]);
    let at = make(&alice, &json!({}));
    exec(&alice, &at, "echo first");
    exec(&alice, &at, "exit 3");
    let listed = alice.get("/v1/executions").is(200)["executions"].as_array().unwrap().clone();
    let seen: Vec<(&str, i64)> = listed
        .iter()
        .map(|each| {
            (each["command"].as_str().unwrap(), each["result"]["exitCode"].as_i64().unwrap())
        })
        .collect();
    assert_eq!(seen, [("exit 3", 3), ("echo first", 0)], "{listed:?}");
    assert!(
        listed.iter().all(|each| each["sandboxId"].as_str() == at.rsplit('/').next()),
        "{listed:?}"
    );
    let id = listed[1]["id"].as_str().unwrap();
    assert_eq!(alice.get(&format!("/v1/executions/{id}")).is(200)["result"]["stdout"], "first\n");
    // Other tenants do not see them, nor do tokens without the sandboxes scope.
    let bob = service.token("bob", &["sandboxes", "execute"]);
    bob.get(&format!("/v1/executions/{id}")).fails(404, "no-such-execution");
    assert_eq!(bob.get("/v1/executions").is(200)["executions"].as_array().map(Vec::len), Some(0));
    let skills_only = service.token("alice", &["execute"]);
    assert_eq!(
        skills_only.get("/v1/executions").is(200)["executions"].as_array().map(Vec::len),
        Some(0)
    );
    skills_only.get(&format!("/v1/executions/{id}")).fails(404, "no-such-execution");
}

#[test]
fn directories_are_made_listed_and_removed_recursively() {
    each_user(|user| {
        let service = Service::start(user);
        let alice = service.token("alice", &["sandboxes"]);
        let at = make(&alice, &json!({}));
        let post = |path: &str| alice.send("POST", &format!("{at}/files?path={path}"), &[], b"");
        assert_eq!(post("a/b/c").is(200)["path"], "a/b/c");
        post("a/b/c").is(200);
        exec(
            &alice,
            &at,
            "echo x > a/b/file; ln -s /etc a/link; mkdir outside; touch outside/stays; ln -s ../outside a/b/other",
        );
        let listed = alice.get(&format!("{at}/files?depth=128")).is(200);
        let paths: Vec<&str> = listed["entries"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|entry| entry["path"].as_str())
            .collect();
        assert!(
            ["a/b/c", "a/b/file", "outside/stays"].iter().all(|path| paths.contains(path)),
            "{paths:?}"
        );
        post("a/b/file").fails(409, "exists");
        post("../elsewhere").fails(422, "denied");
        let full = alice.delete(&format!("{at}/files?path=a"));
        assert!(
            full.fails(409, "system")["hint"]
                .as_str()
                .is_some_and(|hint| hint.contains("recursive=true"))
        );
        alice.delete(&format!("{at}/files?path=a&recursive=true")).is(204);
        let left = exec(&alice, &at, "ls -A; ls -A outside");
        assert_eq!(
            left["stdout"], "outside\nstays\n",
            "links are removed and not followed: {left}"
        );
        alice.delete(&format!("{at}/files?path=&recursive=true")).is(400);
        assert_eq!(exec(&alice, &at, "ls")["stdout"], "outside\n");
    });
}
