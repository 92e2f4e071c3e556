//! Proposes the smallest set of rules that would allow denied accesses.
//!
//! A proposal opens files, or their directory if several of its files are needed. It never opens
//! paths that a rule denies or protects, the system, the whole home directory or another project:
//! those accesses are returned with the reason.

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

/// A denied access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedAccess {
    /// The path.
    pub path: AbsPath,
    /// The kind of access that is needed.
    pub want: AccessNeed,
}

/// Kind of access that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessNeed {
    /// Read, list or execute.
    Read,
    /// Write to an existing file.
    Write,
    /// Create, replace or rename, which needs the directory.
    Make,
}

impl AccessNeed {
    /// The access to the path itself.
    pub fn access(self) -> Access {
        match self {
            AccessNeed::Read => Access::Read,
            AccessNeed::Write | AccessNeed::Make => Access::Write,
        }
    }
}

/// Kind of a file on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostFileKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A socket, a pipe or a device.
    Other,
    /// No such file.
    Nothing,
}

/// Access to the host for a proposal.
pub trait HostView {
    /// Kind of the file at a path, following symlinks.
    fn file_kind(&self, path: &AbsPath) -> HostFileKind;
    /// The path without symlinks, as far as it exists.
    fn resolve_links(&self, path: &AbsPath) -> AbsPath;
    /// The project that contains or is the path, if any.
    fn project_around(&self, path: &AbsPath) -> Option<AbsPath>;
    /// A project somewhere below a directory, if any.
    fn project_below(&self, directory: &AbsPath) -> Option<AbsPath>;
}

/// Rules that would allow the denied accesses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyProposal {
    /// The proposed rules, sorted by path.
    pub openings: Vec<ProposedRule>,
    /// The accesses that stay denied, by index.
    pub left: Vec<(usize, NotProposed)>,
}

/// A proposed rule.
#[derive(Debug, Clone, PartialEq)]
pub struct ProposedRule {
    /// The path to open.
    pub root: AbsPath,
    /// [`Effect::Read`] or [`Effect::Write`].
    pub effect: Effect,
    /// The path as the user would write it in a policy.
    pub text: String,
    /// The accesses that the rule allows, by index.
    pub accesses: Vec<usize>,
    /// The number of different paths in it that were needed, if the directory itself was not.
    pub folded: Option<usize>,
    /// The other project that contains the path, if any.
    pub project: Option<AbsPath>,
}

/// Reason for which an access stays denied.
#[derive(Debug, Clone, PartialEq)]
pub enum NotProposed {
    /// A rule denies or protects the path on purpose.
    OnPurpose(Box<Decision>),
    /// The path belongs to the system and must not be written.
    System,
    /// The path belongs to the kernel, and programs work without it.
    Kernel,
    /// The path belongs to a tool that the user runs, too.
    Toolchain,
    /// The mode or the tools make the project read-only.
    ReadOnly,
    /// It would need to open this path, which is or contains the home directory or the project, or
    /// lies directly below the root.
    TooBroad(AbsPath),
    /// It would open this other project.
    Project(AbsPath),
    /// It would open a directory that contains this denied path.
    AroundDenied(AbsPath),
    /// The path is a socket, a pipe or a device.
    NoFile,
    /// The path no longer exists.
    Gone,
    /// The path cannot be written in a policy.
    Unwritable,
    /// The policy allows the access: something else prevented it.
    Allowed,
}

/// Proposes rules for `accesses`, all of them denied under `grants`.
pub fn propose(
    grants: &Grants,
    facts: &Facts,
    host: &dyn HostView,
    accesses: &[DeniedAccess],
) -> PolicyProposal {
    let proposer = Proposer { grants, facts, host };
    let mut proposal = PolicyProposal::default();
    for (number, denied) in accesses.iter().enumerate() {
        match proposer.opening(number, denied) {
            Ok(opening) => proposal.openings.push(opening),
            Err(why) => proposal.left.push((number, why)),
        }
    }
    proposal.openings = fold::fold(proposal.openings, &proposer);
    proposal
}

