//! Files that one command prepares open nothing for the next, and do not keep it from starting.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence_testkit::{
    SECRET, TestOutput, TestProject, TestUser, each_user, finish, wait_at_most,
};

use crate::project;

/// Checks that `second`, run after `first`, prints the secret bare and not inside.
#[track_caller]
fn hidden_after(first: &str, second: &str) {
    each_user(|user| {
        let bare = project(user);
        bare.sh_bare(first);
        assert!(bare.sh_bare(second).text().contains(SECRET), "{first}: the probe cannot succeed");
        let project = project(user);
        project.sh(first);
        let said = project.sh(second).text();
        project.sh_bare("chmod -R u+rwX .").ok();
        assert!(!said.contains(SECRET), "{first}; {second}: the secret was read");
    });
}

/// Returns the output of a command that must end within eight seconds.
#[track_caller]
pub(crate) fn ends_soon(command: &mut Command) -> TestOutput {
    // A process group of its own, so that a stop signal does not hit the test.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    assert!(wait_at_most(&mut child, Duration::from_secs(8)).is_some(), "{command:?} hangs");
    finish(child)
}

#[track_caller]
fn run_ends_soon(project: &TestProject, words: &[&str]) -> TestOutput {
    ends_soon(project.ringfence().arg("run").args(words))
}

/// Promise: next-run
#[test]
fn secret_below_node_modules_stays_denied() {
    for name in ["target", "node_modules", "vendor", ".venv", "x/.git"] {
        hidden_after(
            &format!("mkdir -p {name}; mv sub {name}/"),
            &format!("cat {name}/sub/.env {name}/sub/deeper/credentials.json"),
        );
    }
    hidden_after("mv sub target", "cat target/.env");
    hidden_after(
        "mv sub/deeper vendor; mv vendor sub/",
        "cat vendor/credentials.json sub/vendor/credentials.json",
    );
}

/// Promise: next-run
#[test]
fn secret_in_an_unreadable_directory_stays_denied() {
    hidden_after("chmod 311 sub", "cat sub/.env");
    hidden_after("chmod 000 sub", "chmod 755 sub; cat sub/.env sub/deeper/credentials.json");
    hidden_after("chmod 311 sub/deeper", "cat sub/deeper/credentials.json");
}

/// Descends a path longer than `PATH_MAX`; `MOVE` moves the secret there.
const DEEP: &str = r#"
name, fd, top = 'd' * 240, os.open('.', os.O_RDONLY), os.open('.', os.O_RDONLY)
for i in range(20):
    if MOVE: os.mkdir(name, dir_fd=fd)
    fd = os.open(name, os.O_RDONLY, dir_fd=fd)
if MOVE: os.rename('sub', 'sub', src_dir_fd=top, dst_dir_fd=fd)
else: print(os.read(os.open('sub/.env', os.O_RDONLY, dir_fd=fd), 100))
"#;

#[test]
fn secret_below_an_overlong_path_stays_denied() {
    let (there, read) = (DEEP.replace("MOVE", "True"), DEEP.replace("MOVE", "False"));
    each_user(|user| {
        let bare = project(user);
        bare.python_bare(&there).ok();
        assert!(bare.python_bare(&read).text().contains(SECRET), "the probe cannot succeed");
        let project = project(user);
        project.python(&there);
        assert!(!project.python(&read).text().contains(SECRET));
        assert!(!project.sh("cat sub/.env").text().contains(SECRET));
    });
}

/// Promise: next-run
#[test]
fn secret_stays_denied_while_another_command_swaps_directories() {
    each_user(|user| {
        let project = project(user);
        let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
        let swap = "end = time.time() + 1\nprint('begun', flush=True)\nwhile time.time() < end: outcome(lambda: rename2('sub', 'src', 2))";
        let mut swapping = project.ringfence();
        let code = format!("{}\n{swap}", ringfence_testkit::PRELUDE);
        let mut child = swapping
            .args(["run", "--", python, "-Bc", &code])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ringfence starts");
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.take().expect("piped just above")),
            &mut String::new(),
        )
        .expect("it says something");
        let mut said = String::new();
        while matches!(child.try_wait(), Ok(None)) && !said.contains(SECRET) {
            said += &project.sh("cat sub/.env src/.env sub/.env src/.env").text();
        }
        let _ = child.kill();
        let _ = child.wait();
        assert!(!said.contains(SECRET));
    });
}

