//! The tables. Each list says in a line why an entry is there, so that it can be argued with.

use super::Entry;

const fn e(text: &'static str, reason: &'static str) -> Entry {
    Entry { text, reason }
}

/// Shut below the home directory.
pub const HOME_DENIES: &[Entry] = &[
    e("~/.ssh", "private keys and the hosts they open"),
    e("~/.aws", "cloud credentials"),
    e("~/.gnupg", "private keys"),
    e("~/.azure", "cloud credentials"),
    e("~/.config/gcloud", "cloud credentials"),
    e("~/.kube", "cluster credentials"),
    e("~/.docker/config.json", "registry credentials"),
    e("~/.netrc", "passwords for hosts"),
    e("~/.npmrc", "registry tokens"),
    e("~/.pypirc", "registry tokens"),
    e("~/.git-credentials", "passwords for git hosts, in plain text"),
    e("~/.config/git/credentials", "passwords for git hosts, in plain text"),
    e("~/.config/gh", "GitHub token"),
    e("~/.config/glab-cli", "GitLab token"),
    e("~/.config/hub", "GitHub token"),
    e("~/.config/op", "password manager session"),
    e("~/.password-store", "password manager"),
    e("~/.local/share/keyrings", "desktop key ring"),
    e("~/.local/share/kwalletd", "desktop key ring"),
    e("~/.mozilla", "browser profile: cookies are logins"),
    e("~/.config/google-chrome", "browser profile: cookies are logins"),
    e("~/.config/chromium", "browser profile: cookies are logins"),
    e("~/.config/BraveSoftware", "browser profile: cookies are logins"),
    e("~/.config/microsoft-edge", "browser profile: cookies are logins"),
    e("~/.config/doctl", "cloud credentials"),
    e("~/.config/hcloud", "cloud credentials"),
    e("~/.config/rclone", "storage credentials"),
    e("~/.config/containers/auth.json", "registry credentials"),
    e("~/.cargo/credentials", "registry token"),
    e("~/.cargo/credentials.toml", "registry token"),
    e("~/.m2/settings.xml", "repository passwords"),
    e("~/.m2/settings-security.xml", "the master password for the above"),
    e("~/.gradle/gradle.properties", "repository passwords and signing keys"),
    e("~/.gem/credentials", "registry key"),
    e("~/.bundle/config", "registry credentials"),
    e("~/.composer/auth.json", "registry credentials"),
    e("~/.config/composer/auth.json", "registry credentials"),
    e("~/.config/pip", "index addresses with passwords in them"),
    e("~/.pip", "index addresses with passwords in them"),
    e("~/.yarnrc.yml", "registry tokens"),
    e("~/.config/configstore", "tokens of npm command line tools"),
    e("~/.terraform.d", "cloud tokens"),
    e("~/.terraformrc", "cloud tokens"),
    e("~/.vault-token", "vault token"),
    e("~/.pgpass", "database passwords"),
    e("~/.my.cnf", "database passwords"),
    e("~/.databrickscfg", "platform token"),
    e("~/.snowflake", "platform credentials"),
    e("~/.config/ringfence", "the policy is not the sandbox's business"),
    e("~/.bash_history", "typed commands often hold passwords"),
    e("~/.zsh_history", "typed commands often hold passwords"),
    e("~/.python_history", "typed commands often hold passwords"),
    e("~/.psql_history", "typed commands often hold passwords"),
    e("~/.mysql_history", "typed commands often hold passwords"),
    e("~/.node_repl_history", "typed commands often hold passwords"),
    e("~/.claude/.credentials.json", "the agent's own login"),
    e("~/.codex/auth.json", "the agent's own login"),
    e("~/.gemini/oauth_creds.json", "the agent's own login"),
    e("~/.config/github-copilot", "the agent's own login"),
];

/// Shut by their absolute path.
pub const SYSTEM_DENIES: &[Entry] = &[
    e("/etc/shadow", "password hashes"),
    e("/etc/gshadow", "password hashes"),
    e("/etc/shadow-", "password hashes, the copy"),
    e("/etc/gshadow-", "password hashes, the copy"),
    e("/etc/sudoers", "who may become root"),
    e("/etc/sudoers.d", "who may become root"),
    e("/etc/ssl/private", "the machine's private keys"),
    e("/etc/pki/tls/private", "the machine's private keys"),
];

