//! The end of a session: with its agent, after an idle time, or on request.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::lock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

/// A session with background processes has an idle time this many times as long.
const WITH_BACKGROUND: u32 = 8;

/// The conditions under which a session ends by itself, and the number of its clients.
pub(super) struct Lifetime {
    /// The settings that all calls have in common, for the session of a conversation.
    signature: Option<String>,
    /// The idle time after which the session ends.
    idle: Option<Duration>,
    /// A pidfd of the agent, whose end ends the session.
    agent: Option<OwnedFd>,
    clients: Mutex<SessionClients>,
}

struct SessionClients {
    count: usize,
    /// The time when the last client left.
    since: Instant,
    is_ending: bool,
}

/// A client that is being served.
pub(super) struct ConnectedClient<'a>(&'a Lifetime);

impl Drop for ConnectedClient<'_> {
    fn drop(&mut self) {
        let mut clients = lock(&self.0.clients);
        clients.count -= 1;
        clients.since = Instant::now();
    }
}

impl Lifetime {
    /// Creates the lifetime of a session that only the user ends.
    pub(super) fn unbounded() -> Self {
        Self::new(None, None, None)
    }

    /// Creates the lifetime of a conversation's session: it ends with the agent, or when idle.
    pub(super) fn for_conversation(
        signature: String,
        idle: Duration,
        agent: Option<OwnedFd>,
    ) -> Self {
        Self::new(Some(signature), Some(idle), agent)
    }

    fn new(signature: Option<String>, idle: Option<Duration>, agent: Option<OwnedFd>) -> Self {
        let clients =
            Mutex::new(SessionClients { count: 0, since: Instant::now(), is_ending: false });
        Self { signature, idle, agent, clients }
    }

    /// True for the session of a conversation.
    pub(super) fn is_for_conversation(&self) -> bool {
        self.signature.is_some()
    }

    /// True if a call with this signature may run in the session.
    pub(super) fn accepts_signature(&self, signature: &str) -> bool {
        self.signature.as_deref() == Some(signature)
    }

    /// Counts a client; `None` if the session is about to end.
    pub(super) fn enter(&self) -> Option<ConnectedClient<'_>> {
        let mut clients = lock(&self.clients);
        if clients.is_ending {
            return None;
        }
        clients.count += 1;
        Some(ConnectedClient(self))
    }

    /// Refuses further clients.
    pub(super) fn end(&self) {
        lock(&self.clients).is_ending = true;
    }

    /// Waits for `long`, or until the agent has ended.
    pub(super) fn wait(&self, long: Duration) {
        let Some(agent) = &self.agent else { return thread::sleep(long) };
        let long = Timespec { tv_sec: long.as_secs() as i64, tv_nsec: long.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(agent, PollFlags::IN)], Some(&long));
    }

    /// True if the session must end; then it refuses further clients. `shell` returns the pid of
    /// its shell.
    pub(super) fn is_over(&self, shell: impl FnOnce() -> Option<i32>) -> bool {
        if self.agent.as_ref().is_some_and(has_ended) {
            self.end();
            return true;
        }
        let Some(idle) = self.idle else { return false };
        let is_idle = |clients: &SessionClients, idle: Duration| {
            clients.count == 0 && clients.since.elapsed() >= idle
        };
        if !is_idle(&lock(&self.clients), idle) {
            return false;
        }
        let idle =
            if has_background(shell()) { idle.saturating_mul(WITH_BACKGROUND) } else { idle };
        let mut clients = lock(&self.clients);
        clients.is_ending |= is_idle(&clients, idle);
        clients.is_ending
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&NOW)).is_ok_and(|ready| ready > 0)
}

/// True if processes other than init and the shell run in a sandbox of this server.
fn has_background(shell: Option<i32>) -> bool {
    let all: Vec<LifetimeFacts> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| LifetimeFacts::read(entry.file_name().to_str()?))
        .collect();
    let own = std::process::id() as i32;
    let is_descendant = |facts: &LifetimeFacts| {
        let mut parent = facts.parent;
        // Bounds the loop: a parent chain is no longer than the number of processes.
        for _ in 0..all.len() {
            if parent == own {
                return true;
            }
            let Some(above) = all.iter().find(|facts| facts.pid == parent) else { return false };
            parent = above.parent;
        }
        false
    };
    all.iter().any(|facts| facts.is_inside && Some(facts.pid) != shell && is_descendant(facts))
}

