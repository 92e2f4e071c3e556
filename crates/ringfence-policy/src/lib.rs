//! The policy model of ringfence: file format, resolution and decisions.
//!
//! A [`Policy`] is the content of a file. [`resolve()`] merges the files with the built-in rules
//! and makes every path absolute: [`Grants`]. [`Grants::decide`] decides about accesses.
//!
//! The crate is pure. It opens no file, reads no environment variable and no clock. Facts about the
//! machine come in as [`Facts`], so every decision can be tested on any machine, and the same input
//! always has the same result.
#![forbid(unsafe_code)]

pub mod agent;
mod amount;
pub mod builtin;
pub mod cargo_config;
pub mod change;
pub mod configure;
pub mod decide;
mod disguise;
mod display;
pub mod edit_entry;
pub mod environment;
pub mod error;
mod expand;
pub mod facts;
mod foreign;
pub mod front_matter;
pub mod glob;
pub mod grants;
pub mod import;
mod keys;
pub mod layer;
pub mod limit;
pub mod name_index;
pub mod network;
pub mod parse;
pub mod path;
pub mod policy;
pub mod presets;
pub mod propose;
mod provider_spec;
pub mod public_value;
pub mod render;
pub mod resolve;
pub mod schema;
#[cfg(test)]
mod testing;
pub mod tools;
pub mod tracked;

pub use agent::{AgentProgram, AgentSpec};
pub use cargo_config::{CargoConfigView, filter_cargo_config};
pub use change::{ChangeDirection, ChangeKind, PolicyChange, revise};
pub use decide::{Access, DecidingRule, Decision, ExplainLine, Verdict};
pub use disguise::{Disguise, Disguises};
pub use display::is_hidden;
pub use edit_entry::{PolicyEntryEdit, edit_policy_entry};
pub use environment::{EnvDecision, EnvReason, ValueCheck};
pub use error::{PolicyError, SourcePosition};
pub use expand::is_created_by_sandbox;
pub use facts::{Facts, Flags, GitLayout, GitRemote, Platform};
pub use foreign::ForeignTool;
pub use front_matter::FrontMatter;
pub use glob::{Glob, GlobCase, GlobError, NameMatch};
pub use grants::*;
pub use keys::nearest_word as nearest;
pub use layer::{PolicyLayer, check_cycle};
pub use limit::Limit;
pub use name_index::NameIndex;
pub use network::{
    CA_BUNDLE, ConnectRoute, HostDecision, HostName, HostNameError, HostPattern, HostReason,
    HostRule, HostRuleError, HostTarget, IpRange, ListedHost, OpenPorts, PROXY_PORT, PortEntry,
    RouteCheck, SecretRule, SniCheck, guarded_kind, remote_rules,
};
pub use parse::{parse, parse_bytes};
pub use path::AbsPath;
pub use policy::Policy;
pub use provider_spec::{ProviderOptions, ProviderSpec, ProviderSpecError};
pub use public_value::{
    are_public_urls, holds_secret, is_backup_name, is_cargo_config, is_host, is_public_url,
    looks_random, mentions_secret, redact_url, redact_urls,
};
pub use render::render;
pub use resolve::{resolve, resolve_to_inspect};
pub use schema::schema;
pub use tools::{AllowedTools, Tool, ToolRule, ToolRules};
pub use tracked::{TrackedFile, TrackedFiles, TrackedMode};
