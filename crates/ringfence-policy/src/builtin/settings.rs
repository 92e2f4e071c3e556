//! Settings that agents, editors, debuggers and shells load automatically.
//!
//! Each name is protected, even if it does not exist, in every writable root, in the start
//! directory of a command and the directories between it and the root, and at the top of every
//! repository and worktree. An existing one elsewhere is protected as well. One that a command
//! creates elsewhere belongs to the command (a template or a clone may contain it), except for the
//! files in `planted`: those start programs without a prompt and go to quarantine when the run
//! ends.
//!
//! `docs/protected-names.md` is generated from this table, and a test compares the two.

/// A name that other programs load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The name, or a path of two names (`.hg/hgrc`), below a working directory.
    pub text: &'static str,
    /// Reason for the entry.
    pub reason: &'static str,
    /// Files that a command must not leave behind in any directory.
    pub planted: &'static [PlantedFile],
}

/// A file that makes a program start another one without a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlantedFile {
    /// Path below the setting; empty for the setting itself.
    pub file: &'static str,
    /// Content that makes the file dangerous.
    pub content: SettingsContent,
}

/// Content that makes a file start programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsContent {
    /// Any content.
    Any,
    /// JSON with one of these words.
    Word(&'static [&'static str]),
    /// A section other than these, or an include of another file.
    SectionBeside(&'static [&'static str]),
}

/// A name that is not protected, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftAlone {
    /// The name.
    pub text: &'static str,
    /// Reason for which protection would gain nothing.
    pub reason: &'static str,
}

const fn s(text: &'static str, reason: &'static str) -> Setting {
    Setting { text, reason, planted: &[] }
}

const fn p(text: &'static str, reason: &'static str, planted: &'static [PlantedFile]) -> Setting {
    Setting { text, reason, planted }
}

const fn file(file: &'static str) -> PlantedFile {
    PlantedFile { file, content: SettingsContent::Any }
}

