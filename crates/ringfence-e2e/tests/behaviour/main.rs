//! The behaviour of commands inside the sandbox, end to end: one file per subject, run as root and
//! as an ordinary user.

mod absent_host;
mod agent_settings;
mod agents;
mod allow;
mod apart;
mod ask;
mod asking;
mod audit;
mod cache_command;
mod caches;
mod codex_commands;
mod commands;
mod configure;
mod corpus;
mod denied_line;
mod doors;
mod egress;
mod environment;
mod explain;
mod flood;
mod git;
mod git_config;
mod git_corpus;
mod git_filters;
mod git_ownership;
mod git_sessions;
mod git_submodules;
mod groups;
mod help_examples;
mod hidden;
mod hooks;
mod hosts;
mod imports;
mod init;
mod json;
mod kill;
mod landlock;
mod learn;
mod limits;
mod live;
mod log;
mod logging;
mod many;
mod names;
mod observe;
mod other_tools;
mod outside;
mod own_fault;
mod own_policy;
mod own_resolver;
mod package_settings;
mod planted_settings;
mod ports;
mod processes;
mod protect;
mod protocol;
mod providers;
mod recipes;
mod reported;
mod revised;
mod secrets;
mod sessions;
mod status;
mod terminal;
mod tool_calls;
mod tools;
mod tracked_files;
mod tripwire;
mod without_fuse;
mod work;

use ringfence_testkit::{TestProject, TestUser};

/// A fresh project with the binary under test.
fn project(user: TestUser) -> TestProject {
    TestProject::new(user, env!("CARGO_BIN_EXE_ringfence-e2e"))
}
