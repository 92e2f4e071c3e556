//! A denied file cannot be read by any of its names.

use ringfence_testkit::{SECRET, TestOutput, each_user};

use crate::project;

/// Promise: home-secrets
#[test]
fn private_keys_in_the_home_are_denied() {
    each_user(|user| {
        let project = project(user);
        for path in [
            "HOME/.ssh/id_rsa",
            "HOME/.aws/credentials",
            "HOME/.netrc",
            "HOME/.config/gh/hosts.yml",
        ] {
            project.tries(&format!("read('{path}')")).inside(&["EACCES"]).bare_ok();
        }
        project.tries("os.listdir('HOME/.ssh')").inside(&["EACCES"]).bare_ok();
        project.tries("write('HOME/.ssh/authorized_keys')").inside(&["EACCES", "EROFS"]);
        project.tries("os.chmod('HOME/.ssh', 0o777)").inside(&["EACCES", "EROFS", "EPERM"]);
    });
}

/// Promise: home-secrets
#[test]
fn password_hashes_are_denied() {
    each_user(|user| {
        let project = project(user);
        project.tries("read('/etc/shadow')").inside(&["EACCES"]).bare_ok_as_root();
    });
}

/// Promise: project-secrets
#[test]
fn secret_in_the_project_is_denied_by_its_name() {
    each_user(|user| {
        let project = project(user);
        for path in [
            ".env",
            ".env.local",
            "x.pem",
            "sub/.env",
            "SECRET.txt",
            "server.KEY",
            "sub/deeper/credentials.json",
        ] {
            project.tries(&format!("read('{path}')")).inside(&["EACCES"]).bare_ok();
            project.tries(&format!("os.open('{path}', os.O_WRONLY)")).inside(&["EACCES", "EROFS"]);
            project
                .tries(&format!("os.chmod('{path}', 0o777)"))
                .inside(&["EACCES", "EROFS", "EPERM"]);
            assert_eq!(project.read(path).as_deref(), Some(SECRET), "{path}");
        }
        let said = project.sh("grep -rs xyzzy . ; cat .e* x.p?m; true");
        assert!(!said.text().contains(SECRET), "{}", said.text());
    });
}

#[test]
fn credential_directories_in_the_project_are_denied_at_any_depth() {
    each_user(|user| {
        let project = project(user);
        for path in [
            "deploy/.ssh/id_ed25519",
            ".ssh/config",
            "a/b/.aws/config",
            ".gnupg/trustdb",
            "k/.kube/config",
            "x/.netrc",
            "x/.pypirc",
        ] {
            project.write(path, SECRET);
            project.tries(&format!("read('{path}')")).inside(&["EACCES"]).bare_ok();
        }
        project.tries("os.listdir('deploy/.ssh')").inside(&["EACCES"]).bare_ok();
        project.tries("os.mkdir('src/.aws')").inside(&["EACCES"]);
        project.run(["--read", "deploy/.ssh", "-c", "cat deploy/.ssh/id_ed25519"]).ok();
    });
}

