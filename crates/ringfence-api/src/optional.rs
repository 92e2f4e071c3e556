//! Files and hosts that a program tries by itself and does not need.
//!
//! A shell reads `~/.profile`, npm reads `~/.npmrc`, curl reads `~/.curlrc`: each looks for its own
//! settings at start-up and goes on without them. A denial of such a file is recorded, but it is
//! not the reason why a command failed. The tables are keyed by the program, so that another
//! program's access to the same file (`cat ~/.npmrc`) still counts. An access also counts if the
//! command line names the file (`bash -c '. ~/.profile'`).
//!
//! A file that a program needs is in no table: ssh fails if it cannot open `~/.ssh/config`, as do
//! Maven with `~/.m2/settings.xml` and Gradle with `~/.gradle/gradle.properties`, and kubectl has
//! no server without `~/.kube/config`.

use std::path::Path;

use crate::outcome::Operation;

/// Programs, words of which one must be in the command line, and the programs' own files.
///
/// The program is the name of the executable without version (`python3.11` is `python`). Words are
/// given if the executable is an interpreter. A file also means everything below it; a trailing `*`
/// matches any suffix.
type OwnFiles = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// Programs, and the files that they read (or keep a history in) by themselves.
const OWN_FILES: &[OwnFiles] = &[
    // Shells.
    (
        &["bash", "rbash"],
        &[],
        &["~/.profile", "~/.bash*", "/etc/bash*", "/etc/profile", "/etc/profile.d"],
    ),
    (
        &["sh", "dash", "ash", "busybox"],
        &[],
        &["~/.profile", "~/.shrc", "~/.shinit", "/etc/profile", "/etc/profile.d"],
    ),
    (
        &["ksh", "mksh", "ksh93"],
        &[],
        &["~/.profile", "~/.kshrc", "~/.mkshrc", "/etc/profile", "/etc/profile.d"],
    ),
    (
        &["zsh"],
        &[],
        &[
            "~/.zshenv",
            "~/.zprofile",
            "~/.zshrc*",
            "~/.zlogin",
            "~/.zlogout",
            "~/.zcompdump*",
            "~/.zsh*",
            "/etc/zsh",
        ],
    ),
    (&["fish"], &[], &["~/.local/share/fish"]),
    // Version control.
    (
        &["git", "git-remote-http", "git-remote-https", "git-lfs"],
        &[],
        &["~/.gitconfig*", "~/.gitignore*", "~/.gitattributes*", "~/.gitmessage*", "~/.netrc"],
    ),
    (&["svn"], &[], &["~/.subversion"]),
    (&["python", "hg"], &["hg"], &["~/.hgrc", "~/.config/hg", "/etc/mercurial"]),
    // Transfer.
    (&["curl"], &[], &["~/.netrc", "~/.curl-hsts"]),
    (&["wget"], &[], &["~/.netrc", "~/.wget-hsts"]),
    (&["rsync"], &[], &["~/.popt", "~/.cvsignore"]),
    (&["dig", "nslookup", "host"], &[], &["~/.digrc"]),
    // Package managers and what they are written in.
    (
        &["node"],
        &["npm*", "npx*", "pnpm*", "pnpx*", "yarn*", "corepack", "node-gyp*"],
        &[
            "~/.npmrc",
            "~/.yarnrc*",
            "~/.pnpmfile*",
            "~/.config/pnpm",
            "~/.config/yarn",
            "~/.config/npm",
            "~/.config/configstore",
            "/etc/npmrc",
        ],
    ),
    (
        &["node"],
        &[],
        &["~/.node_repl_history", "~/.node_modules", "~/.node_libraries", "~/.config/configstore"],
    ),
    (&["bun"], &[], &["~/.npmrc", "~/.bunfig.toml"]),
    (&["deno"], &[], &["~/.npmrc"]),
    (
        &["python", "pip"],
        &["pip*", "__pip-runner__.py"],
        &[
            "~/.config/pip",
            "~/.pip",
            "/etc/pip.conf",
            "/etc/xdg/pip",
            "~/.netrc",
            "~/.pydistutils.cfg",
        ],
    ),
    (&["python"], &["conda*", "mamba*"], &["~/.condarc", "~/.conda"]),
    (&["python"], &["poetry"], &["~/.config/pypoetry", "~/.netrc"]),
    (&["python"], &["ansible*"], &["~/.ansible.cfg", "/etc/ansible"]),
    (
        &["python"],
        &["pylint*", "flake8", "mypy", "black", "yapf", "pytest", "py.test"],
        &["~/.pylintrc", "~/.flake8", "~/.mypy.ini", "~/.config/*"],
    ),
    (&["python"], &["ipython*", "jupyter*"], &["~/.ipython", "~/.jupyter"]),
    (
        &["python"],
        &[],
        &[
            "~/.python_history",
            "~/.pythonrc*",
            "~/.pdbrc",
            "~/.config/matplotlib",
            "~/.pydistutils.cfg",
        ],
    ),
    (&["uv", "uvx"], &[], &["~/.config/uv", "/etc/uv", "~/.config/pip", "~/.netrc"]),
    (
        &["ruby"],
        &["gem*", "bundle*", "irb*", "rake*", "rails*"],
        &["~/.gemrc", "~/.bundle", "~/.irbrc", "~/.irb_history", "~/.rakerc", "/etc/gemrc"],
    ),
    (
        &["perl"],
        &["ack*", "cpan*", "perltidy", "perlcritic"],
        &["~/.ackrc", "~/.cpan", "~/.cpanm", "~/.perltidyrc", "~/.perlcriticrc"],
    ),
    (&["perl"], &[], &["~/.perldb"]),
    (&["php"], &["composer*"], &["~/.config/composer", "~/.composer"]),
    (
        &["java"],
        &["*maven*", "*plexus*"],
        &["~/.m2/settings-security.xml", "~/.m2/toolchains.xml", "~/.mavenrc"],
    ),
    (&["java"], &["*gradle*"], &["~/.gradle/init*"]),
    (&["sh", "bash", "dash"], &["mvn*", "ant", "gradle*"], &["~/.mavenrc", "~/.antrc", "~/.ant"]),
    (&["r"], &[], &["~/.rprofile", "~/.renviron", "~/.Rprofile", "~/.Renviron", "~/.Rhistory"]),
    // Debuggers, editors, pagers, terminals.
    (&["gdb"], &[], &["~/.gdbinit", "~/.gdbearlyinit", "~/.gdb_history"]),
    (&["lldb"], &[], &["~/.lldbinit*", "~/.lldb"]),
    (
        &["vim", "vi", "ex", "view", "rvim", "vimdiff", "nvim"],
        &[],
        &[
            "~/.vimrc*",
            "~/.vim",
            "~/.exrc",
            "~/.gvimrc*",
            "~/.viminfo*",
            "~/.config/vim",
            "~/.local/share/nvim",
            "~/.local/state/nvim",
        ],
    ),
    (&["emacs"], &[], &["~/.emacs*"]),
    (&["nano", "rnano", "pico"], &[], &["~/.nanorc", "~/.nano", "~/.local/share/nano"]),
    (&["less", "lesspipe"], &[], &["~/.lesskey*", "~/.less*", "~/.config/lesskey"]),
    (
        &["man", "whatis", "apropos", "manpath", "mandb"],
        &[],
        &["~/.manpath", "/var/cache/man", "/var/catman", "/etc/manpath.config"],
    ),
    (&["top", "ps"], &[], &["~/.toprc", "~/.config/procps"]),
    (&["ctags"], &[], &["~/.ctags*"]),
    // Databases: their settings, not their passwords.
    (&["sqlite"], &[], &["~/.sqliterc", "~/.sqlite_history", "~/.config/sqlite3"]),
    (&["psql"], &[], &["~/.psqlrc*", "~/.psql_history", "~/.pg_service.conf", "~/.postgresql"]),
    (
        &["mysql", "mariadb", "mysqldump"],
        &[],
        &["~/.my.cnf", "~/.mylogin.cnf", "~/.mysql_history", "/etc/my.cnf*", "/etc/mysql"],
    ),
    // Containers: without settings, the local daemon is used.
    (&["docker", "docker-compose", "docker-buildx"], &[], &["~/.docker"]),
    (&["podman", "buildah", "skopeo"], &[], &["~/.config/containers", "/etc/containers"]),
    (&["terraform", "tofu"], &[], &["~/.terraformrc", "~/.terraform.d", "~/.tofurc"]),
];

