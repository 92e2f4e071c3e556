//! Settings of other tools: lookup, and loading them as layers of the policy.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use ringfence_policy::import::LiveSettings;
use ringfence_policy::{
    AbsPath, Access, Effect, Facts, ForeignTool, Grants, Origin, Policy, PolicyLayer, Rule, Source,
    Verdict,
};

use crate::EngineError;
use crate::files::{PolicyFiles, is_missing, read_layers, read_policy_file};
use crate::host::config_directory_of;

/// The settings of Claude Code by the administrator.
const CLAUDE_MANAGED: &str = "/etc/claude-code/managed-settings.json";

/// Settings that apply as if the user's policy extended them: those of the agent that a hook
/// serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedSettings {
    /// The agent.
    pub tool: ForeignTool,
    /// The directory in which it was started: it reads settings there too.
    pub start: AbsPath,
}

/// Settings of another tool on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSettings {
    /// The tool.
    pub tool: ForeignTool,
    /// Its files with rules, or with a mistake.
    pub files: Vec<AbsPath>,
    /// True if a policy file extends the tool.
    pub is_extended: bool,
}

/// A place of settings.
struct SettingsPlace {
    file: AbsPath,
    author: Source,
}

/// The files of a tool, weakest first.
fn places(tool: ForeignTool, project: &AbsPath, facts: &Facts) -> Vec<SettingsPlace> {
    let at = |author: Source, file: AbsPath| SettingsPlace { file, author };
    let own = |variable, directory: &str, name: &str| {
        at(Source::User, config_directory_of(variable, directory, facts).join(name))
    };
    let shared = |name: &str| at(Source::Project, project.join(name));
    match tool {
        ForeignTool::ClaudeCode => {
            let own = [own("CLAUDE_CONFIG_DIR", ".claude", "settings.json")];
            let managed = AbsPath::new(CLAUDE_MANAGED).map(|file| at(Source::Managed, file));
            let shared = [".claude/settings.json", ".claude/settings.local.json"].map(shared);
            own.into_iter().chain(managed).chain(shared).collect()
        }
        ForeignTool::Codex => vec![own("CODEX_HOME", ".codex", "config.toml")],
        ForeignTool::Uds => vec![shared(".uds/config.yaml")],
        ForeignTool::Synapse => {
            vec![at(Source::User, facts.home.join(".synapse/sandbox.json"))]
        }
    }
}

/// The files of a tool's settings for the project, existing or not.
pub fn settings_files(tool: ForeignTool, facts: &Facts) -> Vec<AbsPath> {
    places(tool, &facts.workspace, facts).into_iter().map(|place| place.file).collect()
}

/// The lesser authority: settings can do no more than the file that extends them.
fn lesser(one: &Source, other: &Source) -> Source {
    let managed_and_user = [Source::Managed, Source::User];
    let rank = |source: &Source| {
        managed_and_user.iter().position(|known| known == source).unwrap_or(managed_and_user.len())
    };
    if rank(one) < rank(other) { other.clone() } else { one.clone() }
}

/// The settings of one tool.
#[derive(Default)]
struct LoadedSettings {
    /// Files of the user and the administrator.
    own: Vec<PolicyLayer>,
    /// Files of the project, whose author is not the user.
    of_project: Vec<PolicyLayer>,
    /// Files that do not exist.
    absent: Vec<AbsPath>,
}

/// Loads the settings of a tool for `project`, for a file with the authority `extender`.
fn load(
    tool: ForeignTool,
    project: &AbsPath,
    extender: &Source,
    facts: &Facts,
) -> Result<LoadedSettings, EngineError> {
    let mut loaded = LoadedSettings::default();
    // A repository must not make ringfence quote files outside it.
    let may_read =
        |place: &SettingsPlace| place.author == Source::Project || *extender != Source::Project;
    for place in places(tool, project, facts).into_iter().filter(may_read) {
        let file = &place.file;
        if place.author == Source::Project {
            refuse_foreign_link(file, project)?;
        }
        let bytes = match read_policy_file(file) {
            Ok(bytes) => bytes,
            Err(error) if is_missing(&error) => {
                loaded.absent.push(file.clone());
                continue;
            }
            Err(source) => return Err(EngineError::Unreadable { file: file.clone(), source }),
        };
        let source = lesser(&place.author, extender);
        let settings = LiveSettings { tool, file, source, directory: project };
        let is_of_project = place.author == Source::Project;
        let layers = if is_of_project { &mut loaded.of_project } else { &mut loaded.own };
        layers.push(settings.layer(&bytes)?);
    }
    Ok(loaded)
}

