//! Sandboxes created on demand.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ringfence::{
    GrantAccess, SandboxConfig, SandboxError, SandboxGrant, SandboxManager,
    SandboxProviderRegistry, SandboxSpec, block_on,
};
use ringfence_testkit::{SECRET, TestOutput, becomes_true, signal};
use serde_json::{Map, Value, json};

use crate::stage::{appears, children, home, manager, part, says, supervisors};

/// Tries to create a sandbox without calling `init`.
pub(crate) fn without_init() -> ExitCode {
    match manager().execute_blocking(".", "touch made") {
        Err(error @ SandboxError::InitMissing) => {
            println!("{error}; {}", error.hint().unwrap_or_default());
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    }
}

/// The error code of a configuration that cannot be used.
fn refused(config: SandboxConfig, directory: &Path) -> &'static str {
    let manager = SandboxManager::new(config).unwrap();
    let error = manager.execute_blocking(directory, "touch made").err().unwrap();
    assert!(!directory.join("made").exists(), "the command ran despite: {error}");
    assert!(manager.list().is_empty());
    error.code()
}

fn options(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

tests! { "manager":
    /// Promise: manager
    #[test]
    fn sandbox_is_created_on_demand_and_reused(at) {
        let (manager, other) = (manager(), at.join("other"));
        fs::create_dir(&other).unwrap();
        assert!(manager.list().is_empty());
        assert!(children("self").is_empty());
        says(manager.execute_blocking(at, "cd /tmp; export KEPT=yes; f() { echo from f; }"));
        let made = manager.list();
        assert_eq!(made.len(), 1);
        // Another path to the same directory.
        assert_eq!(says(manager.execute_blocking(at.join("other/.."), "pwd; echo $KEPT; f")), "/tmp\nyes\nfrom f");
        assert_eq!(manager.list(), made);
        assert_eq!(says(manager.execute_blocking(&other, "pwd; echo $KEPT")), format!("{}", other.display()));
        assert_eq!(manager.list().len(), 2);
        block_on(manager.shutdown()).unwrap();
        assert!(manager.list().is_empty());
        assert_eq!(says(manager.execute_blocking(at, "pwd; echo $KEPT")), format!("{}", at.display()));
    }

    #[test]
    fn concurrent_commands_share_one_sandbox(at) {
        let manager = manager();
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| says(manager.execute_blocking(at, "echo x >>all")));
            }
        });
        assert_eq!(manager.list().len(), 1);
        assert_eq!(fs::read_to_string(at.join("all")).unwrap(), "x\n".repeat(6));
    }

    /// Promise: manager
    #[test]
    fn every_unconfined_result_says_so(at) {
        let config = SandboxConfig { enabled: false, provider: "unknown".into(), ..SandboxConfig::default() };
        let manager = SandboxManager::new(config).unwrap();
        for command in ["cat ~/.ssh/id_rsa; export KEPT=yes", "cat ~/.ssh/id_rsa; [ $KEPT = yes ]"] {
            let result = manager.execute_blocking(at, command).unwrap();
            assert_eq!((result.exit_code, result.stdout.text().as_ref()), (0, SECRET));
            assert!(!result.confined && result.warnings[0].starts_with("nothing is confined"), "{:?}", result.warnings);
        }
        // Confined, the same command is denied.
        let result = crate::stage::manager().execute_blocking(at, "cat ~/.ssh/id_rsa").unwrap();
        assert!(result.exit_code != 0 && result.blocked && result.confined && result.stdout.bytes.is_empty());
        assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    }

    /// Promise: manager
    #[test]
    fn unusable_configuration_is_an_error_and_nothing_runs(at) {
        let with = |value| SandboxConfig { provider_options: options(value), ..SandboxConfig::default() };
        assert_eq!(refused(with(json!({ "shell": "no-such-shell" })), at), "command-not-executed");
        assert_eq!(refused(with(json!({ "shel": "bash" })), at), "unknown-provider-option");
        assert_eq!(refused(with(json!({ "mode": 3 })), at), "provider-options");
        fs::write(at.join("policy.toml"), "version = 1\n[network]\nmode = \"full\"\ndeny = [\"a.org\"]\n").unwrap();
        assert_eq!(refused(SandboxConfig::from_policy_file(at.join("policy.toml")).unwrap(), at), "gap");
        let mut network = SandboxConfig::default();
        network.policy.network.allow_network = true;
        assert_eq!(refused(network, at), "allow-network");
        let mut glob = SandboxConfig::default();
        glob.policy.filesystem.whitelist = vec!["/srv/*/x".into()];
        assert_eq!(refused(glob, at), "path");
        assert_eq!(manager().execute_blocking(at.join("nowhere"), "true").err().unwrap().code(), "file");
        let unknown = SandboxConfig { provider: "docker".into(), ..SandboxConfig::default() };
        let error = SandboxManager::with_registry(unknown, SandboxProviderRegistry::default()).err().unwrap();
        assert_eq!(error.to_string(), "Unknown sandbox provider: \"docker\". Available: [local, process]");
        fs::write(at.join("policy.toml"), "version = 1\nmod = 1\n").unwrap();
        assert!(SandboxConfig::from_policy_file(at.join("policy.toml")).is_err());
    }

    /// Promise: manager
    #[test]
    fn without_init_no_sandbox_is_created_and_the_hint_helps(at) {
        let output = TestOutput::run(&mut part("without-init", at), b"").ok();
        assert!(output.contains("ringfence::init();") && output.contains("first line of `main`"), "{output}");
        assert!(!at.join("made").exists());
    }

    /// Promise: manager
    #[test]
    fn after_a_sandbox_dies_the_next_command_gets_a_new_one_with_all_grants(at) {
        let manager = manager();
        let notes = home(at).join("notes.txt");
        manager.add_runtime_whitelist("~/notes.txt");
        assert_eq!(says(manager.execute_blocking(at, "cd /tmp; export KEPT=yes; cat ~/notes.txt")), SECRET);
        let before = manager.list();
        let result = thread::scope(|scope| {
            let running = scope.spawn(|| manager.execute_blocking(at, format!("touch {}; sleep 60", at.join("begun").display())));
            appears(&at.join("begun"));
            let supervisor = supervisors().pop().expect("a sandbox has a supervisor");
            let init = children(&supervisor).pop().expect("a supervisor has an init");
            signal(init.parse().unwrap(), 9);
            running.join().unwrap()
        });
        let error = result.err().unwrap();
        assert!(matches!(error, SandboxError::Gone { .. }), "{error}");
        assert!(error.hint().is_some());
        let said = says(manager.execute_blocking(at, format!("pwd; echo ${{KEPT-gone}}; cat {}", notes.display())));
        assert_eq!(said, format!("{}\ngone\n{SECRET}", at.display()));
        assert_ne!(manager.list(), before);
        block_on(manager.shutdown()).unwrap();
        assert!(children("self").is_empty());
    }

    #[test]
    fn sandbox_that_died_while_idle_is_recreated_for_the_next_command(at) {
        let manager = manager();
        manager.add_runtime_whitelist("~/notes.txt");
        says(manager.execute_blocking(at, "cd /tmp; export KEPT=yes"));
        let supervisor = supervisors().pop().expect("a sandbox has a supervisor");
        let init = children(&supervisor).pop().expect("a supervisor has an init");
        signal(init.parse().unwrap(), 9);
        assert!(becomes_true(Duration::from_secs(20), || supervisors().is_empty()), "the supervisor does not end");
        let said = says(manager.execute_blocking(at, "pwd; echo ${KEPT-gone}; cat ~/notes.txt; touch made"));
        assert_eq!(said, format!("{}\ngone\n{SECRET}", at.display()));
        assert!(at.join("made").exists());
        assert_eq!(manager.list().len(), 1);
    }

    /// Promise: live-policy
    #[test]
    fn policy_edit_is_applied_live_or_by_a_new_sandbox(at) {
        let (manager, policy) = (manager(), home(at).join(".config/ringfence/policy.toml"));
        let say = |text: &str| fs::write(&policy, format!("version = 1\n{text}\n")).unwrap();
        fs::create_dir_all(policy.parent().unwrap()).unwrap();
        fs::write(at.join("a.sqlite"), SECRET).unwrap();
        assert_eq!(says(manager.execute_blocking(at, "export KEPT=yes; cat a.sqlite")), SECRET);
        // Also while a command runs.
        let waits = "while cat a.sqlite >/dev/null 2>&1; do touch begun; sleep 0.05; done; echo $KEPT";
        let result = thread::scope(|scope| {
            let running = scope.spawn(|| manager.execute_blocking(at, ringfence::Command::new(waits).timeout_ms(20_000)));
            appears(&at.join("begun"));
            say("[filesystem]\ndeny = [\"*.sqlite\"]");
            running.join().unwrap().unwrap()
        });
        assert_eq!(result.stdout.text().trim_end(), "yes");
        assert!(result.warnings.iter().any(|warning| warning.contains("`deny *.sqlite` (")), "{:?}", result.warnings);
        say("[filesys");
        let result = manager.execute_blocking(at, "cat a.sqlite; echo $KEPT").unwrap();
        assert_eq!(result.stdout.text().trim_end(), "yes");
        assert!(result.warnings.iter().any(|warning| warning.contains("policy.toml:2:")), "{:?}", result.warnings);
        say("mode = \"read-only\"");
        let error = manager.execute_blocking(at, "echo $KEPT").err().unwrap();
        assert!(matches!(error, SandboxError::Narrowed { .. }) && error.code() == "policy-narrowed", "{error}");
        let result = manager.execute_blocking(at, "echo ${KEPT-gone}; touch new").unwrap();
        assert_eq!((result.stdout.text().trim_end(), result.exit_code != 0), ("gone", true));
    }

    #[test]
    fn grant_applies_to_the_next_command_and_not_to_an_isolated_copy(at) {
        let manager = manager();
        let read = |manager: &SandboxManager, name: &str| manager.execute_blocking(at, format!("cat ~/{name}")).unwrap().exit_code == 0;
        assert!(!read(&manager, "notes.txt"));
        manager.grant(SandboxGrant { path: "~/notes.txt".into(), access: GrantAccess::Read });
        assert!(read(&manager, "notes.txt"));
        assert_ne!(manager.execute_blocking(at, "echo x >>~/notes.txt").unwrap().exit_code, 0);
        let copy = manager.isolated().unwrap();
        copy.add_runtime_whitelist(home(at).join("code/other").display().to_string());
        assert!(read(&copy, "notes.txt") && read(&copy, "code/other/main.rs"));
        says(copy.execute_blocking(at, "echo x >~/code/other/new"));
        assert!(!read(&manager, "code/other/main.rs"));
        assert!(manager.list() != copy.list() && manager.list().len() == 1);
    }

    /// Promise: embedder-config
    #[test]
    fn blacklist_overrides_whitelist_and_a_grant_overrides_both(at) {
        let home = home(at);
        fs::write(home.join("plain"), "plain").unwrap();
        let mut config = SandboxConfig::from_sandbox_json(
            r#"{ "policy": { "filesystem": { "whitelist": ["~/code/other", "~/.ssh", "$HOME/plain"], "blacklist": ["~/code/other/deep", "~/notes.txt"] } } }"#,
        );
        config.policy.filesystem.whitelist.push("~/notes.txt".into());
        fs::create_dir(home.join("code/other/deep")).unwrap();
        fs::write(home.join("code/other/deep/x"), SECRET).unwrap();
        fs::write(home.join("code/other/.env"), SECRET).unwrap();
        let manager = SandboxManager::new(config).unwrap();
        let result = manager.execute_blocking(at, "cat ~/plain; cat ~/code/other/main.rs >/dev/null && echo x >~/code/other/y").unwrap();
        assert_eq!((result.exit_code, result.stdout.text().as_ref()), (0, "plain"), "{}", result.stderr);
        for (path, why) in [("`~/notes.txt`", "stays denied"), ("`~/.ssh`", "is not opened")] {
            let is_meant = |warning: &&String| warning.contains(path) && warning.contains(why);
            assert_eq!(result.warnings.iter().filter(is_meant).count(), 1, "{path}: {:?}", result.warnings);
        }
        for shut in ["~/.ssh/id_rsa", "~/code/other/deep/x", "~/code/other/.env", "~/notes.txt"] {
            assert_ne!(manager.execute_blocking(at, format!("cat {shut}")).unwrap().exit_code, 0, "{shut}");
        }
        for path in ["~/.ssh/id_rsa", "~/notes.txt", "~/code/other/.env"] {
            manager.add_runtime_whitelist(path);
            assert_eq!(says(manager.execute_blocking(at, format!("cat {path}"))), SECRET, "{path}");
        }
    }

    #[test]
    fn provider_lists_and_destroys_its_sandboxes(at) {
        let provider = SandboxProviderRegistry::default().get("local").unwrap();
        let create = || block_on(provider.create(SandboxSpec::new(at))).unwrap();
        let (one, other) = (create(), create());
        let ids = || provider.list().into_iter().map(|info| info.id).collect::<Vec<_>>();
        assert_eq!(ids(), [one.id(), other.id()]);
        block_on(provider.destroy(one.id())).unwrap();
        assert_eq!(ids(), [other.id()]);
        assert!(matches!(one.execute_blocking("true".into()), Err(SandboxError::Ended { .. })));
        block_on(one.dispose()).unwrap();
        block_on(provider.destroy("never was")).unwrap();
        says(other.execute_blocking("true".into()));
        drop(other);
        assert!(ids().is_empty());
    }
}
