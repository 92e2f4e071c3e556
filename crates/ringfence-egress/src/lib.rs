//! The way out of a sandbox whose network is shut but for what was allowed.
//!
//! The wall is a network namespace that has loopback only. Whatever leaves it is dialed here,
//! on the host's side, after somebody has decided about it (`Gate`): this crate knows how to
//! reach something, and nothing of why it may be reached.

#![forbid(unsafe_code)]

mod base64;
mod byte_reader;
pub mod dial;
pub mod dns;
pub mod fake_ip;
pub mod peek;
pub mod proxy;
pub mod relay;
pub mod tls_terminate;
