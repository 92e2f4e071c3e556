//! Proposes a policy from the accesses and denials of a run.
//!
//! [`ringfence_policy::propose`] decides the rules. This module reads the host's files, and renders
//! the proposal as a policy file with a reason for every line.

mod comments;
mod host_files;
mod hosts;

use ringfence_api::{Allowance, Denial, Operation, Outcome};
use ringfence_policy::policy::PathEntry;
use ringfence_policy::propose::{
    AccessNeed, DeniedAccess, HostFileKind, HostView, NotProposed, PolicyProposal, ProposedRule,
    propose,
};
use ringfence_policy::render::render_with;
use ringfence_policy::{AbsPath, Effect, NetworkMode, Policy, Rule, Source};

use crate::{EngineError, ResolvedPolicy, RunRequest, read_layers};
use comments::{RuleComments, describe_denial, escape_hidden, times};
use host_files::HostFiles;

/// A policy proposed from a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnedPolicy {
    /// The policy.
    pub policy: Policy,
    /// The policy file's text, with a comment for each line.
    pub text: String,
    /// The denials that it allows.
    pub opened: Vec<LearnedRule>,
    /// The denials that stay.
    pub left: Vec<LearnedRule>,
}

/// One rule of the proposal, or one denial that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedRule {
    /// The path or host, as written in a policy.
    pub what: String,
    /// The reason to allow it, or not.
    pub why: String,
}

/// The first line of every proposed policy.
pub const FIRST_LINE: &str = "# Proposed by `ringfence learn`";

/// Proposes a policy from the `outcome` of a run.
///
/// The policy holds the content of `--policy`, the flags of the run, and the proposed rules. Other
/// policy files apply in addition.
pub fn learn(
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    outcome: &Outcome,
) -> Result<LearnedPolicy, EngineError> {
    let facts = &resolved.surroundings.facts;
    let host = HostFiles::new(&facts.workspace, &facts.home);
    let (files, rest): (Vec<&Denial>, Vec<&Denial>) =
        outcome.denials.iter().partition(|denial| denial.target.starts_with('/'));
    let accesses: Vec<DeniedAccess> =
        files.iter().filter_map(|denial| denied_access(denial, &host)).collect();
    let files: Vec<&Denial> =
        files.into_iter().filter(|denial| AbsPath::new(&denial.target).is_some()).collect();
    let proposal = propose(&resolved.grants, facts, &host, &accesses);
    let mut draft = LearnDraft {
        request,
        resolved,
        outcome,
        comments: RuleComments::default(),
        policy: base(request, resolved)?,
    };
    draft.comment_existing_entries();
    draft.add_flag_grants();
    draft.add_host_flags();
    let mut opened = draft.open(&proposal.openings, &files);
    let (hosts, rest) = draft.add_missing_hosts(rest);
    opened.extend(hosts);
    let mut left = draft.left(&proposal, &files);
    left.extend(rest.iter().map(|denial| draft.non_file_rule(denial)));
    let text = draft.text(&opened, &left);
    Ok(LearnedPolicy { policy: draft.policy, text, opened, left })
}

fn denied_access(denial: &Denial, host: &HostFiles) -> Option<DeniedAccess> {
    let path = AbsPath::new(&denial.target)?;
    let want = match denial.operation {
        Operation::Write => AccessNeed::Write,
        // Reported as created because of `O_CREAT`, but the file exists.
        Operation::Create if host.file_kind(&path) == HostFileKind::File => AccessNeed::Write,
        Operation::Create | Operation::Rename => AccessNeed::Make,
        Operation::Read | Operation::Execute | Operation::Connect | Operation::Call => {
            AccessNeed::Read
        }
        Operation::Command => return None,
    };
    Some(DeniedAccess { path, want })
}

/// The policy named by `--policy`, which the proposal extends.
fn base(request: &RunRequest, resolved: &ResolvedPolicy) -> Result<Policy, EngineError> {
    let Some(file) = &request.files.project else { return Ok(Policy::default()) };
    let found = read_layers(&request.files, &resolved.surroundings.facts)?
        .into_iter()
        .rev()
        .find(|layer| layer.file == *file);
    Ok(found.map(|layer| layer.policy).unwrap_or_default())
}

struct LearnDraft<'a> {
    request: &'a RunRequest,
    resolved: &'a ResolvedPolicy,
    outcome: &'a Outcome,
    comments: RuleComments,
    policy: Policy,
}

