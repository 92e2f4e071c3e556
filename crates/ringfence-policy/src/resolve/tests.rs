use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::decide::{Access, Verdict};
use crate::facts::{GitLayout, Platform};
use crate::parse::parse;
use crate::testing::path;

pub(crate) fn facts() -> Facts {
    Facts {
        platform: Platform::Linux,
        workspace: path("/home/me/p"),
        home: path("/home/me"),
        user: "me".to_owned(),
        variables: BTreeMap::new(),
        path_dirs: Vec::new(),
        installations: BTreeSet::new(),
        programs: BTreeSet::new(),
        git: None,
        remotes: Vec::new(),
        store: path("/home/me/.cache/ringfence/projects/1"),
        state: path("/home/me/.local/state/ringfence"),
    }
}

fn layer(source: Source, text: &str) -> PolicyLayer {
    let file = match source {
        Source::Managed => "/etc/ringfence/policy.toml",
        Source::User => "/home/me/.config/ringfence/policy.toml",
        _ => "/home/me/p/.ringfence/policy.toml",
    };
    parse(&format!("version = 1\n{text}"), &path(file), source).unwrap()
}

pub(crate) fn flags() -> Flags {
    Flags::none(path("/home/me/p"))
}

/// Layers from `managed`, `user` and `project`, each with its text.
pub(crate) fn with(texts: &[(&str, &str)]) -> Vec<PolicyLayer> {
    let source = |word: &str| match word {
        "managed" => Source::Managed,
        "user" => Source::User,
        "project" => Source::Project,
        other => panic!("unknown layer {other}"),
    };
    texts.iter().map(|(word, text)| layer(source(word), text)).collect()
}

pub(crate) fn grants(texts: &[(&str, &str)]) -> Grants {
    resolve(&with(texts), &flags(), &facts()).unwrap()
}

/// Checks `read PATH` or `write PATH` against the verdict.
#[track_caller]
fn check(grants: &Grants, request: &str, expect: Verdict) {
    let (access, target) = request.split_once(' ').unwrap();
    let access = if access == "write" { Access::Write } else { Access::Read };
    let decision = grants.decide(&path(target), access);
    assert_eq!(decision.verdict, expect, "{request}: {:?}", decision.rule);
}

#[track_caller]
pub(crate) fn check_warns(texts: &[(&str, &str)], expect: &str) -> Grants {
    let grants = grants(texts);
    assert!(
        grants.warnings.iter().any(|warning| warning.contains(expect)),
        "{:?}",
        grants.warnings
    );
    grants
}

#[test]
fn default_grants_without_any_policy() {
    let grants = grants(&[]);
    assert_eq!(
        (grants.mode, grants.on_gap, grants.enabled),
        (Mode::WorkspaceWrite, OnGap::Refuse, true)
    );
    assert_eq!(
        (grants.network.mode, grants.observe, grants.ask),
        (NetworkMode::None, Observe::Denials, Asking::Never)
    );
    assert_eq!(grants.warnings, Vec::<String>::new());
    check(&grants, "write /home/me/p/src/x", Verdict::Allowed);
    check(&grants, "write /home/me/p/.claude/x", Verdict::ReadOnly);
    check(&grants, "read /home/me/.ssh", Verdict::Denied);
    check(&grants, "read /home/me/q", Verdict::Absent);
    check(&grants, "write /home/me/.cache/x", Verdict::Allowed);
    check(&grants, "read /home/me/p/.env", Verdict::Denied);
}

