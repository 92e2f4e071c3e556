//! What a rule denies cannot be read, whatever it is called by.

use ringfence_testkit::{SECRET, each_user};

use crate::project;

#[test]
fn a_private_key_of_the_home_is_denied() {
    each_user(|user| {
        let project = project(user);
        for path in ["HOME/.ssh/id_rsa", "HOME/.aws/credentials", "HOME/.netrc", "HOME/.config/gh/hosts.yml"] {
            project.tries(&format!("read('{path}')")).inside(&["EACCES"]).bare_ok();
        }
        project.tries("os.listdir('HOME/.ssh')").inside(&["EACCES"]).bare_ok();
        project.tries("write('HOME/.ssh/authorized_keys')").inside(&["EACCES", "EROFS"]);
        project.tries("os.chmod('HOME/.ssh', 0o777)").inside(&["EACCES", "EROFS", "EPERM"]);
    });
}

#[test]
fn the_password_hashes_are_denied() {
    each_user(|user| {
        let project = project(user);
        project.tries("read('/etc/shadow')").inside(&["EACCES"]).bare_ok_as_root();
    });
}

#[test]
fn a_secret_in_the_project_is_denied_by_its_name() {
    each_user(|user| {
        let project = project(user);
        for path in [".env", ".env.local", "x.pem", "sub/.env", "SECRET.txt", "server.KEY", "sub/deeper/credentials.json"] {
            project.tries(&format!("read('{path}')")).inside(&["EACCES"]).bare_ok();
            project.tries(&format!("os.open('{path}', os.O_WRONLY)")).inside(&["EACCES", "EROFS"]);
            project.tries(&format!("os.chmod('{path}', 0o777)")).inside(&["EACCES", "EROFS", "EPERM"]);
            assert_eq!(project.read(path).as_deref(), Some(SECRET), "{path}");
        }
        let said = project.sh("grep -rs xyzzy . ; cat .e* x.p?m; true");
        assert!(!said.text().contains(SECRET), "{}", said.text());
    });
}

#[test]
fn what_only_looks_like_a_secret_is_readable() {
    each_user(|user| {
        let project = project(user);
        project.write("node_modules/tls/test.pem", "vendored\n");
        for path in [".env.example", "secrets.rs", "id.pub", "node_modules/tls/test.pem", "README"] {
            project.tries(&format!("read('{path}')")).inside(&["ok"]);
        }
    });
}

#[test]
fn a_denied_name_cannot_be_made() {
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
fn a_denied_file_cannot_be_moved_removed_or_linked() {
    each_user(|user| {
        let project = project(user);
        for path in [".env", "x.pem"] {
            project.tries(&format!("os.rename('{path}', 'open.txt')")).inside(&["EACCES", "EBUSY", "EXDEV"]);
            project.tries(&format!("os.link('{path}', 'open.txt')")).inside(&["EACCES", "EXDEV", "EPERM", "EROFS"]);
            project.tries(&format!("os.unlink('{path}')")).inside(&["EACCES", "EBUSY"]);
            project.tries(&format!("rename2('{path}', 'README', 2)")).inside(&["EACCES", "EBUSY", "EXDEV"]);
            project.tries(&format!("os.rename('README', '{path}')")).inside(&["EACCES", "EBUSY", "EXDEV"]);
            assert_eq!(project.read(path).as_deref(), Some(SECRET));
        }
        assert_eq!(project.read("README").as_deref(), Some("hello\n"));
    });
}

#[test]
fn the_directory_around_a_secret_does_not_give_it_away() {
    each_user(|user| {
        let project = project(user);
        project.sh("mv sub elsewhere; cat elsewhere/.env; cp -r elsewhere copy; cat copy/.env; cp -rl sub links; cat links/.env; true");
        let said = project.sh("cat elsewhere/.env copy/.env links/.env sub/.env; tar cf - . | tr -d '\\000'; true").text();
        assert!(!said.contains(SECRET), "{said}");
    });
}

#[test]
fn a_denied_directory_swallows_nothing() {
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
fn flags_deny_and_except() {
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

#[test]
fn links_to_secrets_are_as_denied_as_the_secrets() {
    each_user(|user| {
        let project = project(user);
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, project.at(name)).expect("a link is made");
        link(".env", "config");
        link("../../.ssh/id_rsa", "key");
        link("../other", "neighbour");
        link(&project.home().join(".aws/credentials").to_string_lossy(), "aws.txt");
        std::fs::hard_link(project.at(".env"), project.at("settings.txt")).expect("a hard link is made");
        std::fs::hard_link(project.home().join(".ssh/id_rsa"), project.at("src/key.txt")).expect("a hard link is made");
        for (path, expected) in [("config", "EACCES"), ("key", "EACCES"), ("aws.txt", "EACCES"), ("neighbour/main.rs", "ENOENT")] {
            project.tries(&format!("read('{path}')")).inside(&[expected]).bare_ok();
        }
        for path in ["settings.txt", "src/key.txt"] {
            project.tries(&format!("read('{path}')")).inside(&["EACCES"]).bare_ok();
        }
    });
}

#[test]
fn a_link_with_a_secret_name_hides_what_it_leads_to() {
    each_user(|user| {
        let project = project(user);
        project.write("conf/real-values", SECRET);
        std::fs::remove_file(project.at(".env")).expect("it was there");
        std::os::unix::fs::symlink("conf/real-values", project.at(".env")).expect("a link is made");
        project.tries("read('.env')").inside(&["EACCES"]).bare_ok();
        project.tries("read('conf/real-values')").inside(&["EACCES"]);
    });
}

#[test]
fn a_secret_of_the_home_that_is_kept_in_the_project_is_denied_there() {
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
        // A person who names the very file means it.
        project.tries("read('files/n')").with(&["--read", "files/n"]).inside(&["ok"]);
    });
}

#[test]
fn a_link_with_a_secret_name_shuts_neither_the_system_nor_the_project() {
    each_user(|user| {
        for target in ["/usr", "/etc/ssl", ".", "..", "/"] {
            let project = project(user);
            std::os::unix::fs::symlink(target, project.at("my-secret")).expect("a link is made");
            assert_eq!(project.sh("cat README").ok(), "hello", "{target}");
        }
    });
}
