//! The same isolation with bwrap: every mount of ringfence's plan, so that both make the same paths
//! readable, writable and absent. (bwrap cannot forbid the creation of names, and gets no seccomp
//! filter except in `bwrap-filter`: that is to its advantage.)

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;

use crate::bench::job::Job;

/// The words before the command; read from `ringfence plan` once per project.
pub(super) fn words(ringfence: &Path, job: &Job) -> Vec<OsString> {
    static KNOWN: Mutex<Option<HashMap<PathBuf, Vec<OsString>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().expect("no thread panics while it holds the lock");
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
    let stdout = command.output().map(|output| output.stdout).unwrap_or_default();
    let plan: Value = serde_json::from_slice(&stdout).unwrap_or_default();
    plan["detail"].as_array().cloned().unwrap_or_default()
}

fn translate(steps: &[Value], job: &Job) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
            .map(OsString::from)
            .to_vec();
    // In the scratch directory of the bench, which is removed at the end.
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

fn step_words(step: &Value, masked: &str) -> Vec<String> {
    let to_words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    if step == "Devices" {
        return to_words(&["--dev", "/dev"]);
    }
    let Some((name, body)) = step.as_object().and_then(|object| object.iter().next()) else {
        return Vec::new();
    };
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let path = text("path");
    match name.as_str() {
        "Processes" => to_words(&["--proc", "/proc"]),
        "Bind" if body["access"] == "ReadOnly" => to_words(&["--ro-bind", &path, &path]),
        "Bind" => to_words(&["--bind", &path, &path]),
        "Private" => to_words(&["--bind-try", &text("store"), &path]),
        "Scratch" => to_words(&["--tmpfs", &path]),
        "Directory" => to_words(&["--dir", &path]),
        "Symlink" => to_words(&["--symlink", &text("target"), &path]),
        "File" => to_words(&["--ro-bind", "/etc/hostname", &path]),
        "Cover" if body["cover"] == "ReadOnly" => to_words(&["--ro-bind-try", &path, &path]),
        "Cover" if body["cover"]["Deny"] == "Directory" => {
            to_words(&["--perms", "0000", "--tmpfs", &path])
        }
        "Cover" if Path::new(&path).exists() => to_words(&["--ro-bind", masked, &path]),
        "Denied" if body["kind"] == "Directory" => to_words(&["--perms", "0000", "--tmpfs", &path]),
        "Denied" => to_words(&["--ro-bind", masked, &path]),
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
    fn plan_steps_become_bwrap_arguments() {
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