#[test]
fn mode_and_tools_limit_write_access() {
    let read_only = grants(&[("user", "mode = \"read-only\"\n[filesystem]\nwrite = [\"~/out\"]")]);
    check(&read_only, "write /home/me/p/x", Verdict::ReadOnly);
    check(&read_only, "read /home/me/p/x", Verdict::Allowed);
    check(&read_only, "write /home/me/out/x", Verdict::ReadOnly);
    check(&read_only, "write /home/me/.cache/x", Verdict::Absent);
    let with_flag = Flags { write: vec!["out".into()], mode: Some(Mode::ReadOnly), ..flags() };
    check(&resolve(&[], &with_flag, &facts()).unwrap(), "write /home/me/p/out/x", Verdict::Allowed);
    for tool in ["Write", "edit", "MultiEdit", "NOTEBOOKEDIT"] {
        let text = format!("[tools]\ndisallowed = [\"{tool}\"]\n[filesystem]\nwrite = [\"gen\"]");
        let no_writers = grants(&[("project", &text)]);
        check(&no_writers, "write /home/me/p/x", Verdict::ReadOnly);
        check(&no_writers, "write /home/me/p/gen/x", Verdict::ReadOnly);
        check(&no_writers, "write /home/me/.cache/x", Verdict::Allowed);
    }
    check(
        &grants(&[("user", "[tools]\ndisallowed = [\"Bash\"]")]),
        "write /home/me/p/x",
        Verdict::Allowed,
    );
}

#[test]
fn entries_have_origins() {
    let grants = grants(&[("user", "[filesystem]\nread = [\n\"~/data\",\n]")]);
    let rule = grants.rules.iter().find(|rule| rule.root == path("/home/me/data")).unwrap();
    assert_eq!(rule.origin.to_string(), "/home/me/.config/ringfence/policy.toml:4 (user policy)");
    assert_eq!(rule.effect, Effect::Read);
    let grants = super::tests::grants(&[(
        "user",
        "[filesystem]\ndeny = [{ path = \"/x\", reason = \"broken disk\" }]",
    )]);
    let lines = grants.decide(&path("/x/y"), Access::Read).explain();
    assert!(
        lines.iter().any(|line| line.label == "why" && line.text == "broken disk"),
        "{lines:?}"
    );
    assert_eq!(
        lines.last().unwrap().text,
        "change `/x` in /home/me/.config/ringfence/policy.toml:3"
    );
}

#[test]
fn relative_entries_resolve_to_project_or_cwd() {
    let mut facts = facts();
    facts.workspace = path("/home/me/p/sub");
    let layers = with(&[
        ("project", "[filesystem]\ndeny = [\"sub/x\", \"./y\"]"),
        ("user", "[filesystem]\ndeny = [\"./z\"]"),
    ]);
    let flags = Flags { cwd: path("/home/me/p/sub/deep"), deny: vec!["w/".into()], ..flags() };
    let grants = resolve(&layers, &flags, &facts).unwrap();
    for target in ["/home/me/p/sub/x", "/home/me/p/y", "/home/me/p/sub/z", "/home/me/p/sub/deep/w"]
    {
        check(&grants, &format!("read {target}"), Verdict::Denied);
    }
}

#[test]
fn managed_settings_are_ceilings() {
    let managed = (
        "managed",
        "mode = \"workspace-write\"\non-gap = \"refuse\"\n[sandbox]\nenabled = true\n[network]\nmode = \"allow-list\"",
    );
    let wide = (
        "user",
        "mode = \"full-access\"\non-gap = \"run\"\n[sandbox]\nenabled = false\n[network]\nmode = \"full\"",
    );
    let grants = check_warns(
        &[managed, wide],
        "`mode = full-access` is ignored: the managed policy allows `workspace-write` at most",
    );
    assert_eq!(
        (grants.mode, grants.on_gap, grants.enabled),
        (Mode::WorkspaceWrite, OnGap::Refuse, true)
    );
    assert_eq!((grants.network.mode, grants.warnings.len()), (NetworkMode::AllowList, 4));
    let narrow = super::tests::grants(&[
        managed,
        ("user", "mode = \"read-only\"\n[network]\nmode = \"none\""),
    ]);
    assert_eq!(
        (narrow.mode, narrow.network.mode, narrow.warnings.len()),
        (Mode::ReadOnly, NetworkMode::None, 0)
    );
    let error = |flags: Flags| resolve(&with(&[managed]), &flags, &facts()).unwrap_err().code();
    assert_eq!(error(Flags { mode: Some(Mode::FullAccess), ..flags() }), "policy-beyond-ceiling");
    assert_eq!(error(Flags { net: Some(NetworkMode::Full), ..flags() }), "policy-beyond-ceiling");
    assert_eq!(error(Flags { on_gap: Some(OnGap::Run), ..flags() }), "policy-beyond-ceiling");
    let seen = [("managed", "observe = \"all\""), ("user", "observe = \"denials\"")];
    assert_eq!(check_warns(&seen, "`observe = denials` is ignored").observe, Observe::All);
    let unseen = Flags { observe: Some(Observe::Denials), ..flags() };
    assert_eq!(
        resolve(&with(&seen[..1]), &unseen, &facts()).unwrap_err().code(),
        "policy-beyond-ceiling"
    );
    let unasked = [("managed", "ask = \"never\""), ("user", "ask = \"terminal\"")];
    assert_eq!(check_warns(&unasked, "`ask = terminal` is ignored").ask, Asking::Never);
    let asking = Flags { ask: Some(Asking::Terminal), ..flags() };
    assert_eq!(
        resolve(&with(&unasked[..1]), &asking, &facts()).unwrap_err().code(),
        "policy-beyond-ceiling"
    );
    let locked_down = with(&[("managed", "mode = \"read-only\"")]);
    let write = Flags { write: vec!["x".into()], ..flags() };
    assert_eq!(
        resolve(&locked_down, &write, &facts()).unwrap_err().code(),
        "policy-beyond-ceiling"
    );
}