const fn holding(file: &'static str, words: &'static [&'static str]) -> PlantedFile {
    PlantedFile { file, content: SettingsContent::Word(words) }
}

/// The setting itself, with any content.
const ITSELF: &[PlantedFile] = &[file("")];
const SHELL: &str = "a shell runs it at start or end";
/// A Mercurial or Sapling configuration. A clone writes the section `paths`; most others can name
/// programs, through an option or an extension.
const HG_CONFIG: &[PlantedFile] =
    &[PlantedFile { file: "", content: SettingsContent::SectionBeside(&["paths"]) }];

/// Names that other programs of the user load.
pub const SETTINGS: &[Setting] = &[
    s(".ringfence", "the policy itself"),
    p(
        ".claude",
        "Claude Code: hooks, permissions, agents, commands",
        &[file("settings.json"), file("settings.local.json")],
    ),
    p(".mcp.json", "Claude Code and others: programs that an agent starts", ITSELF),
    p(".codex", "Codex: programs that it starts", &[file("config.toml"), file("hooks.json")]),
    s(".agents", "skills that agents run"),
    p(
        ".cursor",
        "Cursor: hooks, rules, programs that it starts",
        &[file("mcp.json"), file("hooks.json")],
    ),
    p(".gemini", "Gemini CLI: hooks, programs that it starts", &[file("settings.json")]),
    p(".qwen", "Qwen Code: programs that it starts", &[file("settings.json")]),
    p(".windsurf", "Windsurf: hooks, rules", &[file("hooks.json")]),
    p(".roo", "Roo Code: rules, programs that it starts", &[file("mcp.json")]),
    p(".kilocode", "Kilo Code: rules, programs that it starts", &[file("mcp.json")]),
    p(".kiro", "Kiro: hooks, programs that it starts", &[file("settings/mcp.json"), file("hooks")]),
    p(
        ".amazonq",
        "Amazon Q: agents, programs that it starts",
        &[file("mcp.json"), file("cli-agents")],
    ),
    p(".junie", "Junie: guidelines, programs that it starts", &[file("mcp/mcp.json")]),
    p(
        ".factory",
        "Factory: hooks, programs that it starts",
        &[file("mcp.json"), file("settings.json"), file("hooks.json")],
    ),
    p(".trae", "Trae: rules, programs that it starts", &[file("mcp.json")]),
    p(".continue", "Continue: programs that it starts", &[file("mcpServers"), file("config.yaml")]),
    p(".continuerc.json", "Continue: programs that it starts", ITSELF),
    p(
        ".opencode",
        "opencode: plugins that it runs",
        &[file("plugin"), file("plugins"), file("opencode.json"), file("opencode.jsonc")],
    ),
    p("opencode.json", "opencode: programs that it starts", ITSELF),
    p("opencode.jsonc", "opencode: programs that it starts", ITSELF),
    p("crush.json", "Crush: language servers and other programs that it starts", ITSELF),
    p(".crush.json", "Crush: language servers and other programs that it starts", ITSELF),
    p(".aider.conf.yml", "aider: commands that it runs", ITSELF),
    p(".github/hooks", "GitHub Copilot CLI: hooks that it runs", ITSELF),
    p(".clinerules/hooks", "Cline: hooks that it runs", ITSELF),
    s(".devcontainer", "commands that an editor runs on the host"),
    s(".devcontainer.json", "commands that an editor runs on the host"),
    p(
        ".vscode",
        "VS Code: tasks, programs that it starts",
        &[holding("tasks.json", &["folderOpen"]), file("mcp.json")],
    ),
    s(".idea", "JetBrains: run configurations"),
    s(".zed", "Zed: tasks, language servers"),
    p(
        ".helix",
        "Helix: language servers that it starts",
        &[file("languages.toml"), file("config.toml")],
    ),
    s(".nvim.lua", "Neovim runs it, with `exrc`"),
    s(".nvimrc", "Neovim runs it, with `exrc`"),
    s(".exrc", "vi runs it, with `exrc`"),
    s(".vimrc", "Vim runs it, with `exrc`"),
    s("_vimrc", "Vim runs it, with `exrc`"),
    s(".dir-locals.el", "Emacs evaluates it, for all directories below"),
    s(".gdbinit", "gdb runs it"),
    s(".lldbinit", "lldb runs it"),
    s(".pdbrc", "Python's debugger runs it in the current directory"),
    s(".Rprofile", "R runs it in the current directory"),
    s(".irbrc", "irb runs it in the current directory"),
    s(".gitmodules", "URLs that git fetches"),
    s(".gitconfig", "names programs that git runs"),
    p(".lazygit.yml", "lazygit: programs that it runs in all repositories below", ITSELF),
    p(".hg/hgrc", "Mercurial: hooks, aliases, extensions", HG_CONFIG),
    p(".sl/config", "Sapling: hooks, aliases, extensions", HG_CONFIG),
    p(".hg/hgrc-not-shared", "Mercurial: hooks, aliases, extensions", HG_CONFIG),
    p(".hg/sharedpath", "leads Mercurial to a repository with hooks of its own", ITSELF),
    p(".sl/sharedpath", "leads Sapling to a repository with hooks of its own", ITSELF),
    p(".jj/repo/config.toml", "Jujutsu: aliases and tools that it runs", ITSELF),
    p(".jj/workspace-config.toml", "Jujutsu: aliases and tools that it runs", ITSELF),
    s(".ripgreprc", "names a preprocessor that rg runs"),
    s(".bashrc", SHELL),
    s(".bash_profile", SHELL),
    s(".bash_login", SHELL),
    s(".bash_logout", SHELL),
    s(".profile", SHELL),
    s(".zshrc", SHELL),
    s(".zshenv", SHELL),
    s(".zprofile", SHELL),
    s(".zlogin", SHELL),
    s(".zlogout", SHELL),
    s(".kshrc", SHELL),
    s(".cshrc", SHELL),
    s(".tcshrc", SHELL),
    s(".inputrc", "key bindings that type for the user"),
];

/// Paths at which a program expects its own directory, and follows a file to another one. Such a
/// directory is not protected as a whole: the program writes its data there.
pub const POINTERS: &[Setting] =
    &[p(".jj/repo", "as a file, leads Jujutsu to a repository with tools of its own", ITSELF)];

const fn l(text: &'static str, reason: &'static str) -> LeftAlone {
    LeftAlone { text, reason }
}

/// Names that were considered and are not protected.
pub const NOT_PROTECTED: &[LeftAlone] = &[
    l(
        ".cargo/config.toml",
        "loaded by `cargo build`, which runs the project's own code (build.rs) anyway",
    ),
    l(".yarnrc.yml", "loaded by `yarn install`, which runs the scripts of package.json anyway"),
    l(".pnpmfile.cjs", "loaded by `pnpm install`, which runs the scripts of package.json anyway"),
    l(".npmrc", "loaded by npm, which runs the scripts of package.json anyway"),
    l(
        "Makefile, justfile, package.json, conftest.py",
        "source code of the project: the user must read it before running it",
    ),
    l(
        "CLAUDE.md, AGENTS.md, .cursorrules, .clinerules",
        "text for a model, not a program; agents edit it as part of their work",
    ),
    l(
        ".editorconfig, .prettierrc, .eslintrc.*",
        "format and lint settings; plugins are code of the project",
    ),
    l(
        "*.code-workspace",
        "VS Code loads it when the user opens this file; a clone may have to write one",
    ),
];

impl Setting {
    /// The path as names; the first lies in the working directory.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &'static str> {
        self.text.split('/')
    }

    /// True if the first `count` of its names are the last ones of a path.
    fn ends<'a>(&self, path: impl DoubleEndedIterator<Item = &'a [u8]>, count: usize) -> bool {
        let (mut path, count) = (path.rev(), count.min(self.names().count()));
        let mut names = self.text.split('/').rev().skip(self.names().count() - count);
        names.all(|name| {
            path.next().is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
        })
    }
}

