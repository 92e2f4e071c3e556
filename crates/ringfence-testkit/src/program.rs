//! Programs for probes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::project::TestProject;
use crate::require::skip;

/// The path of a Python that every user can start; skips the test if there is none.
///
/// The system's Python: the one on `PATH` may be in a private home directory.
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

/// Compiles a C program into the project; skips the test if there is no compiler.
#[track_caller]
pub fn compile(project: &TestProject, name: &str, source: &str) -> Option<PathBuf> {
    let Some(compiler) = ["/usr/bin/cc", "/usr/bin/gcc", "/usr/bin/clang"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        skip("no C compiler is installed");
        return None;
    };
    let (text, program) = (project.at(format!("{name}.c")), project.at(name));
    project.write(format!("{name}.c"), source);
    let output = Command::new(compiler)
        .args(["-O1", "-w", "-pthread", "-o"])
        .arg(&program)
        .arg(&text)
        .output()
        .expect("the compiler starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    project.user.chown(&program);
    Some(program)
}