/// Files that libraries read in any program: ncurses, readline, libedit, popt, fontconfig.
const OF_LIBRARIES: &[&str] = &[
    "~/.terminfo",
    "/etc/terminfo",
    "~/.inputrc",
    "/etc/inputrc",
    "~/.editrc",
    "~/.fonts*",
    "~/.config/fontconfig",
    "~/.local/share/fonts",
];

/// Project settings that tools also look for in every directory above the project.
const LOOKED_FOR_UPWARDS: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    ".jj",
    ".editorconfig",
    ".gitignore",
    ".ignore",
    ".rgignore",
    ".fdignore",
    ".yarnrc*",
    ".pnp.*",
    "package.json",
    "node_modules",
    "pnpm-workspace.yaml",
    "lerna.json",
    "nx.json",
    "turbo.json",
    "tsconfig*.json",
    "jsconfig.json",
    ".eslintrc*",
    "eslint.config.*",
    ".prettierrc*",
    ".babelrc*",
    "babel.config.*",
    ".browserslistrc",
    ".postcssrc*",
    ".nvmrc",
    ".node-version",
    ".tool-versions",
    ".mise.toml",
    "mise.toml",
    "pyproject.toml",
    "setup.cfg",
    "tox.ini",
    "pytest.ini",
    ".python-version",
    ".flake8",
    ".pylintrc",
    "mypy.ini",
    ".mypy.ini",
    "ruff.toml",
    ".ruff.toml",
    "uv.toml",
    "Pipfile",
    "Cargo.toml",
    ".cargo",
    "rustfmt.toml",
    ".rustfmt.toml",
    "clippy.toml",
    ".clippy.toml",
    "rust-toolchain*",
    "go.mod",
    "go.work",
    ".clang-format",
    ".clang-tidy",
    ".clangd",
    "Gemfile",
    ".ruby-version",
    ".rubocop.yml",
    "composer.json",
    "global.json",
    "Directory.Build.*",
    "settings.gradle*",
    ".mvn",
    ".envrc",
];

