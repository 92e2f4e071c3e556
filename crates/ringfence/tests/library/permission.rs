//! Asking the user, and continuing.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence::{AskAnswer, SandboxConfig, SandboxManager, block_on};
use ringfence_testkit::{SECRET, signal};

use crate::stage::{ScriptedAnswer, can_ask, children, home, says, supervisors};

/// Waits until the sandbox with `KEPT=yes` has died and another has replaced it.
fn has_another_sandbox(manager: &SandboxManager, at: &Path) -> bool {
    let is_new = || {
        manager
            .execute_blocking(at, "echo kept: $KEPT")
            .is_ok_and(|result| result.stdout.text() == "kept:\n")
    };
    ringfence_testkit::becomes_true(Duration::from_secs(20), is_new)
}

tests! { "permission":
    #[test]
    fn only_effective_options_are_offered(at) {
        let offered = |config: SandboxConfig, command: &str| {
            let manager = SandboxManager::new(config).unwrap();
            let result = manager.execute_blocking(at, command).unwrap();
            let permission = manager.requires_permission(&result)?;
            assert_eq!(Some(&permission.resource), result.blocked_resource.as_ref());
            Some(permission.options)
        };
        let all = SandboxConfig { allow_unsandboxed_commands: true, ..SandboxConfig::default() };
        let plain = SandboxConfig::default();
        assert_eq!(offered(plain.clone(), "true"), None);
        assert_eq!(offered(plain.clone(), "echo Permission denied >&2; false"), None);
        for command in ["cat ~/notes.txt", "cat ~/.ssh/id_rsa"] {
            assert_eq!(offered(plain.clone(), command).unwrap(), [AskAnswer::AllowSession, AskAnswer::AllowPermanent, AskAnswer::Deny]);
            assert_eq!(offered(all.clone(), command).unwrap(), AskAnswer::ALL);
        }
    }

    /// Promise: embedder-config
    #[test]
    fn each_answer_takes_effect(at) {
        let policy = ringfence_testkit::own_policy(&home(at), at);
        fs::create_dir_all(policy.parent().unwrap()).unwrap();
        fs::write(&policy, format!("version = 1 # mine\nproject = \"{}\"\n", at.display())).unwrap();
        let call = "cat ~/notes.txt";
        let config = SandboxConfig { allow_unsandboxed_commands: true, ..SandboxConfig::default() };
        let fresh = || SandboxManager::new(config.clone()).unwrap();
        let blocked = |manager: &SandboxManager| {
            let result = manager.execute_blocking(at, call).unwrap();
            assert!(result.blocked && result.stdout.bytes.is_empty());
            result
        };
        let manager = fresh();
        let result = blocked(&manager);
        manager.answer(at, &result, AskAnswer::Deny).unwrap();
        manager.answer(at, &result, AskAnswer::AllowOnce).unwrap();
        let outside = block_on(manager.execute_outside(at, call));
        assert!(!outside.as_ref().unwrap().confined);
        assert_eq!(says(outside), SECRET);
        manager.answer(at, &blocked(&manager), AskAnswer::AllowSession).unwrap();
        assert_eq!(says(manager.execute_blocking(at, call)), SECRET);
        // An answer that is not offered is rejected.
        let strict = SandboxManager::new(SandboxConfig::default()).unwrap();
        let result = blocked(&strict);
        assert_eq!(strict.answer(at, &result, AskAnswer::AllowOnce).err().unwrap().code(), "not-offered");
        assert_eq!(block_on(strict.execute_outside(at, call)).err().unwrap().code(), "not-offered");
        let manager = fresh();
        manager.answer(at, &blocked(&manager), AskAnswer::AllowPermanent).unwrap();
        assert_eq!(says(manager.execute_blocking(at, call)), SECRET);
        assert_eq!(says(fresh().execute_blocking(at, call)), SECRET);
        let text = fs::read_to_string(&policy).unwrap();
        assert!(text.starts_with("version = 1 # mine\n") && text.contains("~/notes.txt"), "{text}");
    }

    #[test]
    fn grant_for_a_missing_file_opens_its_directory(at) {
        let manager = SandboxManager::new(SandboxConfig::default()).unwrap();
        let call = "echo made >~/code/other/new.txt";
        let result = manager.execute_blocking(at, call).unwrap();
        manager.answer(at, &result, AskAnswer::AllowSession).unwrap();
        says(manager.execute_blocking(at, call));
        assert_eq!(fs::read_to_string(home(at).join("code/other/new.txt")).unwrap(), "made\n");
    }

    #[test]
    fn with_an_asker_the_access_waits_and_the_shell_lives_on(at) {
        if !can_ask() {
            return;
        }
        let asker = Arc::new(ScriptedAnswer(AtomicUsize::new(0), AskAnswer::AllowSession));
        let manager = SandboxManager::new(SandboxConfig::default()).unwrap().with_asker(asker.clone());
        says(manager.execute_blocking(at, "export KEPT=yes; cd /tmp"));
        let before = manager.list();
        let result = manager.execute_blocking(at, "cat ~/notes.txt; cat ~/notes.txt >/dev/null; echo; echo $KEPT; pwd").unwrap();
        assert_eq!(result.stdout.text(), format!("{SECRET}\nyes\n/tmp\n"), "{result:?}");
        assert_eq!((result.granted.len(), result.blocked, asker.0.load(Ordering::SeqCst)), (1, false, 1));
        assert_eq!(manager.list(), before);
        // The grant is kept for the sandbox that replaces this one, and for no other.
        signal(children(&supervisors().pop().unwrap()).pop().unwrap().parse().unwrap(), 9);
        // It takes a moment to die.
        assert!(has_another_sandbox(&manager, at));
        assert_eq!(says(manager.execute_blocking(at, "cat ~/notes.txt")), SECRET);
        assert_eq!(asker.0.load(Ordering::SeqCst), 1);
    }

    /// Promise: write-grant
    #[test]
    fn with_an_asker_a_write_waits_and_opens_only_that_file(at) {
        if !can_ask() {
            return;
        }
        let asker = Arc::new(ScriptedAnswer(AtomicUsize::new(0), AskAnswer::AllowSession));
        let manager = SandboxManager::new(SandboxConfig::default()).unwrap().with_asker(asker.clone());
        let new = home(at).join("code/other/new.txt");
        let result = manager.execute_blocking(at, "KEPT=yes; echo a >~/code/other/new.txt; echo b >>~/code/other/new.txt; echo $KEPT").unwrap();
        assert_eq!((result.stdout.text(), result.granted.len(), result.blocked), ("yes\n".into(), 1, false), "{result:?}");
        assert_eq!((fs::read_to_string(&new).unwrap().as_str(), asker.0.load(Ordering::SeqCst)), ("a\nb\n", 1));
        // The replacement of a dead sandbox has the file, and nothing around it.
        signal(children(&supervisors().pop().unwrap()).pop().unwrap().parse().unwrap(), 9);
        assert!(has_another_sandbox(&manager, at));
        says(manager.execute_blocking(at, "echo c >>~/code/other/new.txt"));
        assert_eq!((fs::read_to_string(&new).unwrap().as_str(), asker.0.load(Ordering::SeqCst)), ("a\nb\nc\n", 1));
        says(manager.execute_blocking(at, "echo d >~/code/other/another.txt"));
        assert_eq!(asker.0.load(Ordering::SeqCst), 2);
    }

    /// Promise: ask-connect
    #[test]
    fn with_an_asker_a_connection_waits_by_name_and_port(at) {
        let line = "exec 3<>/dev/tcp/nowhere.invalid/443";
        let asker = Arc::new(ScriptedAnswer(AtomicUsize::new(0), AskAnswer::Deny));
        let manager = SandboxManager::new(SandboxConfig::default()).unwrap().with_asker(asker.clone());
        let result = manager.execute_blocking(at, line).unwrap();
        assert!(String::from_utf8_lossy(&result.stderr.bytes).contains("Permission denied"), "{result:?}");
        assert_eq!((asker.0.load(Ordering::SeqCst), result.denials[0].target.as_str()), (1, "nowhere.invalid:443"));
        // Without an asker the name does not even resolve.
        let result = SandboxManager::new(SandboxConfig::default()).unwrap().execute_blocking(at, line).unwrap();
        assert!(!String::from_utf8_lossy(&result.stderr.bytes).contains("Permission denied"), "{result:?}");
    }

    /// Promise: embedder-config
    #[test]
    fn no_grant_opens_the_audit_log(at) {
        let manager = SandboxManager::new(SandboxConfig::default()).unwrap();
        manager.add_runtime_whitelist("~/.local/state");
        manager.add_runtime_whitelist("~/.local/state/ringfence/audit/head");
        let result = manager.execute_blocking(at, "cat ~/.local/state/ringfence/audit/head").unwrap();
        assert!(result.exit_code != 0 && result.stdout.bytes.is_empty(), "{result:?}");
        assert!(result.warnings.iter().any(|warning| warning.contains("was granted but stays denied")), "{:?}", result.warnings);
        assert!(manager.requires_permission(&result).is_none());
    }

    /// Promise: embedder-config
    #[test]
    fn settings_in_the_project_cannot_be_changed_by_commands(at) {
        for file in ["sandbox.json", "mine.toml"] {
            let path = at.join(file);
            fs::write(&path, if file == "mine.toml" { "version = 1\n" } else { "{}" }).unwrap();
            let config = if file == "mine.toml" { SandboxConfig::from_policy_file(&path) } else { SandboxConfig::from_sandbox_json_file(&path) };
            let manager = SandboxManager::new(config.unwrap()).unwrap();
            for attempt in [format!("echo x >>{file}"), format!("rm -f {file}"), format!("echo x >new; mv -f new {file}")] {
                assert_ne!(manager.execute_blocking(at, attempt.as_str()).unwrap().exit_code, 0, "{attempt}");
            }
            assert!(fs::read_to_string(&path).unwrap().len() > 1);
        }
    }
}
