//! Policy files: lookup, and the files they extend.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use ringfence_policy::{AbsPath, Facts, PolicyLayer, Source, check_cycle, parse_bytes};

use crate::EngineError;
use crate::agents::{AgentDefinition, find_agent};
use crate::foreign::{AppliedSettings, ExtendedLayers, add_settings};
use crate::host::{config_directory, system};
use crate::own_policy::{
    EnclosingPolicy, check_named, check_not_own, check_own, enclosing_policies,
    has_no_own_policies, own_policy_file,
};

/// The policy files that apply, weakest first.
#[derive(Debug, Clone, Default)]
pub struct PolicyFiles {
    /// `--policy FILE`: replaces the project's own policy.
    pub project: Option<AbsPath>,
    /// The agent whose definition applies too, if it exists.
    pub agent: Option<String>,
    /// The service operator's policy for all tenants. The project's policy is then ignored: a
    /// stranger brought the project.
    pub service: Option<AbsPath>,
    /// Settings that apply as if the user's policy extended them.
    pub settings: Option<AppliedSettings>,
}

fn managed_policy_file() -> AbsPath {
    AbsPath::new(system::MANAGED_POLICY).expect("an absolute path")
}

/// The path of the user's own policy, even if the file does not exist.
pub fn user_policy_file(facts: &Facts) -> AbsPath {
    config_directory(facts).join("ringfence/policy.toml")
}

/// The paths of the policy files, weakest first, existing or not.
pub fn policy_file_paths(files: &PolicyFiles, facts: &Facts) -> Vec<AbsPath> {
    let managed = managed_policy_file();
    let unless_served = |file: fn(&Facts) -> AbsPath| files.service.is_none().then(|| file(facts));
    let extended = [managed].into_iter().chain(files.service.clone());
    let around = files.service.is_none().then(|| enclosing_policies(facts)).into_iter().flatten();
    let users = [user_policy_file(facts)]
        .into_iter()
        .chain(around.map(|around| around.file))
        .chain(unless_served(own_policy_file));
    extended
        .chain(users)
        .chain(files.project.clone().or_else(|| unless_served(project_policy_file)))
        .collect()
}

pub(crate) fn project_policy_file(facts: &Facts) -> AbsPath {
    facts.workspace.join(".ringfence/policy.toml")
}

/// Reads every policy file that exists.
pub fn read_layers(files: &PolicyFiles, facts: &Facts) -> Result<Vec<PolicyLayer>, EngineError> {
    read_layers_and_agent(files, facts).map(|(extended, _)| extended.layers)
}

/// As [`read_layers`], with the agent's definition, if there is one.
pub(crate) fn read_layers_and_agent(
    files: &PolicyFiles,
    facts: &Facts,
) -> Result<(ExtendedLayers, Option<AgentDefinition>), EngineError> {
    let managed = managed_policy_file();
    let mut layers = layers_if_there(&managed, &Source::Managed)?;
    if let Some(file) = &files.service {
        layers.extend(read_file_layers(file, &Source::User)?);
    }
    layers.extend(layers_if_there(&user_policy_file(facts), &Source::User)?);
    check_not_own(&layers)?;
    if files.service.is_none() && !has_no_own_policies(facts) {
        for EnclosingPolicy { directory, file } in enclosing_policies(facts) {
            let around = layers_if_there(&file, &Source::User)?;
            check_own(&around, &directory)?;
            layers.extend(around.into_iter().map(|layer| layer.for_enclosing(&directory)));
        }
        let own = layers_if_there(&own_policy_file(facts), &Source::User)?;
        check_own(&own, &facts.workspace)?;
        layers.extend(own);
    }
    layers.extend(match &files.project {
        // The user named it on the command line, so it has the user's authority.
        Some(file) => {
            let named = read_file_layers(file, &Source::User)?;
            check_named(&named, facts)?;
            named
        }
        None if files.service.is_some() => Vec::new(),
        None => layers_if_there(&project_policy_file(facts), &Source::Project)?,
    });
    let described = files.agent.as_ref().map(|name| find_agent(name, facts)).transpose()?.flatten();
    if let Some(described) = &described {
        layers.extend(described.layers()?);
    }
    Ok((add_settings(layers, files, facts)?, described))
}

/// Reads a policy file named by another file, with the authority of that file's author.
pub(crate) fn read_referenced_layers(
    file: &AbsPath,
    named: &str,
    source: &Source,
) -> Result<Vec<PolicyLayer>, EngineError> {
    let named = file.parent().unwrap_or_else(AbsPath::root).join(named);
    if *source == Source::Project {
        stay_within(
            &named,
            std::slice::from_ref(file),
            "the policy of a project's agent must be in the directory of its definition",
        )?;
    }
    read_file_layers(&named, source)
}