#[test]
fn project_policy_cannot_widen_settings() {
    for setting in [
        "mode = \"full-access\"",
        "[sandbox]\nenabled = false",
        "[sandbox]\nfail-if-unavailable = false",
        "[sandbox]\nallow-unsandboxed-commands = true",
        "[sandbox]\nauto-allow-bash-if-sandboxed = true",
        "[sandbox]\nenabled-platforms = []",
        "on-gap = \"run\"",
        "ask = \"terminal\"",
        "[network]\nmode = \"full\"",
        "[environment]\nallow = [\"GITHUB_TOKEN\"]",
        "[commands]\nexcluded = [\"docker*\"]",
        "[filesystem]\nread = [\"~/other\"]",
        "[filesystem]\nwrite = [\"/home/me/other\"]",
        "[filesystem]\nread = [\"../q\"]",
        "[network]\nunix-sockets = [\"/run/docker.sock\"]",
        "[audit]\non-error = \"run\"",
        "[audit]\nrotate-size = \"1MiB\"",
    ] {
        let grants = check_warns(&[("project", setting)], "~/.config/ringfence/policy.toml");
        let plain = super::tests::grants(&[]);
        assert_eq!(Grants { warnings: Vec::new(), ..grants }, plain, "{setting}");
    }
    let narrowed = check_warns(
        &[("user", "mode = \"read-only\""), ("project", "mode = \"workspace-write\"")],
        "cannot widen",
    );
    assert_eq!(narrowed.mode, Mode::ReadOnly);
    let excluded = grants(&[
        ("user", "[commands]\nexcluded = [\"docker*\"]"),
        ("project", "[commands]\nexcluded = [\"docker*\"]"),
    ]);
    assert_eq!((excluded.commands.excluded.len(), excluded.warnings.len()), (1, 0));
    check_warns(&[("project", "[filesystem]\nexcept = [\".env\"]")], "has no effect");
    assert_eq!(grants(&[("project", "mode = \"read-only\"")]).mode, Mode::ReadOnly);
    let seen = check_warns(
        &[("user", "observe = \"all\""), ("project", "observe = \"denials\"")],
        "cannot widen",
    );
    assert_eq!(seen.observe, Observe::All);
    assert_eq!(
        grants(&[("user", "ask = \"terminal\""), ("project", "ask = \"never\"")]).ask,
        Asking::Never
    );
}

#[test]
fn user_may_widen_and_flags_override_files() {
    let user = grants(&[(
        "user",
        "mode = \"full-access\"\non-gap = \"run\"\n[environment]\nallow = [\"GITHUB_TOKEN\", \"MY_*\"]",
    )]);
    assert_eq!((user.mode, user.on_gap), (Mode::FullAccess, OnGap::Run));
    assert_eq!(user.environment.named, ["GITHUB_TOKEN"]);
    assert!(
        user.environment.decide("MY_X").passes() && !user.environment.decide("MY_KEY").passes()
    );
    let layers = with(&[("user", "mode = \"read-only\"")]);
    let flags = Flags {
        mode: Some(Mode::WorkspaceWrite),
        env: vec![("A_KEY".into(), None), ("B".into(), Some("1".into()))],
        ..flags()
    };
    let grants = resolve(&layers, &flags, &facts()).unwrap();
    assert_eq!(grants.mode, Mode::WorkspaceWrite);
    assert!(grants.environment.decide("A_KEY").passes() && grants.environment.decide("B").passes());
    check_warns(
        &[
            ("managed", "[environment]\ndeny = [\"CORP_*\"]"),
            ("user", "[environment]\nallow = [\"CORP_KEY\"]"),
        ],
        "the managed policy denies it",
    );
}

