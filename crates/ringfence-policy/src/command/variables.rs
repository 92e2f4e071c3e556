//! Variables that decide which program runs, or what a program runs in its turn.

/// Builtins that assign.
pub(super) const DECLARING: &[&str] = &["declare", "typeset", "local", "export", "readonly"];

/// Numbers that bash keeps itself: what is assigned to them is evaluated, as arithmetic is.
pub(super) const NUMBERS: &[&str] =
    &["RANDOM", "SRANDOM", "SECONDS", "LINENO", "HISTCMD", "OPTIND", "BASHPID"];

/// Whole names.
const NAMES: &str = "PATH IFS ENV CDPATH FPATH PS0 PS1 PS2 PS3 PS4 CC CXX AR LD AS RUSTC RUSTDOC GOROOT HOME TMPDIR \
    POSIXLY_CORRECT GOENV GLOBIGNORE EXECIGNORE HOSTALIASES LOCALDOMAIN RES_OPTIONS RSH TERMINFO TZDIR";
/// What names begin with.
const STARTS: &str = "LD_ DYLD_ BASH SHELL GIT_ SSH_ NPM_CONFIG_ NODE_ PYTHON PERL RUBY GEM_ BUNDLE_ JAVA_ JDK_ _JAVA \
    MAVEN_ GRADLE_ CARGO_ RUSTUP_ PIP_ DOCKER_ KUBE XDG_ GCONV_ MALLOC_ GLIBC_ LESS MAKE ZDOTDIR PROMPT_ \
    READLINE INPUTRC LUA_";
/// What names end with.
const ENDS: &str = "PATH OPTS OPT OPTIONS FLAGS COMMAND CMD EDITOR PAGER BROWSER WRAPPER PRELOAD PROXY VISUAL ASKPASS \
    HOOK HOOKS HOME RC INIT CONF CONFIG PLUGINS _ENV _HOST _ROOT _FILE _DIR _DIRS STARTUP LINKER RUNNER LAUNCHER \
    RSH SSH MERGE MODULES ENGINES LIBRARY PYTHON RUNTIME";

/// Whether what is assigned to a variable can lead a program elsewhere than its name says:
/// where programs and libraries are found, and which other programs it starts.
///
/// Whoever makes a rule about `git` does not mean one that a variable told to start another
/// program. A list of names is never complete, so endings are looked at, too: an innocent
/// variable that is caught costs a refusal or a sandbox, one that is missed costs more.
pub fn leads_elsewhere(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let any = |list: &str, is: &dyn Fn(&str) -> bool| list.split(' ').any(is);
    NUMBERS.contains(&name.as_str())
        || any(NAMES, &|whole| name == whole)
        || any(STARTS, &|start| name.starts_with(start))
        || any(ENDS, &|end| name.ends_with(end))
}