#[test]
fn cache_within_the_project_cannot_link_out_of_it() {
    each_user(|user| {
        let project = project(user);
        let run = |line: &str| {
            TestOutput::run(
                project
                    .ringfence()
                    .env("XDG_CACHE_HOME", project.at(".cache"))
                    .args(["run", "-c", line]),
                b"",
            )
        };
        let other = project.home().join("code/other");
        let link = format!(
            "for i in .cache/ringfence/projects/*; do rm -rf $i/.npm; ln -s {} $i/.npm; done",
            other.display()
        );
        for _ in 0..2 {
            run(&link);
            let said = run("cat ~/.npm/main.rs; echo owned > ~/.npm/owned").text();
            assert!(!said.contains(SECRET), "read");
            assert!(!other.join("owned").exists(), "written");
        }
    });
}

/// Promise: project-policy-narrows
#[test]
fn project_policy_passes_no_secret_variables() {
    each_user(|user| {
        let project = project(user);
        for allow in [r#"["*"]"#, r#"["MY*", "P?PASS", "[D]ATABASE_URL"]"#, r#"["DATABASE_URL"]"#] {
            project.write(
                ".ringfence/policy.toml",
                format!("version = 1\n[environment]\nallow = {allow}\n"),
            );
            let mut command = project.ringfence();
            for name in ["SSH_AUTH_SOCK", "MYCONN", "PGPASS", "DATABASE_URL"] {
                command.env(name, SECRET);
            }
            let said = TestOutput::run(command.args(["run", "-c", "env"]), b"").text();
            assert!(!said.contains(SECRET), "{allow}: {said}");
        }
    });
}

/// Promise: project-policy-narrows
#[test]
fn project_policy_opens_no_host_sockets() {
    each_user(|user| {
        let project = project(user);
        let _host = project
            .outside_process("s = socket.socket(socket.AF_UNIX); s.bind('h.sock'); s.listen(9)");
        project.write(
            ".ringfence/policy.toml",
            "version = 1\n[network]\nunix-sockets = [\"./h.sock\"]\n",
        );
        project
            .tries("socket.socket(socket.AF_UNIX).connect('h.sock')")
            .inside(&["EACCES", "EPERM", "ECONNREFUSED"])
            .bare_ok();
    });
}

/// Promise: project-policy-narrows
#[test]
fn project_policy_opens_no_hosts() {
    each_user(|user| {
        let project = project(user);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("the host has a loopback");
        listener.set_nonblocking(true).expect("a listener need not wait");
        let port = listener.local_addr().expect("bound").port();
        let lists = format!(
            "allow = [\"127.0.0.0/8\", \"example.org\"]\nlocalhost = [{port}]\nbind = true\ngit = true\n"
        );
        let secret = "[[secrets]]\nenv = \"TOKEN\"\nhosts = [\"example.org\"]\nheader = \"X\"\n";
        project.write(".ringfence/policy.toml", format!("version = 1\n[network]\n{lists}{secret}"));
        let code = format!(
            "outcome(lambda: socket.create_connection(('127.0.0.1', {port}), 0.3))\nprint('over')"
        );
        let ran = project.python(&code);
        assert!(ran.ok().ends_with("over"), "{}", ran.text());
        assert!(listener.accept().is_err(), "{user}: something came through");
        for ignored in [
            "`127.0.0.0/8` is ignored",
            "`example.org` is ignored",
            "`localhost = [",
            "`bind = true` is ignored",
            "`git = true` is ignored",
            "`TOKEN` is ignored",
        ] {
            assert!(
                ran.stderr_text().contains(ignored),
                "{user}: {ignored} is not in {}",
                ran.stderr_text()
            );
        }
        project.python_bare(&code).ok();
        assert!(listener.accept().is_ok(), "the probe cannot succeed");
    });
}

/// Checks that a file denied by the project's policy stays denied, seen from a subdirectory, after
/// `line` ran.
#[track_caller]
fn policy_still_holds_after(line: &str) {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q").ok();
        project.write("pkg/data.txt", SECRET);
        project.write(
            ".ringfence/policy.toml",
            "version = 1\n[filesystem]\ndeny = [\"./pkg/data.txt\"]\n",
        );
        let read = || {
            TestOutput::run(
                project.ringfence().current_dir(project.at("pkg")).args([
                    "run",
                    "-c",
                    "cat data.txt",
                ]),
                b"",
            )
            .text()
        };
        assert!(!read().contains(SECRET));
        project.sh(line);
        assert!(!read().contains(SECRET), "{line}");
    });
}