#[test]
fn rule_below_built_in_deny_gives_a_warning() {
    let grants = check_warns(
        &[("managed", "[filesystem]\nread = [\"~/.ssh/config\"]")],
        "has no effect: `~/.ssh` is denied",
    );
    check(&grants, "read /home/me/.ssh/config", Verdict::Denied);
    check_warns(
        &[("project", "[filesystem]\nread = [\"./.env\"]")],
        "`./.env` has no effect: `**/.env` denies it",
    );
    let user = super::tests::grants(&[("user", "[filesystem]\nread = [\"~/.ssh/config\"]")]);
    assert!(user.warnings.is_empty());
    check(&user, "read /home/me/.ssh/config", Verdict::Allowed);
}

#[test]
fn home_directory_as_workspace_needs_explicit_grant() {
    for workspace in ["/", "/home", "/home/me"] {
        let facts = Facts { workspace: path(workspace), ..facts() };
        let error = resolve(&[], &flags(), &facts).unwrap_err();
        assert_eq!(error.code(), "policy-workspace-too-broad", "{workspace}");
        assert!(error.hint().unwrap().contains("-C"));
        let named = Flags { write: vec![workspace.into()], ..flags() };
        // The sandbox has its own root directory.
        assert_eq!(resolve(&[], &named, &facts).is_ok(), workspace != "/");
        let full = Flags { mode: Some(Mode::FullAccess), ..flags() };
        assert!(resolve(&[], &full, &facts).is_ok());
    }
    let project = with(&[("project", "[filesystem]\nwrite = [\"/home/me\"]")]);
    let facts = Facts { workspace: path("/home/me"), ..facts() };
    assert!(resolve(&project, &flags(), &facts).is_err());
}

#[test]
fn worktree_git_directory_is_open_and_its_hooks_protected() {
    let git = GitLayout { git_dir: path("/repo/.git/worktrees/w"), common_dir: path("/repo/.git") };
    let grants = resolve(&[], &flags(), &Facts { git: Some(git), ..facts() }).unwrap();
    for open in
        ["objects/aa", "refs/heads/my-secret", "worktrees/w/index", "worktrees/new/commondir"]
    {
        check(&grants, &format!("write /repo/.git/{open}"), Verdict::Allowed);
    }
    for shut in [
        "hooks/x",
        "config",
        "info/attributes",
        "commondir",
        "worktrees/w/commondir",
        "worktrees/w/gitdir",
        "modules/a/config",
    ] {
        check(&grants, &format!("write /repo/.git/{shut}"), Verdict::ReadOnly);
    }
    check(&grants, "write /home/me/p/.git", Verdict::ReadOnly);
    check(&grants, "read /repo/src", Verdict::Absent);
    let bare = GitLayout { git_dir: path("/r.git/worktrees/w"), common_dir: path("/r.git") };
    let grants = resolve(&[], &flags(), &Facts { git: Some(bare), ..facts() }).unwrap();
    check(&grants, "write /r.git/modules/a/hooks/x", Verdict::ReadOnly);
    check(&grants, "write /r.git/refs/heads/secret", Verdict::Allowed);
}

