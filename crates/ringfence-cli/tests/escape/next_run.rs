//! What one command prepares must open nothing for the next, nor keep it from starting.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringfence_testkit::{
    SECRET, TestOutput, TestProject, TestUser, each_user, finish, wait_at_most,
};

use crate::project;

/// What the second line prints after the first must hold the secret bare, and not inside.
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

/// The output of a command that must end on its own soon.
#[track_caller]
pub(crate) fn ends_soon(command: &mut Command) -> TestOutput {
    // A group of its own: what it stops must not be the test.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    assert!(wait_at_most(&mut child, Duration::from_secs(8)).is_some(), "{command:?} hangs");
    finish(child)
}

#[track_caller]
fn run_ends_soon(project: &TestProject, words: &[&str]) -> TestOutput {
    ends_soon(project.ringfence().arg("run").args(words))
}

/// Promise: P24
#[test]
fn a_secret_is_read_below_a_vendored_name() {
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

/// Promise: P24
#[test]
fn a_secret_is_read_where_the_survey_cannot_look() {
    hidden_after("chmod 311 sub", "cat sub/.env");
    hidden_after("chmod 000 sub", "chmod 755 sub; cat sub/.env sub/deeper/credentials.json");
    hidden_after("chmod 311 sub/deeper", "cat sub/deeper/credentials.json");
}

/// Goes down a path that is longer than any path may be; `MOVE` moves the secret there.
const DEEP: &str = r#"
name, fd, top = 'd' * 240, os.open('.', os.O_RDONLY), os.open('.', os.O_RDONLY)
for i in range(20):
    if MOVE: os.mkdir(name, dir_fd=fd)
    fd = os.open(name, os.O_RDONLY, dir_fd=fd)
if MOVE: os.rename('sub', 'sub', src_dir_fd=top, dst_dir_fd=fd)
else: print(os.read(os.open('sub/.env', os.O_RDONLY, dir_fd=fd), 100))
"#;

#[test]
fn a_secret_is_read_below_too_long_a_path() {
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

/// Promise: P24
#[test]
fn a_secret_is_read_while_another_command_swaps_directories() {
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
fn a_cache_within_the_project_leads_out_of_it() {
    each_user(|user| {
        let project = project(user);
        let run = |line: &str| {
            TestOutput::of(
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

/// Promise: P25
#[test]
fn a_policy_of_the_project_hands_over_variables() {
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
            let said = TestOutput::of(command.args(["run", "-c", "env"]), b"").text();
            assert!(!said.contains(SECRET), "{allow}: {said}");
        }
    });
}

/// Promise: P25
#[test]
fn a_policy_of_the_project_opens_sockets_of_the_host() {
    each_user(|user| {
        let project = project(user);
        let _host =
            project.bystander("s = socket.socket(socket.AF_UNIX); s.bind('h.sock'); s.listen(9)");
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

/// Promise: P25
#[test]
fn a_policy_of_the_project_opens_hosts() {
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
            assert!(ran.talk().contains(ignored), "{user}: {ignored} is not in {}", ran.talk());
        }
        project.python_bare(&code).ok();
        assert!(listener.accept().is_ok(), "the probe cannot succeed");
    });
}

/// What `line` makes must not take a file out of the project's denials, seen from below.
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
            TestOutput::of(
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

/// Promise: P24
#[test]
fn a_policy_made_inside_takes_the_place_of_the_projects() {
    policy_still_holds_after(
        "mkdir pkg/.ringfence; echo 'version = 1' > pkg/.ringfence/policy.toml",
    );
    policy_still_holds_after("mkdir -p p/.ringfence; mv p/.ringfence pkg/");
    policy_still_holds_after("mkdir p; mv p pkg/.ringfence");
    policy_still_holds_after("ln -s ../src pkg/.ringfence");
}

#[test]
fn a_command_that_stops_itself_outlives_its_time() {
    // As one user: it takes its time.
    let project = project(TestUser::User);
    run_ends_soon(&project, &["--timeout", "100ms", "-c", "kill -STOP $$; sleep 60"]);
}

#[test]
fn a_pipe_in_place_of_a_file_keeps_later_commands_waiting() {
    each_user(|user| {
        let other = crate::project(user);
        other.sh("mkfifo .git");
        assert_eq!(run_ends_soon(&other, &["-c", "echo alive"]).ok(), "alive");
        for name in [".gitignore", ".mcp.json", "HEAD", "config", "commondir"] {
            let project = project(user);
            project.sh(&format!("mkfifo {name}"));
            assert_eq!(run_ends_soon(&project, &["-c", "echo alive"]).ok(), "alive", "{name}");
        }
        // The person's own doing: an error will do.
        let project = project(user);
        project.sh_bare("mkdir .ringfence; mkfifo .ringfence/policy.toml").ok();
        run_ends_soon(&project, &["-c", "echo alive"]);
    });
}

/// Promise: P25
#[test]
fn a_policy_of_the_project_reads_what_lies_elsewhere() {
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
                !ran.talk().contains(SECRET) && !ran.talk().contains("memory"),
                "{path}: {}",
                ran.talk()
            );
        }
    });
}

#[test]
fn a_policy_extends_a_link_out_of_the_project() {
    each_user(|user| {
        let project = project(user);
        project.write_at(
            &project.home().join("other.toml"),
            format!("version = 1\n[network]\nmode = \"{SECRET}\"\n"),
        );
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"../shared.toml\"]\n");
        project.sh_bare("ln -s ../../other.toml shared.toml").ok();
        let ran = run_ends_soon(&project, &["-c", "true"]);
        assert!(!ran.talk().contains(SECRET), "{}", ran.talk());
        project.sh_bare("rm shared.toml; mkfifo shared.toml").ok();
        run_ends_soon(&project, &["-c", "true"]);
    });
}

#[test]
fn a_file_that_the_policy_extends_is_changed() {
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
        // Elsewhere it would not be protected, and is not obeyed.
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"../shared.toml\"]\n");
        project.write("shared.toml", "version = 1\n");
        assert_eq!(project.sh("true").status, 125);
    });
}