/// Programs, words of which one must be in the command line, and the hosts that they contact for
/// updates or telemetry.
const OWN_HOSTS: &[OwnFiles] = &[
    (&["node"], &["next*"], &["telemetry.nextjs.org"]),
    (&["node"], &["astro*"], &["telemetry.astro.build"]),
    (&["node"], &["gatsby*"], &["analytics.gatsbyjs.com"]),
    (&["node"], &["storybook*"], &["storybook.js.org"]),
    (&["node"], &["yarn*"], &["yarnpkg.com"]),
    (&["deno"], &[], &["dl.deno.land"]),
    (&["terraform"], &[], &["checkpoint-api.hashicorp.com"]),
    (&["dotnet"], &[], &["dc.services.visualstudio.com"]),
    (&["go"], &[], &["telemetry.go.dev"]),
];

/// npm subcommands that need no package: they contact the registry only to look for a newer npm.
const NPM_OFFLINE: &[&str] = &[
    "test",
    "t",
    "tst",
    "run",
    "run-script",
    "start",
    "stop",
    "restart",
    "ls",
    "list",
    "root",
    "prefix",
    "bin",
    "config",
    "help",
    "pkg",
    "why",
    "explain",
];

/// A denied access.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The operation that was denied.
    pub operation: Operation,
    /// The path or the host.
    pub target: &'a str,
    /// The executable of the process.
    pub program: &'a str,
    /// True if a written rule denied it.
    pub explicit: bool,
    /// The home directory inside the sandbox.
    pub home: &'a Path,
    /// The project.
    pub workspace: &'a Path,
}

