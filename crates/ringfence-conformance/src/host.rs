//! Access to the host besides its files: network, processes, environment, user.

use std::env;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use super::CheckResult;
use super::check_run::{CheckRun, CheckStep, PreparedCheck, difference, expect_equal};
use super::suite::VARIABLE;

checks! {
    Core: loopback_works_inside,
    Network: network_is_closed_by_default,
    Processes: host_processes_are_unreachable,
    Processes: callers_environment_is_hidden,
    Core | Unix: uid_and_gid_are_the_same_inside,
    Files | Unix: user_has_the_given_name,
}

/// The sandbox's own loopback must be up: it refuses, whereas without one the network is
/// unreachable.
fn loopback_works_inside(check_run: &CheckRun<'_>) -> CheckResult {
    let ran = check_run.open()?.sh("bash -c 'exec 3<>/dev/tcp/127.0.0.1/1'")?;
    let is_refused = ran.stderr().contains("Connection refused");
    if is_refused {
        Ok(())
    } else {
        Err(difference(
            "a connection to a port without a listener",
            "Connection refused",
            ran.stderr(),
        ))
    }
}

fn network_is_closed_by_default(check_run: &CheckRun<'_>) -> CheckResult {
    let listeners = HostListeners::open().during("listen on the host's network")?;
    listeners.connect_from(&mut check_run.open()?)?;
    expect_equal("connections to the host", listeners.received(), Vec::new())
}

/// Sockets of the host that record connections.
pub(super) struct HostListeners {
    stream: TcpListener,
    datagram: UdpSocket,
    addresses: Vec<Ipv4Addr>,
}

impl HostListeners {
    pub(super) fn open() -> io::Result<Self> {
        let (stream, datagram) = (
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?,
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        );
        stream.set_nonblocking(true)?;
        datagram.set_nonblocking(true)?;
        let mut addresses = vec![Ipv4Addr::LOCALHOST];
        // Nothing is sent: this only finds the host's source address.
        let outward = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        if let Ok(SocketAddr::V4(own)) =
            outward.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).and_then(|()| outward.local_addr())
        {
            addresses.push(*own.ip());
        }
        Ok(Self { stream, datagram, addresses })
    }

    /// Connects to them from inside, at every address of the host.
    pub(super) fn connect_from(&self, prepared: &mut PreparedCheck<'_>) -> CheckResult {
        let port = |address: io::Result<SocketAddr>| {
            address.map(|address| address.port()).during("ask for a port")
        };
        let (stream, datagram) =
            (port(self.stream.local_addr())?, port(self.datagram.local_addr())?);
        for address in &self.addresses {
            let line = format!(
                "timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/{stream}' 2>/dev/null && echo reached {address};
                 timeout 3 bash -c 'echo x > /dev/udp/{address}/{datagram}' 2>/dev/null; timeout 3 bash -c 'echo over'"
            );
            prepared.sh(&line)?.expect_output("over")?;
        }
        Ok(())
    }

    /// The connections and datagrams that arrived.
    pub(super) fn received(&self) -> Vec<&'static str> {
        let stream = self.stream.accept().is_ok().then_some("a connection");
        let datagram = self.datagram.recv(&mut [0; 8]).is_ok().then_some("a datagram");
        stream.into_iter().chain(datagram).collect()
    }
}

/// A process of the host, killed when dropped.
struct HostProcess(Child);

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn host_processes_are_unreachable(check_run: &CheckRun<'_>) -> CheckResult {
    let marker = format!("61.{}", std::process::id());
    let mut sleep = Command::new("sleep");
    sleep.arg(&marker).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut host_process = HostProcess(sleep.spawn().during("start a process")?);
    let ran = check_run.open()?.sh(&format!(
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -KILL {}; echo over",
        host_process.0.id()
    ))?;
    expect_equal("the command ran to its end", ran.text().ends_with("over"), true)?;
    expect_equal("a process of the host is seen", ran.text().contains(&marker), false)?;
    expect_equal(
        "the exit status of a host process that the command tried to kill",
        host_process.0.try_wait().during("wait for a process")?,
        None,
    )
}

fn callers_environment_is_hidden(check_run: &CheckRun<'_>) -> CheckResult {
    let (name, value) = VARIABLE;
    expect_equal(
        format!("the runner's own variable {name}"),
        env::var(name).ok().as_deref(),
        Some(value),
    )?;
    let ran = check_run
        .open()?
        .sh("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; echo over")?;
    expect_equal("the command ran to its end", ran.text().ends_with("over"), true)?;
    expect_equal("a variable of the caller is seen", ran.text().contains(value), false)
}

fn uid_and_gid_are_the_same_inside(check_run: &CheckRun<'_>) -> CheckResult {
    let owner = fs::metadata(check_run.fixture.workspace.as_path())
        .during("read the metadata of the workspace")?;
    check_run
        .open()?
        .sh("id -u; id -g; echo x > made; test -O made")?
        .expect_status(0)?
        .expect_output(&format!("{}\n{}", owner.uid(), owner.gid()))?;
    let made = fs::metadata(check_run.path("made").as_path())
        .during("read the metadata of a created file")?;
    expect_equal(
        "the owner of a created file",
        (made.uid(), made.gid()),
        (owner.uid(), owner.gid()),
    )
}

fn user_has_the_given_name(check_run: &CheckRun<'_>) -> CheckResult {
    check_run
        .open()?
        .sh("id -un")?
        .expect_status(0)?
        .expect_output(&check_run.fixture.user().user)
        .map(drop)
}
