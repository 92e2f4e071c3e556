use super::*;
use crate::testing::{grants, grants_with_builtins, path};

/// Checks `access path` against `yes`, `absent`, `denied` or `read-only`.
#[track_caller]
fn check_in(grants: &Grants, request: &str, expect: &str) {
    let (access, target) = request.split_once(' ').unwrap();
    let access = match access {
        "read" => Access::Read,
        "write" => Access::Write,
        "exec" => Access::Execute,
        other => panic!("unknown access {other}"),
    };
    let mut grants = grants.clone();
    for _ in 0..2 {
        let decision = grants.decide(&path(target), access);
        let answer = match decision.verdict {
            Verdict::Allowed => "yes",
            Verdict::Absent => "absent",
            Verdict::Denied => "denied",
            Verdict::ReadOnly => "read-only",
        };
        assert_eq!(answer, expect, "{request}: {:?}", decision.rule);
        // The merge order must not change the result.
        grants.rules.reverse();
        grants.patterns.reverse();
        grants.exceptions.reverse();
    }
}

#[track_caller]
fn check(rules: &str, request: &str, expect: &str) {
    check_in(&grants(rules), request, expect);
}

#[track_caller]
fn check_built_in(rules: &str, request: &str, expect: &str) {
    check_in(&grants_with_builtins(rules), request, expect);
}

#[test]
fn the_deepest_rule_wins() {
    check("", "read /a", "absent");
    check("user read /a", "read /a", "yes");
    check("user read /a", "exec /a/b", "yes");
    check("user read /a", "write /a/b", "read-only");
    check("user read /a", "read /ab", "absent");
    check("user write /a", "write /a/b/c", "yes");
    check("user write /a\nuser read /a/b", "write /a/b/c", "read-only");
    check("user read /a\nuser write /a/b", "write /a/b/c", "yes");
    check("user write /a\nuser deny /a/b", "read /a/b", "denied");
    check("user write /a\nuser deny /a/b", "write /a/c", "yes");
    check("user deny /a\nuser read /a/b", "read /a/b/c", "yes");
    check("user deny /a\nuser read /a/b", "read /a/c", "denied");
    check("user read /", "read /anything", "yes");
    check("user private /a", "write /a/b", "yes");
}

#[test]
fn on_one_root_the_stricter_wins() {
    check("user write /a\nuser deny /a", "read /a", "denied");
    check("user write /a\nuser protect /a", "write /a/x", "read-only");
    check("user write /a\nuser protect /a", "read /a/x", "yes");
    check("user protect /a\nuser deny /a\nuser write /a", "read /a", "denied");
    check("user read /a\nproject write /a", "write /a", "read-only");
    check("project read /a\nproject write /a", "write /a", "yes");
    check("mode write /a\nuser read /a", "write /a", "yes");
    check("preset private /a\nuser write /a", "write /a", "yes");
}

#[test]
fn protect_opens_nothing() {
    check("user protect /a", "read /a", "absent");
    check("user protect /a", "write /a", "absent");
    check("user write /a\nuser protect /a/b", "write /a/b/c", "read-only");
    check("user write /a\nuser protect /a/b\nuser write /a/b/c", "write /a/b/c/d", "yes");
    check("user write /a\nuser protect /a/b\nuser read /a/b/c", "write /a/b/c/d", "read-only");
}

#[test]
fn patterns_beat_directories() {
    check("user write /a\nuser deny .env", "read /a/x/.env", "denied");
    check("user write /a\nuser deny .env", "read /b/.env", "absent");
    check("user write /a\nuser deny .env\nuser except .env", "read /a/.env", "yes");
    check("user write /a\nuser deny sec*\nuser except *.md", "read /a/sec/x.md", "denied");
    check("user write /a\nuser deny sec*\nuser except sec.md", "read /a/sec.md", "yes");
    check("user write /a\nuser deny .env\nuser except keep", "read /a/keep/x/.env", "yes");
    check("user write /a\nuser protect *.lock", "write /a/x.lock", "read-only");
    check("user write /a\nuser protect *.lock", "read /a/x.lock", "yes");
    check("user write /a\nuser protect *.lock\nuser deny x.*", "read /a/x.lock", "denied");
    check("preset read /a\nuser deny .env", "read /a/.env", "yes");
    check("preset read /a\nproject read /a/b\nuser deny .env", "read /a/b/.env", "denied");
    check("user write /a\nuser deny /a/x\nuser except x", "read /a/x", "denied");
}

