//! Names to addresses, by the host's own resolver.
//!
//! The binary is linked statically against the GNU C library. That has the services `files`
//! (`/etc/hosts`) and `dns` (`/etc/resolv.conf`) in it since 2.34, and asks no other here: for
//! any other one it would load modules of the host, with a second C library of whatever version
//! the host has, into a process that was not made for it. Where `/etc/nsswitch.conf` names more
//! (`resolve`, `mymachines`, `mdns4_minimal`, `ldap`), the host's `getent` is asked, which is
//! linked as the host wants it.

use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use super::DialPatience;

/// Turns names into addresses.
pub trait Resolve: Send + Sync {
    /// The addresses of `name`, in the order in which they should be tried; never an empty list.
    fn resolve(&self, name: &str, patience: &DialPatience<'_>)
    -> Result<Vec<IpAddr>, ResolveError>;
}

/// Why a name has no address.
#[derive(Debug)]
pub enum ResolveError {
    /// Nobody knows it, or whoever was asked failed.
    Unknown(Option<io::Error>),
    /// Nobody answered in time.
    Late,
    /// So many lookups wait already that another one is not begun.
    Crowded,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::Unknown(Some(error)) => write!(out, "the name has no address: {error}"),
            ResolveError::Unknown(None) => out.write_str("the name has no address"),
            ResolveError::Late => out.write_str("nobody said in time which address the name has"),
            ResolveError::Crowded => out.write_str("too many names are being looked up"),
        }
    }
}

/// Lookups that may wait at the same time: each has a thread, which the C library gives up only
/// when all servers were tried.
const LOOKUPS: usize = 512;
/// Where the host's `getent` may be; never looked for by `PATH`, which others can set.
const GETENT: &[&str] = &["/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"];
const NSSWITCH: &str = "/etc/nsswitch.conf";
const HOSTS: &str = "/etc/hosts";

/// The host's resolver.
#[derive(Debug, Clone, Default)]
pub struct HostResolver {
    waiting: Arc<AtomicUsize>,
}

impl Resolve for HostResolver {
    fn resolve(
        &self,
        name: &str,
        patience: &DialPatience<'_>,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= LOOKUPS {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(ResolveError::Crowded);
        }
        let (sender, receiver) = mpsc::channel();
        let (waiting, name, limit) = (Arc::clone(&self.waiting), name.to_owned(), patience.left());
        let began = thread::Builder::new().name("lookup".into()).spawn(move || {
            // Whoever asked may have given up: then nobody hears this.
            let _ = sender.send(look_up(&name, limit));
            waiting.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = began {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(ResolveError::Unknown(Some(error)));
        }
        loop {
            match receiver.recv_timeout(patience.step()) {
                Ok(found) => return found,
                Err(RecvTimeoutError::Timeout) if !patience.is_over() => {}
                Err(_) => return Err(ResolveError::Late),
            }
        }
    }
}

fn look_up(name: &str, limit: Duration) -> Result<Vec<IpAddr>, ResolveError> {
    let name = &whole(name, &std::fs::read_to_string(HOSTS).unwrap_or_default());
    let switch = std::fs::read_to_string(NSSWITCH).unwrap_or_default();
    let getent = GETENT.iter().map(Path::new).find(|path| path.exists());
    let addresses = match getent {
        Some(getent) if !is_built_in(&switch) => ask_getent(getent, name, limit)?,
        _ => ask_library(name)?,
    };
    if addresses.is_empty() { Err(ResolveError::Unknown(None)) } else { Ok(addresses) }
}

/// A name as DNS is asked for it: with a dot at its end, so that no domain of a `search` line is
/// put behind it and another host answers. A name of one word means nothing without such a domain,
/// and the file with the host's own names (`hosts`) has none with a dot.
fn whole(name: &str, hosts: &str) -> String {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let is_listed = lines
        .flat_map(|line| line.split_whitespace().skip(1))
        .any(|listed| listed.eq_ignore_ascii_case(name));
    let is_whole = !name.contains('.') || name.ends_with('.') || name.parse::<IpAddr>().is_ok();
    if is_listed || is_whole { name.to_owned() } else { format!("{name}.") }
}

/// Whether every service that `switch` names for hosts is in the C library itself. Where none is
/// named, the library's own choice is `files dns`.
fn is_built_in(switch: &str) -> bool {
    let lines = switch.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let hosts =
        lines.filter_map(|line| line.strip_prefix("hosts:")).next_back().unwrap_or_default();
    // What is to be done on a result stands in brackets, perhaps with blanks.
    let mut depth = 0;
    let words: String = hosts
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '[') - i32::from(*c == ']');
            depth == 0 && *c != ']'
        })
        .collect();
    words.split_whitespace().all(|word| word == "files" || word == "dns")
}

