//! Resolves names with the host's resolver.
//!
//! The binary is linked statically against glibc. Since 2.34 glibc has the services `files`
//! (`/etc/hosts`) and `dns` (`/etc/resolv.conf`) built in, and only these are used here: any other
//! would load modules of the host, with a second C library of another version, into this process.
//! If `/etc/nsswitch.conf` names more (`resolve`, `mymachines`, `mdns4_minimal`, `ldap`), ringfence
//! runs the host's `getent`.

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
pub trait NameResolver: Send + Sync {
    /// The addresses of `name`, in the order to try them; never empty.
    fn resolve(&self, name: &str, patience: &DialPatience<'_>)
    -> Result<Vec<IpAddr>, ResolveError>;
}

/// Reason for a failed lookup.
#[derive(Debug)]
pub enum ResolveError {
    /// Unknown name, or a failed resolver.
    Unknown(Option<io::Error>),
    /// Timed out.
    Late,
    /// Too many lookups are waiting.
    Crowded,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::Unknown(Some(error)) => write!(out, "the name has no address: {error}"),
            ResolveError::Unknown(None) => out.write_str("the name has no address"),
            ResolveError::Late => out.write_str("name lookup timed out"),
            ResolveError::Crowded => out.write_str("too many name lookups at once"),
        }
    }
}

/// Maximum of concurrent lookups: each has a thread, which glibc blocks until all servers were
/// tried.
const LOOKUPS: usize = 512;
/// Paths of the host's `getent`; not searched in `PATH`, which others can set.
const GETENT: &[&str] = &["/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"];
const NSSWITCH: &str = "/etc/nsswitch.conf";
const HOSTS: &str = "/etc/hosts";

/// Resolver of the host.
#[derive(Debug, Clone, Default)]
pub struct HostResolver {
    waiting: Arc<AtomicUsize>,
}

impl NameResolver for HostResolver {
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
            // The send fails if the caller gave up.
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
    let name = &fully_qualified(name, &std::fs::read_to_string(HOSTS).unwrap_or_default());
    let switch = std::fs::read_to_string(NSSWITCH).unwrap_or_default();
    let getent = GETENT.iter().map(Path::new).find(|path| path.exists());
    let addresses = match getent {
        Some(getent) if !is_built_in(&switch) => ask_getent(getent, name, limit)?,
        _ => ask_library(name)?,
    };
    if addresses.is_empty() { Err(ResolveError::Unknown(None)) } else { Ok(addresses) }
}

/// The name for a DNS query: with a final dot, so that no `search` domain is appended and another
/// host answers. A single-label name stays as it is, since it needs a search domain; so does a name
/// in `/etc/hosts`, where names have no final dot.
fn fully_qualified(name: &str, hosts: &str) -> String {
    let lines = hosts.lines().map(|line| line.split('#').next().unwrap_or_default());
    let is_listed = lines
        .flat_map(|line| line.split_whitespace().skip(1))
        .any(|listed| listed.eq_ignore_ascii_case(name));
    let is_whole = !name.contains('.') || name.ends_with('.') || name.parse::<IpAddr>().is_ok();
    if is_listed || is_whole { name.to_owned() } else { format!("{name}.") }
}

/// True if glibc has every service that `switch` names for hosts built in. Without an entry, the
/// default is `files dns`.
fn is_built_in(switch: &str) -> bool {
    let lines = switch.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let hosts =
        lines.filter_map(|line| line.strip_prefix("hosts:")).next_back().unwrap_or_default();
    // Actions stand in brackets, perhaps with blanks.
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
        // On failure glibc reads `nsswitch.conf` itself.
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
    // Another thread may have reaped all children; the output counts.
    let _ = child.wait();
    let text = text?;
    Ok(in_order(text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok())))
}

/// Reads the output of `child` until it is closed.
fn read_until(child: &mut Child, end: Instant) -> Result<String, ResolveError> {
    let mut output = child.stdout.take().expect("stdout is piped");
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

/// The addresses without duplicates, in order.
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
    fn built_in_nss_services_are_recognized() {
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
            assert_eq!(fully_qualified(name, hosts), expect);
        }
    }

    #[test]
    fn hosts_file_is_used() {
        let found = HostResolver::default()
            .resolve("localhost", &DialPatience::until(Instant::now() + Duration::from_secs(10)))
            .unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
    }

    #[test]
    fn getent_and_glibc_agree() {
        let getent = GETENT
            .iter()
            .map(Path::new)
            .find(|path| path.exists())
            .expect("every glibc system has getent");
        let mut from_getent = ask_getent(getent, "localhost", Duration::from_secs(10)).unwrap();
        let mut own = ask_library("localhost").unwrap();
        from_getent.sort();
        own.sort();
        assert_eq!(from_getent, own);
        assert!(matches!(
            ask_getent(getent, "--help", Duration::from_secs(10)),
            Err(ResolveError::Unknown(None))
        ));
    }

    #[test]
    fn lookup_stops_at_its_limit() {
        // A silent program stands in for a silent resolver.
        let mut child =
            Command::new("/bin/sleep").arg("60").stdout(Stdio::piped()).spawn().unwrap();
        let late = read_until(&mut child, Instant::now() + Duration::from_millis(20));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(late, Err(ResolveError::Late)));
    }

    #[test]
    fn too_many_lookups_are_rejected() {
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
