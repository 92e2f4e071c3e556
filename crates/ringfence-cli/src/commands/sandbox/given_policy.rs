//! `--sandbox-policy` and `--sandbox-policy-cwd`: the policy of one command, as Codex passes it to
//! its sandbox program.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;
use ringfence_api::shell_word;
use ringfence_engine::gather_host_environment;
use ringfence_policy::import::{CodexSandboxPolicy, reason_to_withhold_write};
use ringfence_policy::{AbsPath, Mode, NetworkMode};

use crate::args::{ModeArg, NetArg, PolicyArgs};
use crate::commands::resolve_args::canonical_directory;
use crate::error::CliError;
use crate::messages;
use crate::output::printable;
use crate::read_file::read_text;

pub(super) const FLAG: &str = "--sandbox-policy";

#[derive(Debug, Args)]
pub(super) struct GivenPolicyArgs {
    /// The policy as Codex writes it: JSON such as `{"type":"workspace-write"}`, or `@FILE`
    #[arg(long, value_name = "JSON|@FILE", conflicts_with_all = ["full_auto", "mode", "net"])]
    sandbox_policy: Option<String>,
    /// The workspace of that policy, and the base of its relative `writable_roots` [default: the
    /// start directory, and the project around it]
    #[arg(long, value_name = "DIR", requires = "sandbox_policy", conflicts_with = "project")]
    sandbox_policy_cwd: Option<PathBuf>,
}

impl GivenPolicyArgs {
    /// Sets the flags of `run` that are equivalent to the policy. Returns false if there is none.
    pub(super) fn apply(self, flags: &mut PolicyArgs) -> Result<bool, CliError> {
        let Some(given) = &self.sandbox_policy else { return Ok(false) };
        let policy = parse(given)?;
        for key in &policy.without_effect {
            messages::print_note(&format!(
                "{key} in {FLAG} changes nothing: /tmp is private to the sandbox, and TMPDIR points there"
            ));
        }
        let base = self.sandbox_policy_cwd.as_deref().or(flags.directory.as_deref());
        let base = canonical_directory(base)?;
        for root in &policy.writable_roots {
            flags.write.push(writable_root(root, &base)?);
        }
        flags.mode = Some(match policy.mode {
            Mode::ReadOnly => ModeArg::ReadOnly,
            Mode::WorkspaceWrite => ModeArg::WorkspaceWrite,
            Mode::FullAccess => ModeArg::FullAccess,
        });
        flags.net = policy.network.map(|network| match network {
            NetworkMode::None => NetArg::None,
            NetworkMode::AllowList => NetArg::AllowList,
            NetworkMode::Full => NetArg::Full,
        });
        if self.sandbox_policy_cwd.is_some() {
            use_workspace(&base, policy.mode, flags)?;
        }
        Ok(true)
    }
}

fn parse(given: &str) -> Result<CodexSandboxPolicy, CliError> {
    let (place, text) = match given.strip_prefix('@') {
        Some(file) => (file.to_owned(), read(file)?),
        None => (FLAG.to_owned(), given.to_owned()),
    };
    CodexSandboxPolicy::parse(&text).map_err(|source| CliError::CodexPolicy { place, source })
}

fn read(file: &str) -> Result<String, CliError> {
    read_text(Path::new(file))?.ok_or_else(|| CliError::File {
        what: "read",
        path: file.to_owned(),
        source: io::ErrorKind::NotFound.into(),
    })
}

/// Makes `base` the workspace. If it is only a part of a project, the rest of the project is
/// read-only: the policy names no more than this part.
fn use_workspace(base: &AbsPath, mode: Mode, flags: &mut PolicyArgs) -> Result<(), CliError> {
    flags.project = Some(base.as_path().to_owned());
    if mode == Mode::WorkspaceWrite && gather_host_environment(base)?.facts.workspace != *base {
        let root = as_flag(base)?;
        if let Some(reason) = reason_to_withhold_write(&root) {
            return Err(CliError::Usage {
                what: format!("`--sandbox-policy-cwd` is not opened: {reason}"),
                hint: "name the directory of the project".into(),
            });
        }
        flags.mode = Some(ModeArg::ReadOnly);
        flags.write.push(root);
    }
    Ok(())
}

/// The value of `--write` for a writable root.
fn writable_root(written: &str, base: &AbsPath) -> Result<String, CliError> {
    let joined = base.join(written);
    let shown = printable(written);
    // A link in the project may lead anywhere.
    let real = fs::canonicalize(joined.as_path()).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CliError::Usage {
            what: format!("`{shown}` in `writable_roots` does not exist"),
            hint: printable(&format!(
                "create it first: `mkdir -p {}`",
                shell_word(&joined.to_string_lossy())
            )),
        },
        _ => CliError::File { what: "open", path: printable(&joined.to_string_lossy()), source },
    })?;
    let real = AbsPath::new(real).unwrap_or(joined);
    let root = as_flag(&real)?;
    match reason_to_withhold_write(&root) {
        None => Ok(root),
        Some(reason) => Err(CliError::Usage {
            what: format!("`{shown}` in `writable_roots` is not opened: {reason}"),
            hint: format!("remove `{shown}` from `writable_roots`"),
        }),
    }
}

/// The path as a value of `--write` that stands for nothing else.
fn as_flag(path: &AbsPath) -> Result<String, CliError> {
    let is_plain = |text: &&str| !text.contains(['$', '*', '?', '[', '{']);
    path.as_path().to_str().filter(is_plain).map(str::to_owned).ok_or_else(|| CliError::Usage {
        what: printable(&format!(
            "{path} cannot be a writable root: its name has `$`, a glob character or is not UTF-8"
        )),
        hint: "name a directory above it".into(),
    })
}