fn ask_library(name: &str) -> Result<Vec<IpAddr>, ResolveError> {
    static CONFIGURED: Once = Once::new();
    CONFIGURED.call_once(|| {
        // Should it fail, the library reads the file itself: slower to be wrong, not wrong.
        let _ = ringfence_sys::names::configure_lookup(c"hosts", c"files dns");
    });
    let found = (name, 0).to_socket_addrs().map_err(|error| ResolveError::Unknown(Some(error)))?;
    Ok(in_order(found.map(|address: SocketAddr| address.ip())))
}

fn ask_getent(getent: &Path, name: &str, limit: Duration) -> Result<Vec<IpAddr>, ResolveError> {
    // It would be taken for an option.
    if name.starts_with('-') {
        return Err(ResolveError::Unknown(None));
    }
    let end = Instant::now() + limit;
    let command = Command::new(getent)
        .args(["ahosts", name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = command.map_err(|error| ResolveError::Unknown(Some(error)))?;
    let text = read_until(&mut child, end);
    if text.is_err() {
        let _ = child.kill();
    }
    // Somebody else may have waited for all children; what it wrote counts.
    let _ = child.wait();
    let text = text?;
    Ok(in_order(text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok())))
}

/// What `child` writes until it closes its output.
fn read_until(child: &mut Child, end: Instant) -> Result<String, ResolveError> {
    let mut output = child.stdout.take().expect("it was asked for");
    let mut text = Vec::new();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if !super::happy_eyeballs::wait_readable(&output, left)
            .map_err(|error| ResolveError::Unknown(Some(error)))?
        {
            return Err(ResolveError::Late);
        }
        let mut part = [0; 4096];
        match output.read(&mut part) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(count) => text.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ResolveError::Unknown(Some(error))),
        }
    }
}

/// The same addresses, each once.
fn in_order(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut kept: Vec<IpAddr> = Vec::new();
    for address in addresses {
        if !kept.contains(&address) {
            kept.push(address);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_services_are_told_from_built_in_ones() {
        for built_in in [
            "",
            "passwd: files ldap\n",
            "hosts: files dns",
            "hosts:\tdns [!UNAVAIL = return] files # resolve\n",
        ] {
            assert!(is_built_in(built_in), "{built_in:?}");
        }
        for foreign in [
            "hosts: files mdns4_minimal [NOTFOUND=return] dns",
            "# x\nhosts: mymachines resolve [!UNAVAIL=return] files\n",
        ] {
            assert!(!is_built_in(foreign), "{foreign:?}");
        }
    }

    #[test]
    fn search_domains_do_not_apply_to_names_with_a_dot() {
        let hosts = "127.0.0.1 localhost\n192.0.2.1 Listed.example # other.example\n";
        for (name, expect) in [
            ("a.example", "a.example."),
            ("a.example.", "a.example."),
            ("other.example", "other.example."),
            ("listed.example", "listed.example"),
            ("db", "db"),
            ("192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(whole(name, hosts), expect);
        }
    }

    #[test]
    fn the_hosts_file_is_asked() {
        let found = HostResolver::default()
            .resolve("localhost", &DialPatience::until(Instant::now() + Duration::from_secs(10)))
            .unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
    }

    #[test]
    fn getent_says_the_same() {
        let getent = GETENT
            .iter()
            .map(Path::new)
            .find(|path| path.exists())
            .expect("every system with the GNU C library has one");
        let mut asked = ask_getent(getent, "localhost", Duration::from_secs(10)).unwrap();
        let mut own = ask_library("localhost").unwrap();
        asked.sort();
        own.sort();
        assert_eq!(asked, own);
        assert!(matches!(
            ask_getent(getent, "--help", Duration::from_secs(10)),
            Err(ResolveError::Unknown(None))
        ));
    }

    #[test]
    fn nobody_waits_longer_than_the_limit() {
        // A program that never says anything stands in for a resolver that does not.
        let mut child =
            Command::new("/bin/sleep").arg("60").stdout(Stdio::piped()).spawn().unwrap();
        let late = read_until(&mut child, Instant::now() + Duration::from_millis(20));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(late, Err(ResolveError::Late)));
    }

    #[test]
    fn too_many_lookups_are_not_begun() {
        let resolver = HostResolver::default();
        resolver.waiting.store(LOOKUPS, Ordering::Relaxed);
        assert!(matches!(
            resolver.resolve(
                "localhost",
                &DialPatience::until(Instant::now() + Duration::from_secs(1))
            ),
            Err(ResolveError::Crowded)
        ));
        assert_eq!(resolver.waiting.load(Ordering::Relaxed), LOOKUPS);
    }
}