#[test]
fn credentials_in_directories_of_tools_are_denied() {
    each_user(|user| {
        let project = project(user);
        let home = project.home();
        for tool in ["gradle", "cargo", "uv", "gem", "node"] {
            project.write_at(&home.join("bin").join(tool), "#!/bin/sh\n");
            std::fs::set_permissions(
                home.join("bin").join(tool),
                std::os::unix::fs::PermissionsExt::from_mode(0o755),
            )
            .expect("it is there");
        }
        let secret = [
            ".local/share/uv/credentials/pypi.toml",
            ".gradle/develocity/keys.properties",
            ".gradle/enterprise/keys.properties",
            ".gradle/init.gradle",
            ".gradle/init.d/corp.gradle",
            ".gradle/signing.key",
            ".gradle/gradle.properties",
            ".cargo/config.toml",
            ".cargo/credentials.toml",
            ".gem/credentials",
            ".nvm/versions/node/v22.1.0/etc/npmrc",
            ".nvm/versions/node/v22.1.0/lib/node_modules/npm/npmrc",
            ".pyenv/versions/3.12.1/pip.conf",
            ".local/share/fnm/node-versions/v22.1.0/installation/etc/npmrc",
            ".volta/tools/image/node/22.1.0/etc/npmrc",
        ];
        // URLs with a user and a password have no keyword for a secret.
        let address = format!("url = 'sparse+https://me:{SECRET}@crates.example.org/index/'\n");
        let public = [
            ".gradle/init.d/plain.gradle",
            ".gradle/wrapper/x.jar",
            ".local/share/uv/tools/x",
            ".cargo/bin/x",
            ".nvm/versions/node/v20.1.0/etc/npmrc",
        ];
        for path in secret {
            let line = if path.ends_with("npmrc") {
                "//registry.example.org/:_authToken="
            } else {
                "token = "
            };
            project.write_at(&home.join(path), format!("{line}{SECRET}\n"));
        }
        project.write_at(&home.join(".cargo/config"), &address);
        project.write_at(&home.join(".gradle/init.gradle.bak"), format!("// token = {SECRET}\n"));
        for path in public {
            project.write_at(&home.join(path), "# plain\nallprojects {}\n");
        }
        let path =
            format!("{}:{}", home.join("bin").display(), std::env::var("PATH").expect("a path"));
        let run = |line: &str| {
            TestOutput::run(project.ringfence().env("PATH", &path).args(["run", "-c", line]), b"")
        };
        let files = |names: &[&str]| {
            names.iter().map(|name| format!("~/{name}")).collect::<Vec<_>>().join(" ")
        };
        let ran = run(&format!(
            "for f in ~/.cargo/config ~/.gradle/init.gradle.bak {}; do cat $f >/dev/null && echo read $f; done; true",
            files(&secret)
        ));
        assert_eq!(ran.text(), "", "as {user}");
        run(&format!("cat {}", files(&public))).ok();
    });
}

/// An exception for a file pattern opens no directory of that name.
///
/// Promise: exception-scope
#[test]
fn secrets_below_a_directory_with_an_excepted_name_stay_denied() {
    each_user(|user| {
        let project = project(user);
        let denied = [
            "conf/secrets.d/.env",
            "conf/secrets.d/db",
            "conf/credentials.d/token",
            "conf/ca-bundle/server.key",
            "conf/site.pub/.env",
            "conf/.env.example/.env",
            ".env~",
            "conf/.envrc~",
            "conf/#.env#",
            "server.key~",
        ];
        for path in denied {
            project.write(path, SECRET);
        }
        for path in [
            "conf/ca-bundle/ca-bundle.crt",
            "conf/site.pub/index.html",
            "conf/secrets.rs",
            "src/secrets.d",
        ] {
            project.write(path, "open\n");
        }
        let line = format!(
            "for f in {}; do cat \"$f\" >/dev/null && echo read $f; done; true",
            denied.map(|path| format!("'{path}'")).join(" ")
        );
        assert_eq!(project.sh(&line).text(), "", "as {user}");
        project.sh("cat conf/ca-bundle/ca-bundle.crt conf/site.pub/index.html conf/secrets.rs src/secrets.d").ok();
        project.sh("echo x > conf/secrets.d/new || exit 0; exit 1").ok();
    });
}

#[test]
fn build_output_with_a_denied_name_can_be_written() {
    each_user(|user| {
        let project = project(user);
        project.write("pkg/secrets.py", "value = 1\n");
        project.write("pkg/credentials_store.py", "value = 2\n");
        project.sh("python3 -m compileall -q pkg && python3 -c 'import pkg.secrets, pkg.credentials_store; print(pkg.secrets.value)'").ok();
        let made = project
            .sh_bare("find pkg/__pycache__ -name '*secrets*.pyc' -o -name '*credentials*.pyc'")
            .ok();
        assert_eq!(made.lines().count(), 2, "{made}");
        project.sh("cd pkg && rm -rf __pycache__ && python3 -c 'import secrets; assert secrets.value == 1'").ok();
        for path in [
            "build/secret_store.o",
            "dist/credentials.js.map",
            "dist/secrets.d.ts",
            "out/Secret.class",
            "libsecret.so",
        ] {
            project.sh_bare(&format!("mkdir -p $(dirname {path})")).ok();
            project.tries(&format!("create('{path}')")).inside(&["ok"]);
        }
        for path in ["build/secret.txt", "dist/credentials.json", "secret.pyc.txt"] {
            project.tries(&format!("create('{path}')")).inside(&["EACCES"]);
        }
    });
}

