//! Questions, logs, tenants and tokens of a service.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::RemoteOutput;
use super::skills::{input, list_of, text};
use super::url::{path, query};
use super::wire::{RequestBody, ServiceClient};
use crate::commands::log::LogTable;
use crate::commands::resolve_args::duration;
use crate::error::CliError;
use crate::output::{self, ColorMode, cell};

/// List questions that wait for an answer
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote asks")]
pub(super) struct RemoteAsksArgs {}

pub(super) fn asks(service: &ServiceClient, shown: RemoteOutput) -> Result<(), CliError> {
    let listed = service.get(&path(&["v1", "asks"]))?;
    if shown == RemoteOutput::AsJson {
        return output::json(&listed);
    }
    for ask in list_of(&listed, "asks") {
        let options =
            list_of(ask, "options").filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        output::text(&format!(
            "{}  {}  {}\n  {options}\n",
            text(ask, "id"),
            text(ask, "userId"),
            text(ask, "reason")
        ))?;
    }
    Ok(())
}

/// Answer a question
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote answer 0198c… allow_once")]
pub(super) struct RemoteAnswerArgs {
    /// Which, as `asks` tells it
    #[arg(value_name = "ID")]
    id: String,
    /// What is said to it
    #[arg(value_name = "ANSWER", value_parser = ["allow_once", "allow_session", "allow_permanent", "deny"])]
    answer: String,
}

pub(super) fn answer(
    service: &ServiceClient,
    arguments: &RemoteAnswerArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let said = json!({ "answer": arguments.answer });
    let heard =
        service.json("POST", &path(&["v1", "asks", &arguments.id]), &RequestBody::Json(&said))?;
    if shown == RemoteOutput::AsJson { output::json(&heard) } else { Ok(()) }
}

/// Read the audit log of a tenant
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote log alice --blocked-only")]
pub(super) struct RemoteLogArgs {
    /// The tenant [default: the token's own, or the service's own log]
    #[arg(value_name = "USER")]
    user: Option<String>,
    /// Only what was refused
    #[arg(long)]
    blocked_only: bool,
    /// How many at most, the newest of all
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,
}

pub(super) fn log(
    service: &ServiceClient,
    arguments: &RemoteLogArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let choices = [
        ("userId", arguments.user.clone()),
        ("blocked", arguments.blocked_only.then(|| "true".to_owned())),
        ("limit", arguments.limit.map(|limit| limit.to_string())),
    ];
    let read = service.get(&(path(&["v1", "audit"]) + &query(&choices)))?;
    let mut table = LogTable::new(None, ColorMode::for_stdout());
    for record in list_of(&read, "records") {
        match (shown, record.as_object()) {
            (RemoteOutput::ForPeople, Some(record)) => output::text(&table.row(record))?,
            _ => output::json(record)?,
        }
    }
    Ok(())
}

/// List tenants, and how much each has
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote tenants")]
pub(super) struct RemoteTenantsArgs {}

pub(super) fn tenants(service: &ServiceClient, shown: RemoteOutput) -> Result<(), CliError> {
    let listed = service.get(&path(&["v1", "tenants"]))?;
    if shown == RemoteOutput::AsJson {
        return output::json(&listed);
    }
    for tenant in list_of(&listed, "tenants") {
        let number = |name: &str| tenant[name].as_u64().unwrap_or_default();
        let row = format!(
            "{:>4} skills  {:>12} bytes  {:>4} running",
            number("skills"),
            number("bytes"),
            number("running")
        );
        output::text(&format!("{}  {row}\n", cell(&text(tenant, "userId"), 24)))?;
    }
    Ok(())
}

/// Make, list and revoke tokens
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote token new --user alice --scope skills:read --scope execute --expires 24h
  ringfence remote token revoke 4f0c1d2e3a5b")]
pub(super) struct TokenCommand {
    #[command(subcommand)]
    command: TokenSub,
}

#[derive(Debug, Subcommand)]
enum TokenSub {
    /// Make a token, and print it this once
    #[command(
        after_help = "Examples:\n  ringfence remote token new --user alice --scope skills:read --scope execute --expires 24h"
    )]
    New {
        /// The only tenant it is for
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// What it lets its holder do
        #[arg(long, value_name = "SCOPE", required = true)]
        #[arg(value_parser = ["skills:read", "skills:write", "execute", "sandboxes", "asks", "audit", "admin"])]
        scope: Vec<String>,
        /// Words for people
        #[arg(long, value_name = "TEXT", default_value = "")]
        label: String,
        /// After how long it is worth nothing
        #[arg(long, value_name = "DURATION")]
        expires: Option<String>,
    },
    /// List tokens, without their words
    #[command(after_help = "Examples:\n  ringfence remote token list")]
    List,
    /// Make a token worth nothing
    #[command(after_help = "Examples:\n  ringfence remote token revoke 998989812a58")]
    Revoke {
        /// Which, as `list` tells it
        #[arg(value_name = "ID")]
        id: String,
    },
}

