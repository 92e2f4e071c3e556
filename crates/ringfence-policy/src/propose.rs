//! From what a command wanted and did not get to the fewest rules that would give it.
//!
//! A proposal opens files and, where several of one directory are wanted, the directory. It
//! never opens what a rule denies or protects, the system, the home directory as a whole or
//! another project: such wishes are handed back with the reason.

mod fold;
#[cfg(test)]
mod tests;

use crate::builtin;
use crate::decide::{Access, DecidingRule, Decision, Verdict};
use crate::display::is_hidden;
use crate::error::SourcePosition;
use crate::expand::ExpandedEntry;
use crate::facts::Facts;
use crate::grants::{Effect, Grants, Origin, Rule, Source};
use crate::path::AbsPath;

/// Something that was wanted and refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedAccess {
    /// On what.
    pub path: AbsPath,
    /// For what.
    pub want: AccessNeed,
}

/// What something is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessNeed {
    /// To be read, listed or started.
    Read,
    /// To be written, while it is there.
    Write,
    /// To be made, replaced or moved, for which its directory is needed.
    Make,
}

impl AccessNeed {
    /// What the path itself is asked for.
    pub fn access(self) -> Access {
        match self {
            AccessNeed::Read => Access::Read,
            AccessNeed::Write | AccessNeed::Make => Access::Write,
        }
    }
}

/// What stands somewhere on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostFileKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A socket, a pipe or a device.
    Other,
    /// Nothing.
    Nothing,
}

/// What a proposal has to know of the host.
pub trait HostView {
    /// What stands at a path, behind links.
    fn thing(&self, path: &AbsPath) -> HostFileKind;
    /// The path without links, as far as it exists.
    fn real(&self, path: &AbsPath) -> AbsPath;
    /// A project that the path is in, or is.
    fn project_around(&self, path: &AbsPath) -> Option<AbsPath>;
    /// A project somewhere below a directory.
    fn project_below(&self, directory: &AbsPath) -> Option<AbsPath>;
}

/// What would give a command what it wanted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyProposal {
    /// What is to be opened, by path.
    pub openings: Vec<ProposedRule>,
    /// The wishes that stay refused, by their numbers.
    pub left: Vec<(usize, NotProposed)>,
}

/// Something to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct ProposedRule {
    /// Where.
    pub root: AbsPath,
    /// [`Effect::Read`] or [`Effect::Write`].
    pub effect: Effect,
    /// The same as one would write it in a policy.
    pub text: String,
    /// The wishes it fulfils, by their numbers.
    pub wishes: Vec<usize>,
    /// How many different things in it were wanted, where it was not wanted itself.
    pub folded: Option<usize>,
    /// The other project that it is in.
    pub project: Option<AbsPath>,
}

/// Why a wish stays refused.
#[derive(Debug, Clone, PartialEq)]
pub enum NotProposed {
    /// A rule denies or protects it, and is meant to.
    OnPurpose(Box<Decision>),
    /// It is part of the system, which is not for writing.
    System,
    /// It is the kernel's, and programs do without it.
    Kernel,
    /// It belongs to a tool that the person runs, too.
    Toolchain,
    /// Nothing in the project is for writing: the mode, or the tools, say so.
    ReadOnly,
    /// It would take opening this, which is the home directory, or holds it or the project, or
    /// is next to the root.
    TooBroad(AbsPath),
    /// It would open this other project.
    Project(AbsPath),
    /// It would open what is around this, which is denied.
    AroundDenied(AbsPath),
    /// It is a socket, a pipe or a device.
    NoFile,
    /// It is not there any more.
    Gone,
    /// It cannot be written in a policy.
    Unwritable,
    /// The policy allows it: something else was in the way.
    Allowed,
}

/// The proposal for `wishes`, all of them refused under `grants`.
pub fn propose(
    grants: &Grants,
    facts: &Facts,
    ground: &dyn HostView,
    wishes: &[DeniedAccess],
) -> PolicyProposal {
    let judge = Proposer { grants, facts, ground };
    let mut proposal = PolicyProposal::default();
    for (number, wish) in wishes.iter().enumerate() {
        match judge.opening(number, wish) {
            Ok(opening) => proposal.openings.push(opening),
            Err(why) => proposal.left.push((number, why)),
        }
    }
    proposal.openings = fold::fold(proposal.openings, &judge);
    proposal
}

struct Proposer<'a> {
    grants: &'a Grants,
    facts: &'a Facts,
    ground: &'a dyn HostView,
}