#[test]
fn names_that_resemble_secrets_are_readable() {
    each_user(|user| {
        let project = project(user);
        project.write("node_modules/tls/test.pem", "vendored\n");
        for path in [".env.example", "secrets.rs", "id.pub", "node_modules/tls/test.pem", "README"]
        {
            project.tries(&format!("read('{path}')")).inside(&["ok"]);
        }
    });
}

/// Promise: denied-names
#[test]
fn denied_name_cannot_be_made() {
    each_user(|user| {
        let project = project(user);
        for path in ["new.pem", "src/.env", "MY-SECRET.json", "sub/other.key"] {
            project.tries(&format!("create('{path}')")).inside(&["EACCES"]).bare_ok();
            std::fs::remove_file(project.at(path)).expect("the bare probe made it");
            project.tries(&format!("os.rename('README', '{path}')")).inside(&["EACCES"]);
            project.tries(&format!("os.link('README', '{path}')")).inside(&["EACCES"]);
            project.tries(&format!("os.symlink('README', '{path}')")).inside(&["EACCES"]);
            project.tries(&format!("os.mkdir('{path}')")).inside(&["EACCES"]);
            assert!(!project.has(path), "{path}");
        }
        project.tries("create('new.env.example')").inside(&["ok"]);
    });
}

#[test]
fn denied_file_cannot_be_moved_removed_or_linked() {
    each_user(|user| {
        let project = project(user);
        for path in [".env", "x.pem"] {
            project
                .tries(&format!("os.rename('{path}', 'open.txt')"))
                .inside(&["EACCES", "EBUSY", "EXDEV"]);
            project
                .tries(&format!("os.link('{path}', 'open.txt')"))
                .inside(&["EACCES", "EXDEV", "EPERM", "EROFS"]);
            project.tries(&format!("os.unlink('{path}')")).inside(&["EACCES", "EBUSY"]);
            project
                .tries(&format!("rename2('{path}', 'README', 2)"))
                .inside(&["EACCES", "EBUSY", "EXDEV"]);
            project
                .tries(&format!("os.rename('README', '{path}')"))
                .inside(&["EACCES", "EBUSY", "EXDEV"]);
            assert_eq!(project.read(path).as_deref(), Some(SECRET));
        }
        assert_eq!(project.read("README").as_deref(), Some("hello\n"));
    });
}

#[test]
fn moving_its_directory_does_not_open_a_secret() {
    each_user(|user| {
        let project = project(user);
        project.sh("mv sub elsewhere; cat elsewhere/.env; cp -r elsewhere copy; cat copy/.env; cp -rl sub links; cat links/.env; true");
        let said = project.sh("cat elsewhere/.env copy/.env links/.env sub/.env; tar cf - . | tr -d '\\000'; true").text();
        assert!(!said.contains(SECRET), "{said}");
    });
}

#[test]
fn denied_directory_cannot_be_listed_written_or_moved() {
    each_user(|user| {
        let project = project(user);
        project.write("vault/key.txt", SECRET);
        let flags = ["--deny", "vault"];
        project.tries("read('vault/key.txt')").with(&flags).inside(&["EACCES"]);
        project.tries("create('vault/new')").with(&flags).inside(&["EACCES", "EROFS"]);
        project.tries("os.listdir('vault')").with(&flags).inside(&["EACCES"]);
        project.tries("os.rmdir('vault')").with(&flags).inside(&["EBUSY", "EACCES"]);
        project.tries("os.rename('vault', 'v2')").with(&flags).inside(&["EBUSY", "EACCES"]);
        assert_eq!(project.read("vault/key.txt").as_deref(), Some(SECRET));
    });
}