/// Promise: next-run
#[test]
fn policy_made_inside_does_not_replace_the_projects() {
    policy_still_holds_after(
        "mkdir pkg/.ringfence; echo 'version = 1' > pkg/.ringfence/policy.toml",
    );
    policy_still_holds_after("mkdir -p p/.ringfence; mv p/.ringfence pkg/");
    policy_still_holds_after("mkdir p; mv p pkg/.ringfence");
    policy_still_holds_after("ln -s ../src pkg/.ringfence");
}

#[test]
fn stopped_command_ends_at_its_timeout() {
    // As one user only: it is slow.
    let project = project(TestUser::User);
    run_ends_soon(&project, &["--timeout", "100ms", "-c", "kill -STOP $$; sleep 60"]);
}

#[test]
fn named_pipe_in_place_of_a_file_does_not_block_later_commands() {
    each_user(|user| {
        let other = crate::project(user);
        other.sh("mkfifo .git");
        assert_eq!(run_ends_soon(&other, &["-c", "echo alive"]).ok(), "alive");
        for name in [".gitignore", ".mcp.json", "HEAD", "config", "commondir"] {
            let project = project(user);
            project.sh(&format!("mkfifo {name}"));
            assert_eq!(run_ends_soon(&project, &["-c", "echo alive"]).ok(), "alive", "{name}");
        }
        // Made by the user: an error is enough.
        let project = project(user);
        project.sh_bare("mkdir .ringfence; mkfifo .ringfence/policy.toml").ok();
        run_ends_soon(&project, &["-c", "echo alive"]);
    });
}

/// Promise: project-policy-narrows
#[test]
fn project_policy_extends_no_file_outside() {
    each_user(|user| {
        let project = project(user);
        project.write_at(
            &project.home().join("other.toml"),
            format!("version = 1\n[network]\nmode = \"{SECRET}\"\n"),
        );
        for path in [
            "../../../other.toml",
            "../../other.toml",
            "~/other.toml",
            "~/.ssh/id_rsa",
            "/dev/zero",
        ] {
            project
                .write(".ringfence/policy.toml", format!("version = 1\nextends = [\"{path}\"]\n"));
            let line = r#"ulimit -v 2000000; exec "$0" run -c true"#;
            let ran =
                ends_soon(project.command("/bin/sh").args(["-c", line]).arg(project.binary()));
            assert!(
                !ran.stderr_text().contains(SECRET) && !ran.stderr_text().contains("memory"),
                "{path}: {}",
                ran.stderr_text()
            );
        }
    });
}

#[test]
fn policy_does_not_extend_through_a_link_out_of_the_project() {
    each_user(|user| {
        let project = project(user);
        project.write_at(
            &project.home().join("other.toml"),
            format!("version = 1\n[network]\nmode = \"{SECRET}\"\n"),
        );
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"../shared.toml\"]\n");
        project.sh_bare("ln -s ../../other.toml shared.toml").ok();
        let ran = run_ends_soon(&project, &["-c", "true"]);
        assert!(!ran.stderr_text().contains(SECRET), "{}", ran.stderr_text());
        project.sh_bare("rm shared.toml; mkfifo shared.toml").ok();
        run_ends_soon(&project, &["-c", "true"]);
    });
}

#[test]
fn extended_policy_file_cannot_be_changed_inside() {
    each_user(|user| {
        let project = project(user);
        project.write("data.txt", SECRET);
        project.write(
            ".ringfence/shared.toml",
            "version = 1\n[filesystem]\ndeny = [\"./data.txt\"]\n",
        );
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"shared.toml\"]\n");
        let said = project.sh("cat data.txt; true");
        said.ok();
        assert!(!said.text().contains(SECRET), "the file is not even obeyed");
        project.sh("cd .ringfence; echo 'version = 1' > shared.toml; rm shared.toml; echo 'version = 1' > shared.toml");
        assert!(!project.sh("cat data.txt").text().contains(SECRET));
        // Outside `.ringfence` the file would not be protected, so it is refused.
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"../shared.toml\"]\n");
        project.write("shared.toml", "version = 1\n");
        assert_eq!(project.sh("true").status, 125);
    });
}

