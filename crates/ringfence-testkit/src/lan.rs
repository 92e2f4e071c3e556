//! A network of a test's own: hosts, names and servers that nobody else has.
//!
//! It is a network namespace in which some ranges of public and private addresses lead to the
//! machine itself, without being addresses of its interfaces, and a mount namespace with a hosts
//! file to match. `ringfence` is started within, and has it for the host's network.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::output::TestOutput;
use crate::program::python;
use crate::project::TestProject;
use crate::require::needs;
use crate::user::TestUser;

/// The names of that network. Two at public addresses of both kinds, one at another, one at a
/// private address, one where clouds tell their secrets, one at the machine's own loopback.
const HOSTS: &str = "127.0.0.1 localhost
::1 localhost
11.22.33.1 app.test deep.app.test
2600:1234:5678::1 app.test six.test
11.22.33.2 other.test
10.9.8.7 inner.test
169.254.169.254 metadata.test
127.0.0.1 local.test
";

/// Makes the network, and becomes its servers. The arguments are a directory, Python, and who
/// may not be known to the machine.
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

/// The network, its servers and what they hear. Ends when dropped.
#[derive(Debug)]
pub struct TestNetwork<'a> {
    project: &'a TestProject,
    servers: Child,
    directory: PathBuf,
}

impl TestProject {
    /// A network for this project. Its authority's certificate is `ca.crt` in the project.
    #[track_caller]
    pub fn lan(&self) -> Option<TestNetwork<'_>> {
        if !needs(&["ip", "nsenter", "unshare", "openssl", "mount"]) {
            return None;
        }
        let directory = self.home().with_file_name("lan");
        std::fs::create_dir_all(&directory).expect("a project's ground is writable");
        let files = [
            ("hosts", HOSTS),
            ("lan.py", include_str!("lan.py")),
            ("packages.py", include_str!("packages.py")),
        ];
        for (name, content) in files {
            std::fs::write(directory.join(name), content).expect("the directory was just made");
        }
        let mut servers = self.command_of_the_runner("unshare");
        servers
            .arg(if TestUser::runner_is_root() { "-mn" } else { "-rmn" })
            .args(["sh", "-ec", SETUP, "sh"]);
        servers.arg(&directory).args([python()?, &self.user.ids().0.to_string()]).arg(self.home());
        let said =
            std::fs::File::create(directory.join("said")).expect("the directory was just made");
        let mut servers = servers
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .expect("unshare starts");
        let mut ready = String::new();
        BufReader::new(servers.stdout.take().expect("piped just above"))
            .read_line(&mut ready)
            .expect("the servers say something");
        let lan = TestNetwork { project: self, servers, directory };
        assert!(ready == "ready\n", "no network of its own:\n{}", lan.file("said"));
        self.write("ca.crt", lan.file("ca.crt"));
        Some(lan)
    }
}

impl TestNetwork<'_> {
    /// A file that stands beside the servers.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// What the servers were asked for: a line for each, with the port, the name in TLS and what
    /// was said.
    pub fn heard(&self) -> String {
        self.file("heard")
    }

    /// A program as whoever serves, in this network.
    pub fn served(&self, line: &str) -> TestOutput {
        TestOutput::of(self.entered(&self.directory).args(["sh", "-c", line]), b"")
    }

    fn entered(&self, directory: &Path) -> Command {
        let mut command = self.project.command_of_the_runner("nsenter");
        command.args(["-t", &self.servers.id().to_string(), "-m", "-n"]);
        if !TestUser::runner_is_root() {
            command.args(["-U", "--preserve-credentials"]);
        }
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(directory);
        command
    }

    /// A program as the project's user, in the project and in this network.
    pub fn command(&self) -> Command {
        let mut command = self.entered(&self.project.root());
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
        TestOutput::of(self.command().arg(self.project.binary()).arg("run").args(words), b"")
    }

    /// The same, where these variables are set.
    #[track_caller]
    pub fn run_with(&self, variables: &[(&str, &str)], words: &[&str]) -> TestOutput {
        TestOutput::of(
            self.command()
                .envs(variables.iter().copied())
                .arg(self.project.binary())
                .arg("run")
                .args(words),
            b"",
        )
    }

    /// A line of shell in this network, without ringfence.
    #[track_caller]
    pub fn bare(&self, line: &str) -> TestOutput {
        TestOutput::of(self.command().args(["sh", "-c", line]), b"")
    }
}

impl Drop for TestNetwork<'_> {
    fn drop(&mut self) {
        // The servers end with what they read.
        drop(self.servers.stdin.take());
        let _ = self.servers.wait();
    }
}