struct Proposer<'a> {
    grants: &'a Grants,
    facts: &'a Facts,
    host: &'a dyn HostView,
}

impl Proposer<'_> {
    /// The rule that a single access needs.
    fn opening(&self, number: usize, denied: &DeniedAccess) -> Result<ProposedRule, NotProposed> {
        let decision = self.grants.decide(&denied.path, denied.want.access());
        self.not_on_purpose(&denied.path, denied.want.access())?;
        if ["/sys", "/proc", "/dev"].iter().any(|root| denied.path.as_path().starts_with(root)) {
            return Err(NotProposed::Kernel);
        }
        let alone = denied.want != AccessNeed::Make;
        let root = match decision.verdict {
            Verdict::Absent if alone => denied.path.clone(),
            Verdict::ReadOnly => {
                self.may_be_written(&decision)?;
                if alone { denied.path.clone() } else { above(&denied.path)? }
            }
            // A file that is opened alone can be changed, but not replaced.
            Verdict::Allowed if alone || !self.is_opened_alone(&decision) => {
                return Err(NotProposed::Allowed);
            }
            Verdict::Absent | Verdict::Allowed | Verdict::Denied => above(&denied.path)?,
        };
        let effect = if denied.want == AccessNeed::Read { Effect::Read } else { Effect::Write };
        match self.host.file_kind(&root) {
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
        accesses: Vec<usize>,
        folded: Option<usize>,
    ) -> Result<ProposedRule, NotProposed> {
        let text = self.text(&root, &effect).ok_or(NotProposed::Unwritable)?;
        let project =
            self.host.project_around(&root).filter(|project| *project != self.grants.workspace);
        Ok(ProposedRule { root, effect, text, accesses, folded, project })
    }

    /// Rejects a path that a rule denies, under any of its names. A path that the user names is
    /// open even if a pattern matches it, so the check assumes that the directory around it is
    /// open.
    fn not_on_purpose(&self, path: &AbsPath, access: Access) -> Result<(), NotProposed> {
        for path in [path.clone(), self.host.resolve_links(path)] {
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

    /// The same rules with an additional open tree that the user did not name.
    fn with_open(&self, root: AbsPath) -> Grants {
        let mut grants = self.grants.clone();
        grants.rules.extend(builtin::protect_rules(&root));
        let origin = Origin::new(Source::Managed, root.to_string());
        grants.rules.push(Rule { root, effect: Effect::Write, origin, locked: false });
        grants
    }

    /// Checks if a readable path may be made writable by the user.
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
        is_root && self.host.file_kind(&decision.path) == HostFileKind::File
    }

    /// Rejects directories that contain more than was needed.
    fn may_be_opened_whole(&self, directory: &AbsPath) -> Result<(), NotProposed> {
        if is_too_broad(self.grants, directory) {
            return Err(NotProposed::TooBroad(directory.clone()));
        }
        self.not_on_purpose(directory, Access::Read)?;
        let mut denies = self.grants.rules.iter().filter(|rule| rule.effect == Effect::Deny);
        if let Some(deny) = denies.find(|rule| rule.root.is_within(directory)) {
            return Err(NotProposed::AroundDenied(deny.root.clone()));
        }
        let is_project = self.host.project_around(directory).filter(|project| project == directory);
        match is_project.or_else(|| self.host.project_below(directory)) {
            Some(project) => Err(NotProposed::Project(project)),
            None => Ok(()),
        }
    }

    /// The path as the user would write it, if that text resolves to the path.
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
        let means_it = entry.path(self.facts).is_ok_and(|resolved| resolved == *root);
        (means_it && !text.chars().any(is_hidden)).then_some(text)
    }
}

/// True if a rule denies the path; false if only no rule opens it.
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

/// True if opening a path would open the home directory, the current project or a directory
/// directly below the root.
fn is_too_broad(grants: &Grants, path: &AbsPath) -> bool {
    path.depth() < 2 || grants.home.is_within(path) || grants.workspace.is_within(path)
}
