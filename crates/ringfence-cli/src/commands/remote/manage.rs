//! Questions, logs, tenants and tokens of a server.

use clap::{Args, Subcommand};
use ringfence_client::ServiceClient;
use serde_json::{Value, json};

use super::RemoteOutput;
use super::skills::{array_field, read_stdin, text_field};
use crate::commands::log::LogTable;
use crate::commands::resolve_args::parse_duration_ms;
use crate::error::CliError;
use crate::output::{self, ColorMode, fit_cell};

/// List questions that wait for an answer
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote asks")]
pub(super) struct RemoteAsksArgs {}

pub(super) fn asks(service: &ServiceClient, shown: RemoteOutput) -> Result<(), CliError> {
    let listed = service.get(&["v1", "asks"], &[])?;
    if shown == RemoteOutput::AsJson {
        return output::print_json(&listed);
    }
    for ask in array_field(&listed, "asks") {
        let options =
            array_field(ask, "options").filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        output::print_text(&format!(
            "{}  {}  {}\n  {options}\n",
            text_field(ask, "id"),
            text_field(ask, "userId"),
            text_field(ask, "reason")
        ))?;
    }
    Ok(())
}

/// Answer a question
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote answer 0198c… allow_once")]
pub(super) struct RemoteAnswerArgs {
    /// The id, as printed by `asks`
    #[arg(value_name = "ID")]
    id: String,
    /// The answer
    #[arg(value_name = "ANSWER", value_parser = ["allow_once", "allow_session", "allow_permanent", "deny"])]
    answer: String,
}

pub(super) fn answer(
    service: &ServiceClient,
    arguments: &RemoteAnswerArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let body = json!({ "answer": arguments.answer });
    let response = service.json("POST", &["v1", "asks", &arguments.id], &[], Some(&body))?;
    if shown == RemoteOutput::AsJson { output::print_json(&response) } else { Ok(()) }
}

/// Read the audit log of a tenant
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote log alice --blocked-only")]
pub(super) struct RemoteLogArgs {
    /// The tenant [default: the token's own, or the server's own log]
    #[arg(value_name = "USER")]
    user: Option<String>,
    /// Only denials
    #[arg(long)]
    blocked_only: bool,
    /// The maximum number of records, newest first
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,
}

pub(super) fn log(
    service: &ServiceClient,
    arguments: &RemoteLogArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let query = [
        ("userId", arguments.user.clone()),
        ("blocked", arguments.blocked_only.then(|| "true".to_owned())),
        ("limit", arguments.limit.map(|limit| limit.to_string())),
    ];
    let read = service.get(&["v1", "audit"], &query)?;
    let mut table = LogTable::new(None, ColorMode::for_stdout());
    for record in array_field(&read, "records") {
        match (shown, record.as_object()) {
            (RemoteOutput::ForPeople, Some(record)) => output::print_text(&table.row(record))?,
            _ => output::print_json(record)?,
        }
    }
    Ok(())
}

/// List tenants and their usage
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote tenants")]
pub(super) struct RemoteTenantsArgs {}

pub(super) fn tenants(service: &ServiceClient, shown: RemoteOutput) -> Result<(), CliError> {
    let listed = service.get(&["v1", "tenants"], &[])?;
    if shown == RemoteOutput::AsJson {
        return output::print_json(&listed);
    }
    for tenant in array_field(&listed, "tenants") {
        let number = |name: &str| tenant[name].as_u64().unwrap_or_default();
        let row = format!(
            "{:>4} skills  {:>12} bytes  {:>4} running",
            number("skills"),
            number("bytes"),
            number("running")
        );
        output::print_text(&format!("{}  {row}\n", fit_cell(&text_field(tenant, "userId"), 24)))?;
    }
    Ok(())
}

/// Create, list and revoke tokens
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
    /// Create a token, and print it once
    #[command(
        after_help = "Examples:\n  ringfence remote token new --user alice --scope skills:read --scope execute --expires 24h"
    )]
    New {
        /// Restrict the token to this tenant
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// The permissions of the token
        #[arg(long, value_name = "SCOPE", required = true)]
        #[arg(value_parser = ["skills:read", "skills:write", "execute", "sandboxes", "asks", "audit", "admin"])]
        scope: Vec<String>,
        /// A description
        #[arg(long, value_name = "TEXT", default_value = "")]
        label: String,
        /// The lifetime of the token
        #[arg(long, value_name = "DURATION")]
        expires: Option<String>,
    },
    /// List tokens, without their secrets
    #[command(after_help = "Examples:\n  ringfence remote token list")]
    List,
    /// Revoke a token
    #[command(after_help = "Examples:\n  ringfence remote token revoke 998989812a58")]
    Revoke {
        /// The id, as printed by `list`
        #[arg(value_name = "ID")]
        id: String,
    },
}