#[test]
fn limits_and_binaries_only_narrow() {
    let grants = grants(&[
        (
            "managed",
            "[limits]\nwall = \"10m\"\nprocesses = 50\n[commands]\nallow-binaries = [\"ls\", \"cat\"]",
        ),
        (
            "user",
            "[limits]\nwall = \"1h\"\nmemory = \"1GiB\"\n[commands]\nallow-binaries = [\"cat\", \"rm\"]",
        ),
        (
            "project",
            "[limits]\nmemory = \"4GiB\"\nprocesses = 5\n[commands]\nallow-binaries = [\"rm\"]",
        ),
    ]);
    assert_eq!(grants.limits.wall_ms, Some(600_000));
    assert_eq!((grants.limits.memory, grants.limits.processes), (Some(1 << 30), Some(5)));
    let binaries: Vec<_> =
        grants.commands.allow_binaries.iter().map(|origin| origin.text.as_str()).collect();
    assert_eq!(binaries, ["cat"]);
    assert!(grants.warnings[0].contains("no entry in common"));
    let flagged = Flags {
        limits: crate::Limits { wall_ms: Some(5000), ..crate::Limits::default() },
        ..flags()
    };
    assert_eq!(resolve(&[], &flagged, &facts()).unwrap().limits.wall_ms, Some(5000));
}

#[test]
fn session_grant_opens_path_with_built_in_protects() {
    let mut grants = grants(&[]);
    check(&grants, "write /data/x", Verdict::Absent);
    grants.grant_session(path("/data"), Effect::Write);
    check(&grants, "write /data/x", Verdict::Allowed);
    check(&grants, "write /data/.bashrc", Verdict::ReadOnly);
    check(&grants, "read /data/.env", Verdict::Denied);
    grants.grant_session(path("/data/.env"), Effect::Read);
    check(&grants, "read /data/.env", Verdict::Allowed);
    let before = grants.rules.len();
    grants.grant_session(path("/data"), Effect::Write);
    assert_eq!(grants.rules.len(), before + 1);
}

#[test]
fn env_flag_does_not_override_managed_deny() {
    let layers = with(&[("managed", "[environment]\ndeny = [\"CORP_*\"]")]);
    let flags = Flags {
        env: vec![("CORP_KEY".into(), None), ("MY_KEY".into(), None)],
        ..Flags::none(path("/home/me/p"))
    };
    let grants = resolve(&layers, &flags, &facts()).unwrap();
    assert!(
        !grants.environment.decide("CORP_KEY").passes()
            && grants.environment.decide("MY_KEY").passes()
    );
    assert!(
        grants.warnings.iter().any(|warning| warning.contains("--env CORP_KEY is ignored")),
        "{:?}",
        grants.warnings
    );
}

#[test]
fn strictest_layer_decides_audit_settings() {
    let plain = grants(&[]).audit;
    assert_eq!(
        (plain.fsync, plain.on_error, plain.rotate_bytes),
        (Fsync::Never, OnError::Refuse, 64 << 20)
    );
    assert_eq!(plain.directory, path("/home/me/.local/state/ringfence/audit"));
    let user =
        grants(&[("user", "[audit]\nfsync = \"end\"\non-error = \"run\"\nrotate-size = \"1MiB\"")])
            .audit;
    assert_eq!((user.fsync, user.on_error, user.rotate_bytes), (Fsync::End, OnError::Run, 1 << 20));
    assert_eq!(grants(&[("project", "[audit]\nfsync = \"always\"")]).audit.fsync, Fsync::Always);
    let managed =
        ("managed", "[audit]\nfsync = \"end\"\non-error = \"refuse\"\nrotate-size = \"1MiB\"");
    let loose = ("user", "[audit]\nfsync = \"never\"\non-error = \"run\"\nrotate-size = \"2MiB\"");
    let grants = check_warns(
        &[managed, loose],
        "`audit.fsync = never` is ignored: the managed policy allows `end` at most",
    );
    assert_eq!(
        (grants.audit.fsync, grants.audit.on_error, grants.audit.rotate_bytes),
        (Fsync::End, OnError::Refuse, 1 << 20)
    );
    assert_eq!(grants.warnings.len(), 3);
    assert_eq!(
        super::tests::grants(&[managed, ("user", "[audit]\nfsync = \"always\"")]).audit.fsync,
        Fsync::Always
    );
}

