//! Variables that decide which program runs, or which programs it starts.

/// Builtins that assign.
pub(super) const DECLARING: &[&str] = &["declare", "typeset", "local", "export", "readonly"];

/// Numeric variables of bash: an assigned value is evaluated as arithmetic.
pub(super) const NUMBERS: &[&str] =
    &["RANDOM", "SRANDOM", "SECONDS", "LINENO", "HISTCMD", "OPTIND", "BASHPID"];

/// Whole names.
const NAMES: &str = "PATH IFS ENV CDPATH FPATH PS0 PS1 PS2 PS3 PS4 CC CXX AR LD AS RUSTC RUSTDOC GOROOT HOME TMPDIR \
    POSIXLY_CORRECT GOENV GLOBIGNORE EXECIGNORE HOSTALIASES LOCALDOMAIN RES_OPTIONS RSH TERMINFO TZDIR";
/// Prefixes of names.
const STARTS: &str = "LD_ DYLD_ BASH SHELL GIT_ SSH_ NPM_CONFIG_ NODE_ PYTHON PERL RUBY GEM_ BUNDLE_ JAVA_ JDK_ _JAVA \
    MAVEN_ GRADLE_ CARGO_ RUSTUP_ PIP_ DOCKER_ KUBE XDG_ GCONV_ MALLOC_ GLIBC_ LESS MAKE ZDOTDIR PROMPT_ \
    READLINE INPUTRC LUA_";
/// Suffixes of names.
const ENDS: &str = "PATH OPTS OPT OPTIONS FLAGS COMMAND CMD EDITOR PAGER BROWSER WRAPPER PRELOAD PROXY VISUAL ASKPASS \
    HOOK HOOKS HOME RC INIT CONF CONFIG PLUGINS _ENV _HOST _ROOT _FILE _DIR _DIRS STARTUP LINKER RUNNER LAUNCHER \
    RSH SSH MERGE MODULES ENGINES LIBRARY PYTHON RUNTIME";

/// True if a variable can redirect a program: search paths of programs and libraries, and helper
/// programs that it starts.
///
/// A rule about `git` does not cover a `git` that a variable makes start another program. A list of
/// names is never complete, so suffixes count, too: a false positive costs a refusal or a sandbox,
/// a miss costs more.
pub fn can_redirect_program(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let any = |list: &str, is: &dyn Fn(&str) -> bool| list.split(' ').any(is);
    NUMBERS.contains(&name.as_str())
        || any(NAMES, &|whole| name == whole)
        || any(STARTS, &|start| name.starts_with(start))
        || any(ENDS, &|end| name.ends_with(end))
}
