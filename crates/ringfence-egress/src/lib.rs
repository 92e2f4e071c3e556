//! Network egress for a sandbox: every outside connection is dialed here, after a decision.
//!
//! The sandbox's network namespace has only loopback. The host side dials each connection that
//! leaves it, after a gate (`DnsGate`, `ProxyHandler`) decided. This crate connects and relays; it
//! holds no policy.

#![forbid(unsafe_code)]

mod byte_reader;
pub mod dial;
pub mod dns;
pub mod fake_ip;
pub mod peek;
pub mod proxy;
pub mod relay;
pub mod tls_terminate;
