//! The same isolation in bwrap's words: every mount of ringfence's own plan, so that both
//! make the same things readable, writable and absent. (bwrap has no words for names that
//! must not be made, and but for `bwrap-filter` gets no seccomp filter: that is to its advantage.)

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;

use crate::bench::job::Job;

/// What goes before the command; asked of ringfence once for each project.
pub(super) fn words(ringfence: &Path, job: &Job) -> Vec<OsString> {
    static KNOWN: Mutex<Option<HashMap<PathBuf, Vec<OsString>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().expect("nobody panics with it");
    let known = known.get_or_insert_with(HashMap::new);
    known
        .entry(job.project.clone())
        .or_insert_with(|| translate(&plan(ringfence, job), job))
        .clone()
}

fn plan(ringfence: &Path, job: &Job) -> Vec<Value> {
    let mut command = Command::new(ringfence);
    command.args(["plan", "--json"]).current_dir(&job.project);
    for path in &job.reads {
        command.arg("--read").arg(path);
    }
    let said = command.output().map(|output| output.stdout).unwrap_or_default();
    let plan: Value = serde_json::from_slice(&said).unwrap_or_default();
    plan["detail"].as_array().cloned().unwrap_or_default()
}

fn translate(steps: &[Value], job: &Job) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
            .map(OsString::from)
            .to_vec();
    // Beside the project, in the bench's own scratch, which is removed at the end.
    let file = job.project.with_file_name("shut");
    let _ = std::fs::write(&file, "")
        .and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)));
    let file = file.display().to_string();
    for step in steps {
        words.extend(step_words(step, &file).iter().map(OsString::from));
    }
    words.extend(["--chdir".into(), job.project.clone().into_os_string(), "--".into()]);
    words
}

fn step_words(step: &Value, shut: &str) -> Vec<String> {
    let say = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    if step == "Devices" {
        return say(&["--dev", "/dev"]);
    }
    let Some((name, body)) = step.as_object().and_then(|object| object.iter().next()) else {
        return Vec::new();
    };
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let path = text("path");
    match name.as_str() {
        "Processes" => say(&["--proc", "/proc"]),
        "Bind" if body["access"] == "ReadOnly" => say(&["--ro-bind", &path, &path]),
        "Bind" => say(&["--bind", &path, &path]),
        "Private" => say(&["--bind-try", &text("store"), &path]),
        "Scratch" => say(&["--tmpfs", &path]),
        "Directory" => say(&["--dir", &path]),
        "Symlink" => say(&["--symlink", &text("target"), &path]),
        "File" => say(&["--ro-bind", "/etc/hostname", &path]),
        "Cover" if body["cover"] == "ReadOnly" => say(&["--ro-bind-try", &path, &path]),
        "Cover" if body["cover"]["Deny"] == "Directory" => {
            say(&["--perms", "0000", "--tmpfs", &path])
        }
        "Cover" if Path::new(&path).exists() => say(&["--ro-bind", shut, &path]),
        "Denied" if body["kind"] == "Directory" => say(&["--perms", "0000", "--tmpfs", &path]),
        "Denied" => say(&["--ro-bind", shut, &path]),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[track_caller]
    fn check(step: Value, expect: &[&str]) {
        assert_eq!(super::step_words(&step, "/shut"), expect);
    }

    #[test]
    fn steps_become_words() {
        check(json!("Devices"), &["--dev", "/dev"]);
        check(
            json!({"Bind": {"path": "/usr", "access": "ReadOnly"}}),
            &["--ro-bind", "/usr", "/usr"],
        );
        check(json!({"Bind": {"path": "/p", "access": "ReadWrite"}}), &["--bind", "/p", "/p"]);
        check(
            json!({"Denied": {"path": "/s", "kind": "Directory"}}),
            &["--perms", "0000", "--tmpfs", "/s"],
        );
        check(
            json!({"Symlink": {"path": "/bin", "target": "usr/bin"}}),
            &["--symlink", "usr/bin", "/bin"],
        );
        check(json!({"Namespaces": {"network": "Own"}}), &[]);
    }
}