#[test]
fn repository_made_inside_does_not_hide_the_policy_above() {
    policy_still_holds_after("git init -q pkg");
}

#[test]
fn project_policy_passes_no_agent_sockets() {
    each_user(|user| {
        let project = project(user);
        for name in ["SSH_AUTH_SOCK", "PGPASS", "DBUS_SESSION_BUS_ADDRESS"] {
            project.write(
                ".ringfence/policy.toml",
                format!("version = 1\n[environment]\nallow = [\"{name}\"]\n"),
            );
            let said = TestOutput::run(
                project.ringfence().env(name, SECRET).args(["run", "-c", "env"]),
                b"",
            )
            .text();
            assert!(!said.contains(SECRET), "{name}");
        }
    });
}

/// Promise: project-policy-narrows
#[test]
fn user_settings_within_the_project_cannot_be_planted() {
    each_user(|user| {
        let project = project(user);
        let run = |config: &std::path::Path, line: &str| {
            TestOutput::run(
                project.ringfence().env("XDG_CONFIG_HOME", config).args(["run", "-c", line]),
                b"",
            )
            .text()
        };
        let open = "printf 'version = 1\\nmode = \"full-access\"\\n'";
        let confined = "grep Seccomp: /proc/self/status";
        let plant = |at: &str| format!("mkdir -p {at}; {open} > {at}/policy.toml; {confined}");
        // Settings for another project.
        let second = project.home().join("code/second");
        project.make_directories(&second);
        let name = second.to_str().expect("ASCII").trim_start_matches('/').replace('/', "+");
        let line = format!(
            "mkdir -p conf/ringfence/projects; printf 'version = 1\\nproject = \"%s\"\\nmode = \"full-access\"\\n' {} >conf/ringfence/projects/{name}.toml",
            second.display()
        );
        project.make_directories(&project.at("conf"));
        run(&project.at("conf"), &line);
        let there = TestOutput::run(
            project
                .ringfence()
                .env("XDG_CONFIG_HOME", project.at("conf"))
                .arg("run")
                .arg("-C")
                .arg(&second)
                .args(["-c", confined]),
            b"",
        );
        assert_eq!(there.text(), "Seccomp:\t2");
        let elsewhere = project.home().join("settings");
        let inside = project.at(".config");
        // Settings in the project, by their own path and through a symlink.
        std::os::unix::fs::symlink(&inside, &elsewhere).expect("a link is made");
        for config in [&inside, &elsewhere] {
            run(config, &plant(".config/ringfence"));
            assert_eq!(run(config, confined), "Seccomp:\t2", "{}", config.display());
        }
        // Settings outside, with a symlink back into the project whose target does not exist yet.
        std::fs::remove_file(&elsewhere).expect("it was made above");
        project.make_directories(&elsewhere);
        std::os::unix::fs::symlink(project.at("dots"), elsewhere.join("ringfence"))
            .expect("a link is made");
        run(&elsewhere, &plant("dots"));
        assert_eq!(run(&elsewhere, confined), "Seccomp:\t2");
        // Control: settings that the user wrote take effect.
        project.write("dots/policy.toml", "version = 1\nmode = \"full-access\"\n");
        assert_eq!(run(&elsewhere, confined), "Seccomp:\t0");
    });
}

/// Promise: next-run
#[test]
fn dotfiles_linked_into_the_project_stay_protected() {
    each_user(|user| {
        let project = project(user);
        project.write("dots/gitconfig", "[user]\n\tname = A\n");
        let home = project.home();
        let _ = std::fs::remove_file(home.join(".gitconfig"));
        for (target, link) in [("dots/gitconfig", ".gitconfig"), ("dots/bashrc", ".bashrc")] {
            std::os::unix::fs::symlink(project.at(target), home.join(link))
                .expect("a link is made");
        }
        project.sh("echo planted >> dots/gitconfig; echo planted > dots/bashrc; mv dots d; mkdir dots; echo planted > dots/bashrc");
        assert_eq!(project.read("dots/gitconfig").as_deref(), Some("[user]\n\tname = A\n"));
        assert!(!project.has("dots/bashrc"));
        project.tries("create('dots/other')").inside(&["ok"]);
    });
}