#[test]
fn user_opens_denied_path_by_exact_name() {
    let base = "mode write /p\nbuiltin deny .env\nbuiltin deny *secret*\n";
    check(base, "read /p/.env", "denied");
    check(&format!("{base}flag read /p/.env"), "read /p/.env", "yes");
    check(&format!("{base}flag read /p/.env"), "write /p/.env", "read-only");
    check(&format!("{base}flag read /p/.env"), "read /p/a/.env", "denied");
    check(&format!("{base}project read /p/.env"), "read /p/.env", "denied");
    check(&format!("{base}managed read /p/.env"), "read /p/.env", "denied");
    check(&format!("{base}user read /p/secrets"), "read /p/secrets/a", "yes");
    check(&format!("{base}user read /p/secrets"), "read /p/secrets/.env", "denied");
    check(&format!("{base}user read /p/secrets/a"), "read /p/secrets/a", "yes");
    check(&format!("{base}user read /p/secrets/a"), "read /p/secrets/b", "denied");
    check(&format!("{base}session read /p"), "read /p/.env", "denied");
    check("mode write /my-secret-app\nbuiltin deny *secret*", "write /my-secret-app/a", "yes");
    check(
        "mode write /my-secret-app\nbuiltin deny *secret*",
        "write /my-secret-app/secret",
        "denied",
    );
}

#[test]
fn project_rule_does_not_open_others_denials() {
    check("mode write /p\nbuiltin deny .env\nproject except .env", "read /p/.env", "denied");
    check("mode write /p\nuser deny .env\nproject except .env", "read /p/.env", "denied");
    check("mode write /p\nproject deny .env\nproject except .env", "read /p/.env", "yes");
    check("mode write /p\nuser deny /p/x\nproject read /p/x/y", "read /p/x/y", "denied");
    check("mode write /p\nmanaged deny /p/x\nproject read /p/x/y", "read /p/x/y", "denied");
    check("mode write /p\nproject deny /p/x\nproject read /p/x/y", "read /p/x/y", "yes");
    check(
        "mode write /p\nbuiltin protect /p/.claude\nproject write /p/.claude/x",
        "write /p/.claude/x",
        "read-only",
    );
    check("mode write /p\nuser protect /p/x\nproject write /p/x/y", "write /p/x/y", "read-only");
    check("user deny /h/.cargo\npreset read /h/.cargo/bin", "read /h/.cargo/bin/x", "denied");
    check("mode write /p\nuser deny *.pub\nbuiltin except *.pub", "read /p/a.pub", "denied");
}

#[test]
fn only_user_rules_override_built_in_denies() {
    let base = "builtin deny /h/.ssh\nuser read /h\n";
    check(base, "read /h/.ssh/id", "denied");
    check(base, "read /h/x", "yes");
    check(&format!("{base}flag read /h/.ssh"), "read /h/.ssh/id", "yes");
    check(&format!("{base}session read /h/.ssh/id"), "read /h/.ssh/id", "yes");
    check(&format!("{base}session read /h/.ssh/id"), "read /h/.ssh/other", "denied");
    check(&format!("{base}flag read /h/.ssh\nuser deny /h/.ssh"), "read /h/.ssh/id", "denied");
    for source in ["project", "managed", "preset", "mode", "builtin"] {
        check(&format!("{base}{source} write /h/.ssh"), "read /h/.ssh/id", "denied");
        check(&format!("{base}{source} write /h/.ssh/id"), "read /h/.ssh/id", "denied");
    }
    check(
        "mode write /p\nbuiltin protect /p/.vscode\nflag write /p/.vscode",
        "write /p/.vscode/x",
        "yes",
    );
    check(
        "user write /p\nbuiltin protect /p/.claude\nmode write /p/.claude/w",
        "write /p/.claude/w/x",
        "yes",
    );
}

