//! A provider that the program registers passes the whole pipeline.

use std::fs;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringfence::tools::{ReadParams, RoutedCall};
use ringfence::{
    AgentRunner, AgentStep, AskAnswer, BoxFuture, Command, PolicyDemand, SandboxBackend,
    SandboxConfig, SandboxCreateOptions, SandboxError, SandboxManager, SandboxProvider,
    SandboxProviderRegistry, block_on, router,
};
use ringfence_testkit::{SECRET, becomes_true};
use serde_json::{Value, json};

use crate::provider_backend::{ProcessesProvider, ProviderCalls};
use crate::stage::{ScriptedAnswer, appears, home, once, records, says};

/// All demands of the built-in policy, with and without an asker.
const ALL: &[PolicyDemand] = &[
    PolicyDemand::Filesystem,
    PolicyDemand::Processes,
    PolicyDemand::Environment,
    PolicyDemand::NoNetwork,
    PolicyDemand::HostAllowList,
    PolicyDemand::DeniedNames,
    PolicyDemand::Quarantine,
    PolicyDemand::UnixSockets,
    PolicyDemand::Denials,
    PolicyDemand::Asking,
    PolicyDemand::Usage,
];

/// A registry with the provider `mine`, which knows the option `region`.
fn registry(enforces: &[PolicyDemand]) -> (SandboxProviderRegistry, Arc<ProviderCalls>) {
    let (mut registry, calls) =
        (SandboxProviderRegistry::default(), Arc::<ProviderCalls>::default());
    let (enforces, told) = (enforces.to_vec(), Arc::clone(&calls));
    registry.register("mine", move |options| match options.find_unknown(&["region"]) {
        Some(option) => Err(ringfence::ProviderError::unknown_option("mine", option, &["region"])),
        None => Ok(Arc::new(ProcessesProvider { enforces: enforces.clone(), calls: told.clone() })),
    });
    (registry, calls)
}

fn config(options: Value) -> SandboxConfig {
    let provider_options = options.as_object().unwrap().clone();
    SandboxConfig { provider: "mine".into(), provider_options, ..SandboxConfig::default() }
}

fn mine(enforces: &[PolicyDemand], options: Value) -> (SandboxManager, Arc<ProviderCalls>) {
    let (registry, calls) = registry(enforces);
    (SandboxManager::with_registry(config(options), registry).unwrap(), calls)
}

fn commands(calls: &ProviderCalls) -> Vec<String> {
    calls.commands.lock().unwrap().clone()
}

/// Writes the user's policy.
fn own_policy(at: &Path, text: &str) {
    let file = home(at).join(".config/ringfence/policy.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, format!("version = 1\n{text}\n")).unwrap();
}

/// A provider that can create no sandbox now.
struct AbsentProvider;

impl SandboxProvider for AbsentProvider {
    fn provider_type(&self) -> &str {
        "absent"
    }

    fn enforces(&self) -> &[PolicyDemand] {
        ALL
    }

    fn create(
        &self,
        _: SandboxCreateOptions,
    ) -> BoxFuture<'_, Result<Arc<dyn SandboxBackend>, SandboxError>> {
        Box::pin(async { Err(SandboxError::Gone { id: "none".into() }) })
    }
}

/// The error of a command that must not reach the provider.
#[track_caller]
fn refused(manager: &SandboxManager, calls: &ProviderCalls, at: &Path) -> SandboxError {
    let error = manager.execute_blocking(at, "touch made").err().unwrap();
    assert!(!at.join("made").exists(), "the command ran despite: {error}");
    assert_eq!((calls.created.load(Ordering::SeqCst), commands(calls).len()), (0, 0));
    error
}