#[test]
fn deny_and_except_flags_work() {
    each_user(|user| {
        let project = project(user);
        project.write("plan.doc", SECRET);
        project.write("public.pem", "a certificate\n");
        project.tries("read('plan.doc')").with(&["--deny", "*.doc"]).inside(&["EACCES"]);
        project.tries("create('other.doc')").with(&["--deny", "*.doc"]).inside(&["EACCES"]);
        project.tries("read('plan.doc')").with(&["--deny", "plan.doc"]).inside(&["EACCES"]);
        project.tries("read('plan.doc')").inside(&["ok"]);
        project.tries("read('public.pem')").inside(&["EACCES"]);
        project.tries("read('public.pem')").with(&["--except", "public.pem"]).inside(&["ok"]);
        project.tries("read('x.pem')").with(&["--except", "public.pem"]).inside(&["EACCES"]);
    });
}

/// Promise: project-secrets
#[test]
fn links_to_secrets_are_denied() {
    each_user(|user| {
        let project = project(user);
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, project.at(name)).expect("a link is made")
        };
        link(".env", "config");
        link("../../.ssh/id_rsa", "key");
        link("../other", "neighbour");
        link(&project.home().join(".aws/credentials").to_string_lossy(), "aws.txt");
        std::fs::hard_link(project.at(".env"), project.at("settings.txt"))
            .expect("a hard link is made");
        std::fs::hard_link(project.home().join(".ssh/id_rsa"), project.at("src/key.txt"))
            .expect("a hard link is made");
        for (path, expected) in [
            ("config", "EACCES"),
            ("key", "EACCES"),
            ("aws.txt", "EACCES"),
            ("neighbour/main.rs", "ENOENT"),
        ] {
            project.tries(&format!("read('{path}')")).inside(&[expected]).bare_ok();
        }
        for path in ["settings.txt", "src/key.txt"] {
            project.tries(&format!("read('{path}')")).inside(&["EACCES"]).bare_ok();
        }
    });
}

/// Promise: project-secrets
#[test]
fn target_of_a_link_with_a_secret_name_is_denied() {
    each_user(|user| {
        let project = project(user);
        project.write("conf/real-values", SECRET);
        std::fs::remove_file(project.at(".env")).expect("it was there");
        std::os::unix::fs::symlink("conf/real-values", project.at(".env")).expect("a link is made");
        project.tries("read('.env')").inside(&["EACCES"]).bare_ok();
        project.tries("read('conf/real-values')").inside(&["EACCES"]);
    });
}

/// Promise: project-secrets
#[test]
fn home_secret_linked_into_the_project_is_denied() {
    each_user(|user| {
        let project = project(user);
        project.write("files/n", SECRET);
        project.write("files/d/key", SECRET);
        let link = |target: &str, name: &str| {
            let at = project.home().join(name);
            let _ = std::fs::remove_dir_all(&at);
            let _ = std::fs::remove_file(&at);
            std::os::unix::fs::symlink(project.at(target), at).expect("a link is made");
        };
        project.tries("read('files/n')").inside(&["ok"]);
        link("files/n", ".netrc");
        link("files/d", ".aws");
        for path in ["files/n", "files/d/key", "HOME/.netrc", "HOME/.aws/key"] {
            project.tries(&format!("read('{path}')")).inside(&["EACCES", "ENOENT"]).bare_ok();
        }
        project.tries("read('files/n')").inside(&["EACCES"]);
        project.tries("os.rename('files', 'f')").inside(&["EACCES", "EBUSY"]);
        // A flag that names the very file opens it.
        project.tries("read('files/n')").with(&["--read", "files/n"]).inside(&["ok"]);
    });
}

#[test]
fn link_with_a_secret_name_does_not_deny_the_system_or_project() {
    each_user(|user| {
        for target in ["/usr", "/etc/ssl", ".", "..", "/"] {
            let project = project(user);
            std::os::unix::fs::symlink(target, project.at("my-secret")).expect("a link is made");
            assert_eq!(project.sh("cat README").ok(), "hello", "{target}");
        }
    });
}
