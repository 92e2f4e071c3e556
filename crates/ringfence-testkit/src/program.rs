//! Programs that probes are made of.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::project::TestProject;
use crate::require::skip;

/// A Python that every user can start; skips if there is none.
///
/// The system's own first: the one on the search path may live in somebody's home.
#[track_caller]
pub fn python() -> Option<&'static str> {
    let found = ["/usr/bin/python3", "/usr/local/bin/python3"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    if found.is_none() {
        skip("python3 is not installed");
    }
    found
}

/// Compiles a C program into the project; skips if there is no compiler.
#[track_caller]
pub fn compiled(project: &TestProject, name: &str, source: &str) -> Option<PathBuf> {
    let Some(compiler) = ["/usr/bin/cc", "/usr/bin/gcc", "/usr/bin/clang"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        skip("no C compiler is installed");
        return None;
    };
    let (text, program) = (project.at(format!("{name}.c")), project.at(name));
    project.write(format!("{name}.c"), source);
    let made = Command::new(compiler)
        .args(["-O1", "-w", "-pthread", "-o"])
        .arg(&program)
        .arg(&text)
        .output()
        .expect("the compiler starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    project.user.own(&program);
    Some(program)
}
