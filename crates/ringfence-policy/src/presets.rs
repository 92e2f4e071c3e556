//! Presets for tools: their programs are read-only, their caches private to the project.

use crate::builtin;
use crate::facts::Facts;
use crate::grants::{Effect, Origin, Rule, Source};
use crate::path::AbsPath;

/// A tool and its directories below the home directory.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// Name in messages.
    pub name: &'static str,
    /// Programs that enable the preset if one of them is on `PATH`.
    pub probes: &'static [&'static str],
    /// Directories to open read-only.
    pub reads: &'static [ToolDir],
    /// Directories that the tool writes.
    pub caches: &'static [ToolCache],
    /// Files with credentials in its directories.
    pub denies: &'static [ToolDir],
    /// Files, and directories of files, denied if [`holds_secret`](crate::holds_secret) is true,
    /// such as for one of [`SECRET_WORDS`]; the tool needs the others. A component `*` is any name.
    pub suspects: &'static [ToolDir],
}

/// A directory of a tool: below the value of a variable if it is set, else below home.
#[derive(Debug, Clone, Copy)]
pub struct ToolDir {
    /// The variable that relocates it.
    pub variable: Option<&'static str>,
    /// Path below home, if the variable is not set.
    pub home: &'static str,
    /// Path below either of the two.
    pub below: &'static str,
}

/// A directory that a tool writes.
#[derive(Debug, Clone, Copy)]
pub struct ToolCache {
    /// The directory.
    pub place: ToolDir,
    /// True if the host's files are readable below it: only if they contain no secret.
    pub host_beneath: bool,
}

const fn at(home: &'static str) -> ToolDir {
    ToolDir { variable: None, home, below: "" }
}

const fn moved(variable: &'static str, home: &'static str, below: &'static str) -> ToolDir {
    ToolDir { variable: Some(variable), home, below }
}

const fn shared(place: ToolDir) -> ToolCache {
    ToolCache { place, host_beneath: true }
}

const fn own(place: ToolDir) -> ToolCache {
    ToolCache { place, host_beneath: false }
}

