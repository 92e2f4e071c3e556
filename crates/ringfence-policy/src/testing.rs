//! Helpers for tests: `grants("user read /a")`.

use crate::builtin;
use crate::glob::{Glob, GlobCase};
use crate::grants::*;
use crate::path::AbsPath;
use crate::tools::ToolRules;

pub(crate) fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

/// One rule per line: `SOURCE [locked-]EFFECT TEXT`. A text without a leading `/` is a pattern.
pub(crate) fn grants(lines: &str) -> Grants {
    let mut grants = empty();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.splitn(3, ' ');
        let (source, verb, text) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        add(&mut grants, source, verb, text);
    }
    grants
}

/// Like [`grants`], on top of the built-in rules for `/home/me` and a writable `/p`.
pub(crate) fn grants_with_builtins(lines: &str) -> Grants {
    let mut all = grants("mode write /p");
    let home = path("/home/me");
    all.rules.extend(builtin::rules(&home).chain(builtin::protect_rules(&path("/p"))));
    all.patterns.extend(builtin::patterns());
    all.exceptions.extend(builtin::exceptions());
    let more = grants(lines);
    all.rules.extend(more.rules);
    all.patterns.extend(more.patterns);
    all.exceptions.extend(more.exceptions);
    all
}

fn empty() -> Grants {
    Grants {
        disguises: crate::disguise::Disguises::default(),
        mode: Mode::WorkspaceWrite,
        workspace: path("/p"),
        home: path("/home/me"),
        rules: Vec::new(),
        patterns: Vec::new(),
        exceptions: Vec::new(),
        tracked: crate::tracked::TrackedFiles::default(),
        suspects: Vec::new(),
        environment: EnvironmentRules::built_in(),
        network: NetworkRules::default(),
        commands: CommandRules::default(),
        tools: ToolRules::default(),
        limits: Limits::default(),
        on_gap: OnGap::Refuse,
        observe: Observe::Denials,
        ask: Asking::Never,
        audit: AuditRules::default_below(&path("/home/me/.local/state/ringfence")),
        enabled: true,
        sandbox: crate::grants::SandboxRules::default(),
        warnings: Vec::new(),
    }
}

fn add(grants: &mut Grants, source: &str, verb: &str, text: &str) {
    let origin = Origin::new(source_of(source), text);
    let locked = verb.starts_with("locked-");
    let verb = verb.trim_start_matches("locked-");
    if verb == "except" {
        let glob = Glob::new(text, None, GlobCase::Sensitive).unwrap();
        grants.exceptions.push(NameException { glob, origin });
        return;
    }
    if !text.starts_with('/') {
        let glob = Glob::new(text, None, GlobCase::Sensitive).unwrap();
        let effect = if verb == "deny" { NameRuleEffect::Deny } else { NameRuleEffect::Protect };
        grants.patterns.push(NameRule { glob, effect, origin, locked });
        return;
    }
    let effect = match verb {
        "read" => Effect::Read,
        "write" => Effect::Write,
        "deny" => Effect::Deny,
        "protect" => Effect::Protect,
        "private" => Effect::Private { store: path("/store"), host_beneath: false },
        other => panic!("unknown verb {other}"),
    };
    grants.rules.push(Rule { root: path(text), effect, origin, locked });
}

fn source_of(word: &str) -> Source {
    match word {
        "builtin" => Source::BuiltIn,
        "mode" => Source::Mode,
        "preset" => Source::Preset("test".to_owned()),
        "managed" => Source::Managed,
        "user" => Source::User,
        "project" => Source::Project,
        "flag" => Source::Flag,
        "session" => Source::Session,
        other => panic!("unknown source {other}"),
    }
}