pub(super) fn token(
    service: &ServiceClient,
    arguments: TokenCommand,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    match arguments.command {
        TokenSub::New { user, scope, label, expires } => {
            let mut new = json!({ "scopes": scope, "label": label });
            if let Some(user) = user {
                new["userId"] = user.into();
            }
            if let Some(expires) = expires {
                new["expiresIn"] = parse_duration_ms(&expires)?.div_ceil(1000).into();
            }
            let made = service.json("POST", &["v1", "tokens"], &[], Some(&new))?;
            match shown {
                RemoteOutput::AsJson => output::print_json(&made),
                RemoteOutput::ForPeople => {
                    output::print_text(&format!("{}\n", text_field(&made, "token")))
                }
            }
        }
        TokenSub::List => {
            let listed = service.get(&["v1", "tokens"], &[])?;
            if shown == RemoteOutput::AsJson {
                return output::print_json(&listed);
            }
            for token in array_field(&listed, "tokens") {
                let scopes = array_field(token, "scopes")
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(" ");
                let columns = [
                    fit_cell(&text_field(token, "id"), 12),
                    fit_cell(&text_field(token, "userId"), 16),
                ];
                output::print_text(&format!(
                    "{}  {scopes}  {}\n",
                    columns.join("  "),
                    text_field(token, "label")
                ))?;
            }
            Ok(())
        }
        TokenSub::Revoke { id } => {
            let revoked = service.json("DELETE", &["v1", "tokens", &id], &[], None)?;
            if shown == RemoteOutput::AsJson { output::print_json(&revoked) } else { Ok(()) }
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
    /// Print the policy
    #[command(after_help = "Examples:\n  ringfence remote policy get alice")]
    Get {
        /// The tenant
        #[arg(value_name = "USER")]
        user: String,
    },
    /// Set the policy from standard input
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
    let (response, is_get) = match arguments.command {
        PolicySub::Get { user } => (service.get(&["v1", "tenants", &user, "policy"], &[])?, true),
        PolicySub::Set { user } => {
            let body = json!({ "policy": read_stdin()? });
            let path = ["v1", "tenants", &user, "policy"];
            (service.json("PUT", &path, &[], Some(&body))?, false)
        }
    };
    match shown {
        RemoteOutput::AsJson => output::print_json(&response),
        RemoteOutput::ForPeople if is_get => {
            output::print_text(response["policy"].as_str().unwrap_or_default())
        }
        RemoteOutput::ForPeople => Ok(()),
    }
}

/// Show or change the quotas of a tenant
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence remote quotas alice
  ringfence remote quotas alice --executions 8 --storage-bytes 104857600")]
pub(super) struct RemoteQuotasArgs {
    /// The tenant
    #[arg(value_name = "USER")]
    user: String,
    /// The maximum number of concurrent commands
    #[arg(long, value_name = "NUMBER")]
    executions: Option<u32>,
    /// The maximum number of concurrent sandboxes
    #[arg(long, value_name = "NUMBER")]
    sandboxes: Option<u32>,
    /// The maximum size of all skills together
    #[arg(long, value_name = "NUMBER")]
    storage_bytes: Option<u64>,
    /// The maximum number of requests per second and token
    #[arg(long, value_name = "NUMBER")]
    requests_per_second: Option<u32>,
}

pub(super) fn quotas(
    service: &ServiceClient,
    arguments: &RemoteQuotasArgs,
    shown: RemoteOutput,
) -> Result<(), CliError> {
    let mut quotas = service.get(&["v1", "tenants", &arguments.user], &[])?["quotas"].take();
    let before = quotas.clone();
    let changes = [
        ("executions", arguments.executions.map(u64::from)),
        ("sandboxes", arguments.sandboxes.map(u64::from)),
        ("storageBytes", arguments.storage_bytes),
        ("requestsPerSecond", arguments.requests_per_second.map(u64::from)),
    ];
    for (name, value) in changes {
        if let Some(value) = value {
            quotas[name] = value.into();
        }
    }
    if quotas != before {
        let path = ["v1", "tenants", &arguments.user, "quotas"];
        quotas = service.json("PUT", &path, &[], Some(&quotas))?;
    }
    if shown == RemoteOutput::AsJson {
        return output::print_json(&quotas);
    }
    for (name, value) in quotas.as_object().into_iter().flatten() {
        output::print_text(&format!("{}  {value}\n", fit_cell(name, 18)))?;
    }
    Ok(())
}