#[test]
fn locked_deny_is_never_overridden() {
    check("managed locked-deny /a\nflag read /a", "read /a", "denied");
    check("managed locked-deny /a\nsession write /a/b", "read /a/b", "denied");
    check("user locked-deny /a\nflag read /a/b", "read /a/b", "yes");
    check(
        "flag write /a\nmanaged locked-protect /a/b\nflag write /a/b/c",
        "write /a/b/c",
        "read-only",
    );
    check("flag write /a\nmanaged locked-protect /a/b\nflag write /a/b/c", "read /a/b/c", "yes");
    check(
        "flag write /a\nmanaged locked-deny .env\nuser except .env\nflag read /a/.env",
        "read /a/.env",
        "denied",
    );
    check("flag write /a\nmanaged deny .env\nuser except .env", "read /a/.env", "yes");
}

#[test]
fn built_in_rules_give_documented_verdicts() {
    for denied in [
        "/p/.env",
        "/p/a/.ENV.local",
        "/p/.envrc",
        "/p/Server.PEM",
        "/p/id.key",
        "/p/aws-credentials.txt",
        "/p/secrets.json",
        "/p/secret/anything.rs",
        "/p/k8s/my-secret.yaml",
        "/p/.env.example.local",
        "/home/me/.ssh/config",
        "/home/me/.npmrc",
        "/etc/shadow",
        "/p/secret.json/x.rs",
        "/etc/ssl/private/x",
    ] {
        check_built_in("", &format!("read {denied}"), "denied");
    }
    for open in [
        "/p/.env.example",
        "/p/.env.local.example",
        "/p/src/secrets.rs",
        "/p/credentials_test.py",
        "/p/secret.d.ts",
        "/p/cacert.pem",
        "/p/key.pub",
        "/p/node_modules/x/secret.json",
        "/p/.venv/lib/cacert.pem",
        "/p/.git/refs/heads/my-secret",
        "/p/target/debug/secrets-1234",
        "/usr/share/secret.txt",
        "/etc/ssl/certs/a.pem",
        "/p/environment.ts",
    ] {
        check_built_in("", &format!("read {open}"), "yes");
    }
    for absent in ["/etc/passwd", "/etc/hosts", "/home/me/x", "/opt/x", "/etc/npmrc", "/q"] {
        check_built_in("", &format!("read {absent}"), "absent");
    }
}

#[test]
fn a_project_in_a_directory_called_vendor_is_not_vendored() {
    for workspace in ["/vendor/app", "/x/node_modules/app", "/x/.git/y", "/target"] {
        let mut grants = grants_with_builtins(&format!("mode write {workspace}"));
        grants.workspace = path(workspace);
        check_in(&grants, &format!("read {workspace}/.env"), "denied");
        check_in(&grants, &format!("read {workspace}/vendor/.env"), "yes");
    }
    check_built_in("user read /vendor", "read /vendor/.env", "denied");
    check_built_in("user read /vendor", "read /vendor/x/vendor/.env", "yes");
    check_built_in("user except **/vendor\nuser read /vendor/x", "read /vendor/x/.env", "yes");
}

#[test]
fn exception_for_a_kind_of_file_opens_no_directory_of_that_name() {
    for denied in [
        "secrets.d/.env",
        "secrets.d/db",
        "credentials.d/x/y",
        "ca-bundle/a.key",
        "site.pub/.env",
        ".env.sample/.env",
        ".env~",
    ] {
        check_built_in("", &format!("read /p/conf/{denied}"), "denied");
    }
    for open in [
        "secrets.d",
        "secrets.rs",
        "ca-bundle/x.crt",
        "id.pub",
        "site.pub/x",
        "node_modules/x/.env",
        "node_modules/x.pub/.env",
    ] {
        check_built_in("", &format!("read /p/conf/{open}"), "yes");
    }
    check_built_in("user except **/secrets.d", "read /p/conf/secrets.d/db", "yes");
}