/// Words that mark a tool's file as containing credentials; ASCII case is ignored.
pub const SECRET_WORDS: &[&str] =
    &["token", "password", "passwd", "secret", "credentials", "apikey", "api-key", "api_key"];

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "cargo",
        probes: &["cargo", "rustc", "rustup"],
        reads: &[moved("CARGO_HOME", ".cargo", ""), moved("RUSTUP_HOME", ".rustup", "")],
        caches: &[
            shared(moved("CARGO_HOME", ".cargo", "registry")),
            shared(moved("CARGO_HOME", ".cargo", "git")),
        ],
        denies: &[
            moved("CARGO_HOME", ".cargo", "credentials"),
            moved("CARGO_HOME", ".cargo", "credentials.toml"),
        ],
        suspects: &[
            moved("CARGO_HOME", ".cargo", "config"),
            moved("CARGO_HOME", ".cargo", "config.toml"),
        ],
    },
    Preset {
        name: "node",
        probes: &["node", "npm", "pnpm", "yarn"],
        reads: &[
            moved("NVM_DIR", ".nvm", ""),
            moved("VOLTA_HOME", ".volta", ""),
            moved("FNM_DIR", ".local/share/fnm", ""),
            at(".fnm"),
        ],
        // npm keeps logs and an index with request headers in ~/.npm. `content-v2` holds only
        // packages, which npm finds by the digests of a lock file. pnpm and yarn keep their own
        // programs next to their stores.
        caches: &[
            own(at(".npm")),
            shared(at(".npm/_cacache/content-v2")),
            shared(at(".local/share/pnpm")),
            shared(at(".yarn")),
        ],
        denies: &[],
        // Each version has a global and a built-in npm configuration, which may contain tokens.
        suspects: &[
            moved("NVM_DIR", ".nvm", "versions/node/*/etc/npmrc"),
            moved("NVM_DIR", ".nvm", "versions/node/*/lib/node_modules/npm/npmrc"),
            moved("VOLTA_HOME", ".volta", "tools/image/node/*/etc/npmrc"),
            moved("FNM_DIR", ".local/share/fnm", "node-versions/*/installation/etc/npmrc"),
            at(".fnm/node-versions/*/installation/etc/npmrc"),
        ],
    },
    Preset {
        name: "python",
        probes: &["python3", "python", "pip", "uv", "pipx", "poetry"],
        reads: &[
            moved("PYENV_ROOT", ".pyenv", ""),
            at(".local/lib"),
            at(".local/share/pipx"),
            at(".local/share/uv"),
        ],
        // Index responses are stored with their request headers; wheels are built here.
        caches: &[shared(moved("XDG_CACHE_HOME", ".cache", "pip/wheels"))],
        denies: &[],
        suspects: &[moved("PYENV_ROOT", ".pyenv", "versions/*/pip.conf")],
    },
    Preset {
        name: "go",
        probes: &["go"],
        // Not `src`, where older projects live.
        reads: &[moved("GOPATH", "go", "bin")],
        caches: &[
            shared(moved("GOPATH", "go", "pkg")),
            shared(moved("XDG_CACHE_HOME", ".cache", "go-build")),
        ],
        denies: &[],
        suspects: &[],
    },
    Preset {
        name: "java",
        probes: &["java", "mvn", "gradle", "kotlinc"],
        reads: &[moved("SDKMAN_DIR", ".sdkman", ""), at(".jdks")],
        caches: &[shared(at(".m2/repository")), shared(moved("GRADLE_USER_HOME", ".gradle", ""))],
        denies: &[
            moved("GRADLE_USER_HOME", ".gradle", "gradle.properties"),
            moved("GRADLE_USER_HOME", ".gradle", "develocity/keys.properties"),
            moved("GRADLE_USER_HOME", ".gradle", "enterprise/keys.properties"),
            moved("GRADLE_USER_HOME", ".gradle", "secring.gpg"),
        ],
        suspects: &[
            moved("GRADLE_USER_HOME", ".gradle", "init.gradle"),
            moved("GRADLE_USER_HOME", ".gradle", "init.gradle.kts"),
            moved("GRADLE_USER_HOME", ".gradle", "init.d"),
        ],
    },
    Preset {
        name: "ruby",
        probes: &["ruby", "gem", "bundle"],
        reads: &[moved("RBENV_ROOT", ".rbenv", ""), at(".rvm")],
        caches: &[shared(moved("GEM_HOME", ".gem", ""))],
        denies: &[moved("GEM_HOME", ".gem", "credentials")],
        suspects: &[],
    },
    Preset {
        name: "deno",
        probes: &["deno"],
        reads: &[moved("DENO_INSTALL", ".deno", "")],
        caches: &[],
        denies: &[],
        suspects: &[],
    },
    Preset {
        name: "bun",
        probes: &["bun"],
        reads: &[moved("BUN_INSTALL", ".bun", "")],
        caches: &[shared(moved("BUN_INSTALL", ".bun", "install/cache"))],
        denies: &[],
        suspects: &[],
    },
    Preset {
        name: "browsers",
        probes: &[],
        reads: &[],
        // Browsers downloaded by test runners; profiles are elsewhere.
        caches: &[
            shared(moved("XDG_CACHE_HOME", ".cache", "ms-playwright")),
            shared(moved("XDG_CACHE_HOME", ".cache", "puppeteer")),
            shared(moved("XDG_CACHE_HOME", ".cache", "Cypress")),
        ],
        denies: &[],
        suspects: &[],
    },
    Preset {
        name: "models",
        probes: &[],
        reads: &[],
        caches: &[
            shared(moved("XDG_CACHE_HOME", ".cache", "huggingface/hub")),
            shared(moved("XDG_CACHE_HOME", ".cache", "torch")),
        ],
        denies: &[
            moved("XDG_CACHE_HOME", ".cache", "huggingface/token"),
            moved("XDG_CACHE_HOME", ".cache", "huggingface/stored_tokens"),
        ],
        suspects: &[],
    },
    Preset {
        name: "cache",
        probes: &[],
        reads: &[],
        // Caches of other programs contain pages, mails and tokens.
        caches: &[own(moved("XDG_CACHE_HOME", ".cache", ""))],
        denies: &[],
        suspects: &[],
    },
];

/// True if a tool was detected.
fn applies(preset: &Preset, facts: &Facts) -> bool {
    preset.probes.is_empty() || preset.probes.iter().any(|probe| facts.programs.contains(*probe))
}