#[test]
fn a_repository_made_inside_hides_the_policy_above() {
    policy_still_holds_after("git init -q pkg");
}

#[test]
fn a_policy_of_the_project_hands_over_the_keys_of_the_agent() {
    each_user(|user| {
        let project = project(user);
        for name in ["SSH_AUTH_SOCK", "PGPASS", "DBUS_SESSION_BUS_ADDRESS"] {
            project.write(
                ".ringfence/policy.toml",
                format!("version = 1\n[environment]\nallow = [\"{name}\"]\n"),
            );
            let said = TestOutput::of(
                project.ringfence().env(name, SECRET).args(["run", "-c", "env"]),
                b"",
            )
            .text();
            assert!(!said.contains(SECRET), "{name}");
        }
    });
}

/// Promise: P25
#[test]
fn settings_of_the_person_are_made_in_the_project() {
    each_user(|user| {
        let project = project(user);
        let run = |config: &std::path::Path, line: &str| {
            TestOutput::of(
                project.ringfence().env("XDG_CONFIG_HOME", config).args(["run", "-c", line]),
                b"",
            )
            .text()
        };
        let open = "printf 'version = 1\\nmode = \"full-access\"\\n'";
        let confined = "grep Seccomp: /proc/self/status";
        let plant = |at: &str| format!("mkdir -p {at}; {open} > {at}/policy.toml; {confined}");
        // Settings that this project does not obey, and another would.
        let second = project.home().join("code/second");
        project.make_directories(&second);
        let name = second.to_str().expect("ASCII").trim_start_matches('/').replace('/', "+");
        let line = format!(
            "mkdir -p conf/ringfence/projects; printf 'version = 1\\nproject = \"%s\"\\nmode = \"full-access\"\\n' {} >conf/ringfence/projects/{name}.toml",
            second.display()
        );
        project.make_directories(&project.at("conf"));
        run(&project.at("conf"), &line);
        let there = TestOutput::of(
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
        // In the project, by its own name and behind a link.
        std::os::unix::fs::symlink(&inside, &elsewhere).expect("a link is made");
        for config in [&inside, &elsewhere] {
            run(config, &plant(".config/ringfence"));
            assert_eq!(run(config, confined), "Seccomp:\t2", "{}", config.display());
        }
        // Beside it, where a link leads back in: nothing is there yet.
        std::fs::remove_file(&elsewhere).expect("it was made above");
        project.make_directories(&elsewhere);
        std::os::unix::fs::symlink(project.at("dots"), elsewhere.join("ringfence"))
            .expect("a link is made");
        run(&elsewhere, &plant("dots"));
        assert_eq!(run(&elsewhere, confined), "Seccomp:\t2");
        // The control: the person's own settings do count.
        project.write("dots/policy.toml", "version = 1\nmode = \"full-access\"\n");
        assert_eq!(run(&elsewhere, confined), "Seccomp:\t0");
    });
}

/// Promise: P24
#[test]
fn start_up_files_of_the_home_that_are_kept_in_the_project_are_changed() {
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

/// Promise: P24
#[test]
fn policies_that_extend_each_other_twice_keep_later_commands_waiting() {
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
        run_ends_soon(&project, &["-c", "true"]).ends(125);
        // What `policy check` says is what `run` does.
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

/// Promise: P8
#[test]
fn a_pointer_opens_the_store_of_another_project() {
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
        // The control: for the submodule itself the store is opened.
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
fn a_secret_is_read_where_names_are_listed_and_not_asked() {
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
fn a_secret_is_read_when_the_link_that_said_so_is_gone() {
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
        // Other names can be taken away as ever.
        assert_eq!(project.sh("touch a; mkdir d; rm a; rmdir d; ls a d 2>&1 | wc -l").ok(), "2");
        assert!(project.sh_bare("cat .env").text().contains(SECRET));
    });
}

#[test]
fn protects_with_a_directory_in_them_are_passed_by_moving_it() {
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