/// The setting that `names`, the last names of a path, refer to; ASCII case is ignored.
///
/// Also returns the number of names of the setting.
pub fn setting_at<'a>(
    names: impl DoubleEndedIterator<Item = &'a [u8]> + Clone,
) -> Option<(&'static Setting, usize)> {
    let setting = SETTINGS.iter().find(|setting| setting.ends(names.clone(), usize::MAX))?;
    Some((setting, setting.names().count()))
}

/// The pointer that `names`, the last names of a path, refer to, and the number of its names.
pub fn pointer_at<'a>(
    names: impl DoubleEndedIterator<Item = &'a [u8]> + Clone,
) -> Option<(&'static Setting, usize)> {
    let pointer = POINTERS.iter().find(|pointer| pointer.ends(names.clone(), usize::MAX))?;
    Some((pointer, pointer.names().count()))
}

/// The setting that starts programs from the file at `names`, the last names of a path. Also
/// returns the number of names, counted from the first one of the setting.
pub fn planted_at<'a>(
    names: impl DoubleEndedIterator<Item = &'a [u8]> + Clone,
) -> Option<(&'static Setting, usize)> {
    let files = SETTINGS
        .iter()
        .chain(POINTERS)
        .flat_map(|setting| setting.planted.iter().map(move |planted| (setting, planted)));
    files.into_iter().find_map(|(setting, planted)| {
        let wanted: Vec<&str> = setting
            .names()
            .chain(planted.file.split('/').filter(|name| !name.is_empty()))
            .collect();
        let mut path = names.clone().rev();
        let mut backwards = wanted.iter().rev();
        let is_one = backwards.all(|name| {
            path.next().is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
        });
        is_one.then_some((setting, wanted.len()))
    })
}

/// The settings with several names that may lie below a path, as `.hg/hgrc` below `.hg`: those
/// whose first names are the last ones of the path. Each comes with the number of these names.
pub fn settings_below<'a>(
    names: impl DoubleEndedIterator<Item = &'a [u8]> + Clone,
) -> impl Iterator<Item = (&'static Setting, usize)> {
    SETTINGS.iter().filter_map(move |setting| {
        let count = setting.names().count();
        (1..count).find(|first| setting.ends(names.clone(), *first)).map(|first| (setting, first))
    })
}

/// Renders the tables as their documentation page.
pub fn render_page() -> String {
    let mut page = String::from(PAGE_HEAD);
    for setting in SETTINGS {
        let files: Vec<String> =
            setting.planted.iter().map(|planted| planted.shown(setting.text)).collect();
        let moved = if files.is_empty() { "-".to_owned() } else { files.join(", ") };
        page.push_str(&format!("| `{}` | {} | {moved} |\n", setting.text, setting.reason));
    }
    for pointer in POINTERS {
        page.push_str(&format!(
            "| `{}`, unless it is a directory | {} | itself, unless it leads to a `{}` of the project |\n",
            pointer.text, pointer.reason, pointer.text
        ));
    }
    page.push_str(PAGE_LEFT);
    for left in NOT_PROTECTED {
        page.push_str(&format!("| `{}` | {} |\n", left.text, left.reason));
    }
    page
}

impl PlantedFile {
    fn shown(&self, setting: &str) -> String {
        let path = if self.file.is_empty() {
            setting.to_owned()
        } else {
            format!("{setting}/{}", self.file)
        };
        match self.content {
            SettingsContent::Any => format!("`{path}`"),
            SettingsContent::Word(words) => format!("`{path}` with `{}`", words.join("` or `")),
            SettingsContent::SectionBeside(sections) => {
                format!("`{path}` with more than `[{}]`", sections.join("]` or `["))
            }
        }
    }
}

const PAGE_HEAD: &str = "# Protected names

Generated from `crates/ringfence-policy/src/builtin/settings.rs`. To update it:
`cargo run -p ringfence-policy --example protected_names > docs/protected-names.md`

Programs of the user load these files automatically. A command can read them. It cannot create,
change, move or remove them, in upper or lower case:

- directly below each writable root, even if they do not exist;
- in the start directory of the command or the agent, and in each directory between it and the
  root, even if they do not exist;