/// Refuses a link to a file of another name outside the project: errors may quote the file. A link
/// to settings elsewhere is common in worktrees.
fn refuse_foreign_link(file: &AbsPath, project: &AbsPath) -> Result<(), EngineError> {
    // Reading reports any error.
    let (Ok(real), Ok(project)) =
        (fs::canonicalize(file.as_path()), fs::canonicalize(project.as_path()))
    else {
        return Ok(());
    };
    if real.starts_with(project) || real.file_name() == file.as_path().file_name() {
        return Ok(());
    }
    let why = "it is a link to a file with another name outside the project";
    let source = io::Error::new(io::ErrorKind::PermissionDenied, why);
    Err(EngineError::Unreadable { file: file.clone(), source })
}

/// The layers with the settings that they extend.
#[derive(Debug, Default)]
pub(crate) struct ExtendedLayers {
    pub(crate) layers: Vec<PolicyLayer>,
    /// Settings that would apply if they existed.
    pub(crate) absent: Vec<AbsPath>,
}

/// Adds the settings of other tools that the layers extend.
///
/// Files of the user come directly before the file that extends them, files of the project directly
/// before the repository's policy: they rank like it, also if the user's policy extends them.
pub(crate) fn add_settings(
    layers: Vec<PolicyLayer>,
    files: &PolicyFiles,
    facts: &Facts,
) -> Result<ExtendedLayers, EngineError> {
    let mut all = ExtendedLayers::default();
    let (mut of_agent, mut of_project) = (Vec::new(), Vec::new());
    if let Some(settings) = &files.settings {
        let mut projects = vec![&facts.workspace, &settings.start];
        projects.dedup();
        for project in projects {
            let loaded = load(settings.tool, project, &Source::User, facts)?;
            add_new(&mut of_agent, loaded.own);
            add_new(&mut of_project, loaded.of_project);
        }
    }
    for mut layer in layers {
        for (tool, at) in layer.extended_tools() {
            let name = tool.name();
            if files.service.is_some() {
                layer.warnings.push(format!(
                    "{at}`{name}` in `extends` is ignored: the service reads no settings of other tools"
                ));
                continue;
            }
            let around = layer.enclosing_directory().cloned();
            let project = around.as_ref().unwrap_or(&facts.workspace);
            let loaded = load(tool, project, &layer.source, facts)?;
            if loaded.own.is_empty() && loaded.of_project.is_empty() {
                layer.warnings.push(format!("{at}{}", nothing_found(&loaded.absent, name)));
            }
            all.absent.extend(loaded.absent);
            let own = loaded.own.into_iter().map(|one| match &around {
                Some(around) => one.for_enclosing(around),
                None => one,
            });
            add_new(&mut all.layers, own);
            add_new(&mut of_project, loaded.of_project);
        }
        all.layers.push(layer);
    }
    of_agent.retain(|layer| !is_known(&all.layers, layer));
    insert_before(&mut all.layers, of_agent, |layer| layer.source != Source::Managed);
    insert_before(&mut all.layers, of_project, |layer| layer.source == Source::Project);
    Ok(all)
}

/// Inserts layers before the first that `is_above`, else at the end.
fn insert_before(
    layers: &mut Vec<PolicyLayer>,
    more: Vec<PolicyLayer>,
    is_above: impl Fn(&PolicyLayer) -> bool,
) {
    let rank = layers.iter().position(is_above).unwrap_or(layers.len());
    layers.splice(rank..rank, more);
}

/// True if the same file is among the layers, with the same authority and base directory.
fn is_known(layers: &[PolicyLayer], layer: &PolicyLayer) -> bool {
    let base = |layer: &PolicyLayer| layer.base_directory(&AbsPath::root());
    let is_same = |known: &PolicyLayer| {
        known.file == layer.file && known.source == layer.source && base(known) == base(layer)
    };
    layers.iter().any(is_same)
}

