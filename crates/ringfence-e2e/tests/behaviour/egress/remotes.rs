//! git and ssh with allowed hosts.

use ringfence_testkit::{TestNetwork, TestProject, TestUser, skip};

use super::{inside, on_a_lan};

/// Makes a repository for the servers, with one commit.
fn repository(lan: &TestNetwork<'_>) {
    lan.run_as_server(
        "git init -q --bare git/x.git && git -C git/x.git config http.receivepack true && git clone -q git/x.git work 2>/dev/null && cd work && echo one > file && git add file && git commit -qm one && git push -q origin HEAD:main && git -C ../git/x.git symbolic-ref HEAD refs/heads/main",
    )
    .ok();
}

/// Clones, changes and pushes by `url`; returns the repository's content.
#[track_caller]
fn round(lan: &TestNetwork<'_>, environment: &str, url: &str) -> String {
    inside(
        lan,
        &format!(
            "export {environment}; git clone -q {url} copy && cd copy && echo two >> file && git commit -qam two && git push -q origin HEAD:main && git fetch -q"
        ),
    );
    lan.run_as_server("git -C git/x.git show main:file").ok()
}

/// Promise: allowed-hosts
#[test]
fn git_clones_and_pushes_over_https() {
    on_a_lan(&["git"], |_, lan| {
        repository(lan);
        assert_eq!(
            round(lan, "GIT_SSL_CAINFO=$PWD/ca.crt", "https://app.test/git/x.git"),
            "one\ntwo"
        );
        assert!(
            lan.server_log().contains("443 app.test POST app.test /git/x.git/git-receive-pack"),
            "{}",
            lan.server_log()
        );
        assert_eq!(
            inside(lan, "git clone -q http://app.test/git/x.git plain && cat plain/file"),
            "one\ntwo"
        );
    });
}

/// The ssh command line for the project, with a key that the server accepts; `None` without sshd.
fn ssh(project: &TestProject, lan: &TestNetwork<'_>) -> Option<String> {
    if !TestUser::runner_is_root() {
        skip("only the superuser can serve ssh");
        return None;
    }
    lan.bare("ssh-keygen -q -t ed25519 -N '' -f login").ok();
    std::fs::copy(project.at("login.pub"), lan.at("authorized")).expect("the key was just made");
    let host = std::fs::read_to_string(lan.at("host.pub")).expect("the server has a key");
    project.write("known", format!("app.test {host}"));
    Some(format!(
        "ssh -F none -i {0}/login -o UserKnownHostsFile={0}/known -o BatchMode=yes",
        project.root().display()
    ))
}

/// Promise: allowed-hosts
#[test]
fn ssh_logs_in_to_an_allowed_host() {
    on_a_lan(&["ssh", "ssh-keygen", "/usr/sbin/sshd"], |project, lan| {
        let Some(ssh) = ssh(project, lan) else { return };
        assert_eq!(
            inside(lan, &format!("echo over the wire | {ssh} root@app.test 'tr a-z A-Z; id -u'")),
            "OVER THE WIRE\n0"
        );
        // A forwarded port is in the sandbox.
        let line = format!(
            "{ssh} -f -N -o ExitOnForwardFailure=yes -L 9007:127.0.0.1:7 root@app.test </dev/null >/dev/null 2>&1 && bash -c 'exec 3<>/dev/tcp/127.0.0.1/9007; echo through >&3; head -1 <&3'"
        );
        assert_eq!(inside(lan, &line), "THROUGH");
    });
}

/// Promise: allowed-hosts
#[test]
fn git_clones_and_pushes_over_ssh() {
    on_a_lan(&["git", "ssh", "ssh-keygen", "/usr/sbin/sshd"], |project, lan| {
        repository(lan);
        let Some(ssh) = ssh(project, lan) else { return };
        let url = format!("root@app.test:{}", lan.at("git/x.git").display());
        assert_eq!(round(lan, &format!("GIT_SSH_COMMAND='{ssh}'"), &url), "one\ntwo");
    });
}
