//! One sandbox and its commands.

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use ringfence::{Command, OutputStream, SessionProvider, ShellState, block_on};

use crate::stage::{open, says};

tests! { "session":
    #[test]
    fn binary_output_is_kept_as_bytes_and_base64(at) {
        let sandbox = open(&SessionProvider::default(), at);
        let result = sandbox.execute_blocking(Command::new(r"printf 'a\000\377b'; printf oops >&2; exit_with() { return 3; }; exit_with")).unwrap();
        assert_eq!(result.stdout.bytes, b"a\0\xffb");
        assert_eq!((result.stdout.text().as_ref(), result.exit_code), ("a\0\u{fffd}b", 3));
        let wire = serde_json::to_value(&result).unwrap();
        assert_eq!((&wire["stdoutBase64"], &wire["stderr"], &wire["exitCode"]), (&"YQD/Yg==".into(), &"oops".into(), &3.into()));
        for key in ["blocked", "blockedReason", "blockedResource", "denials", "timedOut", "truncated", "durationMs", "usage", "enforced", "gaps"] {
            assert!(wire.get(key).is_some(), "{key}");
        }
        assert_eq!(wire.get("stderrBase64"), None);
    }

    #[test]
    fn input_time_limit_and_output_limit_apply(at) {
        let sandbox = open(&SessionProvider::default(), at);
        assert_eq!(says(sandbox.execute_blocking(Command::new("export KEPT=yes; tr a-z A-Z").input("hello"))), "HELLO");
        let result = sandbox.execute_blocking(Command::new("sleep 60").timeout_ms(100)).unwrap();
        assert!(result.timed_out && result.exit_code == 124);
        let result = sandbox.execute_blocking(Command::new("head -c 100000 /dev/zero; echo $KEPT").output_limit(1000)).unwrap();
        assert!(result.truncated && result.stdout.bytes.len() <= 1000);
        assert_eq!(result.stdout.bytes.len() as u64 + result.stdout.dropped, 100_004);
        assert!(result.stdout.bytes.ends_with(b"yes\n"));
        let result = sandbox.execute_blocking("exit 4".into()).unwrap();
        assert_eq!((result.exit_code, result.shell, result.cwd), (4, ShellState::Ended, None));
        assert_eq!(says(sandbox.execute_blocking("echo ${KEPT-gone}".into())), "gone");
        assert_eq!(sandbox.execute_blocking("a\0b".into()).err().unwrap().code(), "not-a-line");
    }

    /// Promise: command-rules
    #[test]
    fn command_rule_denies_a_command_by_its_text(at) {
        std::fs::create_dir_all(at.join(".ringfence")).unwrap();
        std::fs::write(at.join(".ringfence/policy.toml"), "version = 1\n[commands]\ndeny = [\"touch:*\"]\n").unwrap();
        let sandbox = open(&SessionProvider::default(), at);
        let result = sandbox.execute_blocking("cd /tmp; nice touch x".into()).unwrap();
        assert_eq!((result.exit_code, result.blocked, result.shell), (126, true, ShellState::Alive));
        let refusal = result.refusal.as_ref().unwrap();
        assert_eq!((refusal.position, refusal.length, refusal.reason.as_str()), (9, 12, "`touch x` is denied"));
        assert!(result.permission.is_none() && result.stderr.text().contains("`touch x` is denied"), "{}", result.stderr);
        let wire = serde_json::to_value(&result).unwrap();
        assert_eq!((&wire["refusal"]["position"], &wire["denials"][0]["operation"]), (&9.into(), &"command".into()));
        // Nothing of it ran, and the next command works.
        assert_eq!(says(sandbox.execute_blocking("pwd".into())), at.display().to_string());
    }

    #[test]
    fn output_is_streamed_while_the_command_runs(at) {
        let sandbox = open(&SessionProvider::default(), at);
        let (heard, all) = (at.join("heard"), Arc::new(Mutex::new(Vec::new())));
        let (flag, recorded) = (heard.clone(), all.clone());
        let command = Command::new("echo first; until [ -e heard ]; do sleep 0.01; done; echo second; echo third >&2");
        let result = sandbox.execute_blocking(command.timeout_ms(20_000).on_output(move |stream, bytes| {
            recorded.lock().unwrap().push((stream, String::from_utf8_lossy(bytes).into_owned()));
            std::fs::write(&flag, "").unwrap();
        }));
        assert_eq!(says(result), "first\nsecond");
        let all = all.lock().unwrap();
        assert_eq!(all.first(), Some(&(OutputStream::Out, "first\n".to_owned())));
        assert!(all.contains(&(OutputStream::Err, "third\n".to_owned())), "{all:?}");
    }

    #[test]
    fn twenty_concurrent_sandboxes_stay_separate(at) {
        const MANY: usize = 20;
        let (provider, all_stand) = (SessionProvider::default(), Barrier::new(MANY));
        thread::scope(|scope| {
            for number in 0..MANY {
                let (provider, all_stand) = (&provider, &all_stand);
                scope.spawn(move || {
                    let sandbox = open(provider, at);
                    says(sandbox.execute_blocking(format!("export NUMBER={number}; echo {number} >/tmp/number").into()));
                    all_stand.wait();
                    assert_eq!(says(sandbox.execute_blocking("echo $NUMBER $(cat /tmp/number)".into())), format!("{number} {number}"));
                    block_on(sandbox.dispose()).unwrap();
                });
            }
        });
        assert!(crate::stage::children("self").is_empty());
    }
}
