//! Policy files: where they are, and what they stand on.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use ringfence_policy::{AbsPath, Facts, PolicyLayer, Source, check_cycle, parse_bytes};
use rustix::fs::OFlags;

use crate::EngineError;
use crate::agents::{AgentDefinition, agent};
use crate::host::config_directory;
use crate::own_policy::{check_named, check_not_own, check_own, own_policy_file};

/// Which policy files count, weakest first.
#[derive(Debug, Clone, Default)]
pub struct PolicyFiles {
    /// `--policy FILE`: stands in for the project's own.
    pub project: Option<AbsPath>,
    /// Whose definition holds as well, if there is one of that name.
    pub agent: Option<String>,
    /// What whoever runs a service says of all its tenants. What a project brings then counts
    /// for nothing: it was brought by a stranger.
    pub service: Option<AbsPath>,
}

/// The managed policy.
const MANAGED: &str = "/etc/ringfence/policy.toml";

/// Where the person's own policy is, or would be.
pub fn of_the_person(facts: &Facts) -> AbsPath {
    config_directory(facts).join("ringfence/policy.toml")
}

/// Where policy files are looked for, weakest first.
pub fn places(files: &PolicyFiles, facts: &Facts) -> Vec<AbsPath> {
    let managed = AbsPath::new(MANAGED).expect("an absolute path");
    let unless_served = |file: fn(&Facts) -> AbsPath| files.service.is_none().then(|| file(facts));
    let beneath = [managed].into_iter().chain(files.service.clone());
    let users = [of_the_person(facts)].into_iter().chain(unless_served(own_policy_file));
    beneath
        .chain(users)
        .chain(files.project.clone().or_else(|| unless_served(of_the_project)))
        .collect()
}

pub(crate) fn of_the_project(facts: &Facts) -> AbsPath {
    facts.workspace.join(".ringfence/policy.toml")
}

/// Reads every policy file that is there.
pub fn layers(files: &PolicyFiles, facts: &Facts) -> Result<Vec<PolicyLayer>, EngineError> {
    layers_and_agent(files, facts).map(|(layers, _)| layers)
}

/// The same, with the agent as it was read for them, if there is one of that name.
pub(crate) fn layers_and_agent(
    files: &PolicyFiles,
    facts: &Facts,
) -> Result<(Vec<PolicyLayer>, Option<AgentDefinition>), EngineError> {
    let managed = AbsPath::new(MANAGED).expect("an absolute path");
    let mut layers = layers_if_there(&managed, &Source::Managed)?;
    if let Some(file) = &files.service {
        layers.extend(layers_of(file, &Source::User)?);
    }
    layers.extend(layers_if_there(&of_the_person(facts), &Source::User)?);
    check_not_own(&layers)?;
    if files.service.is_none() {
        let own = layers_if_there(&own_policy_file(facts), &Source::User)?;
        check_own(&own, facts)?;
        layers.extend(own);
    }
    layers.extend(match &files.project {
        // Named by a person on the command line: it speaks with the person's voice.
        Some(file) => {
            let named = layers_of(file, &Source::User)?;
            check_named(&named, facts)?;
            named
        }
        None if files.service.is_some() => Vec::new(),
        None => layers_if_there(&of_the_project(facts), &Source::Project)?,
    });
    let described = files.agent.as_ref().map(|name| agent(name, facts)).transpose()?.flatten();
    if let Some(described) = &described {
        layers.extend(described.layers()?);
    }
    Ok((layers, described))
}

/// Reads a policy file that is named from another file, with the voice of whoever wrote that one.
pub(crate) fn layers_beside(
    file: &AbsPath,
    named: &str,
    source: &Source,
) -> Result<Vec<PolicyLayer>, EngineError> {
    let named = file.parent().unwrap_or_else(AbsPath::root).join(named);
    if *source == Source::Project {
        stay_within(
            &named,
            std::slice::from_ref(file),
            "the policy of a project's agent lies beside its definition",
        )?;
    }
    layers_of(&named, source)
}

/// Reads one policy file as `source`'s, and those it extends, which stand in front of it.
pub fn layers_of(file: &AbsPath, source: &Source) -> Result<Vec<PolicyLayer>, EngineError> {
    let mut layers = Vec::new();
    read(file, source, &mut Vec::new(), &mut layers)?;
    Ok(layers)
}

fn layers_if_there(file: &AbsPath, source: &Source) -> Result<Vec<PolicyLayer>, EngineError> {
    match layers_of(file, source) {
        Err(EngineError::Unreadable { file: missing, source })
            if missing == *file && is_absent(&source) =>
        {
            Ok(Vec::new())
        }
        other => other,
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads a file and, beneath it, those it extends.
fn read(
    file: &AbsPath,
    source: &Source,
    stack: &mut Vec<AbsPath>,
    layers: &mut Vec<PolicyLayer>,
) -> Result<(), EngineError> {
    // Files that extend the same ones twice over, again and again, would never end.
    const MOST: usize = 128;
    if layers.len() >= MOST {
        let source =
            io::Error::new(io::ErrorKind::QuotaExceeded, "more than 128 policy files are extended");
        return Err(EngineError::Unreadable { file: file.clone(), source });
    }
    check_cycle(stack, file)?;
    let bytes = plain_file(file)
        .map_err(|source| EngineError::Unreadable { file: file.clone(), source })?;
    let layer = parse_bytes(&bytes, file, source.clone())?;
    stack.push(file.clone());
    let directory = file.parent().unwrap_or_else(AbsPath::root);
    for (beneath, _) in layer.extends() {
        let beneath = directory.join(beneath);
        if *source == Source::Project {
            stay_within(
                &beneath,
                stack,
                "a project's policy extends files in its own `.ringfence` only",
            )?;
        }
        read(&beneath, source, stack, layers)?;
    }
    stack.pop();
    layers.push(layer);
    Ok(())
}

/// A file's bytes, if it is a plain file of a size that a policy can have.
pub(crate) fn plain_file(file: &AbsPath) -> io::Result<Vec<u8>> {
    read_plain(file.as_path(), 1)
}

/// A file's bytes, if it is a plain file of so many mebibytes at most: a pipe would never end, and
/// a device neither.
pub fn read_plain(file: &Path, mebibytes: u64) -> io::Result<Vec<u8>> {
    let not_plain = || io::Error::new(io::ErrorKind::InvalidInput, "not a plain file");
    // To open a device may do something.
    if !fs::metadata(file)?.is_file() {
        return Err(not_plain());
    }
    // What took its place since is not waited for.
    let opened = rustix::fs::open(
        file,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let opened = fs::File::from(opened);
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

/// A project's policy stands on files beside it alone: those are protected like it, and what
/// is wrong with a file is quoted, which the author of a repository must not have done to
/// other files.
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
    fn only_a_plain_file_of_some_size_is_read() {
        let directory =
            std::env::temp_dir().join(format!("ringfence-plain-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let file = directory.join("file");
        let kind = |file: &Path| {
            read_plain(file, 1).map(|bytes| bytes.len()).map_err(|error| error.kind())
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
        // Its size is told as nothing, and it has more.
        assert!(kind(Path::new("/proc/self/status")).is_ok_and(|length| length > 0));
        fs::remove_dir_all(&directory).unwrap();
    }
}