#[test]
fn git_directory_is_writable_except_hooks_and_config() {
    for writable in [
        "/p/.git/index",
        "/p/.git/objects/aa/bb",
        "/p/.git/refs/heads/hooks",
        "/p/.git/worktrees/w/commondir",
        "/p/.git/worktrees/w/gitdir",
        "/p/sub/.vscode/x",
        "/p/.github/workflows/x",
    ] {
        check_built_in("", &format!("write {writable}"), "yes");
    }
    for protected in [
        "/p/.git/hooks/pre-commit",
        "/p/.git/config",
        "/p/deep/er/.git/config",
        "/p/.git/modules/a/b/hooks/x",
        "/p/.git/commondir",
        "/p/.git/modules/a/info/attributes",
        "/p/.git/info/attributes",
        "/p/.git/worktrees/w/config.worktree",
        "/p/.vscode/tasks.json",
        "/p/.bashrc",
        "/p/.mcp.json",
    ] {
        check_built_in("", &format!("write {protected}"), "read-only");
        check_built_in("", &format!("read {protected}"), "yes");
    }
    check_built_in("flag write /p/.git/hooks", "write /p/.git/hooks/x", "yes");
    check_built_in("", "write /usr/bin/x", "read-only");
}

#[test]
fn full_access_and_disabled_sandbox_allow_everything() {
    let mut grants = grants_with_builtins("");
    grants.mode = Mode::FullAccess;
    check_in(&grants, "read /home/me/.ssh/id", "yes");
    grants.mode = Mode::ReadOnly;
    check_in(&grants, "read /home/me/.ssh/id", "denied");
    grants.enabled = false;
    check_in(&grants, "write /p/.env", "yes");
    assert!(grants.pattern_for(&path("/p/.env")).is_none());
}

#[test]
fn pattern_for_returns_matching_pattern() {
    let grants = grants_with_builtins("user except keep.pem");
    let text = |target: &str| {
        grants.pattern_for(&path(target)).map(|pattern| pattern.glob.text().to_owned())
    };
    assert_eq!(text("/p/a.pem").as_deref(), Some("**/*.pem"));
    assert_eq!(text("/p/.git/hooks/x").as_deref(), Some("**/.git/hooks"));
    assert_eq!(text("/p/keep.pem"), None);
    assert_eq!(text("/usr/a.pem"), None);
    assert_eq!(text("/q/a.pem"), None);
}

#[track_caller]
fn check_explained(rules: &str, target: &str, access: Access, expect: &[&str]) {
    let lines = grants_with_builtins(rules).decide(&path(target), access).explain();
    let lines: Vec<String> =
        lines.iter().map(|line| format!("{}: {}", line.label, line.text)).collect();
    assert_eq!(lines, expect);
}

#[test]
fn explanation_names_a_way_to_change_decision() {
    check_explained(
        "",
        "/q/x",
        Access::Read,
        &[
            "verdict: reading /q/x fails: no rule opens the path, so it looks absent",
            "change: ringfence run --read /q/x, or for good: ringfence allow read /q/x",
        ],
    );
    check_explained(
        "",
        "/p/.env",
        Access::Read,
        &[
            "verdict: reading /p/.env is denied",
            "rule: deny **/.env",
            "from: built in",
            "why: tokens by convention",
            "change: ringfence run --read /p/.env, or for good: ringfence allow read /p/.env",
        ],
    );
    check_explained(
        "",
        "/usr/x",
        Access::Write,
        &[
            "verdict: writing /usr/x is denied: it is read-only",
            "rule: read /usr",
            "from: built in",
            "change: ringfence run --write /usr/x",
        ],
    );
    check_explained(
        "managed locked-deny /p/x",
        "/p/x",
        Access::Execute,
        &[
            "verdict: running /p/x is denied",
            "rule: deny /p/x",
            "from: managed policy",
            "change: the rule is locked: ask the administrator to change managed policy",
        ],
    );
    check_explained(
        "",
        "/p/x",
        Access::Write,
        &["verdict: writing /p/x is allowed", "rule: write /p", "from: the mode"],
    );
}

#[test]
fn built_in_rules_ignore_case() {
    check_built_in("", "write /p/.VSCODE/tasks.json", "read-only");
    check_built_in("", "write /p/.Mcp.json", "read-only");
    check_built_in("", "write /p/.GIT/config", "read-only");
    check_built_in("", "read /home/me/.SSH/id", "denied");
    check_built_in("flag read /home/me/.SSH", "read /home/me/.SSH/id", "yes");
    // A protect rule of the user is case-sensitive.
    check("user write /a\nuser protect /a/README", "write /a/readme", "yes");
    check("user read /a", "read /A", "absent");
}
