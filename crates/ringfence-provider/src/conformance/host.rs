//! What a command reaches of the host beside its files.

use std::env;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use super::trial::{CheckRun, CheckSession, CheckStep, differs, same};
use super::{CheckResult, ConformanceCheck, VARIABLE};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck::running("loopback_works_inside", loopback_works_inside),
    ConformanceCheck::confinement("the_network_is_shut", the_network_is_shut),
    ConformanceCheck::confinement(
        "processes_of_the_host_are_not_reached",
        processes_of_the_host_are_not_reached,
    ),
    ConformanceCheck::confinement(
        "variables_of_the_caller_are_not_seen",
        variables_of_the_caller_are_not_seen,
    ),
    ConformanceCheck::running(
        "the_user_inside_is_the_user_outside",
        the_user_inside_is_the_user_outside,
    ),
    ConformanceCheck::confinement("the_person_has_the_name_given", the_person_has_the_name_given),
];

/// Refused by an own loopback that is up: where there is none, the network is unreachable.
fn loopback_works_inside(trial: &CheckRun<'_>) -> CheckResult {
    let ran = trial.open()?.sh("bash -c 'exec 3<>/dev/tcp/127.0.0.1/1'")?;
    let is_refused = ran.talk().contains("Connection refused");
    if is_refused {
        Ok(())
    } else {
        Err(differs(
            "a connection to a port where nobody listens",
            "Connection refused",
            ran.talk(),
        ))
    }
}

fn the_network_is_shut(trial: &CheckRun<'_>) -> CheckResult {
    let ears = HostListeners::open().during("listen on the host's network")?;
    ears.call(&mut trial.open()?)?;
    same("what reached the host", ears.heard(), Vec::new())
}

/// Sockets of the host that hear who comes.
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
        // Nothing is sent: it is only found out from where it would be.
        let outward = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        if let Ok(SocketAddr::V4(own)) =
            outward.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).and_then(|()| outward.local_addr())
        {
            addresses.push(*own.ip());
        }
        Ok(Self { stream, datagram, addresses })
    }

    /// Calls them from inside, at every address of the host.
    pub(super) fn call(&self, session: &mut CheckSession<'_>) -> CheckResult {
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
            session.sh(&line)?.says("over")?;
        }
        Ok(())
    }

    /// Who came.
    pub(super) fn heard(&self) -> Vec<&'static str> {
        let stream = self.stream.accept().is_ok().then_some("a connection");
        let datagram = self.datagram.recv(&mut [0; 8]).is_ok().then_some("a datagram");
        stream.into_iter().chain(datagram).collect()
    }
}

/// A process of the host, ended when dropped.
struct HostProcess(Child);

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn processes_of_the_host_are_not_reached(trial: &CheckRun<'_>) -> CheckResult {
    let mark = format!("61.{}", std::process::id());
    let mut sleep = Command::new("sleep");
    sleep.arg(&mark).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bystander = HostProcess(sleep.spawn().during("start a process")?);
    let ran = trial.open()?.sh(&format!(
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -KILL {}; echo over",
        bystander.0.id()
    ))?;
    same("whether the command ran to its end", ran.text().ends_with("over"), true)?;
    same("whether a process of the host is seen", ran.text().contains(&mark), false)?;
    same(
        "how a process of the host ended that was to be killed",
        bystander.0.try_wait().during("look after a process")?,
        None,
    )
}

fn variables_of_the_caller_are_not_seen(trial: &CheckRun<'_>) -> CheckResult {
    let (name, value) = VARIABLE;
    same(format!("the runner's own variable {name}"), env::var(name).ok().as_deref(), Some(value))?;
    let ran = trial
        .open()?
        .sh("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; echo over")?;
    same("whether the command ran to its end", ran.text().ends_with("over"), true)?;
    same("whether a variable of the caller is seen", ran.text().contains(value), false)
}

fn the_user_inside_is_the_user_outside(trial: &CheckRun<'_>) -> CheckResult {
    let owner = fs::metadata(trial.place.workspace.as_path()).during("look at the workspace")?;
    trial.open()?.sh("id -u; id -g; echo x > made; test -O made")?.ends(0)?.says(&format!(
        "{}\n{}",
        owner.uid(),
        owner.gid()
    ))?;
    let made = fs::metadata(trial.at("made").as_path()).during("look at what was made")?;
    same("who owns what was made", (made.uid(), made.gid()), (owner.uid(), owner.gid()))
}

fn the_person_has_the_name_given(trial: &CheckRun<'_>) -> CheckResult {
    trial.open()?.sh("id -un")?.ends(0)?.says(&trial.place.person().user).map(drop)
}