impl Attempt<'_> {
    /// True if the program tries this by itself and does not need it.
    ///
    /// `command_line` returns the arguments of the process, separated by NUL. It is called only if
    /// the tables do not decide alone; an empty result means that the process is gone.
    pub fn is_optional(&self, command_line: impl FnOnce() -> Vec<u8>) -> bool {
        let program = base_name(self.program);
        let name = without_version(program);
        match self.operation {
            Operation::Connect => {
                let is_npm_update_check = name == "node" && self.target == "registry.npmjs.org";
                let own: Vec<_> = OWN_HOSTS
                    .iter()
                    .filter(|(programs, _, hosts)| {
                        programs.contains(&name) && hosts.contains(&self.target)
                    })
                    .collect();
                if !is_npm_update_check && own.is_empty() {
                    return false;
                }
                let line = CommandLine::new(command_line());
                own.iter().any(|(_, words, _)| line.runs_any(words))
                    || (is_npm_update_check && line.is_npm_offline())
            }
            Operation::Read | Operation::Write | Operation::Create | Operation::Rename => {
                let own: Vec<_> = OWN_FILES
                    .iter()
                    .filter(|(programs, _, files)| {
                        programs.contains(&name) && self.is_one_of(files)
                    })
                    .collect();
                let general = self.is_general(program)
                    || self.is_general(name)
                    || self.is_looked_for_upwards();
                if own.is_empty() && !general {
                    return false;
                }
                let line = CommandLine::new(command_line());
                !line.names(self.target)
                    && (general || own.iter().any(|(_, words, _)| line.runs_any(words)))
            }
            Operation::Execute | Operation::Call | Operation::Command => false,
        }
    }

    fn is_one_of(&self, files: &[&str]) -> bool {
        files.iter().any(|file| self.is_below(file))
    }

    fn is_below(&self, file: &str) -> bool {
        let below = match file.strip_prefix("~/") {
            Some(file) => {
                Path::new(self.target).strip_prefix(self.home).ok().map(|below| (below, file))
            }
            None => Path::new(self.target).strip_prefix("/").ok().zip(file.strip_prefix('/')),
        };
        let Some((below, file)) = below else { return false };
        let mut parts = below.iter().map(|part| part.to_string_lossy());
        file.split('/').all(|wanted| parts.next().is_some_and(|part| matches(wanted, &part)))
    }

    /// True for settings named after the program, unless a written rule denies them, and for those
    /// of libraries.
    fn is_general(&self, name: &str) -> bool {
        let named = || {
            let own = [
                "~/.{}rc",
                "~/.{}.conf",
                "~/.{}",
                "~/.{}_history",
                "~/.config/{}",
                "~/.config/{}rc",
                "~/.config/{}.conf",
            ];
            let machine = ["/etc/{}rc", "/etc/{}.conf", "/etc/{}", "/etc/xdg/{}"];
            own.iter().chain(&machine).any(|form| self.is_below(&form.replace("{}", name)))
        };
        !self.explicit && !name.is_empty() && (self.is_one_of(OF_LIBRARIES) || named())
    }

    /// True for project settings in a directory above the project.
    fn is_looked_for_upwards(&self) -> bool {
        let above = self.workspace.ancestors().skip(1);
        let rest = above.filter_map(|above| Path::new(self.target).strip_prefix(above).ok()).next();
        let first = rest.and_then(|rest| rest.iter().next()).map(|name| name.to_string_lossy());
        let is_setting = first
            .is_some_and(|name| LOOKED_FOR_UPWARDS.iter().any(|wanted| matches(wanted, &name)));
        self.operation == Operation::Read && !self.explicit && is_setting
    }
}

/// The arguments of a process.
struct CommandLine(Vec<String>);

impl CommandLine {
    fn new(bytes: Vec<u8>) -> Self {
        Self(
            bytes
                .split(|byte| *byte == 0)
                .filter(|word| !word.is_empty())
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
        )
    }