fn sources(error: &SandboxError) -> String {
    let first: &dyn std::error::Error = error;
    let all = std::iter::successors(Some(first), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

tests! { "provider":
    /// Promise: embedder-provider
    #[test]
    fn demand_that_the_provider_does_not_enforce_refuses_by_default(at) {
        let (manager, calls) = mine(&[], json!({}));
        let error = refused(&manager, &calls, at);
        assert_eq!(error.code(), "gap");
        let text = sources(&error);
        for what in ["filesystem", "processes", "environment", "network"] {
            assert!(text.contains(what), "{what}: {text}");
        }
        // Each claim removes its own gap only.
        let (manager, calls) = mine(&ALL[1..], json!({}));
        let text = sources(&refused(&manager, &calls, at));
        assert!(text.contains("filesystem") && !text.contains("processes:"), "{text}");
        // A demand that only this policy has.
        own_policy(at, "[limits]\nprocesses = 100");
        let (manager, calls) = mine(ALL, json!({}));
        assert!(sources(&refused(&manager, &calls, at)).contains("limits.processes"));
    }

    /// Promise: embedder-provider
    #[test]
    fn accepted_gaps_are_in_the_result_and_in_the_log(at) {
        let run = |manager: &SandboxManager| {
            let result = manager.execute_blocking(at, "echo ran; pwd").unwrap();
            assert_eq!(result.stdout.text(), format!("ran\n{}\n", at.display()));
            (result.confined, result.gaps.into_iter().map(|gap| gap.what).collect::<Vec<_>>(), result.warnings)
        };
        let gaps = ["filesystem", "processes", "environment", "usage", "network"];
        for by_file in [true, false] {
            own_policy(at, if by_file { "on-gap = \"run\"" } else { "" });
            let (manager, _) = mine(&[], if by_file { json!({}) } else { json!({ "onGap": "run" }) });
            let (confined, found, warnings) = run(&manager);
            assert_eq!((confined, found.as_slice()), (false, gaps.map(String::from).as_slice()));
            assert!(warnings[0].starts_with("nothing is confined"), "{warnings:?}");
        }
        let begun = records(at).into_iter().rfind(|record| record["operation"] == "execute").unwrap();
        assert_eq!((&begun["gaps"], &begun["confined"], &begun["provider"]), (&json!(gaps), &json!(false), &json!("mine")));
        let (manager, _) = mine(ALL, json!({}));
        assert_eq!(run(&manager), (true, Vec::new(), Vec::new()));
        let result = manager.execute_blocking(at, "true").unwrap();
        assert_eq!(result.enforced[0], "filesystem, by the provider `processes`");
    }

    /// Promise: embedder-provider
    #[test]
    fn command_rule_refuses_before_the_provider_sees_the_command(at) {
        own_policy(at, "[commands]\ndeny = [\"touch:*\"]");
        let (manager, calls) = mine(ALL, json!({}));
        let result = manager.execute_blocking(at, "nice touch made").unwrap();
        assert_eq!((result.exit_code, result.blocked), (126, true));
        assert!(result.refusal.is_some() && result.stderr.text().contains("`touch made` is denied"), "{}", result.stderr);
        says(manager.execute_blocking(at, "echo allowed"));
        assert_eq!(commands(&calls), ["echo allowed"]);
        // The rule may change while the sandbox lives.
        own_policy(at, "[commands]\ndeny = [\"echo:*\"]");
        assert!(manager.execute_blocking(at, "echo allowed").unwrap().blocked);
        says(manager.execute_blocking(at, "touch made"));
        assert_eq!((commands(&calls).len(), calls.created.load(Ordering::SeqCst)), (2, 1));
    }

    /// Promise: embedder-provider
    #[test]
    fn audit_log_has_start_and_end_of_each_command_with_the_provider(at) {
        own_policy(at, "[commands]\ndeny = [\"touch:*\"]");
        let (manager, _) = mine(ALL, json!({ "agent": "reviewer" }));
        says(manager.execute_blocking(at, "echo one"));
        manager.execute_blocking(at, "touch made").unwrap();
        assert_eq!(manager.execute_blocking(at, "exit 3").unwrap().exit_code, 3);
        let records = records(at);
        let of = |operation: &str, field: &str| -> Vec<Value> {
            records.iter().filter(|record| record["operation"] == operation).map(|record| record[field].clone()).collect()
        };
        assert_eq!(of("execute", "provider"), ["mine"; 3]);
        assert_eq!(of("execute", "result"), ["allowed", "blocked", "allowed"]);
        assert_eq!(of("exit", "exitCode"), [0, 126, 3]);
        assert!(of("execute", "command")[2].as_array().unwrap().contains(&json!("exit 3")));
        assert_eq!((of("execute", "agent"), of("execute", "confined")), (vec![json!("reviewer"); 3], vec![json!(true); 3]));
    }

    /// Promise: embedder-provider
    #[test]
    fn denial_is_reported_and_the_answer_of_the_user_is_recorded(at) {
        let notes = home(at).join("notes.txt").display().to_string();
        let line = format!("cat {notes}");
        let (manager, _) = mine(ALL, json!({}));
        let result = manager.execute_blocking(at, line.as_str()).unwrap();
        assert!(result.blocked && result.stdout.bytes.is_empty(), "{result:?}");
        assert_eq!((result.denials.len(), result.blocked_resource.as_ref()), (1, Some(&notes)));
        // The user may be asked afterwards, and the next sandbox has the grant.
        let permission = manager.requires_permission(&result).unwrap();
        assert_eq!(permission.options, [AskAnswer::AllowSession, AskAnswer::AllowPermanent, AskAnswer::Deny]);
        manager.answer(at, &result, AskAnswer::AllowSession).unwrap();
        assert_eq!(says(manager.execute_blocking(at, line.as_str())), SECRET);
        for (answer, is_allowed) in [(AskAnswer::AllowOnce, true), (AskAnswer::Deny, false)] {
            let asker = Arc::new(ScriptedAnswer(AtomicUsize::new(0), answer));
            let (manager, _) = mine(ALL, json!({}));
            let result = manager.with_asker(asker.clone()).execute_blocking(at, line.as_str()).unwrap();
            assert_eq!((result.stdout.text() == SECRET, result.granted.len() == 1, result.blocked), (is_allowed, is_allowed, !is_allowed));
            assert_eq!(asker.0.load(Ordering::SeqCst), 1);
            let asked = records(at).into_iter().rfind(|record| record["operation"] == "ask").unwrap();
            assert_eq!((&asked["target"], &asked["answer"]), (&json!(notes), &json!(answer.to_string())), "{asked}");
        }
        let denied = records(at).into_iter().filter(|record| record["operation"] == "read" && record["result"] == "blocked").count();
        assert_eq!(denied, 2);
    }

    /// Promise: embedder-provider
    #[test]
    fn factory_gets_the_options_and_refuses_unknown_ones(at) {
        let (manager, calls) = mine(ALL, json!({ "zone": 3, "region": "eu", "shell": "sh" }));
        let error = refused(&manager, &calls, at);
        assert_eq!(error.code(), "unknown-provider-option");
        assert!(sources(&error).contains("unknown option `zone` of the sandbox provider `mine`; known options: region"), "{}", sources(&error));
        let (manager, _) = mine(ALL, json!({ "region": "eu", "shell": "sh" }));
        assert_eq!(says(manager.execute_blocking(at, "echo $0")), "sh");
        let mut registry = SandboxProviderRegistry::default();
        registry.register("mine", |options| {
            let found = [options.get("cpus"), options.get("image"), options.get("ports")];
            assert_eq!(found, [Some("4"), Some("debian"), Some("[80,443]")]);
            Err(ringfence::ProviderError::NotSupported { what: "this test" })
        });
        let config = config(json!({ "cpus": 4, "image": "debian", "ports": [80, 443] }));
        let error = SandboxManager::with_registry(config, registry).unwrap().execute_blocking(at, "true").err().unwrap();
        assert_eq!(error.code(), "not-supported");
        let unknown = SandboxManager::with_registry(SandboxConfig { provider: "x".into(), ..SandboxConfig::default() }, self::registry(ALL).0);
        assert_eq!(unknown.err().unwrap().to_string(), "Unknown sandbox provider: \"x\". Available: [local, mine, process]");
    }

    /// Promise: embedder-provider
    #[test]
    fn policy_file_of_the_user_cannot_replace_the_provider_or_hide_its_gaps(at) {
        for (policy, code) in [
            ("mode = \"full-access\"", "sandbox-off"),
            ("[sandbox]\nenabled = false", "sandbox-off"),
            ("[network]\nmode = \"full\"", "gap"),
            ("[sandbox]\nprovider = \"process\"", "gap"),
        ] {
            own_policy(at, policy);
            let (manager, calls) = mine(&ALL[..3], json!({}));
            assert_eq!(refused(&manager, &calls, at).code(), code, "{policy}");
        }
        own_policy(at, "[sandbox]\nfail-if-unavailable = false");
        let (manager, calls) = mine(ALL, json!({ "shell": "no-such-shell" }));
        let error = refused(&manager, &calls, at);
        assert_eq!(error.code(), "sandbox-not-started");
        assert!(sources(&error).contains("the provider `processes` failed: No such file"), "{}", sources(&error));
        // Nor while the sandbox lives.
        own_policy(at, "");
        let (manager, calls) = mine(ALL, json!({}));
        says(manager.execute_blocking(at, "true"));
        own_policy(at, "mode = \"full-access\"");
        let result = manager.execute_blocking(at, "true").unwrap();
        assert!(result.confined && result.warnings.iter().any(|warning| warning.contains("must run in a sandbox")), "{:?}", result.warnings);
        assert_eq!(commands(&calls), ["true"; 2]);
        // The program itself may.
        let (registry, calls) = self::registry(ALL);
        let config = SandboxConfig { allow_unsandboxed_commands: true, ..config(json!({ "region": "eu" })) };
        let manager = SandboxManager::with_registry(config.clone(), registry.clone()).unwrap();
        let outside = block_on(manager.execute_outside(at, "cat ~/.ssh/id_rsa")).unwrap();
        assert_eq!((outside.stdout.text().as_ref(), outside.confined), (SECRET, false));
        let disabled = SandboxManager::with_registry(SandboxConfig { enabled: false, ..config }, registry).unwrap();
        assert!(!disabled.execute_blocking(at, "true").unwrap().confined);
        assert_eq!(calls.created.load(Ordering::SeqCst), 0);
        let begun = records(at).into_iter().rfind(|record| record["operation"] == "execute").unwrap();
        assert_eq!((&begun["provider"], &begun["confined"]), (&json!("process"), &json!(false)));
    }

    /// The policy accepts that this machine has no sandbox, not that the provider has none.
    ///
    /// Promise: embedder-provider
    #[test]
    fn nothing_runs_here_if_the_provider_is_unavailable(at) {
        own_policy(at, "[sandbox]\nfail-if-unavailable = false");
        let mut registry = SandboxProviderRegistry::default();
        registry.register("mine", |_| Ok(Arc::new(AbsentProvider)));
        let manager = SandboxManager::with_registry(config(json!({})), registry).unwrap();
        let error = manager.execute_blocking(at, "touch made").err();
        assert!(!at.join("made").exists(), "the command ran on this machine");
        assert_eq!(error.unwrap().code(), "sandbox-not-started");
    }

    /// Promise: embedder-provider
    #[test]
    fn changed_file_rule_takes_effect_with_a_new_sandbox(at) {
        let (manager, calls) = mine(ALL, json!({}));
        let file = at.join("a.sqlite");
        fs::write(&file, SECRET).unwrap();
        let line = format!("cat {}", file.display());
        assert_eq!(says(manager.execute_blocking(at, line.as_str())), SECRET);
        own_policy(at, "[filesystem]\ndeny = [\"*.sqlite\"]");
        assert_eq!(manager.execute_blocking(at, line.as_str()).err().unwrap().code(), "policy-narrowed");
        assert!(manager.execute_blocking(at, line.as_str()).unwrap().blocked);
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        assert_eq!((count(&calls.created), count(&calls.disposed)), (2, 1));
        block_on(manager.shutdown()).unwrap();
        assert_eq!(count(&calls.disposed), 2);
    }

    /// Promise: embedder-provider
    #[test]
    fn input_environment_output_and_time_limit_reach_the_provider(at) {
        let (manager, _) = mine(ALL, json!({}));
        assert_eq!(says(manager.execute_blocking(at, Command::new("tr a-z A-Z").input("hello"))), "HELLO");
        // The test's own environment has this variable.
        assert!(std::env::var_os("PART").is_some());
        assert_eq!(says(manager.execute_blocking(at, "echo ${PART-filtered} ${HOME:+home}")), "filtered home");
        let (sender, streamed) = std::sync::mpsc::channel();
        let command = Command::new("printf %0100000d 0; echo end; echo oops >&2").output_limit(1000);
        let result = manager.execute_blocking(at, command.on_output(move |stream, bytes| sender.send((stream, bytes.len())).unwrap())).unwrap();
        assert!(result.truncated && result.stdout.bytes.ends_with(b"end\n") && result.stdout.bytes.len() <= 1000, "{result:?}");
        assert_eq!(streamed.into_iter().map(|(_, length)| length).sum::<usize>(), 100_004);
        assert_eq!(says(manager.execute_blocking(at, Command::new("echo long").timeout(Duration::MAX))), "long");
        let begun = Instant::now();
        let result = manager.execute_blocking(at, Command::new("echo begun; sleep 60").timeout_ms(100)).unwrap();
        assert!(result.timed_out && result.exit_code == 124 && begun.elapsed() < Duration::from_secs(30), "{result:?}");
        assert_eq!(result.stdout.text(), "begun\n");
    }

    /// Promise: embedder-provider
    #[test]
    fn dropped_future_interrupts_the_command_of_the_provider(at) {
        let (manager, calls) = mine(ALL, json!({}));
        says(manager.execute_blocking(at, "true"));
        {
            let mut running = pin!(manager.execute(at, "echo $$ >new; mv new pid; sleep 60"));
            assert!(once(running.as_mut()).is_pending());
            appears(&at.join("pid"));
        }
        let begun = Instant::now();
        assert_eq!(says(manager.execute_blocking(at, "echo next")), "next");
        assert!(begun.elapsed() < Duration::from_secs(30), "the next command waited for this one");
        let pid = fs::read_to_string(at.join("pid")).unwrap();
        let is_gone = || !Path::new("/proc").join(pid.trim()).exists();
        assert!(becomes_true(Duration::from_secs(20), is_gone), "process {pid} runs");
        assert_eq!(calls.created.load(Ordering::SeqCst), 1);
    }

    /// Promise: embedder-provider
    #[test]
    fn agents_and_routers_work_with_commands_only(at) {
        let call = |tool: &str, input: Value| RoutedCall { tool: tool.into(), input };
        let (manager, _) = mine(ALL, json!({}));
        let sandbox = block_on(manager.get_sandbox(at)).unwrap();
        assert_eq!(sandbox.tools().err().unwrap().code(), "not-offered");
        let router = router(sandbox).unwrap();
        assert_eq!(router.call(&call("Bash", json!({ "command": "echo routed" }))).unwrap()["stdout"], "routed\n");
        let mut runner = AgentRunner::new(manager, at);
        let mut completed = |tool: &str, input: Value| match runner.step(call(tool, input)).unwrap() {
            AgentStep::Completed(result) => result,
            other => panic!("not completed: {other:?}"),
        };
        let ran = completed("Bash", json!({ "command": "echo in the shell; echo x > made" }));
        assert_eq!((&ran["stdout"], &ran["exitCode"]), (&json!("in the shell\n"), &json!(0)), "{ran}");
        assert!(at.join("made").exists());
        for (tool, input) in [("read", json!({ "path": "made" })), ("Write", json!({ "path": "new", "content": "" })), ("Grep", json!({}))] {
            let refused = completed(tool, input);
            assert_eq!(refused["error"]["code"], "elsewhere", "{tool}: {refused}");
            assert!(refused["error"]["hint"].as_str().is_some_and(|hint| hint.contains("shell")), "{tool}: {refused}");
        }
        assert!(!at.join("new").exists());
        let notes = home(at).join("notes.txt");
        let step = runner.step(call("Bash", json!({ "command": format!("cat {}", notes.display()) }))).unwrap();
        assert!(matches!(&step, AgentStep::RequiresPermission(permission) if permission.resource == notes.to_string_lossy()), "{step:?}");
        match runner.answer(AskAnswer::AllowOnce).unwrap() {
            AgentStep::Completed(result) => assert_eq!(result["stdout"], SECRET),
            other => panic!("not completed: {other:?}"),
        }
        runner.shutdown().unwrap();
    }

    /// Promise: embedder-provider
    #[test]
    fn provider_of_the_full_protocol_has_file_tools_too(at) {
        let mut registry = SandboxProviderRegistry::default();
        registry.register_provider("mine", |_| Ok(ringfence_linux::LocalProvider::default()));
        let manager = SandboxManager::with_registry(config(json!({})), registry).unwrap();
        let result = manager.execute_blocking(at, "echo x >made; cat ~/notes.txt").unwrap();
        assert!(result.confined && result.blocked && result.denials.len() == 1, "{result:?}");
        let tools = block_on(manager.get_sandbox(at)).unwrap().tools().unwrap();
        assert_eq!(tools.read(&ReadParams::new("made")).unwrap().text.as_deref(), Some("x\n"));
        assert_eq!(tools.read(&ReadParams::new("../notes.txt")).unwrap_err().code(), "denied");
        assert_eq!(records(at)[0]["provider"], "mine");
    }
}
