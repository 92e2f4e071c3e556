//! The end of a session: with its agent, after a time in which nothing ran, or when it is told.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

/// A session in which processes run in the background stands so many times as long.
const WITH_BACKGROUND: u32 = 8;

/// When a session ends by itself, and how many clients it has.
pub(super) struct Lifetime {
    /// All that calls have in common, where the session is that of a conversation.
    signature: Option<String>,
    /// How long it stands with no client.
    idle: Option<Duration>,
    /// The process that it ends with.
    agent: Option<OwnedFd>,
    clients: Mutex<Clients>,
}

struct Clients {
    count: usize,
    /// When the last one left.
    since: Instant,
    is_ending: bool,
}

/// A client that is being served.
pub(super) struct Client<'a>(&'a Lifetime);

impl Drop for Client<'_> {
    fn drop(&mut self) {
        let mut clients = self.0.lock();
        clients.count -= 1;
        clients.since = Instant::now();
    }
}

impl Lifetime {
    /// Until the user ends the session.
    pub(super) fn unbounded() -> Self {
        Self::new(None, None, None)
    }

    /// As long as the agent of a conversation lives, and calls come.
    pub(super) fn of_conversation(
        signature: String,
        idle: Duration,
        agent: Option<OwnedFd>,
    ) -> Self {
        Self::new(Some(signature), Some(idle), agent)
    }

    fn new(signature: Option<String>, idle: Option<Duration>, agent: Option<OwnedFd>) -> Self {
        let clients = Mutex::new(Clients { count: 0, since: Instant::now(), is_ending: false });
        Self { signature, idle, agent, clients }
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whether the session is that of a conversation.
    pub(super) fn is_of_conversation(&self) -> bool {
        self.signature.is_some()
    }

    /// Answers whether a call with this signature may run in the session.
    pub(super) fn serves(&self, signature: Option<&str>) -> bool {
        signature.is_some() && self.signature.as_deref() == signature
    }

    /// Counts a client; `None` if the session is about to end.
    pub(super) fn enter(&self) -> Option<Client<'_>> {
        let mut clients = self.lock();
        if clients.is_ending {
            return None;
        }
        clients.count += 1;
        Some(Client(self))
    }

    /// Lets no more clients in.
    pub(super) fn end(&self) {
        self.lock().is_ending = true;
    }

    /// Waits for `long`, or until the agent has ended.
    pub(super) fn wait(&self, long: Duration) {
        let Some(agent) = &self.agent else { return thread::sleep(long) };
        let long = Timespec { tv_sec: long.as_secs() as i64, tv_nsec: long.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(agent, PollFlags::IN)], Some(&long));
    }

    /// Answers whether the session is to end, and lets no more clients in if so. `shell` is the pid
    /// of its shell.
    pub(super) fn is_over(&self, shell: impl FnOnce() -> Option<i32>) -> bool {
        if self.agent.as_ref().is_some_and(has_ended) {
            self.end();
            return true;
        }
        let Some(idle) = self.idle else { return false };
        let is_idle = |clients: &Clients, idle: Duration| {
            clients.count == 0 && clients.since.elapsed() >= idle
        };
        if !is_idle(&self.lock(), idle) {
            return false;
        }
        let idle =
            if has_background(shell()) { idle.saturating_mul(WITH_BACKGROUND) } else { idle };
        let mut clients = self.lock();
        clients.is_ending |= is_idle(&clients, idle);
        clients.is_ending
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&NOW)).is_ok_and(|ready| ready > 0)
}

/// Answers whether processes run in a sandbox of ours beside its init and its shell.
fn has_background(shell: Option<i32>) -> bool {
    let all: Vec<Facts> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Facts::of(entry.file_name().to_str()?))
        .collect();
    let own = std::process::id() as i32;
    let is_ours = |facts: &Facts| {
        let mut parent = facts.parent;
        // A chain of parents is never longer than there are processes.
        for _ in 0..all.len() {
            if parent == own {
                return true;
            }
            let Some(above) = all.iter().find(|facts| facts.pid == parent) else { return false };
            parent = above.parent;
        }
        false
    };
    all.iter().any(|facts| facts.is_inside && Some(facts.pid) != shell && is_ours(facts))
}

/// Facts of a process.
struct Facts {
    pid: i32,
    parent: i32,
    /// It is in a pid namespace below ours, and not the init there.
    is_inside: bool,
}

impl Facts {
    fn of(pid: &str) -> Option<Facts> {
        let number = pid.parse().ok()?;
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let parent = field("PPid:")?.trim().parse().ok()?;
        let inner: Vec<&str> = field("NSpid:")?.split_whitespace().collect();
        let is_zombie = field("State:")?.trim_start().starts_with('Z');
        Some(Facts {
            pid: number,
            parent,
            is_inside: !is_zombie && inner.len() > 1 && inner.last() != Some(&"1"),
        })
    }
}

/// The process of an agent, by its pid and its start time.
pub(super) struct Agent {
    pid: i32,
    start: u64,
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pid, self.start)
    }
}

/// Programs that an agent runs a command by, and which end with the command.
const BETWEEN: &[&str] = &[
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

impl Agent {
    /// The nearest ancestor that is neither a shell nor a program that starts another one.
    pub(super) fn around_this_process() -> Option<Agent> {
        let mut pid = rustix::process::getppid()?.as_raw_nonzero().get();
        while pid > 1 {
            let stat = Stat::of(pid)?;
            if !BETWEEN.contains(&stat.program.as_str()) {
                return Some(Agent { pid, start: stat.start });
            }
            pid = stat.parent;
        }
        None
    }

    pub(super) fn parse(text: &str) -> Option<Agent> {
        let (pid, start) = text.split_once(':')?;
        Some(Agent { pid: pid.parse().ok()?, start: start.parse().ok()? })
    }

    /// A pidfd of it; `None` where the kernel has none. An error if it has ended, also if another
    /// process has its pid by now.
    pub(super) fn open(self) -> io::Result<Option<OwnedFd>> {
        let opened = Pid::from_raw(self.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match Stat::of(self.pid).filter(|stat| stat.start == self.start) {
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
    fn of(pid: i32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name may hold anything, also `)`.
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
    fn program_name_with_brackets_hides_no_field() {
        let text = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.program.as_str(), stat.parent, stat.start), ("a) b (c", 3, 4711));
    }

    #[test]
    fn session_ends_only_while_it_has_no_client() {
        let lifetime = Lifetime::of_conversation("s".into(), Duration::ZERO, None);
        let client = lifetime.enter().unwrap();
        assert!(!lifetime.is_over(|| None));
        drop(client);
        assert!(lifetime.is_over(|| None) && lifetime.enter().is_none());
        assert!(!Lifetime::unbounded().is_over(|| None));
    }

    #[test]
    fn call_with_another_signature_is_not_served() {
        let lifetime = Lifetime::of_conversation("s".into(), Duration::ZERO, None);
        assert!(
            lifetime.serves(Some("s")) && !lifetime.serves(Some("t")) && !lifetime.serves(None)
        );
        assert!(!Lifetime::unbounded().serves(None));
    }
}