- at the top of each existing repository and worktree, even if they do not exist;
- wherever else they exist when the run starts, except in vendored trees (`node_modules`).

Elsewhere a command may create them: a template or a clone may contain them. The files in the last
column start programs without a prompt. If a command created one, ringfence moves it to quarantine
when the run ends, and reports it. In vendored trees they stay.

To open one: `ringfence run --write PATH`, or `write` in `~/.config/ringfence/policy.toml`.

| name | loaded by | moved to quarantine if new elsewhere |
|---|---|---|
";

const PAGE_LEFT: &str = "
Considered and not protected:

| name | reason |
|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_protected_names_is_the_table() {
        let written = include_str!("../../../../docs/protected-names.md");
        assert!(
            written == render_page(),
            "update it: cargo run -p ringfence-policy --example protected_names > docs/protected-names.md"
        );
    }

    #[test]
    fn every_name_is_listed_once_with_a_reason() {
        let mut names: Vec<&str> = SETTINGS
            .iter()
            .map(|setting| setting.text)
            .chain(NOT_PROTECTED.iter().map(|left| left.text))
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(
            SETTINGS.iter().all(|setting| setting.reason.len() > 8)
                && NOT_PROTECTED.iter().all(|left| left.reason.len() > 20)
        );
    }

    /// Names from the audit's list; each must be in one of the tables.
    #[test]
    fn every_audited_name_is_in_a_table() {
        let audited = ".devcontainer.json opencode.jsonc crush.json .crush.json .qwen .amazonq .kilocode .junie .factory .trae \
                     .continuerc.json .vimrc .nvimrc _vimrc .dir-locals.el .helix .lldbinit .pdbrc .Rprofile .irbrc .hg/hgrc \
                     .jj/repo/config.toml .sl/config .cargo/config.toml .yarnrc.yml .pnpmfile.cjs";
        for name in audited.split_whitespace() {
            let is_protected = SETTINGS.iter().any(|setting| setting.text == name);
            assert!(is_protected != NOT_PROTECTED.iter().any(|left| left.text == name), "{name}");
        }
    }

    #[test]
    fn settings_are_found_by_their_last_names() {
        let at = |path: &'static str| {
            let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
            setting_at(names.iter().copied()).map(|(setting, _)| setting.text)
        };
        assert_eq!(at("a/b/.claude"), Some(".claude"));
        assert_eq!(at("a/.MCP.json"), Some(".mcp.json"));
        assert_eq!(at("a/.hg/hgrc"), Some(".hg/hgrc"));
        assert_eq!(at("hgrc"), None);
        assert_eq!(at("a/.claude/x"), None);
        assert_eq!(at("a/.jj/repo/config.toml"), Some(".jj/repo/config.toml"));
    }

    #[test]
    fn files_that_start_programs_are_found_by_their_last_names() {
        let at = |path: &'static str| {
            let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
            planted_at(names.iter().copied()).map(|(setting, count)| (setting.text, count))
        };
        assert_eq!(at("a/.MCP.json"), Some((".mcp.json", 1)));
        assert_eq!(at("a/.claude/settings.json"), Some((".claude", 2)));
        assert_eq!(at("a/.kiro/settings/mcp.json"), Some((".kiro", 3)));
        assert_eq!(at("a/.github/hooks"), Some((".github/hooks", 2)));
        assert_eq!(at("a/.jj/repo"), Some((".jj/repo", 2)));
        for path in [
            "a/.claude",
            "a/.claude/commands/x.md",
            "settings.json",
            "hooks",
            ".idea",
            "a/.mcp.json/x",
        ] {
            assert_eq!(at(path), None, "{path}");
        }
    }

    #[test]
    fn settings_of_several_names_are_found_by_their_first_names() {
        let below = |path: &'static str| {
            let names: Vec<&[u8]> = path.split('/').map(str::as_bytes).collect();
            settings_below(names.iter().copied())
                .map(|(setting, first)| (setting.text, first))
                .collect::<Vec<_>>()
        };
        assert_eq!(below("a/.sl"), [(".sl/config", 1), (".sl/sharedpath", 1)]);
        assert_eq!(below("a/.JJ/repo"), [(".jj/repo/config.toml", 2)]);
        assert_eq!(below(".hg").len(), 3);
        for path in ["a/.claude", "repo", ".hg/hgrc", ".hg/store"] {
            assert_eq!(below(path), [], "{path}");
        }
        assert!(pointer_at([b"a".as_slice(), b".jj", b"repo"].into_iter()).is_some());
        assert!(pointer_at([b"a".as_slice(), b"repo"].into_iter()).is_none());
    }
}