/// Adds layers of files that are not among the layers.
fn add_new(layers: &mut Vec<PolicyLayer>, more: impl IntoIterator<Item = PolicyLayer>) {
    for layer in more {
        if !is_known(layers, &layer) {
            layers.push(layer);
        }
    }
}

fn nothing_found(absent: &[AbsPath], name: &str) -> String {
    let files: Vec<String> = absent.iter().map(AbsPath::to_string).collect();
    if files.is_empty() {
        return format!(
            "`{name}` in `extends` has no effect: a project's file extends only files of the project; \
             put it into ~/.config/ringfence/policy.toml"
        );
    }
    format!("`{name}` in `extends` has no effect: no file {}", files.join(" or "))
}

/// Protects the settings of other tools, existing or not, and each link on the way to them. Also
/// those that no policy extends: a hook may apply them to the next command.
pub(crate) fn protect_settings(
    grants: &mut Grants,
    layers: &[PolicyLayer],
    absent: &[AbsPath],
    facts: &Facts,
) {
    let loaded = layers.iter().filter(|layer| layer.tool.is_some()).map(|layer| layer.file.clone());
    let known = ForeignTool::ALL.into_iter().flat_map(|tool| settings_files(tool, facts));
    let files: BTreeSet<AbsPath> = loaded.chain(absent.iter().cloned()).chain(known).collect();
    let roots: BTreeSet<AbsPath> = files.iter().flat_map(paths_to).collect();
    for root in roots {
        if grants.verdict(&root, Access::Write) != Verdict::Allowed {
            continue;
        }
        let origin = Origin {
            reason: Some("it defines what commands may do".into()),
            ..Origin::new(Source::BuiltIn, root.to_string())
        };
        grants.rules.push(Rule { root, effect: Effect::Protect, origin, locked: false });
    }
}

/// A file, and the paths that links on the way lead to, whether they exist or not.
fn paths_to(file: &AbsPath) -> Vec<AbsPath> {
    const MAX_LINKS: usize = 40;
    let mut found = vec![file.clone()];
    let mut here = file.clone();
    for _ in 0..MAX_LINKS {
        here = with_real_parents(&here);
        found.push(here.clone());
        let Ok(target) = fs::read_link(here.as_path()) else { break };
        here = here.parent().unwrap_or_else(AbsPath::root).join(target);
        found.push(here.clone());
    }
    found
}

/// The same path below its nearest existing directory without links.
fn with_real_parents(path: &AbsPath) -> AbsPath {
    let real = |directory: AbsPath| {
        let real = fs::canonicalize(directory.as_path()).ok().and_then(AbsPath::new)?;
        Some(real.join(path.relative_to(&directory)?))
    };
    path.ancestors().skip(1).find_map(real).unwrap_or_else(|| path.clone())
}

/// The settings of other tools on this host that contain rules for the project.
pub fn found_settings(facts: &Facts) -> Vec<FoundSettings> {
    let layers = read_layers(&PolicyFiles::default(), facts).unwrap_or_default();
    let extended: Vec<ForeignTool> =
        layers.iter().flat_map(PolicyLayer::extended_tools).map(|(tool, _)| tool).collect();
    let found = |tool: ForeignTool| FoundSettings {
        tool,
        files: settings_files(tool, facts)
            .into_iter()
            .filter(|file| has_rules(tool, file))
            .collect(),
        is_extended: extended.contains(&tool),
    };
    let all = ForeignTool::ALL.into_iter().map(found);
    all.filter(|found| !found.files.is_empty()).collect()
}

/// True if a file exists and has a rule or a mistake.
fn has_rules(tool: ForeignTool, file: &AbsPath) -> bool {
    let settings =
        LiveSettings { tool, file, source: Source::Project, directory: &AbsPath::root() };
    match read_policy_file(file) {
        Ok(bytes) => settings
            .layer(&bytes)
            .map_or(true, |layer| layer.policy != Policy::default() || !layer.warnings.is_empty()),
        Err(error) => !is_missing(&error),
    }
}

#[cfg(test)]
mod tests;