/// Files and directories of detected tools that may contain credentials.
pub(crate) fn suspects(facts: &Facts) -> Vec<AbsPath> {
    let found = PRESETS.iter().filter(|preset| applies(preset, facts));
    found.flat_map(|preset| preset.suspects).filter_map(|place| place.resolve(facts)).collect()
}

/// The rules of all presets that apply.
pub(crate) fn rules(facts: &Facts) -> Vec<Rule> {
    let mut rules = Vec::new();
    for preset in PRESETS.iter().filter(|preset| applies(preset, facts)) {
        let found = |place: &ToolDir| place.resolve(facts);
        rules.extend(
            preset.reads.iter().filter_map(found).map(|root| rule(root, Effect::Read, preset.name)),
        );
        rules.extend(preset.caches.iter().filter_map(|cache| {
            let root = found(&cache.place)?;
            let store = store_for(&root, facts);
            Some(rule(
                root,
                Effect::Private { store, host_beneath: cache.host_beneath },
                preset.name,
            ))
        }));
        rules.extend(preset.denies.iter().filter_map(found).map(|root| {
            let origin = builtin::origin(&root.to_string());
            Rule { root, effect: Effect::Deny, origin, locked: false }
        }));
    }
    rules
}

/// Opens the directories on `PATH` that no rule in `rules` opens.
pub(crate) fn path_rules(facts: &Facts, rules: &[Rule]) -> Vec<Rule> {
    let mut opened: Vec<Rule> = Vec::new();
    for dir in &facts.path_dirs {
        let known =
            rules.iter().chain(&opened).any(|rule| rule.opens() && dir.is_within(&rule.root));
        if known || dir.is_within(&facts.workspace) {
            continue;
        }
        // Opens the tree of the tool, not only its `bin`.
        let installation = dir.parent().filter(|around| {
            facts.installations.contains(around) && is_one_tools_tree(around, facts)
        });
        match installation {
            Some(root) => opened.push(rule(root, Effect::Read, "installation")),
            None if is_narrow(dir, facts) => opened.push(rule(dir.clone(), Effect::Read, ON_PATH)),
            None => {}
        }
    }
    opened
}

/// Preset name of a directory on `PATH` without an installation. It may belong to any project, so
/// patterns apply in it.
pub(crate) const ON_PATH: &str = "path";

/// True if the directory is the tree of one tool: no top-level directory such as `/opt`, no home
/// directory, and not `~/.local`, where many programs keep files.
fn is_one_tools_tree(dir: &AbsPath, facts: &Facts) -> bool {
    let is_home_sibling = dir.parent() == facts.home.parent();
    dir.depth() >= 2
        && !is_home_sibling
        && *dir != facts.home.join(".local")
        && is_narrow(dir, facts)
}

/// True if opening the directory opens neither the home directory nor sibling projects.
fn is_narrow(dir: &AbsPath, facts: &Facts) -> bool {
    let siblings = facts.workspace.parent().unwrap_or_else(AbsPath::root);
    dir.depth() > 0 && !facts.home.is_within(dir) && !siblings.is_within(dir)
}

impl ToolDir {
    /// `None` if a variable points at a directory that is too broad to open.
    fn resolve(&self, facts: &Facts) -> Option<AbsPath> {
        let value = self.variable.and_then(|name| facts.variables.get(name)).and_then(|value| {
            // GOPATH may be a list; tools write to the first directory.
            AbsPath::new(value.split(':').next()?)
        });
        let base = value.unwrap_or_else(|| facts.home.join(self.home));
        let root = if self.below.is_empty() { base } else { base.join(self.below) };
        is_narrow(&root, facts).then_some(root)
    }
}

fn rule(root: AbsPath, effect: Effect, preset: &str) -> Rule {
    let text = root.to_string_lossy().into_owned();
    let origin = Origin::new(Source::Preset(preset.to_owned()), text);
    Rule { root, effect, origin, locked: false }
}

/// A flat name for each cache, so that no cache lies inside another.
fn store_for(root: &AbsPath, facts: &Facts) -> AbsPath {
    let relative = root.relative_to(&facts.home).unwrap_or(root.as_path());
    facts.store.join(relative.to_string_lossy().replace('/', "+"))
}

#[cfg(test)]
mod tests;