impl LearnDraft<'_> {
    fn allowed(&self) -> impl Iterator<Item = &Allowance> {
        self.outcome.observed.iter().flat_map(|observed| &observed.allowed)
    }

    /// Comments the existing entries with their use in this run.
    fn comment_existing_entries(&mut self) {
        for (key, entries) in
            [("read", &self.policy.filesystem.read), ("write", &self.policy.filesystem.write)]
        {
            for (number, entry) in entries.iter().enumerate() {
                let used: Vec<&Allowance> =
                    self.allowed().filter(|allowance| allowance.rule == entry.path()).collect();
                let comment = format!("kept: {}", usage(&used));
                self.comments.set(format!("filesystem.{key}.{number}"), comment);
            }
        }
    }

    /// Adds the grants of flags, so that the file works without them.
    fn add_flag_grants(&mut self) {
        let grants = &self.resolved.grants;
        let is_flag = |rule: &&Rule| {
            rule.origin.source == Source::Flag
                && matches!(rule.effect, Effect::Read | Effect::Write)
        };
        let flags: Vec<Rule> = grants.rules.iter().filter(is_flag).cloned().collect();
        for rule in flags {
            let used: Vec<&Allowance> =
                self.allowed().filter(|allowance| allowance.rule == rule.origin.text).collect();
            let comment = format!("given as `{}`: {}", rule.origin.text, usage(&used));
            let text = comments::short(&rule.root, &grants.workspace, &grants.home);
            self.add(&rule.effect, text, comment);
        }
        if self.request.flags.net == Some(NetworkMode::Full) {
            let hosts = self
                .allowed()
                .filter(|allowance| allowance.operation == Operation::Connect)
                .count();
            if hosts > 0 {
                self.policy.network.mode = Some(NetworkMode::Full);
                self.comments.set(
                    "network.mode".into(),
                    format!("given as `--net full`: {hosts} addresses were contacted"),
                );
            }
        }
    }

    fn add(&mut self, effect: &Effect, text: String, comment: String) {
        let (key, list) = match effect {
            Effect::Write => ("write", &mut self.policy.filesystem.write),
            _ => ("read", &mut self.policy.filesystem.read),
        };
        if list.iter().all(|entry| entry.path() != text) {
            self.comments.set(format!("filesystem.{key}.{}", list.len()), comment);
            list.push(PathEntry::Text(text));
        }
    }

    fn open(&mut self, openings: &[ProposedRule], denials: &[&Denial]) -> Vec<LearnedRule> {
        let rule = |opening: &ProposedRule| {
            let denials: Vec<&Denial> =
                opening.accesses.iter().map(|number| denials[*number]).collect();
            let mut why = comments::describe_denials(&denials, opening.folded);
            if let Some(project) = &opening.project {
                why.push_str(&format!(
                    "; this path is in another project, {}",
                    comments::display_path(project, self.resolved)
                ));
            }
            LearnedRule { what: opening.text.clone(), why }
        };
        let rules: Vec<LearnedRule> = openings.iter().map(rule).collect();
        for (opening, rule) in openings.iter().zip(&rules) {
            self.add(&opening.effect, rule.what.clone(), rule.why.clone());
        }
        rules
    }

    fn left(&self, proposal: &PolicyProposal, denials: &[&Denial]) -> Vec<LearnedRule> {
        let rule = |(number, why): &(usize, NotProposed)| {
            let denial = denials[*number];
            let what = AbsPath::new(&denial.target).map_or_else(
                || denial.target.clone(),
                |path| comments::display_path(&path, self.resolved),
            );
            LearnedRule { what, why: comments::not_proposed_reason(why, denial, self.resolved) }
        };
        proposal.left.iter().map(rule).collect()
    }

    /// The entry for a denial that is not about a file.
    fn non_file_rule(&self, denial: &Denial) -> LearnedRule {
        let why = match denial.operation {
            Operation::Connect => {
                format!(
                    "not proposed: {}; {}",
                    self.host_denial_reason(denial),
                    describe_denial(denial)
                )
            }
            _ => format!(
                "not proposed: no command needs this syscall, and no policy can allow it; {}",
                describe_denial(denial)
            ),
        };
        LearnedRule { what: denial.target.clone(), why }
    }

    fn text(&self, opened: &[LearnedRule], left: &[LearnedRule]) -> String {
        let mut text = comments::header_comment(self.request, self.outcome, opened, left);
        text.push_str(&render_with(&self.policy, &|key| self.comments.get(key)));
        if !left.is_empty() {
            text.push('\n');
        }
        for rule in left {
            text.push_str(&format!(
                "# {}: {}\n",
                escape_hidden(&rule.what),
                escape_hidden(&rule.why)
            ));
        }
        text
    }
}

/// The number of uses of an allowed path, and the programs.
fn usage(used: &[&Allowance]) -> String {
    let count: u64 = used.iter().map(|allowance| allowance.count).sum();
    if count == 0 {
        return "no use seen".into();
    }
    format!(
        "{} by {}",
        times("used", count),
        comments::programs(used.iter().map(|allowance| allowance.program.as_str()))
    )
}
