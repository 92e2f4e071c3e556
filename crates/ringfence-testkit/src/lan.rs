//! A private network for a test, with its own hosts, names and servers.
//!
//! In a network namespace, some ranges of public and private addresses are routed to loopback
//! without being addresses of an interface. A mount namespace has a matching hosts file.
//! `ringfence` runs inside and sees it as the host's network.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::output::TestOutput;
use crate::program::python;
use crate::project::TestProject;
use crate::require::needs;
use crate::user::TestUser;

/// The names of the network: two at public IPv4 and IPv6 addresses, one at another, one at a
/// private address, one at the cloud metadata address, one at loopback.
const HOSTS: &str = "127.0.0.1 localhost
::1 localhost
11.22.33.1 app.test deep.app.test
2600:1234:5678::1 app.test six.test
11.22.33.2 other.test
10.9.8.7 inner.test
169.254.169.254 metadata.test
127.0.0.1 local.test
";

/// Sets up the network, and then runs the servers. The arguments are a directory, Python, and the
/// uid and home of a user without an account.
const SETUP: &str = r#"
cd "$1"
ip link set lo up
for range in 11.22.33.0/24 10.9.8.0/24 169.254.169.254/32; do ip route add local $range dev lo; done
ip -6 route add local 2600:1234:5678::/64 dev lo
{ cat /etc/passwd; echo "person:x:$3:$3::$4:/bin/sh"; } > passwd
echo 'root:*:::::::' > shadow
echo 'nameserver 127.0.0.1' > resolv.conf
for file in hosts passwd shadow resolv.conf; do mount --bind $file /etc/$file; done
key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
names=DNS:app.test,DNS:*.app.test,DNS:other.test,DNS:six.test,DNS:inner.test,DNS:far.test,DNS:registry.npmjs.org,DNS:registry.yarnpkg.com,DNS:pypi.org,DNS:files.pythonhosted.org,DNS:index.crates.io,DNS:static.crates.io,DNS:github.com,DNS:repo.maven.apache.org
openssl req -x509 $key -keyout ca.key -out ca.crt -days 2 -subj /CN=authority
openssl req $key -keyout server.key -out server.csr -subj /CN=app.test
echo subjectAltName=$names | openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile /dev/stdin -out server.crt
exec "$2" -B lan.py
"#;

/// The network, its servers and their log. Ends when dropped.
#[derive(Debug)]
pub struct TestNetwork<'a> {
    project: &'a TestProject,
    servers: Child,
    directory: PathBuf,
}

impl TestProject {
    /// A network for this project. The CA certificate is `ca.crt` in the project.
    #[track_caller]
    pub fn lan(&self) -> Option<TestNetwork<'_>> {
        if !needs(&["ip", "nsenter", "unshare", "openssl", "mount"]) {
            return None;
        }
        let directory = self.home().with_file_name("lan");
        std::fs::create_dir_all(&directory).expect("the project's directory is writable");
        let files = [
            ("hosts", HOSTS),
            ("lan.py", include_str!("lan.py")),
            ("packages.py", include_str!("packages.py")),
        ];
        for (name, content) in files {
            std::fs::write(directory.join(name), content).expect("the directory was just created");
        }
        let mut servers = self.runner_command("unshare");
        servers
            .arg(if TestUser::runner_is_root() { "-mn" } else { "-rmn" })
            .args(["sh", "-ec", SETUP, "sh"]);
        servers.arg(&directory).args([python()?, &self.user.ids().0.to_string()]).arg(self.home());
        let log =
            std::fs::File::create(directory.join("said")).expect("the directory was just created");
        let mut servers = servers
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("unshare starts");
        let mut ready = String::new();
        BufReader::new(servers.stdout.take().expect("piped just above"))
            .read_line(&mut ready)
            .expect("the servers print a line");
        let lan = TestNetwork { project: self, servers, directory };
        assert!(ready == "ready\n", "cannot set up the network:\n{}", lan.file("said"));
        self.write("ca.crt", lan.file("ca.crt"));
        Some(lan)
    }
}

impl TestNetwork<'_> {
    /// A file in the directory of the servers.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// The log of the servers: a line for each request, with the port, the TLS server name and the
    /// content.
    pub fn server_log(&self) -> String {
        self.file("heard")
    }

    /// Runs a program as the user of the servers, in this network.
    pub fn run_as_server(&self, line: &str) -> TestOutput {
        TestOutput::run(self.command_in_namespaces(&self.directory).args(["sh", "-c", line]), b"")
    }

    fn command_in_namespaces(&self, directory: &Path) -> Command {
        let mut command = self.project.runner_command("nsenter");
        command.args(["-t", &self.servers.id().to_string(), "-m", "-n"]);
        if !TestUser::runner_is_root() {
            command.args(["-U", "--preserve-credentials"]);
        }
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(directory);
        command
    }

    /// A command as the project's user, in the project and in this network.
    pub fn command(&self) -> Command {
        let mut command = self.command_in_namespaces(&self.project.root());
        if self.project.user == TestUser::User && TestUser::runner_is_root() {
            let (uid, gid) = self.project.user.ids();
            command.args([
                "setpriv",
                &format!("--reuid={uid}"),
                &format!("--regid={gid}"),
                "--clear-groups",
            ]);
        }
        command
    }

    /// `ringfence run` in this network, to its end.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> TestOutput {
        TestOutput::run(self.command().arg(self.project.binary()).arg("run").args(words), b"")
    }

    /// As [`TestNetwork::run`], with these environment variables.
    #[track_caller]
    pub fn run_with(&self, variables: &[(&str, &str)], words: &[&str]) -> TestOutput {
        TestOutput::run(
            self.command()
                .envs(variables.iter().copied())
                .arg(self.project.binary())
                .arg("run")
                .args(words),
            b"",
        )
    }

    /// Runs a shell line in this network, without ringfence.
    #[track_caller]
    pub fn bare(&self, line: &str) -> TestOutput {
        TestOutput::run(self.command().args(["sh", "-c", line]), b"")
    }
}

impl Drop for TestNetwork<'_> {
    fn drop(&mut self) {
        // The servers end when their input closes.
        drop(self.servers.stdin.take());
        let _ = self.servers.wait();
    }
}