/// As [`read_file_layers`], with the settings of other tools that the files extend.
pub fn read_file_and_settings(
    file: &AbsPath,
    source: &Source,
    facts: &Facts,
) -> Result<Vec<PolicyLayer>, EngineError> {
    let layers = read_file_layers(file, source)?;
    Ok(add_settings(layers, &PolicyFiles::default(), facts)?.layers)
}

/// Reads one policy file as `source`, and the files it extends, which come before it. Settings of
/// other tools that they extend are not read.
pub fn read_file_layers(file: &AbsPath, source: &Source) -> Result<Vec<PolicyLayer>, EngineError> {
    let mut layers = Vec::new();
    read(file, source, &mut Vec::new(), &mut layers)?;
    Ok(layers)
}

fn layers_if_there(file: &AbsPath, source: &Source) -> Result<Vec<PolicyLayer>, EngineError> {
    match read_file_layers(file, source) {
        Err(EngineError::Unreadable { file: missing, source })
            if missing == *file && is_missing(&source) =>
        {
            Ok(Vec::new())
        }
        other => other,
    }
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads a file, after the files it extends.
fn read(
    file: &AbsPath,
    source: &Source,
    stack: &mut Vec<AbsPath>,
    layers: &mut Vec<PolicyLayer>,
) -> Result<(), EngineError> {
    // Files that extend the same ones twice, level by level, would take exponential time.
    const MOST: usize = 128;
    if layers.len() >= MOST {
        let source =
            io::Error::new(io::ErrorKind::QuotaExceeded, "the policy extends more than 128 files");
        return Err(EngineError::Unreadable { file: file.clone(), source });
    }
    check_cycle(stack, file)?;
    let bytes = read_policy_file(file)
        .map_err(|source| EngineError::Unreadable { file: file.clone(), source })?;
    let layer = parse_bytes(&bytes, file, source.clone())?;
    stack.push(file.clone());
    let directory = file.parent().unwrap_or_else(AbsPath::root);
    for (extended, _) in layer.extends() {
        let extended = directory.join(extended);
        if *source == Source::Project {
            stay_within(
                &extended,
                stack,
                "a project's policy can extend only files in its own `.ringfence`",
            )?;
        }
        read(&extended, source, stack, layers)?;
    }
    stack.pop();
    layers.push(layer);
    Ok(())
}

/// The content of a regular file of at most 1 MiB, the size limit of a policy.
pub(crate) fn read_policy_file(file: &AbsPath) -> io::Result<Vec<u8>> {
    read_regular_file(file.as_path(), 1)
}

/// The content of a regular file of at most so many MiB: reading a pipe or a device may never end.
pub fn read_regular_file(file: &Path, mebibytes: u64) -> io::Result<Vec<u8>> {
    let not_plain = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    // Opening a device may have an effect.
    if !fs::metadata(file)?.is_file() {
        return Err(not_plain());
    }
    let opened = system::open_nonblocking(file)?;
    if !opened.metadata()?.is_file() {
        return Err(not_plain());
    }
    let longest = mebibytes << 20;
    let mut bytes = Vec::new();
    opened.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {mebibytes} MiB"),
        ));
    }
    Ok(bytes)
}

/// Refuses a file outside the directory of the project's policy: only that directory is protected.
/// Errors quote the file, and a repository must not make ringfence quote files outside it.
fn stay_within(file: &AbsPath, stack: &[AbsPath], why: &'static str) -> Result<(), EngineError> {
    let outside = |source| EngineError::Unreadable { file: file.clone(), source };
    let project = stack.first().and_then(AbsPath::parent).unwrap_or_else(AbsPath::root);
    let real = fs::canonicalize(file.as_path()).map_err(outside)?;
    let project = fs::canonicalize(project.as_path()).map_err(outside)?;
    if real.starts_with(project) {
        return Ok(());
    }
    Err(outside(io::Error::new(io::ErrorKind::PermissionDenied, why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_file_of_limited_size_is_read() {
        let directory =
            std::env::temp_dir().join(format!("ringfence-plain-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let file = directory.join("file");
        let kind = |file: &Path| {
            read_regular_file(file, 1).map(|bytes| bytes.len()).map_err(|error| error.kind())
        };
        assert_eq!(kind(&file), Err(io::ErrorKind::NotFound));
        fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(kind(&file), Ok(1 << 20));
        fs::write(&file, vec![b'x'; (1 << 20) + 1]).unwrap();
        assert_eq!(kind(&file), Err(io::ErrorKind::FileTooLarge));
        let pipe = directory.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for none in [&pipe, &directory, Path::new("/dev/zero")] {
            assert_eq!(kind(none), Err(io::ErrorKind::InvalidInput), "{}", none.display());
        }
        // Its reported size is 0, but it has content.
        assert!(kind(Path::new("/proc/self/status")).is_ok_and(|length| length > 0));
        fs::remove_dir_all(&directory).unwrap();
    }
}