/// Shut by name, in every tree that is opened for work; case does not matter.
pub const PATTERN_DENIES: &[Entry] = &[
    e("**/.env", "tokens by convention"),
    e("**/.env.*", "tokens by convention: .env.local, .env.production"),
    e("**/.envrc", "direnv: exported tokens"),
    e("**/*.pem", "private keys and certificates share the ending"),
    e("**/*.key", "private keys"),
    e("**/*credentials*", "credential files of any tool"),
    e("**/*secret*", "secret files of any tool"),
    e("**/credentials.json", "OAuth clients and service accounts"),
    e("**/secrets.json", "application secrets"),
];

/// What the patterns above leave open.
pub const PATTERN_EXCEPTIONS: &[Entry] = &[
    e("**/.env.{example,sample,template}", "templates hold no values"),
    e("**/.env.*.{example,sample,template}", "templates hold no values"),
    e("**/cacert.pem", "public certificates"),
    e("**/ca-bundle*", "public certificates"),
    e("**/*.pub", "public keys"),
    e("**/*{credentials,secret}*.{rs,py,ts,tsx,js,jsx,mjs,cjs,go,java,kt,c,h,cc,cpp,hpp,cs,rb,php,swift,scala,sh,sql,md,html,css,vue,svelte,proto,ex,exs,erl,hs,ml,lua,pl,r,zig,nim,dart,snap}", "source code that speaks of secrets; formats that could hold one (.json .yaml .toml .txt .tf) stay shut"),
    e("**/node_modules/**", "vendored: published by others"),
    e("**/site-packages/**", "vendored: published by others"),
    e("**/.venv/**", "vendored: published by others"),
    e("**/venv/lib/**", "vendored: published by others"),
    e("**/vendor/**", "vendored: published by others"),
    e("**/target/**", "build output of cargo and maven"),
    e("**/.git/**", "git's own store: a branch may be called my-secret-plan"),
];

/// Readable, never writable, at any depth: what makes git run programs on the host.
pub const PATTERN_PROTECTS: &[Entry] = &[
    e("**/.git/hooks", "git runs these on the host"),
    e("**/.git/config", "names programs that git runs on the host"),
    e("**/.git/config.worktree", "names programs that git runs on the host"),
    e("**/.git/commondir", "points git to another config"),
    e("**/.git/info/attributes", "switches on filters that git runs on the host"),
    e("**/.git/modules/**/{hooks,config,config.worktree,commondir}", "the same for submodules"),
    e("**/.git/modules/**/info/attributes", "the same for submodules"),
    e("**/.git/worktrees/*/config.worktree", "the same for worktrees; `git worktree add` has to make the other files"),
];

/// Readable, never writable, directly below each writable root: what other programs of the user obey.
///
/// Not at any depth: a clone of a repository that holds `.vscode/` has to work.
pub const ROOT_PROTECTS: &[Entry] = &[
    e(".ringfence", "the policy itself"),
    e(".claude", "settings and hooks of an agent"),
    e(".codex", "settings of an agent"),
    e(".agents", "skills that an agent runs"),
    e(".cursor", "settings and rules of an agent"),
    e(".vscode", "tasks that an editor runs"),
    e(".idea", "run configurations of an editor"),
    e(".mcp.json", "programs that an agent starts"),
    e(".gitmodules", "addresses that git fetches"),
    e(".gitconfig", "names programs that git runs"),
    e(".ripgreprc", "names a preprocessor that rg runs"),
    e(".bashrc", "a shell runs it at start or end"),
    e(".bash_profile", "a shell runs it at start or end"),
    e(".bash_login", "a shell runs it at start or end"),
    e(".bash_logout", "a shell runs it at start or end"),
    e(".profile", "a shell runs it at start or end"),
    e(".zshrc", "a shell runs it at start or end"),
    e(".zshenv", "a shell runs it at start or end"),
    e(".zprofile", "a shell runs it at start or end"),
    e(".zlogin", "a shell runs it at start or end"),
    e(".zlogout", "a shell runs it at start or end"),
    e(".kshrc", "a shell runs it at start or end"),
    e(".cshrc", "a shell runs it at start or end"),
    e(".tcshrc", "a shell runs it at start or end"),
    e(".inputrc", "key bindings that type for the user"),
];

