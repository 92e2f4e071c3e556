//! `ringfence serve`

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ringfence_engine::gather_host_environment;
use ringfence_http::{Profile, ProviderFactory, Quotas, ServiceReady, ServiceSettings, serve};
use ringfence_linux::provider_factory;

use super::resolve_args::{canonical_directory, parse_duration_ms};
use crate::error::CliError;
use crate::{messages, output, providers};

/// The environment variable for the administrator's token; without it, one is generated.
const TOKEN: &str = "RINGFENCE_ADMIN_TOKEN";

/// Serve skills and sandboxes to many tenants over HTTP
///
/// Each command of a tenant runs in its own sandbox, without access to other tenants. The first
/// start generates an administrator token and prints it once; use it to create tenant tokens.
/// `GET /` serves a web interface, `/openapi.json` describes the API.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence serve
  RINGFENCE_ADMIN_TOKEN=$(openssl rand -hex 32) ringfence serve --data /srv/ringfence
  ringfence serve --listen 0.0.0.0:7420 --tls-cert cert.pem --tls-key key.pem --host skills.example.org
  curl -H \"Authorization: Bearer $TOKEN\" -F file=@skills.zip http://127.0.0.1:7420/v1/skills/alice/helper/upload

Exit status: 0 after SIGTERM or SIGINT, 125 if it cannot serve.")]
pub(crate) struct ServeArgs {
    /// Print the OpenAPI 3.1 description of the API, and exit
    #[arg(long, exclusive = true)]
    openapi: bool,
    /// The address to listen on; other machines require TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
    /// The data directory [default: `ringfence/service` in the state directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The policy that the first start writes: `sandbox` relies on the operating system only,
    /// `filesecbox` also has a program allow list and refuses some arguments [default: sandbox]
    #[arg(long, value_name = "PROFILE", value_enum)]
    profile: Option<Chosen>,
    /// A host name of the server, in addition to the loopback names
    #[arg(long, value_name = "NAME", value_parser = reached_name)]
    host: Vec<String>,
    /// An origin whose pages may use the API from a browser
    #[arg(long, value_name = "URL")]
    origin: Vec<String>,
    /// The certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The maximum number of concurrent commands, over all tenants
    #[arg(long, value_name = "NUMBER", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    at_once: u32,
    /// The time that running commands get to finish on shutdown
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    grace: String,
}

/// The policy of a new server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Chosen {
    Sandbox,
    Filesecbox,
}

pub(crate) fn run(arguments: ServeArgs) -> Result<ExitCode, CliError> {
    if arguments.openapi {
        let document = serde_json::to_string_pretty(ringfence_http::openapi()).expect("plain data");
        output::print_text(&format!("{document}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let admin_token = match std::env::var(TOKEN) {
        Ok(word) => Some(word),
        Err(std::env::VarError::NotPresent) => None,
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(CliError::Usage {
                what: format!("{TOKEN} is not valid UTF-8"),
                hint: format!("`unset {TOKEN}`"),
            });
        }
    };
    let data = match arguments.data {
        Some(data) => data,
        None => gather_host_environment(&canonical_directory(None)?)?
            .facts
            .state
            .join("service")
            .as_path()
            .to_owned(),
    };
    let settings = ServiceSettings {
        listen: arguments.listen,
        data: data.clone(),
        profile: arguments.profile.map(|profile| match profile {
            Chosen::Sandbox => Profile::Sandbox,
            Chosen::Filesecbox => Profile::Filesecbox,
        }),
        admin_token,
        hosts: arguments.host,
        origins: arguments.origin,
        tls: arguments.tls_cert.zip(arguments.tls_key),
        quotas: Quotas::default(),
        max_concurrent_commands: arguments.at_once as usize,
        bounds: ringfence_http::UploadBounds::default(),
        shutdown_grace: Duration::from_millis(parse_duration_ms(&arguments.grace)?),
    };
    let registry = providers::registry(provider_factory());
    let provider: ProviderFactory = Box::new(move || Box::new(registry.clone()));
    serve(settings, provider, |ready| print_notes(ready, &data))
        .map_err(|source| CliError::Serve { source: Box::new(source) })?;
    Ok(ExitCode::SUCCESS)
}

/// Parses a host name, or an address as written in a URL.
fn reached_name(word: &str) -> Result<String, String> {
    let address = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address = address.map_or_else(
        || word.parse::<Ipv4Addr>().is_ok(),
        |address| address.parse::<Ipv6Addr>().is_ok(),
    );
    match is_address || ringfence_policy::HostName::new(word).is_ok() {
        true => Ok(word.to_owned()),
        false => {
            Err("not a host name; use one without scheme and port, such as skills.example.org"
                .into())
        }
    }
}

fn print_notes(ready: &ServiceReady, data: &std::path::Path) {
    let scheme = if ready.is_secure { "https" } else { "http" };
    messages::print_note(&format!(
        "serving at {scheme}://{}, data in {}",
        ready.address,
        data.display()
    ));
    if let Some(token) = &ready.admin_token {
        messages::print_note(&format!("the administrator's token, printed only once: {token}"));
    }
    if ready.resumed > 0 {
        messages::print_note(&format!(
            "running {} commands that were queued when the previous server process ended",
            ready.resumed
        ));
    }
    if ready.lost_sandboxes > 0 {
        messages::print_warning(&format!(
            "{} sandboxes were lost when the previous server process ended",
            ready.lost_sandboxes
        ));
    }
    if ready.lost > 0 {
        messages::print_warning(&format!(
            "{} running commands were lost when the previous server process ended",
            ready.lost
        ));
    }
}
