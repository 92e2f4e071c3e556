//! Addresses that stand for names.
//!
//! A program that looks up an allowed name gets addresses of this pool, and when it connects to
//! one of them it is known which name it means. The real addresses are found when somebody
//! dials, on the host's side; the program never sees them.
//!
//! Each name has a number, and the number is part of its two addresses. A number is never given
//! to a second name: a program may keep an address for as long as it runs, and what it was told
//! to be one host must not become another. So numbers run out after [`Pool::NUMBERS`] names, and
//! names that nobody has used for a while go before that, to keep the memory of it small. An
//! address whose name has gone means nothing any more, and a name for which there is no room has
//! no address: both fail closed.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_policy::HostName;

/// 198.18.0.0/15, set aside for measuring networks (RFC 2544) and routed nowhere.
const V4: u32 = 0xc612_0000;
/// fd72:696e:6766:6e63::/64, a unique local prefix (RFC 4193) of our own.
const V6: u128 = 0xfd72_696e_6766_6e63 << 64;
/// The first sixteen numbers are left for the namespace's own use.
const FIRST: u32 = 16;
/// The last of the /15 looks like a broadcast address.
const BEYOND: u32 = (1 << 17) - 1;

/// What a name was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeAddresses {
    /// For `A`.
    pub v4: Ipv4Addr,
    /// For `AAAA`.
    pub v6: Ipv6Addr,
}

/// The names of one sandbox and the addresses that stand for them.
#[derive(Debug, Default)]
pub struct FakeIpPool {
    book: Mutex<FakeIpTable>,
}

#[derive(Debug, Default)]
struct FakeIpTable {
    numbers: HashMap<Arc<HostName>, u32>,
    entries: HashMap<u32, FakeIpEntry>,
    /// Numbers in the order in which they were last used.
    order: BTreeMap<u64, u32>,
    turn: u64,
    /// How many numbers were ever given.
    given: u32,
}

#[derive(Debug)]
struct FakeIpEntry {
    name: Arc<HostName>,
    turn: u64,
    used: Instant,
}

impl FakeIpPool {
    /// What the sandbox's own loopback interface can have, so that programs see an address of each
    /// family there. It stands for no name.
    pub const OWN: FakeAddresses = addresses(1);
    /// How many names can be given addresses while a sandbox lives.
    pub const NUMBERS: u32 = BEYOND - FIRST;
    /// How many names are kept without asking how old they are.
    pub const KEPT: usize = 4096;
    /// How many names there are at most.
    pub const MOST: usize = 16_384;
    /// A name stays at least this long after it was last looked up or dialed. It is many times
    /// what programs are told to keep an address for.
    pub const STAYS: Duration = Duration::from_secs(600);

    /// A pool that has given nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The addresses of `name`, the same ones as before if it had some.
    ///
    /// Nothing if there is no room: every number was given, or there are [`Pool::MOST`] names
    /// that were all used within [`Pool::STAYS`].
    pub fn give(&self, name: &HostName, now: Instant) -> Option<FakeAddresses> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match book.numbers.get(name) {
            Some(number) => *number,
            None => book.enter(name, now)?,
        };
        book.touch(number, now);
        Some(addresses(number))
    }

    /// The name that a program means by `address`; nothing if it was never given one, or long ago.
    ///
    /// IPv4 that is wrapped into IPv6 (`::ffff:198.18.0.16`) is what it wraps.
    pub fn name_of(&self, address: IpAddr, now: Instant) -> Option<HostName> {
        let number = number(address)?;
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.touch(number, now);
        book.entries.get(&number).map(|entry| HostName::clone(&entry.name))
    }

    /// Whether `address` is the sandbox's own.
    pub fn is_own(address: IpAddr) -> bool {
        [IpAddr::V4(Self::OWN.v4), IpAddr::V6(Self::OWN.v6)].contains(&address)
    }

    /// Whether `address` is one of those that stand for names, be it given or not: it can mean no
    /// host by itself.
    pub fn covers(address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_bits() >> 17 == V4 >> 17,
            IpAddr::V6(v6) => v6.to_bits() >> 64 == V6 >> 64,
        }
    }
}

impl FakeIpTable {
    /// Gives `name` a number of its own, and lets the name go that was used longest ago.
    fn enter(&mut self, name: &HostName, now: Instant) -> Option<u32> {
        if self.given == FakeIpPool::NUMBERS {
            return None;
        }
        // Two for one that comes, so that what a flood has left behind becomes less.
        for _ in 0..2 {
            if self.entries.len() >= FakeIpPool::KEPT {
                self.release_oldest(now);
            }
        }
        if self.entries.len() >= FakeIpPool::MOST {
            return None;
        }
        let number = FIRST + self.given;
        self.given += 1;
        let name = Arc::new(name.clone());
        self.numbers.insert(name.clone(), number);
        // The turn is one that nobody has: the caller touches the entry at once.
        self.entries.insert(number, FakeIpEntry { name, turn: u64::MAX, used: now });
        Some(number)
    }

    /// Lets the name go that was used longest ago, if that is long enough.
    fn release_oldest(&mut self, now: Instant) {
        let Some(number) = self.order.first_key_value().map(|(_, number)| *number) else { return };
        let idle = self
            .entries
            .get(&number)
            .is_some_and(|entry| now.saturating_duration_since(entry.used) >= FakeIpPool::STAYS);
        if idle && let Some(entry) = self.entries.remove(&number) {
            self.order.remove(&entry.turn);
            self.numbers.remove(&entry.name);
        }
    }

    fn touch(&mut self, number: u32, now: Instant) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        self.order.remove(&entry.turn);
        self.turn += 1;
        (entry.turn, entry.used) = (self.turn, now);
        self.order.insert(self.turn, number);
    }
}

const fn addresses(number: u32) -> FakeAddresses {
    FakeAddresses {
        v4: Ipv4Addr::from_bits(V4 | number),
        v6: Ipv6Addr::from_bits(V6 | number as u128),
    }
}

/// The number in `address`, whether it was given or not.
fn number(address: IpAddr) -> Option<u32> {
    if !FakeIpPool::covers(address) {
        return None;
    }
    match address.to_canonical() {
        IpAddr::V4(v4) => Some(v4.to_bits() & !V4),
        // All 64 bits count: an address that differs anywhere is another one.
        IpAddr::V6(v6) => u32::try_from(v6.to_bits() & u128::from(u64::MAX)).ok(),
    }
}

#[cfg(test)]
mod tests;