/// Facts about a process.
struct LifetimeFacts {
    pid: i32,
    parent: i32,
    /// True in a pid namespace below ours, except for its init.
    is_inside: bool,
}

impl LifetimeFacts {
    fn read(pid: &str) -> Option<LifetimeFacts> {
        let number = pid.parse().ok()?;
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let parent = field("PPid:")?.trim().parse().ok()?;
        let inner: Vec<&str> = field("NSpid:")?.split_whitespace().collect();
        let is_zombie = field("State:")?.trim_start().starts_with('Z');
        Some(LifetimeFacts {
            pid: number,
            parent,
            is_inside: !is_zombie && inner.len() > 1 && inner.last() != Some(&"1"),
        })
    }
}

/// The process of an agent, by its pid and its start time.
pub(super) struct AgentProcess {
    pid: i32,
    start: u64,
}

impl fmt::Display for AgentProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pid, self.start)
    }
}

/// Programs through which an agent runs a command, and which end with the command.
const LAUNCHERS: &[&str] = &[
    "ash",
    "bash",
    "busybox",
    "dash",
    "doas",
    "env",
    "fish",
    "ksh",
    "mksh",
    "nice",
    "nohup",
    "ringfence",
    "runuser",
    "script",
    "setpriv",
    "setsid",
    "sh",
    "stdbuf",
    "su",
    "sudo",
    "time",
    "timeout",
    "unbuffer",
    "xargs",
    "zsh",
];

impl AgentProcess {
    /// Finds the nearest ancestor that is neither a shell nor a launcher.
    pub(super) fn find_ancestor() -> Option<AgentProcess> {
        let mut pid = rustix::process::getppid()?.as_raw_nonzero().get();
        while pid > 1 {
            let stat = Stat::read(pid)?;
            if !LAUNCHERS.contains(&stat.program.as_str()) {
                return Some(AgentProcess { pid, start: stat.start });
            }
            pid = stat.parent;
        }
        None
    }

    pub(super) fn parse(text: &str) -> Option<AgentProcess> {
        let (pid, start) = text.split_once(':')?;
        Some(AgentProcess { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }

    /// Opens a pidfd; `None` if the kernel has none. Fails if the agent has ended, even if its pid
    /// was reused.
    pub(super) fn open(self) -> io::Result<Option<OwnedFd>> {
        let opened = Pid::from_raw(self.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match Stat::read(self.pid).filter(|stat| stat.start == self.start) {
            Some(_) => Ok(opened.and_then(Result::ok)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    program: String,
    parent: i32,
    start: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The program name may contain any character, even `)`.
        let (before, after) = text.rsplit_once(')')?;
        let program = before.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = after.split_whitespace().collect();
        Some(Stat {
            program,
            parent: fields.get(1)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_with_brackets_does_not_shift_fields() {
        let text = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.program.as_str(), stat.parent, stat.start), ("a) b (c", 3, 4711));
    }

    #[test]
    fn session_ends_only_while_it_has_no_client() {
        let lifetime = Lifetime::for_conversation("s".into(), Duration::ZERO, None);
        let client = lifetime.enter().unwrap();
        assert!(!lifetime.is_over(|| None));
        drop(client);
        assert!(lifetime.is_over(|| None) && lifetime.enter().is_none());
        assert!(!Lifetime::unbounded().is_over(|| None));
    }

    #[test]
    fn call_with_another_signature_is_not_served() {
        let lifetime = Lifetime::for_conversation("s".into(), Duration::ZERO, None);
        assert!(lifetime.accepts_signature("s") && !lifetime.accepts_signature("t"));
        assert!(!Lifetime::unbounded().accepts_signature(""));
    }
}
