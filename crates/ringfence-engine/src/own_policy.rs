//! The user's own policy for one project: `~/.config/ringfence/projects/NAME.toml`.
//!
//! It has the user's authority, in that directory only, and in the projects inside it: a repository
//! that a command makes there does not escape it. `NAME` is made from the project's path, so no
//! search is needed. `project` in the file repeats the path, so that a copied or renamed file never
//! applies to another project.

use std::ffi::OsString;
use std::fs;
use std::io;

use ringfence_policy::{
    AbsPath, Effect, Facts, Grants, Origin, PolicyLayer, Rule, Source, parse_bytes,
};

use crate::EngineError;
use crate::files::{read_policy_file, user_policy_file};
use crate::host::{config_directory, slug};

/// A file below `projects`, and the project in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPolicy {
    /// The file.
    pub file: AbsPath,
    /// The path in `project`; `None` if the file cannot be read or has none.
    pub project: Option<AbsPath>,
    /// The state of the file.
    pub state: OwnPolicyState,
}

/// The state of a file below `projects`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnPolicyState {
    /// It applies to the project it names.
    Used,
    /// The directory it names does not exist: the project was moved or deleted.
    Gone,
    /// Its file name does not match the project, so it never applies.
    Misnamed,
    /// It is invalid, cannot be read, or names no project.
    Broken,
}

impl OwnPolicyState {
    /// The stable word of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            OwnPolicyState::Used => "used",
            OwnPolicyState::Gone => "gone",
            OwnPolicyState::Misnamed => "misnamed",
            OwnPolicyState::Broken => "broken",
        }
    }
}

fn directory(facts: &Facts) -> AbsPath {
    config_directory(facts).join("ringfence/projects")
}

/// The path of the user's own policy for this project, even if the file does not exist.
pub fn own_policy_file(facts: &Facts) -> AbsPath {
    own_policy_file_for(&facts.workspace, facts)
}

/// The path of the user's own policy for another project.
pub fn own_policy_file_for(project: &AbsPath, facts: &Facts) -> AbsPath {
    directory(facts).join(own_policy_name(project))
}

/// The file name of the user's own policy for a project.
pub(crate) fn own_policy_name(project: &AbsPath) -> OsString {
    let mut name = OsString::from(slug(project));
    name.push(".toml");
    name
}

/// The user's own policy for a directory around the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnclosingPolicy {
    /// The directory.
    pub directory: AbsPath,
    /// The file, even if it does not exist.
    pub file: AbsPath,
}

/// The user's own policies for the directories around the project, outermost first.
pub(crate) fn enclosing_policies(facts: &Facts) -> Vec<EnclosingPolicy> {
    let around = facts.workspace.ancestors().skip(1);
    let mut policies: Vec<EnclosingPolicy> = around
        .map(|directory| EnclosingPolicy {
            file: own_policy_file_for(&directory, facts),
            directory,
        })
        .collect();
    policies.reverse();
    policies
}

/// True for the user's own policy for a directory around the project.
pub fn is_enclosing_policy(file: &AbsPath, facts: &Facts) -> bool {
    enclosing_policies(facts).iter().any(|around| around.file == *file)
}

/// True if the user has no own policy for any project: the directory does not exist.
pub(crate) fn has_no_own_policies(facts: &Facts) -> bool {
    let found = directory(facts).as_path().symlink_metadata();
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The [`enclosing_policies`] that exist.
pub fn existing_enclosing_policies(facts: &Facts) -> Vec<EnclosingPolicy> {
    let is_there = |around: &EnclosingPolicy| around.file.as_path().symlink_metadata().is_ok();
    enclosing_policies(facts).into_iter().filter(is_there).collect()
}

/// The text of a new file for this project.
pub fn new_own_policy(facts: &Facts) -> String {
    let project = toml_string(&facts.workspace.to_string_lossy());
    format!(
        "# Your own policy for this project only. It can allow the same as your policy for all projects.\nversion = 1\nproject = {project}\n"
    )
}

/// A TOML basic string.
fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(control)))
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// Refuses a file of another project.
pub(crate) fn check_own(layers: &[PolicyLayer], project: &AbsPath) -> Result<(), EngineError> {
    // The extended files come first and name no project; the last layer is the file itself.
    let Some((own, extended)) = layers.split_last() else { return Ok(()) };
    check_not_own(extended)?;
    let named = own.policy.project.clone();
    if named.as_deref() == Some(&*project.to_string_lossy()) {
        return Ok(());
    }
    Err(EngineError::OtherProject { file: own.file.clone(), named, workspace: project.clone() })
}

/// Refuses `project` in files that apply to every project.
pub(crate) fn check_not_own(layers: &[PolicyLayer]) -> Result<(), EngineError> {
    match layers.iter().find(|layer| layer.policy.project.is_some()) {
        Some(layer) => Err(EngineError::ProjectKey { file: layer.file.clone() }),
        None => Ok(()),
    }
}

/// Refuses a file from the command line that belongs to another project.
pub(crate) fn check_named(layers: &[PolicyLayer], facts: &Facts) -> Result<(), EngineError> {
    match layers.last() {
        Some(named) if named.policy.project.is_some() => check_own(layers, &facts.workspace),
        _ => check_not_own(layers),
    }
}

/// Every file below `projects`, by name.
pub fn own_policies(facts: &Facts) -> Vec<OwnPolicy> {
    let entries = fs::read_dir(directory(facts).as_path()).into_iter().flatten().flatten();
    let is_policy = |name: &OsString| {
        !name.as_encoded_bytes().starts_with(b".") && name.as_encoded_bytes().ends_with(b".toml")
    };
    let mut names: Vec<OsString> =
        entries.map(|entry| entry.file_name()).filter(is_policy).collect();
    names.sort();
    names.iter().map(|name| own_policy(&directory(facts).join(name), facts)).collect()
}

