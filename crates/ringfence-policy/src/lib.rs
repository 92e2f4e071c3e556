//! The policy words of ringfence: what is written, what it means, what it decides.
//!
//! A [`Policy`] is what stands in a file. [`resolve()`]
//! lays the files over each other and over what is built in, and makes every path
//! absolute: [`Grants`]. [`Grants::decide`] answers questions about them.
//!
//! The crate is pure. It opens no file, reads no variable and knows no clock; what it
//! has to know of the machine comes in as [`Facts`], so that every answer
//! can be tested on any machine, and the same question always has the same answer.
#![forbid(unsafe_code)]

pub mod agent;
mod amount;
pub mod builtin;
pub mod change;
pub mod command;
pub mod configure;
pub mod decide;
mod disguise;
mod display;
pub mod edit_entry;
pub mod environment;
pub mod error;
mod expand;
pub mod facts;
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
pub mod public_value;
pub mod render;
pub mod resolve;
pub mod schema;
#[cfg(test)]
mod testing;
pub mod tools;
pub mod tracked;

pub use agent::{AgentProgram, AgentSpec};
pub use change::{ChangeDirection, ChangeKind, PolicyChange, revise};
pub use decide::{Access, DecidingRule, Decision, ExplainLine, Verdict};
pub use disguise::{Disguise, Disguises};
pub use display::is_hidden;
pub use edit_entry::{PolicyEntryEdit, edit_policy_entry};
pub use environment::{EnvDecision, EnvReason, ValueCheck};
pub use error::{PolicyError, SourcePosition};
pub use expand::is_sandboxes_own;
pub use facts::{Facts, Flags, GitLayout, Remote};
pub use front_matter::FrontMatter;
pub use glob::{Glob, GlobCase, GlobError, NameMatch};
pub use grants::*;
pub use keys::nearest_of as nearest;
pub use layer::{PolicyLayer, check_cycle};
pub use limit::Limit;
pub use name_index::NameIndex;
pub use network::{
    CA_BUNDLE, ConnectRoute, HostDecision, HostName, HostNameError, HostPattern, HostReason,
    HostRule, HostRuleError, HostTarget, IpRange, ListedHost, OpenPorts, PROXY_PORT, PortEntry,
    RouteCheck, SecretRule, SniCheck, guarded, remote_rules,
};
pub use parse::{parse, parse_bytes};
pub use path::AbsPath;
pub use policy::Policy;
pub use public_value::{are_public_urls, is_host, is_public_url, shown_url, shown_urls};
pub use render::render;
pub use resolve::{resolve, resolve_to_inspect};
pub use schema::schema;
pub use tools::{AllowedTools, Tool, ToolRule, ToolRules};
pub use tracked::{TrackedFile, TrackedFiles, TrackedMode};
