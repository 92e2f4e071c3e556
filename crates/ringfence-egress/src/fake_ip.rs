//! Fake addresses that stand for host names.
//!
//! A program that looks up an allowed name gets addresses of this pool. When it connects to one,
//! ringfence knows the name it means, and the host side resolves the real addresses; the program
//! never sees them.
//!
//! Each name has a number, which is part of its two addresses. A number is never reused: a program
//! may keep an address as long as it runs, and it must not become another host. So the pool is
//! exhausted after [`FakeIpPool::MAX_NUMBERS`] names. Names that are unused for a while are evicted
//! earlier, to bound the memory. An evicted address resolves to nothing and a name without a free
//! number gets no address: both fail closed.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_policy::HostName;

/// 198.18.0.0/15, reserved for network benchmarks (RFC 2544) and not routed.
const V4: u32 = 0xc612_0000;
/// fd72:696e:6766:6e63::/64, a unique local prefix (RFC 4193) of ringfence.
const V6: u128 = 0xfd72_696e_6766_6e63 << 64;
/// The first sixteen numbers are reserved for the namespace itself.
const FIRST: u32 = 16;
/// The last address of the /15 looks like a broadcast address.
const BEYOND: u32 = (1 << 17) - 1;

/// Addresses of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeAddresses {
    /// For `A`.
    pub v4: Ipv4Addr,
    /// For `AAAA`.
    pub v6: Ipv6Addr,
}

/// Names of one sandbox and their fake addresses.
#[derive(Debug, Default)]
pub struct FakeIpPool {
    table: Mutex<FakeIpTable>,
}

#[derive(Debug, Default)]
struct FakeIpTable {
    numbers: HashMap<Arc<HostName>, u32>,
    entries: HashMap<u32, FakeIpEntry>,
    /// Numbers by time of last use.
    order: BTreeMap<u64, u32>,
    turn: u64,
    /// Count of numbers given so far.
    given: u32,
}

#[derive(Debug)]
struct FakeIpEntry {
    name: Arc<HostName>,
    turn: u64,
    used: Instant,
}

impl FakeIpPool {
    /// Addresses for the sandbox's loopback interface, so that programs see an address of each
    /// family there. They stand for no name.
    pub const OWN: FakeAddresses = addresses(1);
    /// Maximum of names per sandbox lifetime.
    pub const MAX_NUMBERS: u32 = BEYOND - FIRST;
    /// Names kept regardless of age.
    pub const KEPT_NAMES: usize = 4096;
    /// Maximum of names at once.
    pub const MAX_NAMES: usize = 16_384;
    /// Minimum time a name stays after its last lookup or connect. Many times the DNS TTL.
    pub const MIN_AGE: Duration = Duration::from_secs(600);

    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// The addresses of `name`, the same as before if it had some.
    ///
    /// `None` if every number was given, or if there are [`Self::MAX_NAMES`] names that were all used
    /// within [`Self::MIN_AGE`].
    pub fn addresses_for(&self, name: &HostName, now: Instant) -> Option<FakeAddresses> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match table.numbers.get(name) {
            Some(number) => *number,
            None => table.add_name(name, now)?,
        };
        table.touch(number, now);
        Some(addresses(number))
    }

    /// The name `address` stands for; `None` if it was never given or is evicted.
    ///
    /// Accepts IPv4-mapped IPv6 (`::ffff:198.18.0.16`).
    pub fn name_of(&self, address: IpAddr, now: Instant) -> Option<HostName> {
        let number = number(address)?;
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.touch(number, now);
        table.entries.get(&number).map(|entry| HostName::clone(&entry.name))
    }

    /// True if `address` is the sandbox's own.
    pub fn is_own(address: IpAddr) -> bool {
        [IpAddr::V4(Self::OWN.v4), IpAddr::V6(Self::OWN.v6)].contains(&address)
    }

    /// True if `address` is in the fake ranges, given or not: it is never a real host.
    pub fn is_fake(address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_bits() >> 17 == V4 >> 17,
            IpAddr::V6(v6) => v6.to_bits() >> 64 == V6 >> 64,
        }
    }
}

impl FakeIpTable {
    /// Gives `name` a number, and evicts the least recently used names.
    fn add_name(&mut self, name: &HostName, now: Instant) -> Option<u32> {
        if self.given == FakeIpPool::MAX_NUMBERS {
            return None;
        }
        // Evicts two per new name, so that the pool shrinks after a flood.
        for _ in 0..2 {
            if self.entries.len() >= FakeIpPool::KEPT_NAMES {
                self.evict_oldest(now);
            }
        }
        if self.entries.len() >= FakeIpPool::MAX_NAMES {
            return None;
        }
        let number = FIRST + self.given;
        self.given += 1;
        let name = Arc::new(name.clone());
        self.numbers.insert(name.clone(), number);
        // An unused turn: the caller touches the entry at once.
        self.entries.insert(number, FakeIpEntry { name, turn: u64::MAX, used: now });
        Some(number)
    }

    /// Evicts the least recently used name, if it is idle long enough.
    fn evict_oldest(&mut self, now: Instant) {
        let Some(number) = self.order.first_key_value().map(|(_, number)| *number) else { return };
        let idle = self
            .entries
            .get(&number)
            .is_some_and(|entry| now.saturating_duration_since(entry.used) >= FakeIpPool::MIN_AGE);
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

/// The number in `address`, given or not.
fn number(address: IpAddr) -> Option<u32> {
    if !FakeIpPool::is_fake(address) {
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