    /// True if `words` is empty, or one of them is the name of the program or script.
    fn runs_any(&self, words: &[&str]) -> bool {
        // A process may have set its own title: `npm test` is then one argument.
        let names =
            self.0.iter().take(8).flat_map(|argument| argument.split(' ').take(2)).map(base_name);
        words.is_empty()
            || names.into_iter().any(|name| words.iter().any(|word| matches(word, name)))
    }

    /// True if an argument names the file: then the access is the command's own.
    fn names(&self, target: &str) -> bool {
        let name = base_name(target);
        self.0.iter().skip(1).any(|argument| argument.contains(name))
    }

    /// True for npm with a subcommand that needs no registry.
    fn is_npm_offline(&self) -> bool {
        let mut words =
            self.0.iter().flat_map(|argument| argument.split(' ')).filter(|word| !word.is_empty());
        let is_npm = |word: &str| matches!(base_name(word), "npm" | "npm-cli.js");
        words.any(is_npm)
            && words
                .find(|word| !word.starts_with('-'))
                .is_some_and(|word| NPM_OFFLINE.contains(&word))
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Maps `python3.11` to `python`, `vim.basic` to `vim`, `gcc-12` to `gcc`.
fn without_version(name: &str) -> &str {
    let name = name.split('.').next().unwrap_or(name);
    name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-')
}

/// True if `name` matches `wanted`, in which each `*` matches any text.
fn matches(wanted: &str, name: &str) -> bool {
    let Some((first, rest)) = wanted.split_once('*') else { return wanted == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut rest = rest.split('*').peekable();
    while let Some(part) = rest.next() {
        if rest.peek().is_none() {
            return left.ends_with(part);
        }
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt<'a>(
        operation: Operation,
        program: &'a str,
        target: &'a str,
        explicit: bool,
    ) -> Attempt<'a> {
        Attempt {
            operation,
            target,
            program,
            explicit,
            home: Path::new("/home/me"),
            workspace: Path::new("/home/me/code/app"),
        }
    }

    #[track_caller]
    fn check(expect: bool, program: &str, line: &str, target: &str) {
        let target = target.replace("~/", "/home/me/");
        let operation = if target.starts_with('/') { Operation::Read } else { Operation::Connect };
        let is_optional = attempt(operation, program, &target, false)
            .is_optional(|| line.replace(' ', "\0").into_bytes());
        assert_eq!(is_optional, expect, "{program} {line} {target}");
    }

    #[test]
    fn own_start_up_files_are_optional() {
        check(true, "/usr/bin/bash", "bash -lc false", "~/.profile");
        check(true, "/usr/bin/dash", "sh -lc false", "~/.profile");
        check(true, "/usr/bin/zsh", "zsh -c false", "~/.zshenv");
        check(true, "/usr/bin/curl", "curl -s http://127.0.0.1:9/", "~/.curlrc");
        check(true, "/usr/bin/curl", "curl -s http://127.0.0.1:9/", "~/.config/curlrc");
        check(true, "/usr/bin/wget", "wget -q http://127.0.0.1:9/", "~/.netrc");
        check(true, "/usr/bin/wget", "wget -q http://127.0.0.1:9/", "/etc/wgetrc");
        check(true, "/usr/bin/gdb", "gdb -batch", "~/.config/gdb/gdbinit");
        check(true, "/usr/bin/gdb", "gdb -batch", "/etc/gdb/gdbinit.d");
        check(true, "/usr/bin/man", "man nosuch", "/var/cache/man/index.db");
        check(true, "/usr/local/bin/git", "git commit", "~/.config/git/config");
        check(true, "/usr/bin/vim.basic", "vi README", "~/.vimrc");
        check(true, "/usr/bin/python3.11", "python3 -m pip install x", "~/.config/pip/pip.conf");
        check(
            true,
            "/usr/bin/python3.11",
            "/usr/bin/python3 /usr/bin/pip3 install x",
            "/etc/pip.conf",
        );
        check(true, "/usr/bin/node", "node /usr/bin/npm test", "~/.npmrc");
        check(true, "/opt/foo", "foo", "~/.foorc");
        check(true, "/opt/foo", "foo", "~/.config/foo/settings.json");
        check(true, "/opt/foo", "foo", "~/.terminfo");
        check(true, "/usr/bin/node", "node x.js", "~/package.json");
        check(true, "/usr/bin/node", "node x.js", "~/code/node_modules/left-pad/index.js");
    }

    #[test]
    fn files_of_other_programs_are_not_optional() {
        check(false, "/usr/bin/cat", "cat x", "~/.npmrc");
        check(false, "/usr/bin/node", "node exfiltrate.js", "~/.npmrc");
        check(false, "/usr/bin/python3.11", "python3 exfiltrate.py", "~/.config/pip/pip.conf");
        check(false, "/usr/bin/bash", "bash -c x", "~/.npmrc");
        let is_optional = |path| {
            attempt(Operation::Read, "/usr/bin/ssh", path, true)
                .is_optional(|| b"ssh\0host".to_vec())
        };
        assert!(!is_optional("/home/me/.ssh/config"), "the built-in rule on ~/.ssh is explicit");
        check(false, "/usr/bin/curl", "curl file:///x", "~/.ssh/id_rsa");
        check(false, "/usr/bin/python3.11", "python3 x.py", "~/notes.txt");
        check(false, "/usr/bin/python3.11", "python3 x.py", "~/code/other/package.json");
        check(false, "/usr/bin/python3.11", "python3 x.py", "/srv/package.json");
        check(false, "", "", "~/.npmrc");
        check(false, "", "", "~/.terminfo");
    }

    #[test]
    fn files_that_a_program_needs_are_not_optional() {
        check(
            false,
            "/usr/bin/java",
            "java org.codehaus.plexus.classworlds.launcher.Launcher package",
            "~/.m2/settings.xml",
        );
        check(
            false,
            "/usr/bin/java",
            "java org.gradle.launcher.daemon.bootstrap.GradleDaemon 8.5",
            "~/.gradle/gradle.properties",
        );
    }

    #[test]
    fn file_named_in_the_command_line_is_not_optional() {
        check(false, "/usr/bin/bash", "bash -c .\u{a0}~/.profile", "~/.profile");
        check(false, "/usr/bin/curl", "curl -K /home/me/.curlrc", "~/.curlrc");
        check(false, "/usr/bin/vim.basic", "vim /home/me/.vimrc", "~/.vimrc");
        check(false, "/usr/bin/node", "npm --userconfig /home/me/.npmrc test", "~/.npmrc");
    }

    #[test]
    fn explicitly_denied_general_file_is_not_optional() {
        let denied = |program, target| {
            attempt(Operation::Read, program, target, true).is_optional(|| b"x".to_vec())
        };
        assert!(!denied("/usr/bin/gh", "/home/me/.config/gh/hosts.yml"));
        assert!(!denied("/usr/bin/node", "/home/me/.envrc"));
        assert!(denied("/usr/bin/wget", "/home/me/.netrc"));
    }

    #[test]
    fn only_an_update_check_is_optional_among_hosts() {
        check(true, "/usr/bin/node", "npm test", "registry.npmjs.org");
        check(true, "/usr/bin/node", "node /usr/bin/npm --silent run build", "registry.npmjs.org");
        check(false, "/usr/bin/node", "npm install", "registry.npmjs.org");
        check(false, "/usr/bin/node", "node test.js", "registry.npmjs.org");
        check(false, "/usr/bin/node", "npm test", "example.org");
        check(false, "/usr/bin/curl", "curl https://example.org", "example.org");
        check(true, "/usr/bin/terraform", "terraform plan", "checkpoint-api.hashicorp.com");
    }

    #[test]
    fn star_matches_any_text() {
        for (wanted, name, expect) in [
            ("a*", "a", true),
            ("a*", "ab", true),
            ("a*", "b", false),
            ("*a*", "bab", true),
            ("*a*", "b", false),
            ("a*.json", "ab.json", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(wanted, name), expect, "{wanted} {name}");
        }
    }
}