impl Proposer<'_> {
    /// What one wish alone would take.
    fn opening(&self, number: usize, wish: &DeniedAccess) -> Result<ProposedRule, NotProposed> {
        let decision = self.grants.decide(&wish.path, wish.want.access());
        self.not_on_purpose(&wish.path, wish.want.access())?;
        if ["/sys", "/proc", "/dev"].iter().any(|root| wish.path.as_path().starts_with(root)) {
            return Err(NotProposed::Kernel);
        }
        let alone = wish.want != AccessNeed::Make;
        let root = match decision.verdict {
            Verdict::Absent if alone => wish.path.clone(),
            Verdict::ReadOnly => {
                self.may_be_written(&decision)?;
                if alone { wish.path.clone() } else { above(&wish.path)? }
            }
            // What is opened alone can be changed, but not replaced.
            Verdict::Allowed if alone || !self.is_opened_alone(&decision) => {
                return Err(NotProposed::Allowed);
            }
            Verdict::Absent | Verdict::Allowed | Verdict::Denied => above(&wish.path)?,
        };
        let effect = if wish.want == AccessNeed::Read { Effect::Read } else { Effect::Write };
        match self.ground.thing(&root) {
            HostFileKind::Other => return Err(NotProposed::NoFile),
            HostFileKind::Directory => self.may_be_opened_whole(&root)?,
            HostFileKind::File if is_too_broad(self.grants, &root) => {
                return Err(NotProposed::TooBroad(root));
            }
            HostFileKind::File => {}
            HostFileKind::Nothing => return Err(NotProposed::Gone),
        }
        self.made(root, effect, vec![number], None)
    }

    fn made(
        &self,
        root: AbsPath,
        effect: Effect,
        wishes: Vec<usize>,
        folded: Option<usize>,
    ) -> Result<ProposedRule, NotProposed> {
        let text = self.text(&root, &effect).ok_or(NotProposed::Unwritable)?;
        let project =
            self.ground.project_around(&root).filter(|project| *project != self.grants.workspace);
        Ok(ProposedRule { root, effect, text, wishes, folded, project })
    }

    /// Refuses what a rule shuts, by whatever name. A path that a person names is open even if
    /// a pattern catches it, so the rules are asked as if the directory around it were open.
    fn not_on_purpose(&self, path: &AbsPath, access: Access) -> Result<(), NotProposed> {
        for path in [path.clone(), self.ground.real(path)] {
            let decision = self.grants.decide(&path, access);
            let silent = decision.verdict == Verdict::Absent;
            let around = [
                path.parent(),
                path.is_within(&self.grants.home).then(|| self.grants.home.clone()),
            ];
            let imagined = around
                .into_iter()
                .flatten()
                .filter(|_| silent)
                .map(|root| self.with_open(root).decide(&path, access));
            if let Some(decision) = std::iter::once(decision).chain(imagined).find(is_on_purpose) {
                return Err(NotProposed::OnPurpose(Box::new(decision)));
            }
        }
        Ok(())
    }

    /// The same rules, were a tree open that no person has named.
    fn with_open(&self, root: AbsPath) -> Grants {
        let mut grants = self.grants.clone();
        grants.rules.extend(builtin::protects(&root));
        let origin = Origin::new(Source::Managed, root.to_string());
        grants.rules.push(Rule { root, effect: Effect::Write, origin, locked: false });
        grants
    }

    /// Whether what may be read now is a person's to open further.
    fn may_be_written(&self, decision: &Decision) -> Result<(), NotProposed> {
        match decision.rule.as_ref().map(|because| &because.origin().source) {
            Some(Source::BuiltIn) => Err(NotProposed::System),
            Some(Source::Preset(_)) => Err(NotProposed::Toolchain),
            Some(Source::Mode | Source::Tools) => Err(NotProposed::ReadOnly),
            _ if decision.path.is_within(&self.grants.workspace) => Err(NotProposed::ReadOnly),
            _ => Ok(()),
        }
    }

    fn is_opened_alone(&self, decision: &Decision) -> bool {
        let is_root =
            matches!(&decision.rule, Some(DecidingRule::Rule(rule)) if rule.root == decision.path);
        is_root && self.ground.thing(&decision.path) == HostFileKind::File
    }

    /// Refuses directories with more in them than was meant.
    fn may_be_opened_whole(&self, directory: &AbsPath) -> Result<(), NotProposed> {
        if is_too_broad(self.grants, directory) {
            return Err(NotProposed::TooBroad(directory.clone()));
        }
        self.not_on_purpose(directory, Access::Read)?;
        let mut denies = self.grants.rules.iter().filter(|rule| rule.effect == Effect::Deny);
        if let Some(deny) = denies.find(|rule| rule.root.is_within(directory)) {
            return Err(NotProposed::AroundDenied(deny.root.clone()));
        }
        let is_project =
            self.ground.project_around(directory).filter(|project| project == directory);
        match is_project.or_else(|| self.ground.project_below(directory)) {
            Some(project) => Err(NotProposed::Project(project)),
            None => Ok(()),
        }
    }

    /// The path as a person would write it, if that means the path.
    fn text(&self, root: &AbsPath, effect: &Effect) -> Option<String> {
        let below = |directory: &AbsPath, start: &str| {
            Some(format!("{start}{}", root.relative_to(directory)?.to_str()?))
        };
        let text = below(&self.grants.workspace, "./")
            .or_else(|| below(&self.grants.home, "~/"))
            .or_else(|| below(&AbsPath::root(), "/"))?;
        let key = if *effect == Effect::Read { "read" } else { "write" };
        let entry = ExpandedEntry {
            text: &text,
            key,
            anchor: &self.grants.workspace,
            at: SourcePosition::default(),
        };
        let means_it = entry.path(self.facts).is_ok_and(|meant| meant == *root);
        (means_it && !text.chars().any(is_hidden)).then_some(text)
    }
}

/// Whether a rule shuts the path, rather than none opening it.
fn is_on_purpose(decision: &Decision) -> bool {
    match (&decision.verdict, &decision.rule) {
        (Verdict::Denied, _) | (Verdict::ReadOnly, Some(DecidingRule::Pattern(_))) => true,
        (Verdict::ReadOnly, Some(DecidingRule::Rule(rule))) => !rule.opens(),
        _ => false,
    }
}

fn above(path: &AbsPath) -> Result<AbsPath, NotProposed> {
    path.parent().ok_or_else(|| NotProposed::TooBroad(path.clone()))
}

/// Whether opening a path would open the home directory or the project around the command,
/// or whatever stands next to the root.
fn is_too_broad(grants: &Grants, path: &AbsPath) -> bool {
    path.depth() < 2 || grants.home.is_within(path) || grants.workspace.is_within(path)
}