fn own_policy(file: &AbsPath, facts: &Facts) -> OwnPolicy {
    let layer =
        read_policy_file(file).ok().and_then(|bytes| parse_bytes(&bytes, file, Source::User).ok());
    let project = layer.and_then(|layer| layer.policy.project).and_then(AbsPath::new);
    let state = match &project {
        None => OwnPolicyState::Broken,
        Some(path) if is_gone(path) => OwnPolicyState::Gone,
        Some(path) if own_policy_file_for(path, facts) != *file => OwnPolicyState::Misnamed,
        Some(_) => OwnPolicyState::Used,
    };
    OwnPolicy { file: file.clone(), project, state }
}

/// True if the directory does not exist. An unreadable directory does not count as gone.
fn is_gone(path: &AbsPath) -> bool {
    fs::metadata(path.as_path()).is_err_and(|error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    })
}

/// Protects the targets of the user's policy files that are links, such as links into the project
/// for users who keep their settings in a repository.
pub(crate) fn protect_targets(grants: &mut Grants, facts: &Facts) {
    let mut links = vec![user_policy_file(facts)];
    if !has_no_own_policies(facts) {
        links.extend([directory(facts), own_policy_file(facts)]);
        links.extend(enclosing_policies(facts).into_iter().map(|around| around.file));
    }
    for link in links {
        let Ok(target) = fs::read_link(link.as_path()) else { continue };
        let textual = link.parent().unwrap_or_else(AbsPath::root).join(target);
        let root = fs::canonicalize(link.as_path()).ok().and_then(AbsPath::new).unwrap_or(textual);
        let origin = Origin {
            reason: Some("it defines what commands may do".into()),
            ..Origin::new(Source::BuiltIn, root.to_string())
        };
        grants.rules.push(Rule { root, effect: Effect::Protect, origin, locked: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{PolicyFiles, read_layers};
    use crate::testing::TestHome;

    #[track_caller]
    fn check_code(home: &TestHome, expect: Result<usize, &str>) {
        let found = read_layers(&PolicyFiles::default(), &home.facts())
            .map(|layers| layers.len())
            .map_err(|error| error.code());
        assert_eq!(found, expect);
    }

    #[test]
    fn file_applies_only_to_the_project_it_names() {
        let home = TestHome::new();
        home.write("version = 1\n");
        let path = home.facts().workspace.to_string();
        home.write_own(&format!("version = 1\nproject = \"{path}\"\n"));
        check_code(&home, Ok(2));
        let service =
            PolicyFiles { service: AbsPath::new(home.policy()), ..PolicyFiles::default() };
        let found = read_layers(&service, &home.facts()).unwrap();
        assert!(found.iter().all(|layer| layer.policy.project.is_none()), "{found:?}");
        home.write_own(&format!("version = 1\nproject = \"{path}2\"\n"));
        check_code(&home, Err("policy-other-project"));
        home.write_own("version = 1\n");
        check_code(&home, Err("policy-other-project"));
        home.write_own("version = 1\nproject = \"p\"\n");
        check_code(&home, Err("policy-bad-value"));
    }

    #[test]
    fn project_key_is_refused_elsewhere() {
        let home = TestHome::new();
        let own = format!("version = 1\nproject = \"{}\"\n", home.facts().workspace);
        home.write(&own);
        check_code(&home, Err("policy-project-key"));
        home.write("version = 1\n");
        let shared = home.facts().workspace.join(".ringfence/policy.toml");
        fs::create_dir_all(shared.parent().unwrap().as_path()).unwrap();
        fs::write(shared.as_path(), &own).unwrap();
        check_code(&home, Err("policy-bad-value"));
    }

    #[test]
    fn any_project_name_survives_the_round_trip() {
        for name in ["plain", "with \"quotes\" \\ and\ttab", "é\u{1b}[31m", "line\nend"] {
            let home = TestHome::new();
            let facts = Facts { workspace: home.0.join(name), ..home.facts() };
            let file = own_policy_file(&facts);
            fs::create_dir_all(file.parent().unwrap().as_path()).unwrap();
            fs::write(file.as_path(), new_own_policy(&facts)).unwrap();
            assert_eq!(
                read_layers(&PolicyFiles::default(), &facts).map(|layers| layers.len()).ok(),
                Some(1),
                "{name:?}"
            );
        }
    }

    #[test]
    fn list_reports_used_gone_misnamed_and_broken_files() {
        let home = TestHome::new();
        let facts = home.facts();
        home.write_own(&new_own_policy(&facts));
        let gone = Facts { workspace: home.0.join("gone"), ..facts.clone() };
        fs::write(own_policy_file(&gone).as_path(), new_own_policy(&gone)).unwrap();
        let path_of = |name: &str| directory(&facts).join(name);
        fs::write(path_of("zz-copy.toml").as_path(), new_own_policy(&facts)).unwrap();
        fs::write(path_of("zz-wrong.toml").as_path(), "version = 1\n").unwrap();
        fs::write(path_of(".x.toml.new").as_path(), "").unwrap();
        let mut states: Vec<_> =
            own_policies(&facts).into_iter().map(|own| own.state.as_str()).collect();
        states.sort_unstable();
        assert_eq!(states, ["broken", "gone", "misnamed", "used"]);
    }
}