#[test]
fn state_directory_is_denied_in_any_opened_tree() {
    let state = "/home/me/.local/state/ringfence";
    check(&grants(&[]), &format!("read {state}/audit/head"), Verdict::Absent);
    for opened in ["~/.local", "~/.local/state/ringfence", "~/.local/state/ringfence/audit/head"] {
        let open = Flags { write: vec![opened.into()], ..flags() };
        let grants = resolve(&[], &open, &facts()).unwrap();
        check(&grants, &format!("read {state}/audit/head"), Verdict::Denied);
        check(&grants, &format!("write {state}/other"), Verdict::Denied);
    }
    let mut later = grants(&[]);
    later.grant_session(path("/home/me/.local/state"), Effect::Write);
    check(&later, &format!("write {state}/audit/head"), Verdict::Denied);
    check(&later, "write /home/me/.local/state/other", Verdict::Allowed);
    let lines = later.decide(&path(state), Access::Read).explain();
    assert_eq!(lines.last().unwrap().text, "no rule can open it: it belongs to ringfence");
}

/// Promise: no-unconfined-run
#[test]
fn project_policy_cannot_disable_sandbox() {
    let settings = |layers: &[(&str, &str)], flags: &Flags| {
        let grants = resolve(&with(layers), flags, &facts()).unwrap();
        let crate::grants::SandboxRules {
            fail_if_unavailable, allow_unsandboxed, auto_allow, ..
        } = grants.sandbox;
        (grants.is_confined(), fail_if_unavailable, allow_unsandboxed, auto_allow)
    };
    let plain = (true, true, false, true);
    assert_eq!(settings(&[], &flags()), plain);
    let all = "[sandbox]\nenabled = false\nfail-if-unavailable = false\nallow-unsandboxed-commands = true\nauto-allow-bash-if-sandboxed = false";
    assert_eq!(settings(&[("user", all)], &flags()), (false, false, true, false));
    assert_eq!(settings(&[("project", all)], &flags()), (true, true, false, false));
    let managed =
        "[sandbox]\nenabled = true\nfail-if-unavailable = true\nallow-unsandboxed-commands = false";
    assert_eq!(
        settings(&[("managed", managed), ("user", all)], &flags()),
        (true, true, false, false)
    );
    // A flag always enables the sandbox; disabling it needs permission.
    assert!(settings(&[("user", all)], &Flags { enabled: Some(true), ..flags() }).0);
    assert!(!settings(&[], &Flags { enabled: Some(false), ..flags() }).0);
    let against = resolve(
        &with(&[("managed", managed)]),
        &Flags { enabled: Some(false), ..flags() },
        &facts(),
    );
    assert_eq!(against.unwrap_err().code(), "policy-beyond-ceiling");
}

#[test]
fn sandbox_is_enabled_on_listed_platforms_only() {
    let is_there = |layers: &[(&str, &str)], flags: &Flags| {
        resolve(&with(layers), flags, &facts()).unwrap().enabled
    };
    let (here, elsewhere) = (
        "[sandbox]\nenabled-platforms = [\"macos\", \"linux\"]",
        "[sandbox]\nenabled-platforms = [\"macos\"]",
    );
    assert!(is_there(&[("user", here)], &flags()));
    assert!(!is_there(&[("user", elsewhere)], &flags()));
    assert!(is_there(&[("user", elsewhere)], &Flags { enabled: Some(true), ..flags() }));
    assert!(is_there(&[("managed", here), ("user", elsewhere)], &flags()));
    assert!(is_there(&[("project", elsewhere)], &flags()));
    let grants = resolve(&with(&[("user", elsewhere)]), &flags(), &facts()).unwrap();
    assert!(
        grants.sandbox.off.is_some_and(|off| off.text == "enabled-platforms" && off.line.is_some())
    );
}

#[test]
fn project_policy_only_narrows_tracked_mode() {
    let mode = |layers: &[(&str, &str)]| grants(layers).tracked.mode;
    let (open, deny) = ("[filesystem]\ntracked = \"open\"", "[filesystem]\ntracked = \"deny\"");
    assert_eq!(mode(&[]), TrackedMode::Open);
    assert_eq!(mode(&[("project", deny)]), TrackedMode::Deny);
    assert_eq!(mode(&[("user", deny), ("project", open)]), TrackedMode::Deny);
    assert_eq!(mode(&[("managed", deny), ("user", open)]), TrackedMode::Deny);
    assert_eq!(mode(&[("user", open), ("project", deny)]), TrackedMode::Deny);
}