/// Programs and libraries, and the files that say how many processors there are.
///
/// `/opt` is not here: what is needed of it comes in by `PATH`.
pub const SYSTEM_READS: &[&str] = &[
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store",
    "/sys/devices/system/cpu", "/sys/devices/system/node",
];

/// What programs need of `/etc`.
///
/// `passwd`, `group`, `hosts`, `resolv.conf` and `hostname` are made for the sandbox's
/// own user; `npmrc` and `environment` may hold tokens; `machine-id` identifies the user.
pub const ETC_READS: &[&str] = &[
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl", "ca-certificates", "ca-certificates.conf", "pki",
    "crypto-policies", "alternatives", "localtime", "timezone", "nsswitch.conf", "host.conf", "gai.conf",
    "services", "protocols", "os-release", "lsb-release", "debian_version", "redhat-release",
    "alpine-release", "profile", "profile.d", "bash.bashrc", "bashrc", "zsh", "inputrc", "terminfo",
    "mime.types", "magic", "fonts", "locale.conf", "locale.alias", "default/locale", "login.defs", "shells",
    "gitconfig", "python3", "perl", "java-8-openjdk", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk",
    "maven", "gradle", "vim", "vimrc", "nanorc", "tmux.conf", "screenrc", "man_db.conf", "manpath.config",
    "xdg", "sgml", "xml", "papersize",
];

/// Variables that pass: what programs need to find their files, their language and their
/// terminal, and harmless settings of build tools.
///
/// `LD_PRELOAD` and `LD_LIBRARY_PATH` are left out because they put code into every
/// program; `SSH_AUTH_SOCK`, `DBUS_SESSION_BUS_ADDRESS` and `DISPLAY` because they are
/// doors to the host.
pub const ENV_ALLOW: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "HOSTNAME", "TMPDIR", "LANG",
    "LANGUAGE", "LC_*", "TZ", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLORTERM", "NO_COLOR",
    "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "EDITOR", "VISUAL", "PAGER", "MANPAGER",
    "LESS", "LS_COLORS", "CI", "DEBUG", "NODE_ENV", "CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_TERM_COLOR",
    "CARGO_BUILD_JOBS", "CARGO_INCREMENTAL", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "RUSTDOCFLAGS",
    "RUST_BACKTRACE", "RUST_LOG", "RUST_TEST_THREADS", "GOPATH", "GOROOT", "GOBIN", "GOFLAGS", "GOOS",
    "GOARCH", "GOTOOLCHAIN", "GO111MODULE", "CGO_ENABLED", "JAVA_HOME", "MAVEN_OPTS", "MAVEN_HOME", "M2_HOME",
    "GRADLE_HOME", "GRADLE_USER_HOME", "SDKMAN_DIR", "NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_DIR",
    "PNPM_HOME", "BUN_INSTALL", "DENO_DIR", "DENO_INSTALL", "COREPACK_HOME", "PYENV_ROOT", "PYENV_VERSION",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED",
    "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONHASHSEED", "RBENV_ROOT", "RBENV_VERSION", "GEM_HOME", "GEM_PATH",
    "BUNDLE_PATH", "MAKEFLAGS", "MAKELEVEL", "CC", "CXX", "AR", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS",
    "PKG_CONFIG_PATH", "CMAKE_BUILD_TYPE", "CMAKE_GENERATOR", "SOURCE_DATE_EPOCH", "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS",
];

/// Variables that never pass unless a person names them; case does not matter.
pub const ENV_DENY: &[Entry] = &[
    e("*KEY*", "API keys"),
    e("*SECRET*", "secrets"),
    e("*TOKEN*", "tokens"),
    e("*PASSWORD*", "passwords"),
    e("*PASSWD*", "passwords"),
    e("*PASSPHRASE*", "passwords"),
    e("*CREDENTIAL*", "credentials"),
    e("AWS_*", "cloud credentials"),
    e("GITHUB_*", "tokens of CI runners"),
    e("KUBERNETES_*", "addresses of the cluster"),
    e("*_PAT", "personal access tokens"),
    e("*_DSN", "database addresses with passwords in them"),
    e("*_AUTH", "npm_config__auth and its like"),
    e("DATABASE_URL", "a password stands in it"),
];