pub(super) fn token(
    service: &ServiceClient,
    arguments: TokenCommand,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let tokens = path(&["v1", "tokens"]);
    match arguments.command {
        TokenSub::New { user, scope, label, expires } => {
            let mut new = json!({ "scopes": scope, "label": label });
            if let Some(user) = user {
                new["userId"] = user.into();
            }
            if let Some(expires) = expires {
                new["expiresIn"] = duration(&expires)?.div_ceil(1000).into();
            }
            let made = service.json("POST", &tokens, &RequestBody::Json(&new))?;
            match shown {
                RemoteOutput::AsJson => output::json(&made),
                RemoteOutput::ForPeople => output::text(&format!("{}\n", text(&made, "token"))),
            }
        }
        TokenSub::List => {
            let listed = service.get(&tokens)?;
            if shown == RemoteOutput::AsJson {
                return output::json(&listed);
            }
            for token in list_of(&listed, "tokens") {
                let scopes = list_of(token, "scopes")
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(" ");
                let columns = [cell(&text(token, "id"), 12), cell(&text(token, "userId"), 16)];
                output::text(&format!(
                    "{}  {scopes}  {}\n",
                    columns.join("  "),
                    text(token, "label")
                ))?;
            }
            Ok(())
        }
        TokenSub::Revoke { id } => {
            let revoked =
                service.json("DELETE", &(tokens + &path(&[&id])), &RequestBody::Nothing)?;
            if shown == RemoteOutput::AsJson { output::json(&revoked) } else { Ok(()) }
        }
    }
}

/// Read and set the policy of a tenant
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote policy get alice
  ringfence remote policy set alice < policy.toml")]
pub(super) struct RemotePolicyCommand {
    #[command(subcommand)]
    command: PolicySub,
}

#[derive(Debug, Subcommand)]
enum PolicySub {
    /// Print it
    #[command(after_help = "Examples:\n  ringfence remote policy get alice")]
    Get {
        /// The tenant
        #[arg(value_name = "USER")]
        user: String,
    },
    /// Set it to what comes on standard input
    #[command(after_help = "Examples:\n  ringfence remote policy set alice < policy.toml")]
    Set {
        /// The tenant
        #[arg(value_name = "USER")]
        user: String,
    },
}

pub(super) fn policy(
    service: &ServiceClient,
    arguments: RemotePolicyCommand,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let of = |user: &str| path(&["v1", "tenants", user, "policy"]);
    let (held, is_asked) = match arguments.command {
        PolicySub::Get { user } => (service.get(&of(&user))?, true),
        PolicySub::Set { user } => (
            service.json("PUT", &of(&user), &RequestBody::Json(&json!({ "policy": input()? })))?,
            false,
        ),
    };
    match shown {
        RemoteOutput::AsJson => output::json(&held),
        RemoteOutput::ForPeople if is_asked => {
            output::text(held["policy"].as_str().unwrap_or_default())
        }
        RemoteOutput::ForPeople => Ok(()),
    }
}

/// Show how much a tenant may use, or change it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote quotas alice
  ringfence remote quotas alice --executions 8 --storage-bytes 104857600")]
pub(super) struct RemoteQuotasArgs {
    /// The tenant
    #[arg(value_name = "USER")]
    user: String,
    /// Commands that run at the same time
    #[arg(long, value_name = "NUMBER")]
    executions: Option<u32>,
    /// Sandboxes that stand at the same time
    #[arg(long, value_name = "NUMBER")]
    sandboxes: Option<u32>,
    /// Bytes that all skills together may have
    #[arg(long, value_name = "NUMBER")]
    storage_bytes: Option<u64>,
    /// Requests in a second, of each token
    #[arg(long, value_name = "NUMBER")]
    requests_per_second: Option<u32>,
}

pub(super) fn quotas(
    service: &ServiceClient,
    arguments: &RemoteQuotasArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let tenant = path(&["v1", "tenants", &arguments.user]);
    let mut quotas = service.get(&tenant)?["quotas"].take();
    let before = quotas.clone();
    let said = [
        ("executions", arguments.executions.map(u64::from)),
        ("sandboxes", arguments.sandboxes.map(u64::from)),
        ("storageBytes", arguments.storage_bytes),
        ("requestsPerSecond", arguments.requests_per_second.map(u64::from)),
    ];
    for (name, value) in said {
        if let Some(value) = value {
            quotas[name] = value.into();
        }
    }
    if quotas != before {
        quotas = service.json("PUT", &(tenant + "/quotas"), &RequestBody::Json(&quotas))?;
    }
    if shown == RemoteOutput::AsJson {
        return output::json(&quotas);
    }
    for (name, value) in quotas.as_object().into_iter().flatten() {
        output::text(&format!("{}  {value}\n", cell(name, 18)))?;
    }
    Ok(())
}
