//! From what a command did and was refused to a policy that gives it what it needs.
//!
//! What to open is decided in [`ringfence_policy::propose`]; here the host is looked at, and
//! the proposal becomes the text of a policy file in which every line says why it is there.

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

use crate::{EngineError, ResolvedPolicy, RunRequest, layers};
use comments::{RuleComments, clean, times, who};
use host_files::HostFiles;

/// A policy that was learnt from a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnedPolicy {
    /// The policy.
    pub policy: Policy,
    /// The same as the text of a file, with a comment for each line.
    pub text: String,
    /// What it opens that was refused.
    pub opened: Vec<LearnedRule>,
    /// What stays refused.
    pub left: Vec<LearnedRule>,
}

/// One thing that was learnt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedRule {
    /// What it is about, as one would write it.
    pub what: String,
    /// Why it is opened, or is not.
    pub why: String,
}

/// The first line of every policy that was learnt.
pub const FIRST_LINE: &str = "# Proposed by `ringfence learn`";

/// What is to be learnt from the `outcome` of a run.
///
/// The policy holds what `--policy` and the flags of the run say, and whatever else would have
/// to be opened. What other files say holds beside it.
pub fn learn(
    asked: &RunRequest,
    resolved: &ResolvedPolicy,
    outcome: &Outcome,
) -> Result<LearnedPolicy, EngineError> {
    let facts = &resolved.surroundings.facts;
    let host = HostFiles::new(&facts.workspace, &facts.home);
    let (files, rest): (Vec<&Denial>, Vec<&Denial>) =
        outcome.denials.iter().partition(|denial| denial.target.starts_with('/'));
    let wishes: Vec<DeniedAccess> = files.iter().filter_map(|denial| wish(denial, &host)).collect();
    let files: Vec<&Denial> =
        files.into_iter().filter(|denial| AbsPath::new(&denial.target).is_some()).collect();
    let proposal = propose(&resolved.grants, facts, &host, &wishes);
    let mut draft = LearnDraft {
        asked,
        resolved,
        outcome,
        comments: RuleComments::default(),
        policy: base(asked, resolved)?,
    };
    draft.keep();
    draft.take_flags();
    draft.take_host_flags();
    let mut opened = draft.open(&proposal.openings, &files);
    let (hosts, rest) = draft.open_hosts(rest);
    opened.extend(hosts);
    let mut left = draft.left(&proposal, &files);
    left.extend(rest.iter().map(|denial| draft.beyond(denial)));
    let text = draft.text(&opened, &left);
    Ok(LearnedPolicy { policy: draft.policy, text, opened, left })
}

fn wish(denial: &Denial, host: &HostFiles) -> Option<DeniedAccess> {
    let path = AbsPath::new(&denial.target)?;
    let want = match denial.operation {
        Operation::Write => AccessNeed::Write,
        // Told of as made, since it would have been had it not been there.
        Operation::Create if host.thing(&path) == HostFileKind::File => AccessNeed::Write,
        Operation::Create | Operation::Rename => AccessNeed::Make,
        Operation::Read | Operation::Execute | Operation::Connect | Operation::Call => {
            AccessNeed::Read
        }
        Operation::Command => return None,
    };
    Some(DeniedAccess { path, want })
}

/// The policy that `--policy` names, to be gone on from.
fn base(asked: &RunRequest, resolved: &ResolvedPolicy) -> Result<Policy, EngineError> {
    let Some(file) = &asked.files.project else { return Ok(Policy::default()) };
    let found = layers(&asked.files, &resolved.surroundings.facts)?
        .into_iter()
        .rev()
        .find(|layer| layer.file == *file);
    Ok(found.map(|layer| layer.policy).unwrap_or_default())
}

struct LearnDraft<'a> {
    asked: &'a RunRequest,
    resolved: &'a ResolvedPolicy,
    outcome: &'a Outcome,
    comments: RuleComments,
    policy: Policy,
}

impl LearnDraft<'_> {
    fn allowed(&self) -> impl Iterator<Item = &Allowance> {
        self.outcome.observed.iter().flat_map(|observed| &observed.allowed)
    }

    /// Says of the entries that are there already what came of them.
    fn keep(&mut self) {
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

    /// What flags opened has to stand in the file, to be open without them.
    fn take_flags(&mut self) {
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
        if self.asked.flags.net == Some(NetworkMode::Full) {
            let hosts = self
                .allowed()
                .filter(|allowance| allowance.operation == Operation::Connect)
                .count();
            if hosts > 0 {
                self.policy.network.mode = Some(NetworkMode::Full);
                self.comments.set(
                    "network.mode".into(),
                    format!("given as `--net full`: {hosts} addresses were reached"),
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
        let lesson = |opening: &ProposedRule| {
            let denials: Vec<&Denial> =
                opening.wishes.iter().map(|number| denials[*number]).collect();
            let mut why = comments::wanted(&denials, opening.folded);
            if let Some(project) = &opening.project {
                why.push_str(&format!(
                    "; it is in another project, {}",
                    comments::place(project, self.resolved)
                ));
            }
            LearnedRule { what: opening.text.clone(), why }
        };
        let lessons: Vec<LearnedRule> = openings.iter().map(lesson).collect();
        for (opening, lesson) in openings.iter().zip(&lessons) {
            self.add(&opening.effect, lesson.what.clone(), lesson.why.clone());
        }
        lessons
    }

    fn left(&self, proposal: &PolicyProposal, denials: &[&Denial]) -> Vec<LearnedRule> {
        let lesson = |(number, why): &(usize, NotProposed)| {
            let denial = denials[*number];
            let what = AbsPath::new(&denial.target).map_or_else(
                || denial.target.clone(),
                |path| comments::place(&path, self.resolved),
            );
            LearnedRule { what, why: comments::why(why, denial, self.resolved) }
        };
        proposal.left.iter().map(lesson).collect()
    }

    /// What is not about files.
    fn beyond(&self, denial: &Denial) -> LearnedRule {
        let why = match denial.operation {
            Operation::Connect => {
                format!("not proposed: {}; {}", self.left_host(denial), who(denial))
            }
            _ => format!(
                "not proposed: no command needs this call, and no policy opens it; {}",
                who(denial)
            ),
        };
        LearnedRule { what: denial.target.clone(), why }
    }

    fn text(&self, opened: &[LearnedRule], left: &[LearnedRule]) -> String {
        let mut text = comments::head(self.asked, self.outcome, opened, left);
        text.push_str(&render_with(&self.policy, &|key| self.comments.get(key)));
        if !left.is_empty() {
            text.push('\n');
        }
        for lesson in left {
            text.push_str(&format!("# {}: {}\n", clean(&lesson.what), clean(&lesson.why)));
        }
        text
    }
}

/// How often, and by whom, something was used that is open.
fn usage(used: &[&Allowance]) -> String {
    let count: u64 = used.iter().map(|allowance| allowance.count).sum();
    if count == 0 {
        return "not seen in use".into();
    }
    format!(
        "{} by {}",
        times("used", count),
        comments::programs(used.iter().map(|allowance| allowance.program.as_str()))
    )
}