/// Promise: next-run
#[test]
fn exponential_extends_ends_soon() {
    each_user(|user| {
        let project = project(user);
        for file in 0..30 {
            let next = file + 1;
            project.write(
                format!(".ringfence/{file}.toml"),
                format!("version = 1\nextends = [\"{next}.toml\", \"./{next}.toml\"]\n"),
            );
        }
        project.write(".ringfence/30.toml", "version = 1\n");
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"0.toml\"]\n");
        run_ends_soon(&project, &["-c", "true"]).expect_status(125);
        // `policy check` agrees with `run`.
        let mut check = project.ringfence();
        assert!(ends_soon(check.args(["policy", "check", ".ringfence/policy.toml"])).status != 0);
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"../shared.toml\"]\n");
        project.write("shared.toml", "version = 1\n");
        assert!(
            ends_soon(project.ringfence().args(["policy", "check", ".ringfence/policy.toml"]))
                .status
                != 0
        );
    });
}

/// Promise: outside-absent
#[test]
fn gitdir_pointer_does_not_open_another_projects_store() {
    each_user(|user| {
        let project = project(user);
        let other = project.home().join("code/big").display().to_string();
        project
            .sh_bare(&format!(
                "git init -q part && cd part && git commit -q --allow-empty -m one && cd .. && git init -q {other} && cd {other} && git -c protocol.file.allow=always submodule add -q {0}/part sub && git commit -qm two && rm -rf {0}/part",
                project.root().display()
            ))
            .ok();
        let store = format!("{other}/.git/modules/sub");
        // Control: for the submodule itself the store is opened.
        project
            .run([
                "-C",
                &format!("{other}/sub"),
                "-c",
                &format!("git log --oneline && touch {store}/mine"),
            ])
            .ok();
        project.write(".git", format!("gitdir: {store}\n"));
        let said = project.sh(&format!("ls {store}; cat {store}/HEAD; touch {store}/planted"));
        assert!(said.text().is_empty(), "{}", said.text());
        assert!(!std::path::Path::new(&store).join("planted").exists());
    });
}

#[test]
fn secret_in_a_directory_without_search_permission_stays_denied() {
    hidden_after("chmod 600 sub", "chmod 755 sub; cat sub/.env");
    hidden_after("true", "mkdir -p al; ln .env al/copy 2>/dev/null; cat al/copy");
    each_user(|user| {
        let project = project(user);
        project.sh_bare("mkdir al; ln .env al/copy").ok();
        project.sh("chmod 600 al");
        let said = project.sh("chmod 755 al; cat al/copy").text();
        project.sh_bare("chmod 755 al").ok();
        assert!(!said.contains(SECRET));
    });
}

#[test]
fn secret_behind_a_denied_link_stays_denied() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("mkdir conf; mv .env conf/prod.txt; ln -s conf/prod.txt .env").ok();
        for away in [
            "rm .env",
            "unlink .env",
            "python3 -c 'import os; os.unlink(\".env\")'",
            "mv .env x",
            "ln -sf README .env",
        ] {
            project.sh(away);
        }
        assert!(!project.sh("cat conf/prod.txt").text().contains(SECRET));
        // Other names can be removed.
        assert_eq!(project.sh("touch a; mkdir d; rm a; rmdir d; ls a d 2>&1 | wc -l").ok(), "2");
        assert!(project.sh_bare("cat .env").text().contains(SECRET));
    });
}

#[test]
fn moving_a_directory_does_not_bypass_protect_rules() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("mkdir ci; echo ok > ci/a.yml").ok();
        let run = |line: &str| {
            project.run([
                "--protect",
                "ci/*.yml",
                "--protect",
                ".github/workflows",
                "--",
                "/bin/sh",
                "-c",
                line,
            ])
        };
        run("mkdir d; echo evil > d/b.yml; mv ci old; mv d ci; mv d/b.yml ci/b.yml");
        run("mkdir -p x/workflows; echo evil > x/workflows/ci.yml; ln -s x .github; mv x .github");
        assert!(!project.has("ci/b.yml") && !project.has(".github/workflows/ci.yml"));
        assert_eq!(project.read("ci/a.yml").as_deref(), Some("ok\n"));
    });
}
